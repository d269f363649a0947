//! What the API server and the injector do with each other.

use std::time::Duration;

use ackbeat_tests::cluster::Kubectl;
use ackbeat_tests::journal::wait_every;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::installed::{DEMO_NAMESPACE, Installed, OWN_NAMESPACE, POD_DEADLINE};

const PAUSE: Duration = Duration::from_millis(300);
const INJECTOR: &str = "app.kubernetes.io/component=injector";
const SECRET: &str = "ackbeat-tls";

/// What a pod would come out as: the API server asks the webhook, and keeps nothing.
fn is_injected(kubectl: &Kubectl<'_>) -> Result<bool> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "would-be", "namespace": DEMO_NAMESPACE},
        "spec": {"containers": [{"name": "app", "image": "localhost/python:3"}]},
    });
    let said = kubectl.try_with(
        "kubectl",
        &["create", "--dry-run=server", "--output=json", "--filename=-"],
        &pod.to_string(),
    )?;
    ensure!(said.is_ok, "a pod was refused: {}", said.stderr);
    let pod: Value = serde_json::from_str(&said.stdout).context("kubectl printed no JSON")?;
    let containers =
        pod.pointer("/spec/containers").and_then(Value::as_array).context("a pod has containers")?;
    Ok(containers.iter().any(|container| container["name"] == "ackbeat"))
}

/// The pod of the injector that runs.
fn injector(kubectl: &Kubectl<'_>) -> Result<String> {
    let mut found = None;
    wait_every(PAUSE, "one pod of the injector", POD_DEADLINE, || {
        let pods = kubectl.pods(OWN_NAMESPACE, INJECTOR)?;
        found = pods.first().cloned().filter(|_| pods.len() == 1);
        Ok(found.is_some())
    })?;
    found.context("the pod was found and lost")
}

/// A pod of the injector that has just started. The one before it is gone: a pod that is deleted by force goes on to answer for
/// some seconds.
fn new_injector(kubectl: &Kubectl<'_>) -> Result<String> {
    let old = injector(kubectl)?;
    kubectl.run(&["delete", "pod", "--namespace", OWN_NAMESPACE, &old, "--grace-period=1"])?;
    let mut found = None;
    wait_every(PAUSE, "a new pod of the injector", POD_DEADLINE, || {
        found = kubectl.pods(OWN_NAMESPACE, INJECTOR)?.into_iter().find(|pod| *pod != old);
        Ok(found.is_some())
    })?;
    found.context("the pod was found and lost")
}

/// Watches go on after the API server was away, and pods are injected as before.
pub(crate) fn a_restart_of_the_api_server_changes_nothing(installed: &mut Installed) -> Result<()> {
    installed.node.kill_api_server();
    installed.node.start_api_server()?;
    let kubectl = installed.node.kubectl();
    wait_every(PAUSE, "an injected pod after the restart", POD_DEADLINE, || is_injected(&kubectl))?;
    // A namespace that is younger than the restart is known by the watch alone: a pod that does not ask for itself.
    let name = "after-restart";
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"ackbeat.dev/inject": "enabled"}},
    });
    kubectl.apply(&namespace.to_string())?;
    wait_every(PAUSE, "an injected pod in a new namespace", POD_DEADLINE, || {
        let arguments = ["run", "x", "--image=x", "--namespace", name, "--dry-run=server", "--output=json"];
        let said = kubectl.try_with("kubectl", &arguments, "")?;
        Ok(said.is_ok && said.stdout.contains("ackbeat.dev/injected"))
    })?;
    kubectl.run(&["delete", "namespace", name, "--wait=false"]).map(drop)
}

