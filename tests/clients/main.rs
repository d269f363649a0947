//! Rank `in-process`: the tests of the API's clients in other languages, each run by its language's own test runner.

use std::path::{Path, PathBuf};
use std::process::Command;

use ackbeat_tests::tools;
use anyhow::{Context, Result, bail};

/// The folder of a client.
fn client(language: &str) -> PathBuf {
    tools::source("../sidecar/clients").join(language)
}

/// Runs `command` to its end; what it said is in the error.
fn passes(mut command: Command) -> Result<String> {
    let output = command.output().with_context(|| format!("starting {command:?} failed"))?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("{command:?} ended with {}:\n{said}", output.status);
    }
    Ok(said)
}

/// Runs one file of the Node.js package's tests. A run without a single test is no success.
fn node(file: &str) -> Result<()> {
    let path = client("node").join("test").join(file);
    let mut command = Command::new("node");
    command.current_dir(tools::node_directory()?).args(["--test", "--test-reporter=tap"]).arg(path);
    let said = passes(command)?;
    let counts = said.lines().filter_map(|line| line.strip_prefix("# pass "));
    let passed: Option<u32> = counts.filter_map(|count| count.parse().ok()).next();
    match passed {
        Some(count) if count > 0 && said.contains("# skipped 0") => Ok(()),
        _ => bail!("{file} ran no test, or skipped some:\n{said}"),
    }
}

/// Whoever adds a file of tests adds it here, or this says so.
fn files_of_tests(folder: &Path, is_test: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let entries = folder.read_dir().with_context(|| format!("reading {} failed", folder.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_test(name))
        .collect();
    names.sort();
    Ok(names)
}

#[test]
fn no_file_of_the_node_package_is_forgotten() -> Result<()> {
    let files = files_of_tests(&client("node").join("test"), |name| name.ends_with(".test.mjs"))?;
    let run_here = ["addresses", "heartbeat", "lifecycle", "readme", "report", "types"];
    assert_eq!(files, run_here.map(|name| format!("{name}.test.mjs")));
    Ok(())
}

#[test]
fn node_addresses() -> Result<()> {
    node("addresses.test.mjs")
}

#[test]
fn node_heartbeat() -> Result<()> {
    node("heartbeat.test.mjs")
}

#[test]
fn node_lifecycle() -> Result<()> {
    node("lifecycle.test.mjs")
}

#[test]
fn node_readme() -> Result<()> {
    node("readme.test.mjs")
}

#[test]
fn node_report() -> Result<()> {
    node("report.test.mjs")
}

#[test]
fn node_types() -> Result<()> {
    node("types.test.mjs")
}

/// The tests of the Python client, with the standard library's `unittest`.
#[test]
fn python() -> Result<()> {
    let mut command = Command::new(tools::python()?);
    // Compiled files would be left beside the sources.
    command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(client("python"));
    command.args(["-W", "error", "-m", "unittest", "-v"]);
    let said = passes(command)?;
    let is_whole = said.lines().any(|line| line.trim() == "OK");
    let ran = said.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next()?.parse::<u32>().ok());
    if !is_whole || ran.is_none_or(|count| count == 0) {
        bail!("the Python client ran no test, or skipped some:\n{said}");
    }
    Ok(())
}
