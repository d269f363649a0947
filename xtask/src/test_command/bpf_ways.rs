//! The rank `toolchains`: each of the two ways to an eBPF compiler is forced once and must make an object.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::report::RankReport;
use crate::bpf_compiler::{Choice, Surroundings};
use crate::build_command::{self, CompilerOptions};
use crate::packages::Installer;
use crate::process;
use crate::workspace::Workspace;

/// Where Debian's package `rust-web-src` puts the source of the standard library, as a toolchain of rustup has it.
const DEBIAN_LIBRARY_SOURCE: &str = "/usr/lib/rustlib/src/rust/library";
const STAND_IN: &str = "debian-stand-in";

/// Forces Debian's way, then rustup's.
///
/// # Errors
/// None of its own: what could not run is in the report.
pub(crate) fn run(
    workspace: &Workspace,
    options: &CompilerOptions,
    installer: &Installer,
    report: &mut RankReport,
) -> Result<()> {
    let debian = CompilerOptions { bpf_toolchain: Choice::Debian, ..options.clone() };
    make_object("debian", workspace, &debian, installer, report);

    let rustup = CompilerOptions { bpf_toolchain: Choice::Rustup, ..options.clone() };
    if build_command::bpf_compiler(workspace, &rustup, installer).is_ok() {
        make_object("rustup", workspace, &rustup, installer, report);
        return Ok(());
    }
    match stand_in(workspace, installer) {
        Ok(home) => {
            let rustup = CompilerOptions {
                rustup_toolchain: Some(STAND_IN.to_owned()),
                rustup_home: Some(home),
                ..rustup
            };
            make_object("rustup", workspace, &rustup, installer, report);
        }
        Err(error) => report
            .could_not_run(format!("the rustup way: no toolchain with rust-src, no stand-in: {error:#}")),
    }
    Ok(())
}

fn make_object(
    way: &str,
    workspace: &Workspace,
    options: &CompilerOptions,
    installer: &Installer,
    report: &mut RankReport,
) {
    match build_command::bpf_tools(workspace, options, installer) {
        Err(error) => report.could_not_run(format!("the {way} way: {error:#}")),
        Ok(tools) => match build_command::compile_object(workspace, &tools) {
            Ok(_) => report.passed(1),
            Err(error) => report.failed(format!("the {way} way: {error:#}")),
        },
    }
}

/// A rustup home of its own in which Debian's compiler, with the library's source, is a toolchain like any other.
///
/// # Errors
/// The package with the source is missing, or rustup refused.
fn stand_in(workspace: &Workspace, installer: &Installer) -> Result<PathBuf> {
    if !Path::new(DEBIAN_LIBRARY_SOURCE).is_dir() {
        installer
            .install(&["rust-web-src"], "stands in for a rustup toolchain with rust-src in the tests")?;
    }
    let home = workspace.target.join("ebpf").join("rustup-home");
    fs::create_dir_all(&home).with_context(|| format!("could not make the folder {}", home.display()))?;
    let surroundings = Surroundings::of_this_machine(&workspace.target, &workspace.tools());
    let rustup = surroundings.find("rustup").context("rustup is not installed")?;
    let mut link = process::command(rustup);
    link.env("RUSTUP_HOME", &home).args(["--quiet", "toolchain", "link", STAND_IN, "/usr"]);
    process::run(&mut link, "linking Debian's compiler as a rustup toolchain")?;
    Ok(home)
}