/// A new authority is trusted beside the old one, then a leaf of it is served, then the old one goes: no pod slips through
/// between them.
pub(crate) fn certificates_rotate_without_a_failed_admission(installed: &mut Installed) -> Result<()> {
    let kubectl = installed.node.kubectl();
    // Seconds in place of minutes between the steps.
    let deployment = ["set", "env", "deployment/ackbeat", "--namespace", OWN_NAMESPACE];
    let set = |values: &[&str]| -> Result<()> {
        let mut arguments = deployment.to_vec();
        arguments.extend(values);
        kubectl.run(&arguments)?;
        kubectl.wait_for_rollout(OWN_NAMESPACE, "ackbeat", POD_DEADLINE)
    };
    set(&["ACKBEAT_WEBHOOK_OVERLAP_SECONDS=4", "ACKBEAT_WEBHOOK_CHECK_SECONDS=1"])?;
    let pod = injector(&kubectl)?;
    wait_every(PAUSE, "an injected pod before the rotation", POD_DEADLINE, || is_injected(&kubectl))?;
    // As it is when two thirds of its time are over.
    let secret = kubectl.json(&["get", "secret", "--namespace", OWN_NAMESPACE, SECRET])?;
    let bundle = |secret: &Value| secret.pointer("/data/ca.crt").and_then(Value::as_str).map(str::to_owned);
    let before = bundle(&secret);
    let chain = secret.pointer("/data/authorities.json").and_then(Value::as_str).context("no authorities")?;
    let mut chain: Value =
        serde_json::from_slice(&from_base64(chain)?).context("the authorities are no JSON")?;
    let authority = chain.pointer_mut("/authorities/0").context("no authority")?;
    let (made, ends) = (authority["made_s"].as_i64(), authority["ends_s"].as_i64());
    let (made, ends) = (made.context("made_s")?, ends.context("ends_s")?);
    authority["ends_s"] = json!(made + (ends - made) / 4);
    let patch = json!({"data": {"authorities.json": to_base64(chain.to_string().as_bytes())}}).to_string();
    kubectl.run(&["patch", "secret", "--namespace", OWN_NAMESPACE, SECRET, "--patch", &patch])?;
    let mut asked = 0_u32;
    wait_every(Duration::from_millis(50), "the end of the rotation", POD_DEADLINE, || {
        ensure!(is_injected(&kubectl)?, "after {asked} pods one came out without a sidecar");
        asked += 1;
        let log = kubectl.run(&["logs", "--namespace", OWN_NAMESPACE, &pod])?;
        Ok(log.contains("AuthorityDropped"))
    })?;
    let log = kubectl.run(&["logs", "--namespace", OWN_NAMESPACE, &pod])?;
    let at = |step: &str| log.find(step).with_context(|| format!("{step} is not in the log:\n{log}"));
    ensure!(
        at("AuthorityAdded")? < at("LeafRenewed")? && at("LeafRenewed")? < at("AuthorityDropped")?,
        "the steps are in another order:\n{log}"
    );
    let after = bundle(&kubectl.json(&["get", "secret", "--namespace", OWN_NAMESPACE, SECRET])?);
    ensure!(before.is_some() && after.is_some() && before != after, "the authority is the same as before");
    ensure!(asked >= 5 && is_injected(&kubectl)?, "{asked} pods were asked for");
    set(&["ACKBEAT_WEBHOOK_OVERLAP_SECONDS-", "ACKBEAT_WEBHOOK_CHECK_SECONDS-"])
}

fn from_base64(text: &str) -> Result<Vec<u8>> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).context("no base64")
}

fn to_base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Takes one verb away from a rule, and gives the role as it was.
fn without(kubectl: &Kubectl<'_>, kind: &[&str], resource: &str, verb: &str) -> Result<Value> {
    let mut arguments = vec!["get"];
    arguments.extend(kind);
    let role = kubectl.json(&arguments)?;
    let mut less = role.clone();
    let mut taken = 0;
    for rule in less["rules"].as_array_mut().into_iter().flatten() {
        let is_it = rule["resources"].as_array().is_some_and(|names| names.contains(&json!(resource)));
        if let Some(verbs) = rule["verbs"].as_array_mut().filter(|_| is_it) {
            let before = verbs.len();
            verbs.retain(|word| word != verb);
            taken += before - verbs.len();
        }
    }
    ensure!(taken == 1, "{verb} of {resource} is {taken} times in {role}");
    kubectl.replace(&less)?;
    Ok(role)
}

/// The rights of the chart are enough (the tests before this one), and none of them is too much: without any one of them the
/// injector says which, or the Event is on another object.
pub(crate) fn each_right_of_the_injector_is_needed(installed: &mut Installed) -> Result<()> {
    let kubectl = installed.node.kubectl();
    let cluster_role = ["clusterrole", "ackbeat-injector"];
    let role = ["role", "ackbeat-injector", "--namespace", OWN_NAMESPACE];
    for (kind, resource, verb, needle) in [
        (&cluster_role[..], "namespaces", "list", "namespaces cannot be watched"),
        (&cluster_role[..], "namespaces", "watch", "namespaces cannot be watched"),
        (&cluster_role[..], "events", "create", "no Events"),
        (&cluster_role[..], "mutatingwebhookconfigurations", "get", "(right: get)"),
        (&cluster_role[..], "mutatingwebhookconfigurations", "patch", "(right: patch)"),
        (&role[..], "secrets", "get", "(right: get)"),
        (&role[..], "secrets", "update", "(right: update)"),
    ] {
        if (resource, verb) == ("mutatingwebhookconfigurations", "patch") {
            // Otherwise there is nothing to write.
            let patch = json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]).to_string();
            let configuration = "mutatingwebhookconfiguration/ackbeat";
            kubectl.run(&["patch", configuration, "--type=json", "--patch", &patch])?;
        }
        if (resource, verb) == ("secrets", "update") {
            let patch = json!([{"op": "remove", "path": "/data"}]).to_string();
            kubectl.run(&[
                "patch",
                "secret",
                "--namespace",
                OWN_NAMESPACE,
                SECRET,
                "--type=json",
                "--patch",
                &patch,
            ])?;
        }
        let whole = without(&kubectl, kind, resource, verb)?;
        let result = (|| {
            let pod = new_injector(&kubectl)?;
            if resource == "events" {
                wait_every(PAUSE, "an injected pod", POD_DEADLINE, || is_injected(&kubectl))?;
                kubectl.run(&[
                    "rollout",
                    "restart",
                    "deployment",
                    "--namespace",
                    DEMO_NAMESPACE,
                    "ackbeat-demo-host",
                ])?;
            }
            kubectl.wait_for_log(OWN_NAMESPACE, &pod, "injector", needle, POD_DEADLINE)
        })();
        kubectl.replace(&whole)?;
        result.with_context(|| format!("without {verb} of {resource}"))?;
        wait_every(PAUSE, "an injected pod with all rights", POD_DEADLINE, || is_injected(&kubectl))?;
    }
    Ok(())
}
