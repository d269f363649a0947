//! What a user without privileges is told.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ackbeat_tests::network::Network;
use ackbeat_tests::tools;
use anyhow::{Context, Result, ensure};

/// `nobody`.
const UNPRIVILEGED: u32 = 65_534;

/// A copy of the sidecar where every user can run it. Dropping it removes it.
struct ReadableCopy {
    directory: PathBuf,
}

impl ReadableCopy {
    fn make() -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let directory = std::env::temp_dir().join(format!("ackbeat-privileges-{}", std::process::id()));
        std::fs::create_dir_all(&directory).context("making a directory for the copy failed")?;
        let copy = Self { directory };
        std::fs::copy(tools::ackbeat()?, copy.program()).context("copying the sidecar failed")?;
        for path in [&copy.directory, &copy.program()] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
                .context("letting every user run the copy failed")?;
        }
        Ok(copy)
    }

    fn program(&self) -> PathBuf {
        self.directory.join("ackbeat")
    }
}

impl Drop for ReadableCopy {
    fn drop(&mut self) {
        // What cannot be removed stays in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn unprivileged(program: &Path, arguments: &[&str], network: &Network) -> Result<Output> {
    let id = UNPRIVILEGED.to_string();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &id, "--regid", &id, "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"])
        .arg(program)
        .args(arguments)
        .current_dir("/")
        .env_remove("ACKBEAT_EBPF_OBJECT")
        .stdin(Stdio::null());
    network.host.run(move || command.output())?.context("starting setpriv failed (package util-linux)")
}

/// The capabilities that a text names.
fn capabilities(text: &str) -> Vec<&str> {
    let mut names: Vec<&str> = text
        .split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
        .filter(|word| word.starts_with("CAP_"))
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn check_explains_itself_and_run_says_the_same() -> Result<()> {
    let network = Network::create()?;
    let copy = ReadableCopy::make()?;
    let check = unprivileged(&copy.program(), &["check"], &network)?;
    let table = String::from_utf8_lossy(&check.stdout).into_owned();
    ensure!(check.status.code().is_some_and(|code| code != 0), "check ended with {}: {table}", check.status);
    ensure!(!capabilities(&table).is_empty(), "check names no missing capability: {table}");

    let run = unprivileged(&copy.program(), &["run"], &network)?;
    let explanation = String::from_utf8_lossy(&run.stderr).into_owned();
    ensure!(run.status.code() == Some(3), "run ended with {}: {explanation}", run.status);
    ensure!(run.stdout.is_empty(), "nothing but spans goes to standard output");
    // The same explanation: every line of it that says what is missing or how to get it.
    for line in table.lines().filter(|line| line.contains("CAP_")) {
        ensure!(explanation.contains(line.trim()), "run does not say `{line}`: {explanation}");
    }
    Ok(())
}

#[test]
fn a_privileged_check_agrees_that_run_would_start() -> Result<()> {
    let network = Network::create()?;
    let mut command = Command::new(tools::ackbeat()?);
    command.arg("check").stdin(Stdio::null());
    let check = network.host.run(move || command.output())?.context("starting ackbeat failed")?;
    ensure!(check.status.success(), "check: {}", String::from_utf8_lossy(&check.stdout));
    Ok(())
}

#[test]
fn a_bad_setting_is_named() -> Result<()> {
    let network = Network::create()?;
    for arguments in
        [&["run", "--ports", "http"][..], &["run", "--policy", "slow"], &["run", "--no-such-flag"]]
    {
        let mut command = Command::new(tools::ackbeat()?);
        command.args(arguments).stdin(Stdio::null());
        let run = network.host.run(move || command.output())?.context("starting ackbeat failed")?;
        let message = String::from_utf8_lossy(&run.stderr).into_owned();
        ensure!(run.status.code() == Some(2), "{arguments:?} ended with {}: {message}", run.status);
        ensure!(message.contains(arguments[1].trim_start_matches('-')), "{arguments:?}: {message}");
    }
    Ok(())
}
