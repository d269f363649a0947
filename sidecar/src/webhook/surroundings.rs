//! What the webhook knows of the cluster: namespaces by a watch, the server's version, the CronJob of a Job.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ackbeat_injection::{Facts, Namespace, Owner, ServerVersion};
use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace as ApiNamespace;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use parking_lot::Mutex;
use tracing::{info, warn};

/// A question to the API server while a pod waits.
const QUESTION_DEADLINE: Duration = Duration::from_secs(1);
/// How often the server is asked for its version: it may be upgraded.
const VERSION_EVERY: Duration = Duration::from_secs(300);
/// After it did not answer.
const VERSION_PAUSE: Duration = Duration::from_secs(2);

/// What is known of the cluster.
#[derive(Clone)]
pub(super) struct Surroundings {
    client: Client,
    namespaces: Store<ApiNamespace>,
    server: Arc<Mutex<Option<ServerVersion>>>,
    has_namespaces: Arc<AtomicBool>,
}

impl Surroundings {
    /// Begins to watch. It ends with the runtime.
    pub(super) fn watch(client: Client) -> Self {
        let (namespaces, writer) = reflector::store();
        let this = Self {
            client: client.clone(),
            namespaces,
            server: Arc::default(),
            has_namespaces: Arc::default(),
        };
        let watched = watcher(Api::<ApiNamespace>::all(client), watcher::Config::default()).default_backoff();
        let mut stream = reflector::reflector(writer, watched).boxed();
        tokio::spawn(async move {
            let mut is_told = false;
            while let Some(event) = stream.next().await {
                match event {
                    Ok(_) => is_told = false,
                    Err(error) if !is_told => {
                        warn!(%error, "namespaces cannot be watched; it is tried again (it needs get, list and watch of namespaces)");
                        is_told = true;
                    }
                    Err(_) => {}
                }
            }
        });
        let (store, has_namespaces) = (this.namespaces.clone(), Arc::clone(&this.has_namespaces));
        tokio::spawn(async move {
            if store.wait_until_ready().await.is_ok() {
                has_namespaces.store(true, Ordering::Relaxed);
            }
        });
        tokio::spawn(ask_version(this.client.clone(), Arc::clone(&this.server)));
        this
    }

    /// Whether the namespaces and the server's version are known.
    pub(super) fn is_ready(&self) -> bool {
        self.has_namespaces.load(Ordering::Relaxed) && self.server.lock().is_some()
    }

    /// What holds for every pod.
    pub(super) fn facts(&self) -> Facts {
        Facts { server: *self.server.lock(), ..Facts::default() }
    }

    /// A namespace; `None` where the API server does not tell in time.
    pub(super) async fn namespace(&self, name: &str) -> Option<Namespace> {
        if let Some(namespace) = self.namespaces.get(&ObjectRef::new(name)) {
            return Some(known(&namespace));
        }
        // It may be younger than the watch has heard.
        let api: Api<ApiNamespace> = Api::all(self.client.clone());
        let asked = tokio::time::timeout(QUESTION_DEADLINE, api.get_opt(name)).await;
        asked.ok()?.ok()?.map(|namespace| known(&namespace))
    }

    /// The CronJob that made a Job; `None` where none did, or nobody tells in time.
    pub(super) async fn cron_job_of(&self, namespace: &str, job: &str) -> Option<Owner> {
        let api: Api<Job> = Api::namespaced(self.client.clone(), namespace);
        let asked = tokio::time::timeout(QUESTION_DEADLINE, api.get_metadata_opt(job)).await;
        let job = asked.ok()?.ok()??;
        let owner = job.owner_references().iter().find(|owner| owner.controller == Some(true))?;
        Some(Owner { kind: owner.kind.clone(), name: owner.name.clone() })
    }
}

fn known(namespace: &ApiNamespace) -> Namespace {
    Namespace {
        name: namespace.name_any(),
        labels: namespace.labels().clone(),
        annotations: namespace.annotations().clone(),
    }
}

async fn ask_version(client: Client, server: Arc<Mutex<Option<ServerVersion>>>) {
    let mut is_told = false;
    loop {
        let pause = match client.apiserver_version().await {
            Ok(info) => {
                is_told = false;
                let version = ServerVersion::from_parts(&info.major, &info.minor);
                let before = std::mem::replace(&mut *server.lock(), version);
                if let Some(version) = version.filter(|_| before != version) {
                    info!(%version, "the API server's version");
                }
                VERSION_EVERY
            }
            Err(error) => {
                if !is_told {
                    warn!(%error, "the API server does not tell its version; it is asked again");
                    is_told = true;
                }
                VERSION_PAUSE
            }
        };
        tokio::time::sleep(pause).await;
    }
}
