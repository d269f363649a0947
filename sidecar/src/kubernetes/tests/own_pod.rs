//! The deletion of the own pod.

use std::time::Duration;

use ackbeat_liveness::Input;
use axum::http::StatusCode;
use serde_json::json;
use tokio::sync::mpsc;

use super::server::{Answer, Server, own_pod, pod, until};
use crate::kubernetes::following::Patience;
use crate::kubernetes::own_pod::watch;

#[tokio::test]
async fn a_pod_that_is_being_deleted_is_a_host_that_was_told_to_stop() {
    let server = Server::start();
    let mut other = pod("shop", "web-1", "u-web-1", "10.1.0.6");
    other["metadata"]["deletionTimestamp"] = json!("2026-12-01T00:00:30Z");
    let mut own = pod("shop", "web-0", "u-web-0", "10.1.0.5");
    server.cluster.lock().pods = vec![other, own.clone()];
    let (report, mut reports) = mpsc::channel(4);
    watch(server.connection(), own_pod(), report, Patience::default());
    until("the watch", || server.cluster.lock().watches == 1).await;
    server.cluster.lock().change("MODIFIED", &own);
    // One of the same name that was there before.
    let mut before = own.clone();
    before["metadata"]["uid"] = json!("u-of-yesterday");
    before["metadata"]["deletionTimestamp"] = json!("2026-12-01T00:00:30Z");
    server.cluster.lock().change("DELETED", &before);
    server.cluster.lock().change("ADDED", &before);
    own["metadata"]["deletionTimestamp"] = json!("2026-12-01T00:00:30Z");
    own["metadata"]["labels"] = json!({"the": "one"});
    assert!(reports.try_recv().is_err());
    server.cluster.lock().change("MODIFIED", &own);
    let told = tokio::time::timeout(Duration::from_secs(60), reports.recv()).await.unwrap().unwrap();
    assert!(matches!(told[..], [Input::Terminating { process: None, .. }]), "{told:?}");
    server.cluster.lock().change("MODIFIED", &own);
    assert!(reports.try_recv().is_err(), "it is told once");
    let list = server.cluster.lock().lists.remove(0);
    assert!(list.contains("metadata.name%3Dweb-0"), "{list}");
}

#[tokio::test]
async fn without_the_right_nothing_is_told() {
    let server = Server::start();
    server.cluster.lock().answer = Answer::With(StatusCode::FORBIDDEN);
    let (report, mut reports) = mpsc::channel(4);
    let patience = Patience { refused: Duration::from_secs(3_600), ..Patience::default() };
    watch(server.connection(), own_pod(), report, patience);
    until("a refusal", || server.cluster.lock().requests == 1).await;
    assert!(reports.try_recv().is_err());
}
