//! Programs that are run to their end.

use std::process::{Command, Stdio};

use crate::error::{Context as _, LabError, Result};
use crate::namespace::Namespace;

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// If it cannot be started or fails; the message has what it said.
pub fn run(namespace: Option<&Namespace>, program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let output = match namespace {
        Some(namespace) => namespace.run(move || command.output())?,
        None => command.output(),
    };
    let output = output.with_context(|| format!("starting {program} failed; is it installed?"))?;
    if !output.status.success() {
        return Err(LabError::new(format!(
            "`{program} {}` failed with {}: {}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
