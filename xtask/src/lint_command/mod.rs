//! `cargo xtask lint`: format, lints, licences, and the rules of this repository.

use std::env;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::bpf_compiler::Compiler;
use crate::build_command::{self, CompilerOptions};
use crate::packages::Installer;
use crate::workspace::Workspace;
use crate::{console, process};

mod dependencies;
mod repository;
mod unsafe_code;

/// Options of `cargo xtask lint`.
#[derive(Debug, Args)]
pub(crate) struct LintOptions {
    /// A check that could not run is a failure. Set by `CI=true` too.
    #[arg(long)]
    require_all: bool,
    #[command(flatten)]
    compiler: CompilerOptions,
}

/// How one check ended.
enum Outcome {
    Passed,
    /// Needed something that this machine lacks.
    CouldNotRun(String),
    /// Needed something that not every network has: named, never a failure.
    OutOfReach(String),
}

/// Runs every check, also after one has failed, and names what failed.
///
/// # Errors
/// None of its own: failing checks make the exit code.
pub(crate) fn execute(workspace: &Workspace, options: &LintOptions) -> Result<ExitCode> {
    let require_all = options.require_all || env::var_os("CI").is_some_and(|value| value == "true");
    let installer = Installer::new(options.compiler.no_install);
    let deny = |what: &[&str]| dependencies::check(workspace, &installer, what);
    type Check<'a> = (&'a str, Box<dyn Fn() -> Result<Outcome> + 'a>);
    let checks: Vec<Check<'_>> = vec![
        ("format", Box::new(|| cargo(workspace, &["fmt", "--all", "--check"]))),
        ("top level", Box::new(|| repository::top_level(workspace).map(|()| Outcome::Passed))),
        ("changelogs", Box::new(|| repository::changelogs(workspace).map(|()| Outcome::Passed))),
        ("unsafe code", Box::new(|| unsafe_code::check(workspace).map(|()| Outcome::Passed))),
        (
            "clippy",
            Box::new(|| cargo(workspace, &["clippy", "--all-targets", "--all-features", "--", "-Dwarnings"])),
        ),
        (
            "clippy for the kernel programs",
            Box::new(|| clippy_for_bpf(workspace, &options.compiler, &installer)),
        ),
        ("licences, bans, sources", Box::new(|| deny(&["licenses", "bans", "sources"]))),
        ("advisories", Box::new(|| deny(&["advisories"]))),
    ];
    let mut lines = vec![String::new()];
    let mut failed = 0_usize;
    for (name, check) in &checks {
        console::progress(&format!("check: {name}"));
        let (line, is_failure) = verdict(name, check(), require_all);
        lines.push(line);
        failed += usize::from(is_failure);
    }
    lines.push(String::new());
    lines.push(format!("lint: {} checks, {failed} failed", checks.len()));
    for line in lines {
        console::result(&line);
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn verdict(name: &str, outcome: Result<Outcome>, require_all: bool) -> (String, bool) {
    match outcome {
        Ok(Outcome::Passed) => (format!("ok            {name}"), false),
        Ok(Outcome::OutOfReach(why)) => (format!("out of reach  {name}: {why}"), false),
        Ok(Outcome::CouldNotRun(why)) => (format!("could not run {name}: {why}"), require_all),
        Err(error) => (format!("FAILED        {name}: {error:#}"), true),
    }
}

/// A cargo command that passes or fails.
fn cargo(workspace: &Workspace, arguments: &[&str]) -> Result<Outcome> {
    let mut command = process::command(process::cargo());
    command.current_dir(&workspace.root).args(arguments);
    let step = format!("cargo {}", arguments.first().copied().unwrap_or_default());
    process::run(&mut command, &step).map(|()| Outcome::Passed)
}

/// Clippy for the BPF target, with the compiler that builds the kernel programs.
fn clippy_for_bpf(
    workspace: &Workspace,
    options: &CompilerOptions,
    installer: &Installer,
) -> Result<Outcome> {
    let compiler = match build_command::bpf_compiler(workspace, options, installer) {
        Ok(compiler) => compiler,
        Err(error) => return Ok(Outcome::CouldNotRun(format!("{error:#}"))),
    };
    if let Err(error) = clippy_of(&compiler, installer) {
        return Ok(Outcome::CouldNotRun(format!("{error:#}")));
    }
    let mut command = compiler.clippy();
    command
        .current_dir(&workspace.root)
        .args(["--package", "ackbeat-ebpf", "--profile", "ebpf", "--target-dir"])
        .arg(workspace.target.join("ebpf").join(compiler.cache_name()))
        .args(["--", "-Dwarnings"]);
    process::run(&mut command, "clippy for the kernel programs").map(|()| Outcome::Passed)
}

/// Makes sure that the compiler has a clippy of its own release.
fn clippy_of(compiler: &Compiler, installer: &Installer) -> Result<()> {
    match compiler {
        Compiler::Debian { .. } => installer
            .packages(&["rust-web-clippy"], "lints the kernel programs with the compiler that builds them")
            .context("Debian's compiler has no clippy"),
        Compiler::Rustup { rustup, toolchain, .. } => {
            let mut version = process::command(rustup);
            version.env_remove("RUSTUP_TOOLCHAIN").args(["run", toolchain, "cargo", "clippy", "--version"]);
            if !process::capture(&mut version, "asking for clippy")?.success {
                bail!("{compiler} has no clippy: run `rustup component add clippy --toolchain {toolchain}`");
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn what_could_not_run_fails_only_where_all_must_run() {
        let missing = || Ok(Outcome::CouldNotRun("no compiler".to_owned()));
        assert_eq!(
            verdict("clippy", missing(), false),
            ("could not run clippy: no compiler".to_owned(), false)
        );
        assert!(verdict("clippy", missing(), true).1);
        assert!(!verdict("advisories", Ok(Outcome::OutOfReach("no network".to_owned())), true).1);
        assert!(verdict("format", Err(anyhow!("differs")), false).1);
        assert!(!verdict("format", Ok(Outcome::Passed), true).1);
    }
}
