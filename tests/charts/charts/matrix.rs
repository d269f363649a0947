//! The matrix: files of values in `tests/charts/values`, each a way in which people install the chart.

use std::path::PathBuf;
use std::sync::OnceLock;

use ackbeat_chart_tests::helm::{Helm, Render};
use ackbeat_chart_tests::repository;
use anyhow::{Context, Result};
use serde_json::Value;

/// What a cluster with the Prometheus operator and cert-manager has.
pub(crate) const OPERATORS: [&str; 3] =
    ["monitoring.coreos.com/v1/PodMonitor", "monitoring.coreos.com/v1/PrometheusRule", "cert-manager.io/v1"];

pub(crate) fn chart() -> Result<PathBuf> {
    repository("charts/ackbeat")
}

/// Name and file of each.
pub(crate) fn files() -> Result<Vec<(String, PathBuf)>> {
    let folder = repository("tests/charts/values")?;
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder).context("the matrix cannot be read")? {
        let path = entry?.path();
        let name = path.file_stem().context("a file has a name")?.to_string_lossy().into_owned();
        files.push((name, path));
    }
    files.sort();
    Ok(files)
}

/// The render of one file, on a cluster with all operators.
pub(crate) fn render_of(file: &std::path::Path) -> Render<'static> {
    Render { values: vec![file.to_owned()], api_versions: OPERATORS.to_vec(), ..Render::default() }
}

/// Every file's render by Helm 4 for the newest API server, made once.
pub(crate) fn renders() -> Result<&'static [(String, Vec<Value>)]> {
    type Renders = Vec<(String, Vec<Value>)>;
    static RENDERS: OnceLock<Result<Renders, String>> = OnceLock::new();
    let renders = RENDERS.get_or_init(|| {
        let render = || -> Result<_> {
            let helm = Helm::new(4)?;
            files()?
                .into_iter()
                .map(|(name, file)| Ok((name, helm.template(&chart()?, &render_of(&file))?)))
                .collect()
        };
        render().map_err(|error| format!("{error:#}"))
    });
    renders.as_deref().map_err(|error| anyhow::anyhow!("{error}"))
}
