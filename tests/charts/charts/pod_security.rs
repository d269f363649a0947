//! Which level of the Pod Security Standards each pod passes, and what exactly keeps it from the next.

use std::collections::BTreeSet;

use ackbeat_chart_tests::helm::Helm;
use ackbeat_chart_tests::manifests;
use ackbeat_chart_tests::pod_security::{broken_controls, violations};
use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::example::{Example, pod};
use crate::matrix::renders;

#[test]
fn every_pod_of_the_chart_is_restricted() -> Result<()> {
    let mut pods = 0;
    for (name, documents) in renders()? {
        for document in documents {
            let Some(spec) = manifests::pod_spec(document).filter(|spec| spec["containers"].is_array())
            else {
                continue;
            };
            let annotations = &document["spec"]["template"]["metadata"]["annotations"];
            let found = violations(spec, annotations);
            ensure!(found.is_empty(), "{name}: {}: {found:#?}", manifests::title(document));
            pods += 1;
        }
    }
    ensure!(pods > 10, "only {pods} pods");
    Ok(())
}

/// The pod of the example, whose own container is restricted, with the sidecar in a mode.
fn broken(helm: &Helm, example: &Example, version: &str, set: Vec<&str>) -> Result<BTreeSet<String>> {
    let documents = example.template(helm, version, set)?;
    Ok(broken_controls(pod(&documents)?, &Value::Null))
}

#[test]
fn mode_sock_diag_passes_restricted() -> Result<()> {
    let helm = Helm::new(4)?;
    let example = Example::new(&helm)?;
    for version in ["1.28", "1.37"] {
        let found = broken(&helm, &example, version, vec!["ackbeat-sidecar.mode=sock-diag"])?;
        ensure!(found.is_empty(), "{version}: {found:?}");
        // What the operator grants to kernel programs does not reach it.
        let set = vec![
            "ackbeat-sidecar.mode=sock-diag",
            "ackbeat-sidecar.extraCapabilities={SYS_ADMIN}",
            "ackbeat-sidecar.seccompProfile.type=Unconfined",
        ];
        let found = broken(&helm, &example, version, set)?;
        ensure!(found.is_empty(), "{version}: {found:?}");
    }
    Ok(())
}

/// Three capabilities are all that separates it from *baseline*. *Restricted* asks for another user too, whom added
/// capabilities cannot reach: the kernel drops them when a program starts that is not root's.
#[test]
fn kernel_programs_break_the_rule_of_capabilities_and_what_follows_from_it() -> Result<()> {
    let helm = Helm::new(4)?;
    let example = Example::new(&helm)?;
    for version in ["1.28", "1.37"] {
        for mode in ["auto", "ebpf"] {
            let set = format!("ackbeat-sidecar.mode={mode}");
            let found = broken(&helm, &example, version, vec![set.as_str()])?;
            ensure!(
                found.iter().map(String::as_str).collect::<Vec<_>>()
                    == [
                        "Baseline: Capabilities",
                        "Restricted: Capabilities",
                        "Restricted: Running as Non-root",
                        "Restricted: Running as Non-root user",
                    ],
                "{version}, {mode}: {found:?}"
            );
        }
    }
    let documents = example.template(&helm, "1.37", vec![])?;
    let added = pod(&documents)?
        .pointer("/initContainers/0/securityContext/capabilities/add")
        .context("capabilities are added")?
        .clone();
    ensure!(added == serde_json::json!(["BPF", "PERFMON", "NET_ADMIN"]), "{added}");
    Ok(())
}
