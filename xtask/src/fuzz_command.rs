//! `cargo xtask fuzz`: made-up inputs for the engine, the detectors and every decoder, for as long as one likes.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::console;
use crate::process;
use crate::workspace::Workspace;

/// Options of `cargo xtask fuzz`.
#[derive(Debug, Args)]
pub(crate) struct FuzzOptions {
    /// Seconds for all targets together.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only this target; may be given more than once. A wrong name lists the right ones.
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// Another seed makes other cases.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run the file that a failure has left through the one target that is named.
    #[arg(long, value_name = "FILE", requires = "target")]
    replay: Option<PathBuf>,
}

/// Builds the harness with optimisations and checked arithmetic, and runs it.
///
/// # Errors
/// It did not build, or a case failed; what failed and how to run it again is on the terminal.
pub(crate) fn execute(workspace: &Workspace, options: &FuzzOptions) -> Result<()> {
    let mut command = process::command(process::cargo());
    command.current_dir(&workspace.root).args([
        "run",
        "--profile",
        "fuzz",
        "--package",
        "ackbeat-fuzzing",
        "--",
    ]);
    command.arg("--seconds").arg(options.seconds.to_string());
    command.arg("--seed").arg(options.seed.to_string());
    command.arg("--failures").arg(workspace.target.join("fuzz-failures"));
    for target in &options.target {
        command.arg("--target").arg(target);
    }
    if let Some(path) = &options.replay {
        // Relative to where the command was typed, not to the workspace.
        command.arg("--replay").arg(std::path::absolute(path)?);
    }
    console::progress(&process::command_line(&command));
    process::run(&mut command, "running made-up inputs")
}
