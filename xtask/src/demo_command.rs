//! `cargo xtask demo`: the story of the README on real sockets.

use std::os::unix::process::CommandExt as _;

use anyhow::{Error, Result, bail};
use clap::Args;

use crate::build_command::{self, CompilerOptions};
use crate::packages::Installer;
use crate::process;
use crate::workspace::Workspace;

/// Options of `cargo xtask demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoOptions {
    #[command(flatten)]
    compiler: CompilerOptions,
    /// Arguments for the demo program.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Installs, builds, then becomes the demo program.
///
/// # Errors
/// Not root, something is missing, or the build failed. On success this does not return.
pub(crate) fn execute(workspace: &Workspace, options: &DemoOptions) -> Result<()> {
    if !process::is_root() {
        bail!(
            "the demo makes network namespaces and loads kernel programs, so it needs root: run `{}`",
            process::as_root("demo")
        );
    }
    let installer = Installer::new(options.compiler.no_install);
    installer.program("ip", "iproute2", "makes the network namespaces of the demo")?;
    installer.program("nft", "nftables", "cuts the path of one client in the demo")?;
    let object = build_command::ebpf_object(workspace, &options.compiler, &installer)?;
    build_command::sidecar_and_test_programs(workspace, &object, "--bin=demo")?;
    let demo = workspace.program("demo", false);
    let error = process::command(&demo)
        .arg("--ackbeat")
        .arg(workspace.program("ackbeat", false))
        .args(&options.arguments)
        .exec();
    Err(Error::new(error).context(format!("could not start {}", demo.display())))
}
