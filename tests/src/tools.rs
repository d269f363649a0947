//! Where the programs under test and the programs to test against are.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

fn workspace() -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.parent().map_or_else(|| package.clone(), PathBuf::from)
}

fn target_directories() -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> =
        std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from).into_iter().collect();
    directories.push(workspace().join("target"));
    directories
}

/// The built `ackbeat`: `ACKBEAT_BIN`, else the newest of the workspace's debug and release builds.
///
/// # Errors
/// If there is none.
pub fn ackbeat() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("ACKBEAT_BIN").map(PathBuf::from) {
        if path.is_file() {
            return Ok(path);
        }
        bail!("ACKBEAT_BIN names {}, which is no file", path.display());
    }
    let built = target_directories()
        .iter()
        .flat_map(|target| ["debug", "release"].map(|profile| target.join(profile).join("ackbeat")))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max();
    Ok(built.context("the sidecar is not built: run `cargo xtask build`, or set ACKBEAT_BIN")?.1)
}

/// A program of this package, built beside the program that runs.
///
/// # Errors
/// If it is not there: a test program has them all, another program must be built together with it (`--bins`).
pub fn own_program(name: &str) -> Result<PathBuf> {
    let running = std::env::current_exe().context("finding the running program failed")?;
    // Test programs are in the folder `deps` below the others.
    let found =
        running.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.with_context(|| {
        format!("{name} is not beside {}: run `cargo build -p ackbeat-tests --bins`", running.display())
    })
}

fn tool(relative: &str) -> Result<PathBuf> {
    let directories = match std::env::var_os("ACKBEAT_TEST_TOOLS").map(PathBuf::from) {
        Some(directory) => vec![directory],
        None => target_directories().into_iter().map(|target| target.join("test-tools")).collect(),
    };
    directories.iter().map(|directory| directory.join(relative)).find(|path| path.exists()).with_context(
        || {
            format!(
                "{relative} is not among the test tools: run `cargo xtask test`, or set ACKBEAT_TEST_TOOLS"
            )
        },
    )
}

/// The folder whose `node_modules` has the npm package `ws`.
///
/// # Errors
/// If it is not installed.
pub fn node_directory() -> Result<PathBuf> {
    tool("node/node_modules/ws/package.json")?;
    tool("node")
}

/// The program of the `PyPI` package `rotel`, an OTLP receiver that is not ours.
///
/// # Errors
/// If it is not installed.
pub fn rotel_agent() -> Result<PathBuf> {
    let library = tool("python/lib")?;
    let found = std::fs::read_dir(&library)
        .with_context(|| format!("reading {} failed", library.display()))?
        .flatten()
        .map(|python| python.path().join("site-packages/rotel/rotel-agent"))
        .find(|path| path.is_file());
    found.with_context(|| {
        format!("the Python package rotel is not below {}: run `cargo xtask test`", library.display())
    })
}

/// The source of the mux host for Node.js.
#[must_use]
pub fn node_mux_host() -> PathBuf {
    workspace().join("tests/node/mux-host.mjs")
}
