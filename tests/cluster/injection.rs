//! What the API server's pods come out as.

use std::io::Write as _;
use std::process::{Command, Stdio};

use ackbeat_tests::tools;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::installed::{DEMO_NAMESPACE, HOSTS, Installed, OWN_NAMESPACE};

const CONTAINER: &str = "ackbeat";

/// The webhook and `ackbeat inject` give the same container for the same workload.
pub(crate) fn pods_come_out_as_the_command_makes_them(installed: &mut Installed) -> Result<()> {
    let kubectl = installed.node.kubectl();
    let pod = installed.only_pod(HOSTS)?;
    let pod = kubectl.json(&["get", "pod", "--namespace", DEMO_NAMESPACE, &pod])?;
    let by_webhook = container(&pod, "/spec/containers").context("the pod has no sidecar")?;
    ensure!(
        pod.pointer("/metadata/labels/ackbeat.dev~1injected").is_some(),
        "the pod does not say that it is injected: {}",
        pod["metadata"]
    );

    let mut deployment =
        kubectl.json(&["get", "deployment", "--namespace", DEMO_NAMESPACE, "ackbeat-demo-host"])?;
    if let Some(annotations) =
        deployment.pointer_mut("/spec/template/metadata/annotations").and_then(Value::as_object_mut)
    {
        // The namespace asks for it; the command does not know the namespace.
        annotations.insert("ackbeat.dev/inject".to_owned(), Value::from("enabled"));
    }
    let settings = kubectl.json(&["get", "configmap", "--namespace", OWN_NAMESPACE, "ackbeat-injector"])?;
    let settings = settings
        .pointer("/data/injector.yaml")
        .and_then(Value::as_str)
        .context("the injector's settings are not in its ConfigMap")?
        .to_owned();
    let file = installed.node.folder().join("injector.yaml");
    std::fs::write(&file, settings).context("writing the injector's settings failed")?;
    let output = inject(&file.to_string_lossy(), &deployment.to_string())?;
    let injected: Value =
        serde_json::from_str(&output).context("`ackbeat inject -o json` printed no JSON")?;
    let by_command =
        container(&injected, "/spec/template/spec/containers").context("the command injected nothing")?;
    // The API server adds defaults, and a volume with the token of the ServiceAccount where the pod has one; it changes nothing.
    is_within(by_command, by_webhook, "the container")
}

fn container<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    object.pointer(pointer)?.as_array()?.iter().find(|container| container["name"] == CONTAINER)
}

/// Whether `found` has everything of `wanted`, in the same place and order, and in lists nothing else.
fn is_within(wanted: &Value, found: &Value, at: &str) -> Result<()> {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for (key, value) in wanted {
                let other = found.get(key).with_context(|| format!("{at}.{key} is missing in the pod"))?;
                is_within(value, other, &format!("{at}.{key}"))?;
            }
            Ok(())
        }
        (Value::Array(wanted), Value::Array(found)) => {
            ensure!(wanted.len() == found.len(), "{at}: {wanted:?} and {found:?}");
            wanted
                .iter()
                .zip(found)
                .enumerate()
                .try_for_each(|(index, (one, other))| is_within(one, other, &format!("{at}[{index}]")))
        }
        _ => {
            ensure!(wanted == found, "{at}: the command says {wanted}, the pod has {found}");
            Ok(())
        }
    }
}

/// `ackbeat inject` on one object.
fn inject(settings: &str, object: &str) -> Result<String> {
    let mut command = Command::new(tools::ackbeat()?);
    command
        .args(["inject", "--output=json", "--config", settings, "--server-version=1.20", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().context("starting ackbeat inject failed")?;
    child.stdin.take().context("no standard input")?.write_all(object.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "ackbeat inject failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `Injected` is on the Deployment: nobody looks for an Event on a pod whose name they do not know.
pub(crate) fn events_are_on_the_owner(installed: &mut Installed) -> Result<()> {
    let events = installed.node.kubectl().events(DEMO_NAMESPACE, "Deployment", "ackbeat-demo-host")?;
    let injected = events.iter().find(|(reason, ..)| reason == "Injected");
    let (_, kind, note) = injected.with_context(|| format!("no Event Injected but {events:?}"))?;
    ensure!(kind == "Normal" && note.contains("sidecar ackbeat"), "{kind}: {note}");
    Ok(())
}
