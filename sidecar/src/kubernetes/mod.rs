//! What the sidecar says to Kubernetes about its pod, and what it hears of it and of its peers. It has the pod's own ServiceAccount and needs no right: what it may not do,
//! it says once, and goes on.
//!
//! | module | does |
//! |---|---|
//! | `connection` | finds the API server, in the background |
//! | `events` | Events about the own pod |
//! | `aggregation` | few Events for many happenings; pure |
//! | `peers` | who has which address |
//! | `own_pod` | whether the own pod is being deleted |
//! | `following` | a watch that is kept up |
//! | `reason` | reasons and sentences; pure |
//! | `counters` | metrics |
//!
//! Nothing here is waited for: the sidecar starts, watches and stops the same whether the API server answers, refuses, hangs or
//! is not there.

mod aggregation;
mod connection;
mod counters;
mod events;
mod following;
mod own_pod;
mod peers;
mod reason;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ackbeat_injection::variables;
use ackbeat_liveness::Input;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::mpsc;
use tracing::{info, warn};

use connection::Connection;
pub use counters::{EventOutcome, KubernetesCounters, PeerKind};
pub use events::{Events, Publishing};
use following::Patience;
pub use peers::{PeerName, Peers};
pub use reason::{NOTE_MAX_BYTES, Reason, degraded};

use crate::config::{AttemptChoice, KubernetesSettings, PeersChoice};

/// The pod that this is the sidecar of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPod {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its UID; `kubectl describe` shows only Events that have it.
    pub uid: Option<String>,
}

impl OwnPod {
    /// From the variables that the injection sets from the downward API; `None` where they are not there.
    #[must_use]
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let known = |name| lookup(name).filter(|value: &String| !value.is_empty());
        Some(Self {
            name: known(variables::POD_NAME)?,
            namespace: known(variables::POD_NAMESPACE)?,
            uid: known(variables::POD_UID),
        })
    }

    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            uid: self.uid.clone(),
            ..ObjectReference::default()
        }
    }
}

/// What the sidecar says to Kubernetes, and what it hears from it.
#[derive(Default)]
pub struct Kubernetes {
    /// Who tells Events; `None` where there are none.
    pub events: Option<Events>,
    /// The task that publishes them.
    pub publishing: Option<Publishing>,
    /// Who knows peers by their names; `None` where nobody does.
    pub peers: Option<Peers>,
    /// The own pod, where it is to be watched.
    own_pod: Option<(Connection, OwnPod)>,
}

impl Kubernetes {
    /// Begins what the settings want and this process can do. It waits for nothing; a tokio runtime must be around it.
    #[must_use]
    pub fn start(settings: &KubernetesSettings, counters: &Arc<KubernetesCounters>) -> Self {
        let pod = OwnPod::from_variables(|name| {
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        });
        let Some(pod) = pod.filter(|_| connection::is_there()) else {
            if settings.peers != PeersChoice::Off {
                warn!(
                    target: "ackbeat::kubernetes",
                    "kubernetes.peers is set, but no peer gets a name: the pod's name and namespace ({}, {}) or a ServiceAccount's \
                     token are missing",
                    variables::POD_NAME,
                    variables::POD_NAMESPACE
                );
            }
            return Self::default();
        };
        let connection = connection::connect();
        let mut kubernetes = Self::default();
        if settings.events == AttemptChoice::Auto {
            let (events, publishing) =
                Events::start(connection.clone(), &pod, Arc::clone(counters), events::Pace::default());
            (kubernetes.events, kubernetes.publishing) = (Some(events), Some(publishing));
        }
        if settings.peers != PeersChoice::Off {
            let is_everywhere = settings.peers == PeersChoice::Cluster;
            kubernetes.peers =
                Some(Peers::start(&connection, &pod, is_everywhere, counters, Patience::default()));
        }
        info!(
            target: "ackbeat::kubernetes",
            namespace = pod.namespace,
            pod = pod.name,
            events = settings.events.as_str(),
            peers = settings.peers.as_str(),
            own_pod = settings.own_pod.as_str(),
            "what the pod's ServiceAccount may, is used"
        );
        if settings.own_pod == AttemptChoice::Auto {
            kubernetes.own_pod = Some((connection, pod));
        }
        kubernetes
    }

    /// Begins to watch the own pod, where that is wanted. `report` is told when it is being deleted.
    pub fn watch_own_pod(&self, report: mpsc::Sender<Vec<Input>>) {
        if let Some((connection, pod)) = &self.own_pod {
            own_pod::watch(connection.clone(), pod.clone(), report, Patience::default());
        }
    }
}
