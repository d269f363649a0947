//! Report A in pods: clients that only read slowly, and one that is cut off.

use std::time::Duration;

use ackbeat_tests::journal::wait_every;
use ackbeat_tests::process::run;
use anyhow::{Context as _, Result, ensure};

use crate::installed::{
    DEMO_NAMESPACE, FAST_CLIENTS, HOSTS, Installed, POD_DEADLINE, SLOW_CLIENTS, SPAN_DEADLINE, of_resource,
    word,
};

const HOST_CLOSE: &str = "websocket.host_close";

/// The span of a false kill, under the workload's own name and with its pod's identity.
pub(crate) fn kills_of_slow_readers_are_told_as_false(installed: &mut Installed) -> Result<()> {
    let pod = installed.only_pod(HOSTS)?;
    let kubectl = installed.node.kubectl();
    kubectl.wait_for_log(DEMO_NAMESPACE, &pod, "host", "two Pongs missed, closing", POD_DEADLINE)?;
    let slow: Vec<String> = kubectl
        .pods(DEMO_NAMESPACE, SLOW_CLIENTS)?
        .iter()
        .map(|client| kubectl.pod_address(DEMO_NAMESPACE, client, POD_DEADLINE))
        .collect::<Result<_>>()?;
    let span = installed.span("the span of a false kill", SPAN_DEADLINE, |span| {
        span.name == HOST_CLOSE && word(span, "ackbeat.false_kill") == "true"
    })?;
    ensure!(
        slow.iter().any(|address| address == word(&span, "network.peer.address")),
        "the peer of {span:?} is none of the slow clients {slow:?}"
    );
    ensure!(word(&span, "ackbeat.mode") == "ebpf", "the mode of {span:?}");
    ensure!(word(&span, "ackbeat.kill.justified") == "false", "{span:?}");
    let uid = kubectl.json(&["get", "pod", "--namespace", DEMO_NAMESPACE, &pod])?;
    let uid = uid.pointer("/metadata/uid").and_then(serde_json::Value::as_str).context("a pod has a uid")?;
    for (key, wanted) in [
        ("k8s.pod.name", pod.as_str()),
        ("k8s.pod.uid", uid),
        ("k8s.namespace.name", DEMO_NAMESPACE),
        ("k8s.node.name", "node-1"),
        ("k8s.container.name", "host"),
        ("k8s.deployment.name", "ackbeat-demo-host"),
        ("service.name", "ackbeat"),
        ("service.namespace", DEMO_NAMESPACE),
    ] {
        ensure!(of_resource(&span, key) == wanted, "{key} is {:?}: {span:?}", of_resource(&span, key));
    }
    // Who it is, by the watch of the namespace's pods.
    let named = installed.span("a false kill of a peer with a name", SPAN_DEADLINE, |span| {
        span.name == HOST_CLOSE
            && word(span, "ackbeat.false_kill") == "true"
            && word(span, "ackbeat.peer.k8s.pod.name").starts_with("ackbeat-demo-slow-client-")
    })?;
    ensure!(word(&named, "ackbeat.peer.k8s.namespace.name") == DEMO_NAMESPACE, "{named:?}");
    Ok(())
}

/// `kubectl describe pod` tells of it, with the rights of the pod's own ServiceAccount.
pub(crate) fn a_false_kill_is_an_event_on_the_pod(installed: &mut Installed) -> Result<()> {
    let pod = installed.only_pod(HOSTS)?;
    let kubectl = installed.node.kubectl();
    let mut found = None;
    wait_every(Duration::from_millis(500), "an Event FalseKill on the pod", SPAN_DEADLINE, || {
        let events = kubectl.events(DEMO_NAMESPACE, "Pod", &pod)?;
        found = events.into_iter().find(|(reason, ..)| reason == "FalseKill");
        Ok(found.is_some())
    })?;
    let (_, kind, note) = found.context("the Event was found and lost")?;
    ensure!(kind == "Warning" && note.contains("the host killed") && note.contains("8080"), "{kind}: {note}");
    let described = kubectl.run(&["describe", "pod", "--namespace", DEMO_NAMESPACE, &pod])?;
    ensure!(described.contains("FalseKill"), "{described}");
    Ok(())
}

