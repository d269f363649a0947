//! What the tests of the charts stand on: the real Helm, the real Kubernetes schemas, and the Pod Security Standards.
//!
//! `cargo xtask test in-process` brings the programs into `ACKBEAT_TEST_TOOLS`: `helm/v3/helm`, `helm/v4/helm` and
//! `helm/python/bin/python3`.

pub mod api_server;
pub mod helm;
pub mod manifests;
pub mod pod_security;
pub mod schemas;
pub mod values_table;

use std::env;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

/// A folder or file of this repository.
///
/// # Errors
/// It is missing; the message has its full name.
pub fn repository(relative: &str) -> Result<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(relative);
    path.canonicalize().with_context(|| format!("{} is missing", path.display()))
}

/// A program that `cargo xtask test` has brought.
///
/// # Errors
/// `ACKBEAT_TEST_TOOLS` is not set, or the program is not there.
pub fn tool(relative: &str) -> Result<PathBuf> {
    let folder = env::var_os("ACKBEAT_TEST_TOOLS")
        .context("ACKBEAT_TEST_TOOLS is not set: run `cargo xtask test in-process`")?;
    let path = PathBuf::from(folder).join(relative);
    // Not canonical: the interpreter of a virtual environment is known by its link.
    anyhow::ensure!(path.is_file(), "{} is missing: run `cargo xtask test in-process`", path.display());
    Ok(path)
}
