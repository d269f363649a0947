//! `cargo xtask bench`: what ackbeat costs the connections beside it, the machine, and itself.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::build_command::{self, CompilerOptions};
use crate::packages::Installer;
use crate::process;
use crate::static_build::{self, Architecture, Profile};
use crate::workspace::Workspace;

/// The package that measures, and its program.
const PACKAGE: &str = "ackbeat-overhead";

/// Options of `cargo xtask bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    /// A short run, within 2 minutes once built, which fails if something costs ten times what was published.
    #[arg(long)]
    quick: bool,
    /// Only these parts: `traffic`, `kernel-programs`, `several`, `idle`.
    #[arg(long, value_name = "LIST", conflicts_with = "publish")]
    parts: Option<String>,
    /// Measure this program instead of building one.
    #[arg(long, value_name = "FILE")]
    ackbeat: Option<PathBuf>,
    /// Where the result is kept [default: `overhead/full.json` or `overhead/quick.json` in the target folder].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Put the result into the repository: `tests/overhead` and the README's block.
    #[arg(long, conflicts_with = "quick")]
    publish: bool,
    #[command(flatten)]
    compiler: CompilerOptions,
}

/// Installs, builds, measures, and publishes if asked to.
///
/// # Errors
/// Not root, something is missing, or the build failed. A measurement that failed, and with `--quick` one that costs ten
/// times what was published, is the exit code.
pub(crate) fn execute(workspace: &Workspace, options: &BenchOptions) -> Result<ExitCode> {
    if !process::is_root() {
        bail!(
            "the benchmark makes network namespaces and loads kernel programs, so it needs root: run `{}`",
            process::as_root("bench")
        );
    }
    let installer = Installer::new(options.compiler.no_install);
    installer.program("ip", "iproute2", "makes the network namespaces of the benchmark")?;
    installer.program("ss", "iproute2", "is what ackbeat is compared with")?;
    installer.program("nft", "nftables", "belongs to the router of the benchmark")?;
    let ackbeat = match &options.ackbeat {
        Some(ackbeat) => std::path::absolute(ackbeat)?,
        None => release_build(workspace, &options.compiler, &installer)?,
    };
    let mut build = process::command(process::cargo());
    build.current_dir(&workspace.root).args(["build", "--package", PACKAGE]);
    process::run(&mut build, "building the benchmark")?;
    let kept = if options.quick { "quick.json" } else { "full.json" };
    let folder = workspace.target.join("overhead");
    let out = options.out.clone().map_or_else(|| Ok(folder.join(kept)), std::path::absolute)?;
    if let Some(folder) = out.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
    }
    if !overhead(workspace, run_arguments(options, &ackbeat, &out))? {
        return Ok(ExitCode::FAILURE);
    }
    if options.publish {
        let arguments =
            [word("publish"), word("--in"), out.into_os_string(), word("--readme"), word("README.md")];
        if !overhead(workspace, arguments.to_vec())? {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The sidecar as it is shipped.
fn release_build(
    workspace: &Workspace,
    compiler: &CompilerOptions,
    installer: &Installer,
) -> Result<PathBuf> {
    let object = build_command::ebpf_object(workspace, compiler, installer)?;
    static_build::sidecar(workspace, &object, Architecture::OF_THIS_MACHINE, Profile::Release, installer)
}

fn word(word: &str) -> OsString {
    word.into()
}

fn run_arguments(options: &BenchOptions, ackbeat: &Path, out: &Path) -> Vec<OsString> {
    let mut arguments = vec![word("run"), word("--ackbeat"), ackbeat.into(), word("--out"), out.into()];
    if options.quick {
        arguments.push(word("--quick"));
    }
    if let Some(parts) = &options.parts {
        arguments.extend([word("--parts"), word(parts)]);
    }
    arguments
}

/// Runs the benchmark's program and says whether it ended well. It shares the terminal, and Ctrl-C reaches it.
fn overhead(workspace: &Workspace, arguments: Vec<OsString>) -> Result<bool> {
    let program = workspace.program(PACKAGE, false);
    let given: Vec<String> = env::args().skip(1).collect();
    let mut command = process::command(&program);
    command
        .current_dir(&workspace.root)
        .args(arguments)
        .env("ACKBEAT_BENCH_COMMAND", format!("cargo xtask {}", given.join(" ")));
    let status = command.status().with_context(|| format!("could not start {}", program.display()))?;
    Ok(status.success())
}
