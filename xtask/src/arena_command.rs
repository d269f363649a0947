//! `cargo xtask arena`: every detector on every scenario, with real sockets.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::build_command::{self, CompilerOptions};
use crate::packages::Installer;
use crate::test_command::tools;
use crate::workspace::Workspace;
use crate::{console, process};

/// Options of `cargo xtask arena`.
#[derive(Debug, Args)]
pub(crate) struct ArenaOptions {
    /// Scenarios: numbers and ranges (`1-19,29`); all of them by default.
    #[arg(long, value_name = "LIST")]
    rows: Option<String>,
    /// Stages of each scenario and variant: a number, or `auto` for as many as make 30 runs (10 where a run costs over
    /// half a minute) [default: auto; 1 with --quick].
    #[arg(long, value_name = "NUMBER")]
    seeds: Option<String>,
    /// Stages at once [default: as many as the machine bears].
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<usize>,
    /// A short set, within 5 minutes once built.
    #[arg(long)]
    quick: bool,
    /// Play everything anew; without it a set goes on where it stopped.
    #[arg(long)]
    fresh: bool,
    /// Folder of the set [default: `arena/full` or `arena/quick` in the target folder].
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Put the result into the repository: `tests/arena` and the README's block.
    #[arg(long)]
    publish: bool,
    #[command(flatten)]
    compiler: CompilerOptions,
}

/// Installs, builds, plays, judges, and publishes if asked to.
///
/// # Errors
/// Not root, something is missing, or the build failed. A stage that failed and a requirement that does not hold are the
/// exit code.
pub(crate) fn execute(workspace: &Workspace, options: &ArenaOptions) -> Result<ExitCode> {
    if !process::is_root() {
        bail!(
            "the arena makes network namespaces and loads kernel programs, so it needs root: run `{}`",
            process::as_root("arena")
        );
    }
    let installer = Installer::new(options.compiler.no_install);
    prepare(workspace, &installer)?;
    let object = build_command::ebpf_object(workspace, &options.compiler, &installer)?;
    build_command::sidecar_and_test_programs(workspace, &object, "--bins")?;
    let out = options
        .out
        .clone()
        .unwrap_or_else(|| workspace.target.join("arena").join(if options.quick { "quick" } else { "full" }));
    let played = arena(workspace, &run_arguments(options, &out))?;
    if options.publish && out.join("result.json").is_file() {
        let mut arguments = words(&["publish", "--in"]);
        arguments.push(out.into_os_string());
        arguments.extend(words(&["--readme", "README.md"]));
        if !arena(workspace, &arguments)? {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(if played { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Programs that scenarios use.
fn prepare(workspace: &Workspace, installer: &Installer) -> Result<()> {
    installer.program("ip", "iproute2", "makes the network namespaces of the scenarios")?;
    installer.program("tc", "iproute2", "limits rates in the scenarios")?;
    installer.program("nft", "nftables", "drops packets in the scenarios")?;
    // A machine without a browser still plays the rest, and says so.
    if let Err(error) = tools::browser(installer) {
        console::progress(&format!("{error:#}; scenario 6 will not be run"));
    }
    tools::node(workspace, installer)?;
    tools::python(workspace, installer)
}

fn words(words: &[&str]) -> Vec<std::ffi::OsString> {
    words.iter().map(Into::into).collect()
}

fn run_arguments(options: &ArenaOptions, out: &std::path::Path) -> Vec<std::ffi::OsString> {
    let mut arguments = words(&["run", "--out"]);
    arguments.push(out.as_os_str().to_owned());
    let jobs = options.jobs.map(|jobs| jobs.to_string());
    for (name, value) in [("--rows", &options.rows), ("--seeds", &options.seeds), ("--jobs", &jobs)] {
        if let Some(value) = value {
            arguments.extend(words(&[name, value]));
        }
    }
    for (name, is_given) in [("--quick", options.quick), ("--fresh", options.fresh)] {
        if is_given {
            arguments.extend(words(&[name]));
        }
    }
    arguments
}

/// Runs the arena's program and says whether it ended well. It shares the terminal, and Ctrl-C reaches it.
fn arena(workspace: &Workspace, arguments: &[std::ffi::OsString]) -> Result<bool> {
    let program = workspace.program("arena", false);
    let given: Vec<String> = env::args().skip(1).collect();
    let mut command = process::command(&program);
    command
        .current_dir(&workspace.root)
        .args(arguments)
        .env("ACKBEAT_BIN", workspace.program("ackbeat", false))
        .env("ACKBEAT_TEST_TOOLS", workspace.test_tools_folder())
        .env("ACKBEAT_ARENA_COMMAND", format!("cargo xtask {}", given.join(" ")));
    let status = command.status().with_context(|| format!("could not start {}", program.display()))?;
    Ok(status.success())
}
