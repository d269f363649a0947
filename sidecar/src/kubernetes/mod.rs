//! What the sidecar says to Kubernetes about its pod. It has the pod's own ServiceAccount and needs no right: what it may not do,
//! it says once, and goes on.
//!
//! | module | does |
//! |---|---|
//! | `connection` | finds the API server, in the background |
//! | `events` | Events about the own pod |
//! | `aggregation` | few Events for many happenings; pure |
//! | `reason` | reasons and sentences; pure |
//! | `counters` | metrics |
//!
//! Nothing here is waited for: the sidecar starts, watches and stops the same whether the API server answers, refuses, hangs or
//! is not there.

mod aggregation;
mod connection;
mod counters;
mod events;
mod reason;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ackbeat_injection::variables;
use k8s_openapi::api::core::v1::ObjectReference;
use tracing::info;

pub use counters::{EventOutcome, KubernetesCounters};
pub use events::{Events, Publishing};
pub use reason::{NOTE_MAX_BYTES, Reason, degraded};

use crate::config::{AttemptChoice, KubernetesSettings};

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

/// What the sidecar says to Kubernetes.
#[derive(Debug, Default)]
pub struct Kubernetes {
    /// Who tells Events; `None` where there are none.
    pub events: Option<Events>,
    /// The task that publishes them.
    pub publishing: Option<Publishing>,
}

impl Kubernetes {
    /// Begins what the settings want and this process can do. It waits for nothing; a tokio runtime must be around it.
    #[must_use]
    pub fn start(settings: &KubernetesSettings, counters: &Arc<KubernetesCounters>) -> Self {
        let pod = OwnPod::from_variables(|name| {
            std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
        });
        let Some(pod) = pod.filter(|_| connection::is_there()) else {
            return Self::default();
        };
        let connection = connection::connect();
        let mut kubernetes = Self::default();
        if settings.events == AttemptChoice::Auto {
            let (events, publishing) =
                Events::start(connection, &pod, Arc::clone(counters), events::Pace::default());
            (kubernetes.events, kubernetes.publishing) = (Some(events), Some(publishing));
            info!(
                target: "ackbeat::kubernetes",
                namespace = pod.namespace,
                pod = pod.name,
                "Events are published about this pod, where its ServiceAccount may"
            );
        }
        kubernetes
    }
}
