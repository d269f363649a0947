//! Golden renders, lint, and that both Helms render the same.

use std::fs;

use ackbeat_chart_tests::helm::{Helm, Render};
use ackbeat_chart_tests::{manifests, repository};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::matrix::{chart, files, render_of, renders};

/// Replaces what is a file of the repository by its name, and what is made anew each time by a word.
fn shortened(mut documents: Vec<Value>) -> Result<Vec<Value>> {
    for document in &mut documents {
        if document["kind"] == "Secret" {
            for (_, value) in document["data"].as_object_mut().into_iter().flatten() {
                *value = json!("<made at each render>");
            }
        }
        if document["kind"] == "MutatingWebhookConfiguration"
            && document["webhooks"][0]["clientConfig"]["caBundle"].is_string()
        {
            document["webhooks"][0]["clientConfig"]["caBundle"] = json!("<of the Secret>");
        }
        if document["kind"] == "PrometheusRule" {
            document["spec"] = json!("<rules/ackbeat.yaml>");
        }
        if document["kind"] != "ConfigMap" {
            continue;
        }
        for (name, content) in document["data"].as_object_mut().into_iter().flatten() {
            for folder in ["dashboards", "demo"] {
                let Ok(file) = repository(&format!("charts/ackbeat/{folder}/{name}")) else { continue };
                let wanted = fs::read_to_string(&file)?;
                let text = content.as_str().context("a file's content")?;
                ensure!(text.trim_end() == wanted.trim_end(), "{name} is not {}", file.display());
                *content = json!(format!("<{folder}/{name}>"));
            }
        }
    }
    Ok(documents)
}

#[test]
fn charts_pass_the_linter() -> Result<()> {
    for helm in Helm::both()? {
        for name in ["charts/ackbeat", "charts/ackbeat-sidecar"] {
            let answer = helm.run(&["lint", "--strict", &repository(name)?.display().to_string()])?;
            ensure!(answer.success, "{helm}, {name}: {}{}", answer.stdout, answer.stderr);
        }
    }
    let helm = Helm::new(4)?;
    for (name, file) in files()? {
        let (chart, file) = (chart()?.display().to_string(), file.display().to_string());
        let answer = helm.run(&["lint", "--strict", &chart, "--values", &file])?;
        ensure!(answer.success, "{helm}, {name}: {}{}", answer.stdout, answer.stderr);
    }
    Ok(())
}

#[test]
fn renders_are_as_they_were() -> Result<()> {
    for (name, documents) in renders()? {
        let documents = shortened(documents.clone())?;
        insta::with_settings!({snapshot_path => "../snapshots", prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_yaml_snapshot!(name.as_str(), documents);
        });
    }
    Ok(())
}

#[test]
fn both_helms_render_the_same() -> Result<()> {
    let three = Helm::new(3)?;
    for ((name, by_four), (_, file)) in renders()?.iter().zip(files()?) {
        let mut by_three = shortened(three.template(&chart()?, &render_of(&file))?)?;
        let mut by_four = shortened(by_four.clone())?;
        by_three.sort_by_key(manifests::title);
        by_four.sort_by_key(manifests::title);
        ensure!(by_three == by_four, "{name}");
    }
    Ok(())
}

#[test]
fn every_object_is_labelled_by_the_conventions() -> Result<()> {
    for (name, documents) in renders()? {
        for document in documents {
            let title = manifests::title(document);
            for label in ["name", "instance", "version", "component", "part-of", "managed-by"] {
                let value = &document["metadata"]["labels"][format!("app.kubernetes.io/{label}")];
                ensure!(value.is_string(), "{name}: {title} has no app.kubernetes.io/{label}");
            }
            ensure!(
                document["metadata"]["labels"]["helm.sh/chart"].is_string(),
                "{name}: {title}: helm.sh/chart"
            );
        }
    }
    Ok(())
}

#[test]
fn a_change_of_the_configuration_replaces_the_pods() -> Result<()> {
    let helm = Helm::new(4)?;
    let checksum = |set: Vec<&'static str>| -> Result<Value> {
        let documents = helm.template(&chart()?, &Render { set, ..Render::default() })?;
        let deployment = manifests::find(&documents, "Deployment", "ackbeat")?;
        Ok(deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"].clone())
    };
    let plain = checksum(vec![])?;
    ensure!(plain.is_string() && plain == checksum(vec!["injector.replicas=3"])?);
    ensure!(plain != checksum(vec!["otlp.endpoint=http://collector:4317"])?);
    Ok(())
}

#[test]
fn a_digest_is_stronger_than_a_tag() -> Result<()> {
    let helm = Helm::new(3)?;
    let digest = format!("sha256:{}", "a".repeat(64));
    let by_digest = format!("image.digest={digest}");
    let documents = helm.template(
        &chart()?,
        &Render { set: vec!["image.tag=edge", by_digest.as_str()], ..Render::default() },
    )?;
    let deployment = manifests::find(&documents, "Deployment", "ackbeat")?;
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    ensure!(*image == json!(format!("ghcr.io/ackbeat/ackbeat@{digest}")), "{image}");
    let config = manifests::find(&documents, "ConfigMap", "injector")?;
    let text = config["data"]["injector.yaml"].as_str().context("the configuration")?;
    ensure!(text.contains(&format!("image: \"ghcr.io/ackbeat/ackbeat@{digest}\"")), "{text}");
    Ok(())
}

#[test]
fn old_servers_get_what_they_know() -> Result<()> {
    for helm in Helm::both()? {
        for (version, policy) in [("1.20", "policy/v1beta1"), ("1.21", "policy/v1")] {
            let documents =
                helm.template(&chart()?, &Render { kube_version: Some(version), ..Render::default() })?;
            let budget = manifests::find(&documents, "PodDisruptionBudget", "ackbeat")?;
            ensure!(budget["apiVersion"] == policy, "{helm}, {version}: {budget}");
        }
        let answer =
            helm.try_template(&chart()?, &Render { kube_version: Some("1.19"), ..Render::default() })?;
        ensure!(!answer.success && answer.stderr.contains("kubeVersion: >=1.20.0-0"), "{}", answer.stderr);
    }
    Ok(())
}
