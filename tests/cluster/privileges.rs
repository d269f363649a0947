//! What the sidecar may do on the node, and what it says when it may not.

use std::fs;

use ackbeat_tests::cluster::Kubectl;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::installed::{DEMO_NAMESPACE, HOSTS, Installed, POD_DEADLINE, SPAN_DEADLINE, of_resource, word};

/// Bits of capabilities(7).
const NET_ADMIN: u64 = 1 << 12;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;

/// A field of `/proc/PID/status`.
fn status(pid: u32, key: &str) -> Result<String> {
    let text =
        fs::read_to_string(format!("/proc/{pid}/status")).context("reading a process's status failed")?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned()).with_context(|| format!("no {key} in the status of {pid}"))
}

fn capabilities(pid: u32, key: &str) -> Result<u64> {
    u64::from_str_radix(&status(pid, key)?, 16).context("capabilities are a hexadecimal number")
}

fn options_of_root(pid: u32) -> Result<String> {
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).context("reading its mounts failed")?;
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/"));
    let options = root.and_then(|line| line.split(' ').nth(5)).context("the container has no root")?;
    Ok(options.to_owned())
}

/// As the kernel sees the sidecar's process: what the manifest asks for, and nothing else.
pub(crate) fn kubelet_gives_the_rendered_security_context_and_no_more(
    installed: &mut Installed,
) -> Result<()> {
    let pod = installed.only_pod(HOSTS)?;
    let pids = installed.node.pids(DEMO_NAMESPACE, &pod, "ackbeat")?;
    let pid = *pids.first().context("the sidecar has no process")?;
    let bounding = capabilities(pid, "CapBnd")?;
    ensure!(bounding == NET_ADMIN | PERFMON | BPF, "the bounding set is {bounding:x}");
    let effective = capabilities(pid, "CapEff")?;
    ensure!(effective & !bounding == 0, "the effective set is {effective:x}");
    ensure!(status(pid, "NoNewPrivs")? == "1", "no_new_privs is not set");
    ensure!(status(pid, "Seccomp")? == "2", "there is no seccomp filter");
    let options = options_of_root(pid)?;
    ensure!(options.split(',').any(|option| option == "ro"), "the root is mounted {options}");
    // Its own process is all it sees: no hostPID, and no host path among its mounts.
    ensure!(status(pid, "NSpid")?.split_whitespace().nth(1) == Some("1"), "it shares a pid namespace");
    let object = installed.node.kubectl().json(&["get", "pod", "--namespace", DEMO_NAMESPACE, &pod])?;
    let volumes = object.pointer("/spec/volumes").and_then(Value::as_array).cloned().unwrap_or_default();
    ensure!(volumes.iter().all(|volume| volume.get("hostPath").is_none()), "{volumes:?}");
    // The programs are loaded inside the pod.
    installed
        .node
        .kubectl()
        .wait_for_log(DEMO_NAMESPACE, &pod, "ackbeat", "mode=\"ebpf\"", POD_DEADLINE)
        .map(drop)
}

/// The manifest of a pod of its own: the sidecar as injected, with changes, and nothing beside it.
fn lone_sidecar(
    kubectl: &Kubectl<'_>,
    host: &str,
    name: &str,
    change: impl Fn(&mut Value),
) -> Result<String> {
    let object = kubectl.json(&["get", "pod", "--namespace", DEMO_NAMESPACE, host])?;
    let containers =
        object.pointer("/spec/containers").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut sidecar = containers
        .into_iter()
        .find(|container| container["name"] == "ackbeat")
        .context("the host has no sidecar")?;
    if let Some(sidecar) = sidecar.as_object_mut() {
        sidecar.remove("volumeMounts");
    }
    change(&mut sidecar);
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": DEMO_NAMESPACE,
            "annotations": {"ackbeat.dev/inject": "disabled"},
        },
        "spec": {"restartPolicy": "Never", "automountServiceAccountToken": false, "containers": [sidecar]},
    });
    Ok(pod.to_string())
}

fn set_mode(sidecar: &mut Value, mode: &str) {
    for variable in sidecar["env"].as_array_mut().into_iter().flatten() {
        if variable["name"] == "ACKBEAT_MODE" {
            variable["value"] = json!(mode);
        }
    }
}

