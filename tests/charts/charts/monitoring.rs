//! What the monitoring of a cluster gets: only kinds that it has.

use std::fs;

use ackbeat_chart_tests::helm::{Helm, Render};
use ackbeat_chart_tests::{manifests, repository};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::matrix::{OPERATORS, chart};

#[test]
fn kinds_of_the_prometheus_operator_only_where_the_cluster_has_them() -> Result<()> {
    let helm = Helm::new(4)?;
    let bare = helm.template(&chart()?, &Render::default())?;
    ensure!(!manifests::has(&bare, "PodMonitor") && !manifests::has(&bare, "PrometheusRule"));
    let render = Render { api_versions: OPERATORS.to_vec(), ..Render::default() };
    let documents = helm.template(&chart()?, &render)?;
    let monitor = manifests::find(&documents, "PodMonitor", "sidecars")?;
    ensure!(
        monitor["spec"]["selector"]["matchLabels"] == json!({"ackbeat.dev/injected": "true"}),
        "{monitor}"
    );
    ensure!(monitor["spec"]["podMetricsEndpoints"][0]["port"] == "ackbeat-metrics", "{monitor}");
    manifests::find(&documents, "PodMonitor", "injector")?;
    let rule = manifests::find(&documents, "PrometheusRule", "ackbeat")?;
    let file = fs::read_to_string(repository("charts/ackbeat/rules/ackbeat.yaml")?)?;
    let wanted: Value = serde_saphyr::from_str(&file).map_err(|error| anyhow::anyhow!("{error}"))?;
    ensure!(rule["spec"] == wanted, "{rule}");
    let only_one = helm.template(
        &chart()?,
        &Render { api_versions: vec!["monitoring.coreos.com/v1/PodMonitor"], ..Render::default() },
    )?;
    ensure!(manifests::has(&only_one, "PodMonitor") && !manifests::has(&only_one, "PrometheusRule"));
    Ok(())
}

#[test]
fn grafana_finds_the_dashboard() -> Result<()> {
    let documents = Helm::new(4)?.template(&chart()?, &Render::default())?;
    let map = manifests::find(&documents, "ConfigMap", "dashboards")?;
    ensure!(map["metadata"]["labels"]["grafana_dashboard"] == "1", "{map}");
    let text = map["data"]["host-closes.json"].as_str().context("the dashboard")?;
    let file = fs::read_to_string(repository("charts/ackbeat/dashboards/host-closes.json")?)?;
    let [rendered, wanted]: [Value; 2] = [serde_json::from_str(text)?, serde_json::from_str(&file)?];
    ensure!(rendered == wanted && rendered["uid"].is_string());
    Ok(())
}
