//! A pod that is deleted.

use std::time::{Duration, Instant};

use ackbeat_tests::journal::wait_every;
use anyhow::{Context as _, Result, ensure};

use crate::installed::{DEMO_NAMESPACE, HOSTS, Installed, POD_DEADLINE, SPAN_DEADLINE, of_resource, word};

/// For the way of a span to the receiver, and for a busy machine.
const SLACK: Duration = Duration::from_secs(5);

/// What the host closes because its pod ends is a planned restart, and is told before the pod is gone.
pub(crate) fn closes_of_a_deleted_pod_are_marked_and_told_in_time(installed: &mut Installed) -> Result<()> {
    let kubectl = installed.node.kubectl();
    let pods = kubectl.pods(DEMO_NAMESPACE, HOSTS)?;
    let pod = pods.first().context("the host has no pod")?.clone();
    // Somebody must be there whom the end of the host closes: the client that keeps up.
    kubectl.wait_for_log(DEMO_NAMESPACE, &pod, "host", ": connected", POD_DEADLINE)?;
    let object = kubectl.json(&["get", "pod", "--namespace", DEMO_NAMESPACE, &pod])?;
    let grace = object.pointer("/spec/terminationGracePeriodSeconds").and_then(serde_json::Value::as_u64);
    let grace = Duration::from_secs(grace.context("a pod has a grace period")?);
    let began = Instant::now();
    kubectl.run(&["delete", "pod", "--namespace", DEMO_NAMESPACE, &pod, "--wait=false"])?;
    let span = installed.span("a close that is marked as planned", SPAN_DEADLINE, |span| {
        of_resource(span, "k8s.pod.name") == pod && word(span, "ackbeat.close.kind") == "planned_restart"
    })?;
    ensure!(word(&span, "ackbeat.false_kill") != "true", "a planned restart is no kill: {span:?}");
    let told = began.elapsed();
    ensure!(told < grace + SLACK, "it was told after {told:?}, the grace period is {grace:?}");
    // The demo's host does not listen to SIGTERM: its container ends with the grace period, and not because of the sidecar.
    wait_every(Duration::from_millis(300), "the end of the pod", grace + POD_DEADLINE, || {
        let said = kubectl.try_with("kubectl", &["get", "pod", "--namespace", DEMO_NAMESPACE, &pod], "")?;
        Ok(!said.is_ok && said.stderr.contains("NotFound"))
    })?;
    Ok(())
}
