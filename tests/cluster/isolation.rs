//! Two pods on one node.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::installed::{DEMO_NAMESPACE, HOSTS, Installed, POD_DEADLINE, SPAN_DEADLINE, of_resource, word};

/// Each sidecar tells of the connections of its own pod, and of no other.
pub(crate) fn two_pods_never_see_each_others_sockets(installed: &mut Installed) -> Result<()> {
    let kubectl = installed.node.kubectl();
    kubectl.run(&[
        "scale",
        "deployment",
        "--namespace",
        DEMO_NAMESPACE,
        "ackbeat-demo-host",
        "--replicas=2",
    ])?;
    kubectl.wait_for_rollout(DEMO_NAMESPACE, "ackbeat-demo-host", POD_DEADLINE)?;
    let pods = kubectl.pods(DEMO_NAMESPACE, HOSTS)?;
    ensure!(pods.len() == 2, "not two pods: {pods:?}");
    // The Service deals the clients that come back out among both.
    for pod in &pods {
        installed.span("a span of each pod", SPAN_DEADLINE * 2, |span| {
            of_resource(span, "k8s.pod.name") == pod && !word(span, "network.peer.port").is_empty()
        })?;
    }
    let spans = installed.spans();
    for pod in &pods {
        let log = kubectl.run(&["logs", "--namespace", DEMO_NAMESPACE, pod, "--container", "host"])?;
        // The host's own word on who came: `ADDRESS:PORT: connected`.
        let came: BTreeSet<&str> = log.lines().filter_map(|line| line.strip_suffix(": connected")).collect();
        let told: BTreeSet<String> = spans
            .iter()
            .filter(|span| {
                of_resource(span, "k8s.pod.name") == pod && word(span, "network.local.port") == "8080"
            })
            .filter(|span| span.parent_span_id.is_empty() && !word(span, "ackbeat.verdict").is_empty())
            .map(|span| format!("{}:{}", word(span, "network.peer.address"), word(span, "network.peer.port")))
            .collect();
        ensure!(!told.is_empty(), "nothing was told of {pod}");
        let strange: Vec<&String> = told.iter().filter(|peer| !came.contains(peer.as_str())).collect();
        ensure!(strange.is_empty(), "{pod} tells of {strange:?}, of whom its host knows nothing:\n{log}");
    }
    kubectl
        .run(&["scale", "deployment", "--namespace", DEMO_NAMESPACE, "ackbeat-demo-host", "--replicas=1"])
        .map(drop)
}
