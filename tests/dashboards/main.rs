//! Rank `namespaces`: the dashboard and the rules of the chart, against a real Prometheus that has read the page of a
//! real sidecar beside the host of the main story.

use std::path::PathBuf;

use anyhow::{Context, Result};

mod dashboard;
mod rules;
mod shape;
mod story;

/// A file of the chart.
fn chart(relative: &str) -> Result<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../charts/ackbeat").join(relative);
    path.canonicalize().with_context(|| format!("{} is missing", path.display()))
}
