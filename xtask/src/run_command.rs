//! `cargo xtask run -- ackbeat …`: builds, then becomes the program.

use std::os::unix::process::CommandExt as _;

use anyhow::{Error, Result, bail};
use clap::Args;

use crate::build_command::{self, BuildOptions, CompilerOptions};
use crate::process;
use crate::static_build::Architecture;
use crate::workspace::Workspace;

/// Options of `cargo xtask run`.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// Build with optimisations.
    #[arg(long)]
    release: bool,
    #[command(flatten)]
    compiler: CompilerOptions,
    /// The program and its arguments: `ackbeat run --ports 8080`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "ackbeat …")]
    command_line: Vec<String>,
}

/// Builds, then replaces this process: the exit code and the signals are the program's own.
///
/// # Errors
/// The build failed, the program is not `ackbeat`, or it could not be started. On success this does not return.
pub(crate) fn execute(workspace: &Workspace, options: RunOptions) -> Result<()> {
    let Some((program, arguments)) =
        options.command_line.split_first().filter(|(name, _)| *name == "ackbeat")
    else {
        let given = options.command_line.join(" ");
        bail!("`cargo xtask run` starts only `ackbeat`: run `cargo xtask run -- ackbeat {given}`");
    };
    let build = BuildOptions {
        release: options.release,
        only_ebpf: false,
        is_static: false,
        architecture: Architecture::OF_THIS_MACHINE,
        check: false,
        compiler: options.compiler,
    };
    build_command::execute(workspace, &build)?;
    let path = workspace.program(program, options.release);
    let error = process::command(&path).args(arguments).exec();
    Err(Error::new(error).context(format!("could not start {}", path.display())))
}
