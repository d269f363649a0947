//! The recording and alert rules, judged by Prometheus's own tool.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::chart;

fn promtool(arguments: &[&str], file: &str) -> Result<()> {
    let output = Command::new("promtool")
        .args(arguments)
        .arg(chart(file)?)
        .output()
        .context("starting promtool failed; it is in Debian's package prometheus")?;
    ensure!(
        output.status.success(),
        "promtool {arguments:?} {file}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

#[test]
fn the_rules_are_rules() -> Result<()> {
    promtool(&["check", "rules"], "rules/ackbeat.yaml")
}

#[test]
fn the_rules_fire_when_they_should_and_only_then() -> Result<()> {
    promtool(&["test", "rules"], "rules/ackbeat_test.yaml")
}
