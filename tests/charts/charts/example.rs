//! The library chart inside a chart of its own (`tests/charts/example`).

use std::path::PathBuf;

use ackbeat_chart_tests::helm::{Helm, Render, copy_folder};
use ackbeat_chart_tests::{manifests, repository};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A copy of the example beside a copy of the library, with the dependency brought in by Helm itself.
pub(crate) struct Example {
    folder: TempDir,
}

impl Example {
    pub(crate) fn new(helm: &Helm) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        copy_folder(&repository("tests/charts/example")?, &folder.path().join("shop"))?;
        copy_folder(&repository("charts/ackbeat-sidecar")?, &folder.path().join("ackbeat-sidecar"))?;
        let example = Self { folder };
        let answer = helm.run(&["dependency", "update", &example.chart().display().to_string()])?;
        ensure!(answer.success, "{helm}: {}", answer.stderr);
        Ok(example)
    }

    pub(crate) fn chart(&self) -> PathBuf {
        self.folder.path().join("shop")
    }

    pub(crate) fn template(&self, helm: &Helm, version: &str, set: Vec<&str>) -> Result<Vec<Value>> {
        helm.template(&self.chart(), &Render { kube_version: Some(version), set, ..Render::default() })
    }
}

/// The pod of the example.
pub(crate) fn pod(documents: &[Value]) -> Result<&Value> {
    manifests::pod_spec(manifests::find(documents, "Deployment", "shop")?).context("a Deployment has a pod")
}

#[test]
fn a_native_sidecar_where_the_server_has_them_and_an_ordinary_container_before() -> Result<()> {
    for helm in Helm::both()? {
        let example = Example::new(&helm)?;
        let answer = helm.run(&["lint", "--strict", &example.chart().display().to_string()])?;
        ensure!(answer.success, "{helm}: {}", answer.stdout);
        let new = example.template(&helm, "1.29", vec![])?;
        let old = example.template(&helm, "1.28", vec![])?;
        let (new, old) = (pod(&new)?, pod(&old)?);
        let native = &new["initContainers"][0];
        ensure!(native["restartPolicy"] == "Always" && native["startupProbe"].is_object(), "{native}");
        ensure!(new["containers"].as_array().is_some_and(|all| all.len() == 1), "{new}");
        ensure!(old["initContainers"].is_null(), "{old}");
        // Apart from those two keys it is the same container.
        let mut without = native.clone();
        let keys = without.as_object_mut().context("a container")?;
        keys.remove("restartPolicy");
        keys.remove("startupProbe");
        ensure!(without == old["containers"][1], "{without:#}\n{:#}", old["containers"][1]);
        for (word, is_native) in [("always", true), ("never", false)] {
            let set = format!("ackbeat-sidecar.nativeSidecar={word}");
            for version in ["1.28", "1.29"] {
                let documents = example.template(&helm, version, vec![set.as_str()])?;
                ensure!(pod(&documents)?["initContainers"].is_array() == is_native, "{word} {version}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_example_is_as_it_was() -> Result<()> {
    let helm = Helm::new(4)?;
    let example = Example::new(&helm)?;
    let full = vec![
        "ackbeat-sidecar.config.leaks.reap=dry-run",
        "ackbeat-sidecar.settings.leaks\\.idle_after_ms=30000000",
        "ackbeat-sidecar.otlp.endpoint=http://$(NODE_IP):4317",
        "ackbeat-sidecar.extraCapabilities={SYS_ADMIN}",
        "ackbeat-sidecar.serviceName=storefront",
        "ackbeat-sidecar.clusterName=prod\\,eu",
        "ackbeat-sidecar.metricsPort=0",
    ];
    for (name, version, set) in [
        ("example", "1.37", vec![]),
        ("example-ordinary-sock-diag", "1.28", vec!["ackbeat-sidecar.mode=sock-diag"]),
        ("example-full", "1.37", full),
        ("example-off", "1.37", vec!["ackbeat-sidecar.enabled=false"]),
    ] {
        let documents = example.template(&helm, version, set)?;
        insta::with_settings!({snapshot_path => "../snapshots", prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_yaml_snapshot!(name, documents);
        });
    }
    Ok(())
}

#[test]
fn the_library_refuses_what_it_does_not_know() -> Result<()> {
    let [three, four] = Helm::both()?;
    for (helm, said) in [
        (three, "- ports.0: Invalid type. Expected: integer, given: string"),
        (four, "- at '/ports/0': got string, want integer"),
    ] {
        let example = Example::new(&helm)?;
        let render = Render { set: vec!["ackbeat-sidecar.ports={http}"], ..Render::default() };
        let answer = helm.try_template(&example.chart(), &render)?;
        ensure!(!answer.success && answer.stderr.contains(said), "{helm}: {}", answer.stderr);
        let render = Render { set: vec!["ackbeat-sidecar.ootlp.endpoint=x"], ..Render::default() };
        let answer = helm.try_template(&example.chart(), &render)?;
        ensure!(!answer.success && answer.stderr.contains("ootlp"), "{helm}: {}", answer.stderr);
    }
    Ok(())
}

#[test]
fn numbers_of_a_values_file_are_written_out() -> Result<()> {
    let helm = Helm::new(3)?;
    let example = Example::new(&helm)?;
    let values = example.chart().join("large.yaml");
    std::fs::write(
        &values,
        "ackbeat-sidecar: {settings: {leaks.idle_after_ms: 30000000, leaks.count_min: 9}}\n",
    )?;
    let render = Render { values: vec![values], ..Render::default() };
    let documents = helm.template(&example.chart(), &render)?;
    let variables = &pod(&documents)?["initContainers"][0]["env"];
    let value = |name: &str| {
        let found = variables.as_array().into_iter().flatten().find(|entry| entry["name"] == name);
        found.map(|entry| entry["value"].clone())
    };
    ensure!(value("ACKBEAT_LEAKS_IDLE_AFTER_MS") == Some(json!("30000000")), "{variables}");
    ensure!(value("ACKBEAT_LEAKS_COUNT_MIN") == Some(json!("9")), "{variables}");
    Ok(())
}
