//! The rank `vm`: several kernels, each booted under QEMU with a small initramfs of our own.
//!
//! | file | what |
//! |---|---|
//! | `debian` | packages fetched beside the machine's own, in a private configuration of apt |
//! | `kernels` | which kernels are run, and where they come from |
//! | `initramfs` | what the guest has: the sidecar, the guest's program, a few tools, the kernel's network modules |
//! | `machine` | QEMU, or this machine itself, with a deadline |
//! | `findings` | what the guest said, and the table |
//!
//! The guest's side is the program `vm_guest` of the package `ackbeat-tests`. Both it and the sidecar are what the rank
//! `namespaces` has built too, without optimisation: an optimised static sidecar would take minutes to compile and saves the
//! guest seconds.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;

use super::report::RankReport;
use crate::build_command::{self, CompilerOptions, OBJECT_VARIABLE};
use crate::packages::Installer;
use crate::workspace::Workspace;
use crate::{console, process};

mod debian;
mod findings;
mod initramfs;
mod kernels;
mod machine;

use findings::Row;
use kernels::{Found, Kernel};
use machine::{Accelerator, Machine};

/// The guest's program.
const GUEST: &str = "vm_guest";

/// Options of the rank `vm`.
#[derive(Debug, Clone, Args)]
pub(crate) struct VmOptions {
    /// Rank vm: this kernel (a `vmlinuz` with its modules in the usual place, or a Debian package) instead of the usual
    /// ones. Can be repeated.
    #[arg(long = "kernel", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Rank vm: the newest cloud kernel of this Debian suite (`bullseye-security`, `trixie-backports`) instead of the
    /// usual ones. Can be repeated.
    #[arg(long = "kernel-suite", value_name = "SUITE")]
    suites: Vec<String>,
    /// Rank vm: how QEMU runs the guest.
    #[arg(long, value_enum, default_value_t = Accelerator::Auto, value_name = "HOW")]
    accel: Accelerator,
}

/// Boots each kernel and lets the guest test itself.
///
/// # Errors
/// QEMU, a tool of the guest or the sidecar is missing. A kernel that fails is in the report.
pub(crate) fn run(
    workspace: &Workspace,
    compiler: &CompilerOptions,
    options: &VmOptions,
    installer: &Installer,
    report: &mut RankReport,
) -> Result<()> {
    installer.program("strip", "binutils", "makes the guest's programs small")?;
    installer.program("ip", "iproute2", "makes the guest's network namespaces")?;
    installer.program("ss", "iproute2", "tells the kernel's numbers that ours are compared with")?;
    installer.program("nft", "nftables", "drops packets in the guest")?;
    let tools = debian::tools(&workspace.tools(), installer)?;
    let object = build_command::ebpf_object(workspace, compiler, installer)?;
    build_command::sidecar(workspace, &object, false)?;
    guest(workspace, &object)?;
    let folder = workspace.target.join("vm");
    let common = initramfs::common(workspace, &tools, &folder)?;
    let mut accelerator = options.accel;
    let mut rows = Vec::new();
    for wanted in kernels::wanted(&options.files, &options.suites) {
        let started = Instant::now();
        let outcome = wanted.fetch(&workspace.tools(), &tools, installer).and_then(|found| match found {
            Found::Image(kernel) => {
                console::progress(&format!("booting Linux {}", kernel.release));
                boot(&kernel, &common, &tools, &folder, &mut accelerator)
            }
            Found::Running { release } => here(workspace, &folder, &release),
        });
        match outcome {
            Ok(row) => rows.push(row.took(started.elapsed())),
            Err(error) => report.could_not_run(format!("{wanted}: {error:#}")),
        }
    }
    for row in &rows {
        row.add_to(report);
    }
    for line in findings::table(&rows) {
        console::result(&line);
    }
    Ok(())
}

/// Builds the guest's program, with the features that the tests of the rank `namespaces` are built with: so nothing is
/// compiled twice.
fn guest(workspace: &Workspace, object: &Path) -> Result<()> {
    let mut command = process::command(process::cargo());
    command.current_dir(&workspace.root).env(OBJECT_VARIABLE, object).args([
        "build",
        "--package=ackbeat-tests",
        "--all-features",
        "--bin",
        GUEST,
    ]);
    process::run(&mut command, "building the guest's program")
}

fn boot(
    kernel: &Kernel,
    common: &[u8],
    tools: &debian::Tools,
    folder: &Path,
    accelerator: &mut Accelerator,
) -> Result<Row> {
    let image = initramfs::with_modules(common, kernel)?;
    let machine = Machine::prepare(folder, &kernel.release, &image)?;
    if accelerator.tries_kvm() {
        if let Some(ended) = machine.try_kvm(kernel, tools)? {
            return Ok(Row::new(&kernel.release, ended));
        }
        console::progress(
            "/dev/kvm can be opened, but nothing boots on it here: instructions are translated",
        );
        *accelerator = Accelerator::Tcg;
    }
    let ended = machine.run(kernel, tools, *accelerator)?;
    Ok(Row::new(&kernel.release, ended))
}

/// The kernel of this machine, where there is no image of it to boot.
fn here(workspace: &Workspace, folder: &Path, release: &str) -> Result<Row> {
    if !process::is_root() {
        bail!(
            "there is no /boot/vmlinuz-{release} to boot; to test the running kernel be root: `{}`",
            process::as_root("test vm")
        );
    }
    console::progress(&format!(
        "Linux {release} is this machine's: there is no image to boot, so it is tested as it runs"
    ));
    let (guest, ackbeat) = (workspace.program(GUEST, false), workspace.program("ackbeat", false));
    let ended = machine::run_here(&guest, &ackbeat, folder, release)?;
    Ok(Row::new(&format!("{release} (not in a VM)"), ended))
}

/// The first lines of what a program said, for messages.
fn capture(command: &mut std::process::Command, step: &str) -> Result<String> {
    let answer = process::capture(command, step)?;
    anyhow::ensure!(
        answer.success,
        "{step} failed: {}\n`{}`",
        crate::packages::last_lines(&answer.stderr, 5),
        process::command_line(command)
    );
    Ok(answer.stdout)
}
