//! Debian packages: what is missing, said before anything is installed.

use std::cell::Cell;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::{console, process};

/// How often a step that needs the network is tried.
const TRIES: u32 = 3;
const PAUSE_BETWEEN_TRIES: Duration = Duration::from_secs(5);

/// What may be done about a missing package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permission {
    /// Root with apt-get: name it, then install it.
    Install,
    /// `--no-install`: only name it.
    NameOnly,
    /// Not root: print the command that root would run.
    NotRoot,
    /// Another distribution.
    NoAptGet,
}

/// Installs packages, each named before, or says what to install.
pub(crate) struct Installer {
    permission: Permission,
    lists_are_fresh: Cell<bool>,
}

impl Installer {
    /// Decides once what this run may do.
    pub(crate) fn new(no_install: bool) -> Self {
        let permission = if no_install {
            Permission::NameOnly
        } else if process::find_program("apt-get").is_none() {
            Permission::NoAptGet
        } else if process::is_root() {
            Permission::Install
        } else {
            Permission::NotRoot
        };
        Self { permission, lists_are_fresh: Cell::new(false) }
    }

    #[cfg(test)]
    pub(crate) fn that_only_names() -> Self {
        Self { permission: Permission::NameOnly, lists_are_fresh: Cell::new(false) }
    }

    /// Whether a program of ours may be compiled and kept below the target directory.
    pub(crate) fn may_compile_tools(&self) -> bool {
        self.permission != Permission::NameOnly
    }

    /// Makes sure that every one of `packages` is installed.
    ///
    /// # Errors
    /// One is missing and may not be installed (the message has the command), or apt-get failed.
    pub(crate) fn packages(&self, packages: &[&str], why: &str) -> Result<()> {
        let missing: Vec<&str> = packages.iter().copied().filter(|package| !is_installed(package)).collect();
        self.install(&missing, why)
    }

    /// Makes sure that `program` can be found, by installing `package` where it cannot.
    ///
    /// # Errors
    /// As [`Self::packages`].
    pub(crate) fn program(&self, program: &str, package: &str, why: &str) -> Result<()> {
        if process::find_program(program).is_some() {
            return Ok(());
        }
        self.install(&[package], why)
    }

    /// Installs the packages, or updates those that are there in an older version.
    ///
    /// # Errors
    /// They may not be installed (the message has the command), or apt-get failed.
    pub(crate) fn install(&self, packages: &[&str], why: &str) -> Result<()> {
        if packages.is_empty() {
            return Ok(());
        }
        if self.permission != Permission::Install {
            bail!("{}", missing_message(self.permission, packages, why));
        }
        if !self.lists_are_fresh.replace(true) {
            console::progress("refreshing the package lists: apt-get update");
            // A list that could not be refreshed may still name what is needed; the installation decides.
            if let Err(error) = with_retries("refreshing the package lists", || apt_get(&["update"])) {
                console::progress(&format!("{error:#}; going on with the lists as they are"));
            }
        }
        for package in packages {
            console::progress(&format!("installing: {package} ({why})"));
        }
        // --no-remove: a conflict with what the user has installed must fail, not uninstall it.
        let mut arguments = vec!["install", "--yes", "--no-remove", "--no-install-recommends"];
        arguments.extend(packages);
        with_retries("installing packages", || apt_get(&arguments))
    }
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = process::command("apt-get");
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["--quiet=2", "-o", "Acquire::Retries=3"])
        .args(arguments);
    let step = format!("apt-get {}", arguments.first().copied().unwrap_or_default());
    let answer = process::capture(&mut command, &step)?;
    if !answer.success {
        bail!("{step} failed: {}\n`{}`", last_lines(&answer.stderr, 5), process::command_line(&command));
    }
    Ok(())
}

/// Runs a step that needs the network up to three times.
///
/// # Errors
/// The last try's.
pub(crate) fn with_retries(step: &str, mut attempt: impl FnMut() -> Result<()>) -> Result<()> {
    let mut tried = 1;
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(error) if tried >= TRIES => return Err(error),
            Err(error) => console::progress(&format!("{step}: try {tried} of {TRIES} failed: {error:#}")),
        }
        tried += 1;
        sleep(PAUSE_BETWEEN_TRIES);
    }
}

/// The last lines of what a program printed, joined by `; `.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("; ")
}

/// dpkg's own word: removed packages whose configuration is left are not installed.
fn is_installed(package: &str) -> bool {
    let mut command = process::command("dpkg-query");
    command.args(["--show", "--showformat=${db:Status-Status}\\n", package]);
    process::capture(&mut command, "asking dpkg")
        .is_ok_and(|answer| answer.success && answer.stdout.lines().any(|status| status == "installed"))
}

/// One sentence: what is missing, why it is needed, and the command that brings it.
fn missing_message(permission: Permission, packages: &[&str], why: &str) -> String {
    let names = packages.join(" ");
    let verb = if packages.len() == 1 { "is" } else { "are" };
    match permission {
        Permission::NameOnly => {
            format!(
                "{names} {verb} missing ({why}), and --no-install was given: run `apt-get install {names}` as root"
            )
        }
        Permission::NotRoot => {
            format!(
                "{names} {verb} missing ({why}), and only root can install it: run `sudo apt-get install {names}`"
            )
        }
        Permission::NoAptGet => format!(
            "{names} {verb} missing ({why}), and this machine has no apt-get: install what your distribution calls these Debian 12 packages"
        ),
        Permission::Install => format!("{names} {verb} missing ({why})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_piece_is_one_sentence_with_the_command() {
        assert_eq!(
            missing_message(Permission::NameOnly, &["nftables"], "cuts the path of a client in the tests"),
            "nftables is missing (cuts the path of a client in the tests), and --no-install was given: \
             run `apt-get install nftables` as root"
        );
        assert_eq!(
            missing_message(Permission::NotRoot, &["rustc-web", "cargo-web"], "compile the kernel programs"),
            "rustc-web cargo-web are missing (compile the kernel programs), and only root can install it: \
             run `sudo apt-get install rustc-web cargo-web`"
        );
        assert_eq!(
            missing_message(Permission::NoAptGet, &["iproute2"], "makes network namespaces"),
            "iproute2 is missing (makes network namespaces), and this machine has no apt-get: \
             install what your distribution calls these Debian 12 packages"
        );
    }

    #[test]
    fn nothing_is_installed_where_nothing_is_missing() {
        let installer = Installer::that_only_names();
        assert!(installer.program("sh", "dash", "runs scripts").is_ok());
        let error = installer
            .program("ackbeat-no-such-program", "ackbeat-no-such-package", "a test")
            .expect_err("missing");
        assert!(error.to_string().contains("apt-get install ackbeat-no-such-package"), "{error}");
    }

    #[test]
    fn the_end_of_an_output_is_one_line() {
        assert_eq!(last_lines("a\n\n b \nc\n", 2), "b; c");
        assert_eq!(last_lines("", 2), "");
    }
}
