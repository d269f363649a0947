//! Validation against the API server's own schemas, strictly: an unknown key is refused.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{repository, tool};

/// Every minor version whose schemas are there.
pub const VERSIONS: [&str; 13] =
    ["1.25", "1.26", "1.27", "1.28", "1.29", "1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37"];

/// Manifests that were rendered for one version.
pub struct Rendered {
    /// Minor version of the API server.
    pub version: String,
    /// What a failure is named after.
    pub name: String,
    /// The manifests.
    pub documents: Vec<Value>,
}

/// What the schemas of one version say of one set of manifests.
#[derive(Debug, Deserialize)]
pub struct Verdict {
    /// Manifests that were looked at.
    pub validated: usize,
    /// `apiVersion Kind` of those that have no schema there: custom resources, or kinds which this version lacks.
    pub without_schema: Vec<String>,
    /// What is wrong.
    pub refused: Vec<Refusal>,
}

/// One thing that the API server would refuse.
#[derive(Debug, Deserialize)]
pub struct Refusal {
    /// `Kind name`.
    pub document: String,
    /// Where in it.
    pub path: String,
    /// What the schema says.
    pub message: String,
}

/// Validates all sets in one process: reading the schemas takes longer than using them.
///
/// # Errors
/// The validator does not start or does not know a version.
pub fn validate(sets: &[Rendered]) -> Result<Vec<Verdict>> {
    let mut requests = String::new();
    for set in sets {
        requests.push_str(
            &json!({"version": set.version, "name": set.name, "documents": set.documents}).to_string(),
        );
        requests.push('\n');
    }
    let mut input = tempfile::tempfile().context("no file for the manifests")?;
    input.write_all(requests.as_bytes()).context("the manifests could not be written")?;
    std::io::Seek::rewind(&mut input).context("the manifests could not be read again")?;
    let output = Command::new(tool("helm/python/bin/python3")?)
        .arg(repository("tests/charts/validate.py")?)
        .stdin(Stdio::from(input))
        .output()
        .context("the validator does not start")?;
    ensure!(output.status.success(), "the validator failed: {}", String::from_utf8_lossy(&output.stderr));
    let verdicts = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("the validator said {line}")))
        .collect::<Result<Vec<Verdict>>>()?;
    ensure!(verdicts.len() == sets.len(), "{} answers to {} questions", verdicts.len(), sets.len());
    Ok(verdicts)
}
