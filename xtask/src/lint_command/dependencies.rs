//! `cargo deny`: licences, bans, sources, and known vulnerabilities where their database can be reached.
//!
//! What is allowed stands in `.cargo/deny.toml`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::Outcome;
use crate::packages::{Installer, last_lines, with_retries};
use crate::workspace::Workspace;
use crate::{console, process};

/// Runs some of cargo-deny's checks.
///
/// # Errors
/// A dependency breaks a rule; the message has what cargo-deny says.
pub(super) fn check(workspace: &Workspace, installer: &Installer, what: &[&str]) -> Result<Outcome> {
    let program = match find_or_install(workspace, installer) {
        Ok(program) => program,
        Err(error) => return Ok(Outcome::CouldNotRun(format!("{error:#}"))),
    };
    let mut command = process::command(program);
    command
        .current_dir(&workspace.root)
        .args(["--log-level", "error", "check", "--hide-inclusion-graph"])
        .args(what);
    let answer = process::capture(&mut command, "cargo deny")?;
    if answer.success {
        return Ok(Outcome::Passed);
    }
    let output = format!("{}\n{}", answer.stdout, answer.stderr);
    if database_out_of_reach(&output) {
        return Ok(Outcome::OutOfReach("its database cannot be fetched from this machine".to_owned()));
    }
    console::progress(&output);
    bail!("{} (`cargo deny check {}`)", last_lines(&output, 1), what.join(" "));
}

fn database_out_of_reach(output: &str) -> bool {
    output.contains("failed to fetch advisory database")
}

/// The user's cargo-deny where it has the pinned version, else one of our own below the target directory.
fn find_or_install(workspace: &Workspace, installer: &Installer) -> Result<PathBuf> {
    let pinned = workspace.toolchain().cargo_deny.as_str();
    let tools = workspace.tools();
    let own = tools.join("bin/cargo-deny");
    let candidates = [
        process::find_program("cargo-deny"),
        Some(process::cargo_bin().join("cargo-deny")),
        Some(own.clone()),
    ];
    for candidate in candidates.into_iter().flatten() {
        if is_version(&candidate, pinned) {
            return Ok(candidate);
        }
    }
    let version = format!("={pinned}");
    if !installer.may_compile_tools() {
        bail!("cargo-deny {pinned} is missing: run `cargo install cargo-deny --locked --version {version}`");
    }
    console::progress(&format!(
        "installing: cargo-deny {pinned} into {} (checks licences; about 4 minutes)",
        tools.display()
    ));
    let scratch = tools.join("build");
    with_retries("installing cargo-deny", || {
        let mut command = process::command(process::cargo());
        command
            .args([
                "install",
                "--quiet",
                "cargo-deny",
                "--locked",
                "--force",
                "--version",
                &version,
                "--root",
            ])
            .arg(&tools)
            .env("CARGO_TARGET_DIR", &scratch);
        process::run(&mut command, "installing cargo-deny")
    })?;
    // The compiled parts are not needed again; a leftover costs only room.
    let _ = fs::remove_dir_all(&scratch);
    Ok(own)
}

fn is_version(program: &Path, version: &str) -> bool {
    process::is_executable(program)
        && process::capture(process::command(program).arg("--version"), "asking cargo-deny for its version")
            .is_ok_and(|answer| answer.stdout.split_whitespace().any(|word| word == version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_cannot_be_fetched_is_no_finding() {
        assert!(database_out_of_reach(
            "[ERROR] failed to fetch advisory database https://… with cli: failed to clone"
        ));
        assert!(!database_out_of_reach("error[vulnerability]: a use after free\nadvisories FAILED"));
    }
}
