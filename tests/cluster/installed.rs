//! A node with ackbeat and its demo installed as README.md says, and somebody who takes the spans.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ackbeat_tests::cluster::{NODE_ADDRESS, Node, NodePart};
use ackbeat_tests::otlp_receiver::{OtlpPorts, OtlpReceiver, ReceivedSpan, untyped};
use ackbeat_tests::tools;
use anyhow::{Context as _, Result};

/// An image is there and a container starts within this time, on a busy machine too.
pub(crate) const POD_DEADLINE: Duration = Duration::from_secs(180);
/// The demo's host closes who missed two Pings; the span comes after the post-mortem.
pub(crate) const SPAN_DEADLINE: Duration = Duration::from_secs(120);
/// Where ackbeat is installed.
pub(crate) const OWN_NAMESPACE: &str = "ackbeat";
/// Where the demo runs, which is injected.
pub(crate) const DEMO_NAMESPACE: &str = "ackbeat-demo";
/// The demo's pods of one role.
pub(crate) const HOSTS: &str = "app.kubernetes.io/component=demo-host";
pub(crate) const SLOW_CLIENTS: &str = "app.kubernetes.io/component=demo-slow-client";
pub(crate) const FAST_CLIENTS: &str = "app.kubernetes.io/component=demo-fast-client";
/// Ports of the receiver, on the node.
const OTLP: OtlpPorts = OtlpPorts { grpc: 4_317, http: 4_318 };

/// All of it.
pub(crate) struct Installed {
    // Ends before the node.
    pub(crate) receiver: OtlpReceiver,
    pub(crate) node: Node,
}

/// The chart.
pub(crate) fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/ackbeat")
}

impl Installed {
    pub(crate) fn start() -> Result<Self> {
        let mut node = Node::start(NodePart::Whole)?;
        for image in ["ackbeat", "python"] {
            node.import(&tools::image(image)?)?;
        }
        let receiver = OtlpReceiver::start_at(node.namespace(), NODE_ADDRESS, OTLP)?;
        let chart = chart();
        let endpoint = format!("otlp.endpoint=http://{NODE_ADDRESS}:{}", OTLP.grpc);
        let kubectl = node.kubectl();
        kubectl.helm(&[
            "install",
            "ackbeat",
            &chart.to_string_lossy(),
            "--namespace",
            OWN_NAMESPACE,
            "--create-namespace",
            "--set",
            &endpoint,
            // The tests wait for what it is; users have it from a registry.
            "--set",
            "image.pullPolicy=Never",
            "--set",
            "injector.replicas=1,sidecar.peers=namespace",
        ])?;
        kubectl.wait_for_rollout(OWN_NAMESPACE, "ackbeat", POD_DEADLINE)?;
        // Its pods are to find the injector ready: it answers for nobody before.
        kubectl.helm(&[
            "upgrade",
            "ackbeat",
            &chart.to_string_lossy(),
            "--namespace",
            OWN_NAMESPACE,
            "--reuse-values",
            "--set",
            "demo.enabled=true,demo.image.repository=localhost/python,demo.image.pullPolicy=Never",
            "--set-string",
            "demo.image.tag=3",
            "--set",
            "demo.image.command={/usr/bin/python3.11},demo.pingIntervalMs=1000",
            "--set",
            &format!(
                "sidecarEvents.namespaces={{{DEMO_NAMESPACE}}},sidecarPeers.namespaces={{{DEMO_NAMESPACE}}}"
            ),
        ])?;
        let service =
            kubectl.json(&["get", "service", "--namespace", DEMO_NAMESPACE, "ackbeat-demo-host"])?;
        let address = service
            .pointer("/spec/clusterIP")
            .and_then(serde_json::Value::as_str)
            .context("the demo's Service has no address")?
            .to_owned();
        let name = format!("ackbeat-demo-host.{DEMO_NAMESPACE}");
        node.resolve(&[(name.clone(), address.clone()), (format!("{name}.svc.cluster.local"), address)])?;
        let kubectl = node.kubectl();
        for role in ["host", "slow-client", "fast-client"] {
            kubectl.wait_for_rollout(DEMO_NAMESPACE, &format!("ackbeat-demo-{role}"), POD_DEADLINE)?;
        }
        Ok(Self { receiver, node })
    }

    /// Waits for a span that `is_it`, with values without their types.
    pub(crate) fn span(
        &self,
        what: &str,
        deadline: Duration,
        mut is_it: impl FnMut(&ReceivedSpan) -> bool,
    ) -> Result<ReceivedSpan> {
        self.receiver.wait_for(what, deadline, |spans| spans.iter().map(plain).find(|span| is_it(span)))
    }

    /// The spans that came so far, with values without their types.
    pub(crate) fn spans(&self) -> Vec<ReceivedSpan> {
        self.receiver.spans().iter().map(plain).collect()
    }

    /// The only pod of the demo with these labels.
    pub(crate) fn only_pod(&self, selector: &str) -> Result<String> {
        let pods = self.node.kubectl().pods(DEMO_NAMESPACE, selector)?;
        let [pod] = pods.as_slice() else { anyhow::bail!("not one pod but {pods:?} with {selector}") };
        Ok(pod.clone())
    }
}

fn plain(span: &ReceivedSpan) -> ReceivedSpan {
    let words = |map: &BTreeMap<String, String>| {
        map.iter().map(|(key, value)| (key.clone(), untyped(value))).collect()
    };
    ReceivedSpan { attributes: words(&span.attributes), resource: words(&span.resource), ..span.clone() }
}

/// The value of an attribute; empty where it is absent.
pub(crate) fn word<'a>(span: &'a ReceivedSpan, key: &str) -> &'a str {
    span.attributes.get(key).map_or("", String::as_str)
}

/// The value of an attribute of the resource; empty where it is absent.
pub(crate) fn of_resource<'a>(span: &'a ReceivedSpan, key: &str) -> &'a str {
    span.resource.get(key).map_or("", String::as_str)
}