/// A client whose pod loses its network is killed with right.
pub(crate) fn kill_of_a_client_that_was_cut_off_is_justified(installed: &mut Installed) -> Result<()> {
    let kubectl = installed.node.kubectl();
    // A host with more patience than the policy needs: it closes after the peer is known to be gone.
    kubectl.run(&[
        "delete",
        "pod",
        "--namespace",
        DEMO_NAMESPACE,
        "--selector",
        "ackbeat-test=cut",
        "--ignore-not-found",
    ])?;
    kubectl.apply(&patient_host())?;
    kubectl.wait_for_rollout(DEMO_NAMESPACE, "patient-host", POD_DEADLINE)?;
    let host = kubectl.pods(DEMO_NAMESPACE, "app=patient-host")?;
    let host = host.first().context("the host has no pod")?;
    let address = kubectl.pod_address(DEMO_NAMESPACE, host, POD_DEADLINE)?;
    kubectl.apply(&client_of(&address))?;
    kubectl.wait_for_log(DEMO_NAMESPACE, "cut-client", "client", "answered a Ping", POD_DEADLINE)?;
    let client_address = kubectl.pod_address(DEMO_NAMESPACE, "cut-client", POD_DEADLINE)?;
    let pids = installed.node.pids(DEMO_NAMESPACE, "cut-client", "client")?;
    let pid = pids.first().context("the client has no process")?.to_string();
    // Nothing leaves its pod and nothing comes in: a cable that was pulled.
    for rule in [
        "add table inet cut",
        "add chain inet cut out { type filter hook output priority 0; policy drop; }",
        "add chain inet cut in { type filter hook input priority 0; policy drop; }",
    ] {
        run(None, "nsenter", &["--net", "--target", &pid, "nft", rule])?;
    }
    let span = installed.span("the span of a justified kill", SPAN_DEADLINE, |span| {
        span.name == HOST_CLOSE && word(span, "network.peer.address") == client_address
    })?;
    ensure!(word(&span, "ackbeat.kill.assessment") == "justified", "{span:?}");
    ensure!(word(&span, "ackbeat.verdict") == "unreachable", "{span:?}");
    ensure!(word(&span, "ackbeat.postmortem") == "no_answer", "{span:?}");
    ensure!(of_resource(&span, "k8s.pod.name") == host, "{span:?}");
    kubectl.run(&[
        "delete",
        "pod",
        "--namespace",
        DEMO_NAMESPACE,
        "cut-client",
        "--grace-period=0",
        "--force",
    ])?;
    kubectl.run(&["delete", "deployment", "--namespace", DEMO_NAMESPACE, "patient-host"]).map(drop)
}

/// The demo's host, which closes a client that is gone for 12 s, beyond what the policy asks for.
fn patient_host() -> String {
    format!(
        r#"apiVersion: apps/v1
kind: Deployment
metadata: {{name: patient-host, namespace: {DEMO_NAMESPACE}}}
spec:
  selector: {{matchLabels: {{app: patient-host}}}}
  template:
    metadata:
      labels: {{app: patient-host}}
      annotations: {{ackbeat.dev/ports: "8080"}}
    spec:
      containers:
        - name: host
          image: localhost/python:3
          imagePullPolicy: Never
          args: [/demo/host.py, --port=8080, --ping-interval-ms=6000, --burst-bytes=0]
          volumeMounts: [{{name: scripts, mountPath: /demo}}]
      volumes: [{{name: scripts, configMap: {{name: ackbeat-demo}}}}]
"#
    )
}

fn client_of(host: &str) -> String {
    format!(
        r"apiVersion: v1
kind: Pod
metadata:
  name: cut-client
  namespace: {DEMO_NAMESPACE}
  annotations: {{ackbeat.dev/inject: disabled}}
spec:
  containers:
    - name: client
      image: localhost/python:3
      imagePullPolicy: Never
      args: [/demo/client.py, --host={host}, --port=8080, --read-bytes-per-second=1073741824, --once]
      env: [{{name: PYTHONUNBUFFERED, value: '1'}}]
      volumeMounts: [{{name: scripts, mountPath: /demo}}]
  volumes: [{{name: scripts, configMap: {{name: ackbeat-demo}}}}]
"
    )
}

/// A client that keeps up is never closed, whatever the sidecar does beside the host.
pub(crate) fn traffic_of_the_application_is_untouched(installed: &mut Installed) -> Result<()> {
    let client = installed.only_pod(FAST_CLIENTS)?;
    let kubectl = installed.node.kubectl();
    let answers = || -> Result<(usize, String)> {
        let log = kubectl.run(&["logs", "--namespace", DEMO_NAMESPACE, &client])?;
        Ok((log.lines().filter(|line| line.contains("answered a Ping")).count(), log))
    };
    let (before, _) = answers()?;
    wait_every(Duration::from_millis(500), "ten more answers of the fast client", SPAN_DEADLINE, || {
        Ok(answers()?.0 >= before + 10)
    })?;
    let (_, log) = answers()?;
    // Before the host listened there was nothing to connect to.
    let after = log.split_once("connected").map_or("", |(_, after)| after);
    ensure!(!after.is_empty() && !after.contains("closed after"), "the fast client was closed:\n{log}");
    let host = installed.only_pod(HOSTS)?;
    let object = kubectl.json(&["get", "pod", "--namespace", DEMO_NAMESPACE, &host])?;
    let restarts: Vec<&serde_json::Value> = object
        .pointer("/status/containerStatuses")
        .and_then(serde_json::Value::as_array)
        .into_iter()
        .flatten()
        .map(|status| &status["restartCount"])
        .collect();
    ensure!(restarts.len() == 2 && restarts.iter().all(|count| **count == 0), "restarts: {restarts:?}");
    Ok(())
}
