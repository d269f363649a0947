//! Whether the own pod is being deleted: `deletionTimestamp` is there before anybody is told to stop, by as long as `preStop` hooks
//! take.

use std::time::Duration;

use ackbeat_liveness::Input;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher;
use kube::runtime::watcher::Event;
use kube::{Api, ResourceExt as _};
use tokio::sync::mpsc;
use tracing::info;

use super::OwnPod;
use super::connection::Connection;
use super::following::{Followed, Heard, Patience, follow};
use crate::driver::clock::{Clock as _, MonotonicClock};

/// The engine takes somebody who was told to stop to be stopping for ten minutes. A grace period may be longer.
const AGAIN: Duration = Duration::from_secs(300);

const DELETION: Followed = Followed {
    purpose: "watching for the deletion of this pod",
    right: "list and watch of pods (the chart's sidecarPeers.namespaces)",
    setting: "kubernetes.own_pod: off",
};

/// Watches the own pod, and tells `report` when it is being deleted. It ends with the runtime.
pub(super) fn watch(
    connection: Connection,
    pod: OwnPod,
    report: mpsc::Sender<Vec<Input>>,
    patience: Patience,
) {
    tokio::spawn(async move {
        let api: Api<PartialObjectMeta<Pod>> = Api::namespaced(connection.await, &pod.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", pod.name));
        let mut is_told = false;
        let take = move |heard: Heard<PartialObjectMeta<Pod>>| {
            let Heard::Event(Event::Apply(found) | Event::InitApply(found)) = heard else { return };
            // One of the same name may be there later.
            let is_own = pod.uid.is_none() || found.uid() == pod.uid;
            if is_own && found.metadata.deletion_timestamp.is_some() && !std::mem::replace(&mut is_told, true)
            {
                info!(
                    target: "ackbeat::kubernetes",
                    "this pod is being deleted: what the host closes from now on is a planned restart"
                );
                tokio::spawn(tell(report.clone()));
            }
        };
        follow(api, config, DELETION, patience, take).await;
    });
}

/// Tells it, and again now and then, as long as anybody listens.
async fn tell(report: mpsc::Sender<Vec<Input>>) {
    while report.send(vec![Input::Terminating { at: MonotonicClock.now(), process: None }]).await.is_ok() {
        tokio::time::sleep(AGAIN).await;
    }
}
