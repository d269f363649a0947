//! `Injected` and `InjectionSkipped`, on the owner of the pod: nobody looks for an Event on a pod that does not exist yet.

use std::sync::Arc;

use ackbeat_injection::Outcome;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use tokio::sync::mpsc;
use tracing::warn;

use super::Counters;
use crate::inject::container_kind;

/// Events that wait to be published. What finds no room is dropped and counted: no pod waits for an Event.
const WAITING_MAX: usize = 256;
/// Longest text of an Event, in bytes.
const NOTE_MAX_BYTES: usize = 1_000;

/// Something to publish.
#[derive(Debug)]
pub(super) struct Notice {
    about: ObjectReference,
    is_warning: bool,
    reason: &'static str,
    note: String,
}

impl Notice {
    /// What there is to say of a pod; `None` where nobody asked for anything.
    pub(super) fn of(pod: &Value, namespace: &str, outcome: &Outcome, warnings: &[&str]) -> Option<Self> {
        let (is_warning, reason, mut note) = match outcome {
            Outcome::Injected { mode, is_native, .. } => {
                let kind = container_kind(*is_native);
                (false, "Injected", format!("sidecar ackbeat ({kind}, mode {})", mode.as_str()))
            }
            Outcome::Skipped(skip) => (true, "InjectionSkipped", format!("no sidecar ackbeat: {skip}")),
            Outcome::Updated { .. }
            | Outcome::Unchanged
            | Outcome::Removed { .. }
            | Outcome::NotWanted(_) => {
                return None;
            }
        };
        if matches!(outcome, Outcome::Injected { .. }) {
            for warning in warnings {
                note.push_str("; ");
                note.push_str(warning.trim_start_matches("ackbeat: "));
            }
        }
        while note.len() > NOTE_MAX_BYTES {
            note.pop();
        }
        let owner = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array).and_then(|owners| {
            owners.iter().find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))
        });
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let about = match owner {
            Some(owner) => ObjectReference {
                api_version: text(owner, "apiVersion"),
                kind: text(owner, "kind"),
                name: text(owner, "name"),
                uid: text(owner, "uid"),
                namespace: Some(namespace.to_owned()),
                ..ObjectReference::default()
            },
            None => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(pod.pointer("/metadata/name").and_then(Value::as_str)?.to_owned()),
                namespace: Some(namespace.to_owned()),
                ..ObjectReference::default()
            },
        };
        Some(Self { about, is_warning, reason, note })
    }
}

/// Whoever publishes.
#[derive(Clone)]
pub(super) struct Events {
    waiting: mpsc::Sender<Notice>,
    counters: Arc<Counters>,
}

impl Events {
    /// Begins. It ends with the runtime.
    pub(super) fn start(client: Client, counters: Arc<Counters>) -> Self {
        let (waiting, notices) = mpsc::channel(WAITING_MAX);
        tokio::spawn(publish_all(client, notices, Arc::clone(&counters)));
        Self { waiting, counters }
    }

    /// Publishes in the background.
    pub(super) fn publish(&self, notice: Notice) {
        if self.waiting.try_send(notice).is_err() {
            self.counters.event("dropped");
        }
    }
}

async fn publish_all(client: Client, mut notices: mpsc::Receiver<Notice>, counters: Arc<Counters>) {
    // It counts what is the same again in place of publishing it anew.
    let recorder = Recorder::new(client.clone(), Reporter::from("ackbeat.dev/injector"));
    let mut is_told = false;
    while let Some(notice) = notices.recv().await {
        let about = top_owner(&client, notice.about).await;
        let event = Event {
            type_: if notice.is_warning { EventType::Warning } else { EventType::Normal },
            reason: notice.reason.to_owned(),
            note: Some(notice.note),
            action: "Inject".to_owned(),
            secondary: None,
        };
        let outcome = match recorder.publish(&event, &about).await {
            Ok(()) => "published",
            Err(kube::Error::Api(status)) if status.code == 403 => {
                if !is_told {
                    warn!(
                        "no Events: {}; grant create and patch of events.k8s.io/events, or set --events=false",
                        status.message
                    );
                    is_told = true;
                }
                "refused"
            }
            Err(_) => "failed",
        };
        counters.event(outcome);
    }
}

/// Who owns the ReplicaSet or the Job: that is what people describe. Without the right to ask, it stays what it is.
async fn top_owner(client: &Client, about: ObjectReference) -> ObjectReference {
    let (Some(namespace), Some(name)) = (&about.namespace, &about.name) else { return about };
    let metadata = match about.kind.as_deref() {
        Some("ReplicaSet") => {
            let api: Api<ReplicaSet> = Api::namespaced(client.clone(), namespace);
            api.get_metadata(name).await.map(|object| object.owner_references().to_vec())
        }
        Some("Job") => {
            let api: Api<Job> = Api::namespaced(client.clone(), namespace);
            api.get_metadata(name).await.map(|object| object.owner_references().to_vec())
        }
        _ => return about,
    };
    let owners: Vec<OwnerReference> = metadata.unwrap_or_default();
    match owners.into_iter().find(|owner| owner.controller == Some(true)) {
        Some(owner) => ObjectReference {
            api_version: Some(owner.api_version),
            kind: Some(owner.kind),
            name: Some(owner.name),
            uid: Some(owner.uid),
            namespace: about.namespace,
            ..ObjectReference::default()
        },
        None => about,
    }
}