/// Without any one of its three capabilities the sidecar goes on with sock-diag as injected, and ends in mode `ebpf`; in both
/// it names the one.
pub(crate) fn a_missing_capability_is_named(installed: &mut Installed) -> Result<()> {
    let kubectl = installed.node.kubectl();
    let host = installed.only_pod(HOSTS)?;
    let without = |sidecar: &mut Value, missing: &str| {
        if let Some(added) =
            sidecar.pointer_mut("/securityContext/capabilities/add").and_then(Value::as_array_mut)
        {
            added.retain(|name| name != missing);
        }
    };
    for missing in ["BPF", "PERFMON", "NET_ADMIN"] {
        let word = missing.to_lowercase().replace('_', "-");
        let (degraded, strict) = (format!("degraded-{word}"), format!("strict-{word}"));
        kubectl.apply(&lone_sidecar(&kubectl, &host, &degraded, |sidecar| without(sidecar, missing))?)?;
        kubectl.apply(&lone_sidecar(&kubectl, &host, &strict, |sidecar| {
            without(sidecar, missing);
            set_mode(sidecar, "ebpf");
        })?)?;
        let name = format!("CAP_{missing}");
        let line = kubectl.wait_for_log(DEMO_NAMESPACE, &degraded, "ackbeat", &name, POD_DEADLINE)?;
        ensure!(line.contains("WARN"), "{line}");
        kubectl.wait_for_log(DEMO_NAMESPACE, &degraded, "ackbeat", "mode=\"sock_diag\"", POD_DEADLINE)?;
        kubectl.wait_for_log(DEMO_NAMESPACE, &strict, "ackbeat", &name, POD_DEADLINE)?;
        let mut code = None;
        ackbeat_tests::journal::wait_every(
            std::time::Duration::from_millis(300),
            "the end of a sidecar that may not do what it must",
            POD_DEADLINE,
            || {
                let object = kubectl.json(&["get", "pod", "--namespace", DEMO_NAMESPACE, &strict])?;
                code = object
                    .pointer("/status/containerStatuses/0/state/terminated/exitCode")
                    .and_then(Value::as_i64);
                Ok(code.is_some())
            },
        )?;
        ensure!(code == Some(3), "without {name} it ended with {code:?}");
        kubectl.run(&["delete", "pod", "--namespace", DEMO_NAMESPACE, &degraded, &strict, "--wait=false"])?;
    }
    Ok(())
}

/// The mode for namespaces that are restricted: nobody's user, no capability, and its spans all the same.
pub(crate) fn sock_diag_needs_no_privilege(installed: &mut Installed) -> Result<()> {
    let kubectl = installed.node.kubectl();
    let annotate = |value: &str| {
        let patch = json!({"spec": {"template": {"metadata": {"annotations": {"ackbeat.dev/mode": value}}}}});
        let patch = patch.to_string();
        kubectl.run(&[
            "patch",
            "deployment",
            "--namespace",
            DEMO_NAMESPACE,
            "ackbeat-demo-host",
            "--patch",
            &patch,
        ])?;
        kubectl.wait_for_rollout(DEMO_NAMESPACE, "ackbeat-demo-host", POD_DEADLINE)
    };
    annotate("sock-diag")?;
    let mut host = String::new();
    ackbeat_tests::journal::wait_every(
        std::time::Duration::from_millis(300),
        "one pod of the host",
        POD_DEADLINE,
        || {
            let pods = kubectl.pods(DEMO_NAMESPACE, HOSTS)?;
            host = pods.first().cloned().unwrap_or_default();
            Ok(pods.len() == 1)
        },
    )?;
    let pids = installed.node.pids(DEMO_NAMESPACE, &host, "ackbeat")?;
    let pid = *pids.first().context("the sidecar has no process")?;
    for key in ["CapBnd", "CapEff", "CapPrm", "CapInh", "CapAmb"] {
        ensure!(capabilities(pid, key)? == 0, "{key} is {:x}", capabilities(pid, key)?);
    }
    let uid = status(pid, "Uid")?;
    ensure!(uid.split_whitespace().all(|uid| uid == "65532"), "it runs as {uid}");
    let span = installed.span("the span of a close in mode sock-diag", SPAN_DEADLINE, |span| {
        of_resource(span, "k8s.pod.name") == host && word(span, "ackbeat.mode") == "sock_diag"
    })?;
    ensure!(!word(&span, "network.peer.address").is_empty(), "{span:?}");
    annotate("auto")
}
