//! The injector's rights: these and no more, by value.

use ackbeat_chart_tests::helm::{Helm, Render};
use ackbeat_chart_tests::manifests;
use anyhow::{Result, ensure};
use serde_json::Value;

use crate::matrix::chart;

/// `group/resource[names]: verbs` of every rule of every role.
fn rights(set: Vec<&str>) -> Result<Vec<String>> {
    let documents = Helm::new(4)?.template(&chart()?, &Render { set, ..Render::default() })?;
    let words = |value: &Value| {
        let words: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        words.join(",")
    };
    let mut found = Vec::new();
    for document in &documents {
        let kind = document["kind"].as_str().unwrap_or_default();
        if kind != "Role" && kind != "ClusterRole" {
            continue;
        }
        let place = document["metadata"]["namespace"].as_str().unwrap_or("everywhere");
        for rule in document["rules"].as_array().into_iter().flatten() {
            let names = words(&rule["resourceNames"]);
            let names = if names.is_empty() { String::new() } else { format!("[{names}]") };
            let (group, resource, verbs) =
                (words(&rule["apiGroups"]), words(&rule["resources"]), words(&rule["verbs"]));
            found.push(format!("{place}: {group}/{resource}{names} {verbs}"));
        }
        manifests::find(
            &documents,
            &format!("{kind}Binding"),
            document["metadata"]["name"].as_str().unwrap_or("?"),
        )?;
    }
    Ok(found)
}

#[test]
fn no_right_is_granted_that_is_not_used() -> Result<()> {
    let always = [
        "everywhere: /namespaces get,list,watch",
        "everywhere: apps/replicasets get",
        "everywhere: batch/jobs get",
    ];
    let with = |more: &[&str]| always.iter().chain(more).map(|right| (*right).to_owned()).collect::<Vec<_>>();
    let events = "everywhere: events.k8s.io/events create,patch";
    let found = rights(vec![])?;
    let own = "everywhere: admissionregistration.k8s.io/mutatingwebhookconfigurations[ackbeat] get,patch";
    ensure!(found == with(&[events, own, "ackbeat: /secrets[ackbeat-tls] get,update"]), "{found:#?}");
    let found = rights(vec!["tls.mode=helm"])?;
    ensure!(found == with(&[events]), "{found:#?}");
    let found = rights(vec!["tls.mode=helm", "events.enabled=false"])?;
    ensure!(found == with(&[]), "{found:#?}");
    let found = rights(vec!["tls.mode=helm", "events.enabled=false", "sidecarEvents.namespaces={shop}"])?;
    ensure!(found == with(&["shop: events.k8s.io/events create"]), "{found:#?}");
    let none = ["tls.mode=helm", "events.enabled=false"];
    let of_peers = |set: &[&'static str]| rights(none.iter().chain(set).copied().collect());
    let found = of_peers(&["sidecarPeers.namespaces={shop}"])?;
    ensure!(found == with(&["shop: /pods list,watch", "shop: /services list,watch"]), "{found:#?}");
    let found = of_peers(&["sidecarPeers.namespaces={shop,checkout}", "sidecar.peers=cluster"])?;
    let everywhere = with(&["everywhere: /pods list,watch", "everywhere: /services list,watch"]);
    ensure!(found == everywhere, "{found:#?}");
    let found = of_peers(&["sidecar.peers=cluster"])?;
    ensure!(found == with(&[]), "without a namespace nobody may: {found:#?}");
    let found = rights(vec!["rbac.create=false", "sidecarPeers.namespaces={shop}", "sidecar.peers=cluster"])?;
    ensure!(found.is_empty(), "{found:#?}");
    Ok(())
}

#[test]
fn every_rule_has_its_reason_beside_it() -> Result<()> {
    let text = std::fs::read_to_string(chart()?.join("templates/rbac.yaml"))?;
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut rules = 0;
    for pair in lines.windows(2).filter(|pair| pair[1].starts_with("- apiGroups:")) {
        ensure!(pair[0].starts_with("# "), "no reason above `{}`", pair[1]);
        rules += 1;
    }
    ensure!(rules == 11, "{rules} rules");
    Ok(())
}
