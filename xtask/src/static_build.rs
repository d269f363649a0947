//! The sidecar as one file that needs no library of the system: what an image, a virtual machine without a file system
//! and a measurement run.
//!
//! glibc is linked in (`+crt-static`). Since 2.34 its look-ups in `/etc/hosts` and by DNS are part of it; an older one
//! would load them from the system at run time.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;

use crate::build_command::OBJECT_VARIABLE;
use crate::packages::Installer;
use crate::process;
use crate::workspace::Workspace;

/// Program header of a program that asks for a dynamic linker (elf(5)).
const PT_INTERP: u32 = 3;

/// A processor that the sidecar is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Architecture {
    /// 64-bit x86.
    Amd64,
    /// 64-bit Arm.
    Arm64,
}

impl Architecture {
    /// Every value.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// That of this program.
    pub(crate) const OF_THIS_MACHINE: Self =
        if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::Amd64 };

    /// The word of the OCI image specification, which is Go's `GOARCH` and also Debian's.
    pub(crate) const fn oci_name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The compiler's target.
    pub(crate) const fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// What GNU calls it, in the names of its compilers.
    const fn gnu_name(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-linux-gnu",
            Self::Arm64 => "aarch64-linux-gnu",
        }
    }

    /// `e_machine` of its programs (elf(5)).
    const fn elf_machine(self) -> u16 {
        match self {
            Self::Amd64 => 62,
            Self::Arm64 => 183,
        }
    }
}

/// How well the compiler works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As users run it.
    Release,
    /// Quickly, and without what a debugger needs: for tests.
    Debug,
}

impl fmt::Display for Architecture {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.oci_name())
    }
}

/// Builds the sidecar around the object, optimised and static, and returns the program's path.
///
/// The target is always named: without it cargo would compile procedural macros, which the compiler loads, as static too.
///
/// # Errors
/// There is no compiler or linker for the architecture, the code does not compile, or what came out needs a library.
pub(crate) fn sidecar(
    workspace: &Workspace,
    object: &Path,
    architecture: Architecture,
    profile: Profile,
    installer: &Installer,
) -> Result<PathBuf> {
    let target = architecture.target();
    let mut command = cargo(&["build"], workspace, object, architecture, installer)?;
    let folder = match profile {
        Profile::Release => {
            command.arg("--release");
            "release"
        }
        Profile::Debug => {
            command.env("CARGO_PROFILE_DEV_DEBUG", "false").env("CARGO_PROFILE_DEV_STRIP", "true");
            "debug"
        }
    };
    run(&mut command, "building the static sidecar", target)?;
    let program = workspace.target.join(target).join(folder).join("ackbeat");
    check(&program, architecture)?;
    Ok(program)
}

/// Whether the sidecar compiles for a processor, with everything that it depends on; no program is made. A fraction of the
/// time that [`sidecar`] takes.
///
/// # Errors
/// There is no compiler for the architecture, or the code does not compile.
pub(crate) fn compiles(
    workspace: &Workspace,
    object: &Path,
    architecture: Architecture,
    installer: &Installer,
) -> Result<()> {
    let mut command = cargo(&["check"], workspace, object, architecture, installer)?;
    run(&mut command, "compiling the static sidecar", architecture.target())
}

fn run(command: &mut Command, what: &str, target: &str) -> Result<()> {
    process::run(command, what).with_context(|| {
        format!("if it says that there is no `std` for {target}, run `rustup target add {target}`")
    })
}

/// Cargo, which is to do `what` with the static sidecar.
fn cargo(
    what: &[&str],
    workspace: &Workspace,
    object: &Path,
    architecture: Architecture,
    installer: &Installer,
) -> Result<Command> {
    let target = architecture.target();
    let mut command = process::command(process::cargo());
    if architecture != Architecture::OF_THIS_MACHINE {
        let linker = format!("{}-gcc", architecture.gnu_name());
        let package = format!("gcc-{}", architecture.gnu_name().replace('_', "-"));
        installer.program(&linker, &package, "links for another processor")?;
        command.env(linker_variable(target), linker);
    }
    command
        .current_dir(&workspace.root)
        .env(OBJECT_VARIABLE, object)
        // Incremental code is larger, and differs from build to build.
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_ENCODED_RUSTFLAGS", compiler_flags(workspace))
        .args(what)
        .args(["--package", "ackbeat", "--bin", "ackbeat", "--target", target]);
    Ok(command)
}

/// The user's flags, and ours: everything linked in, and no path of this machine in the program, so that the same code
/// gives the same program wherever it lies.
fn compiler_flags(workspace: &Workspace) -> OsString {
    const SEPARATOR: &str = "\x1f";
    let mut flags: Vec<String> = match (env::var("CARGO_ENCODED_RUSTFLAGS"), env::var("RUSTFLAGS")) {
        (Ok(encoded), _) => encoded.split(SEPARATOR).map(str::to_owned).collect(),
        (_, Ok(plain)) => plain.split_whitespace().map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    flags.retain(|flag| !flag.is_empty());
    flags.push("-Ctarget-feature=+crt-static".to_owned());
    let cargo_home = process::cargo_bin();
    for (from, to) in [(cargo_home.parent().unwrap_or(&cargo_home), "/cargo"), (&workspace.root, "/ackbeat")]
    {
        flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    }
    flags.join(SEPARATOR).into()
}

/// Cargo's name for the setting `target.TARGET.linker`.
fn linker_variable(target: &str) -> String {
    format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"))
}

/// Whether a file is a program for this processor that needs no library.
///
/// # Errors
/// It cannot be read, or is something else; the message says what.
pub(crate) fn check(program: &Path, architecture: Architecture) -> Result<()> {
    let content = fs::read(program).with_context(|| format!("could not read {}", program.display()))?;
    check_static(&content, architecture)
        .with_context(|| format!("{} cannot run by itself", program.display()))
}

/// Whether these bytes are a 64-bit program for this processor that no dynamic linker must complete.
///
/// # Errors
/// They are not; the message says what is wrong.
fn check_static(content: &[u8], architecture: Architecture) -> Result<()> {
    ensure!(content.starts_with(b"\x7fELF\x02\x01"), "it is no 64-bit little-endian ELF file");
    let machine = u16::from_le_bytes(field(content, 18)?);
    ensure!(
        machine == architecture.elf_machine(),
        "it is for the machine {machine}, not for {architecture} ({})",
        architecture.elf_machine()
    );
    let table = usize::try_from(u64::from_le_bytes(field(content, 32)?))?;
    let entry_size = usize::from(u16::from_le_bytes(field(content, 54)?));
    let entries = usize::from(u16::from_le_bytes(field(content, 56)?));
    for index in 0..entries {
        if u32::from_le_bytes(field(content, table + index * entry_size)?) == PT_INTERP {
            bail!("it asks for a dynamic linker: install the static C library (libc6-dev)");
        }
    }
    Ok(())
}

/// `N` bytes of the file.
fn field<const N: usize>(content: &[u8], at: usize) -> Result<[u8; N]> {
    content
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .with_context(|| format!("it ends before byte {}", at + N))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(machine: u16, kinds: &[u32]) -> Vec<u8> {
        let mut content = vec![0; 64];
        content[..6].copy_from_slice(b"\x7fELF\x02\x01");
        content[18..20].copy_from_slice(&machine.to_le_bytes());
        content[32..40].copy_from_slice(&64_u64.to_le_bytes());
        content[54..56].copy_from_slice(&56_u16.to_le_bytes());
        content[56..58].copy_from_slice(&u16::try_from(kinds.len()).expect("a few").to_le_bytes());
        for kind in kinds {
            content.extend(kind.to_le_bytes());
            content.extend([0; 52]);
        }
        content
    }

    #[test]
    fn the_linker_of_another_processor_is_named_to_cargo() {
        assert_eq!(
            linker_variable(Architecture::Arm64.target()),
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER"
        );
    }

    #[test]
    fn only_a_program_without_a_dynamic_linker_is_static() {
        for architecture in Architecture::ALL {
            // PT_LOAD, PT_DYNAMIC (a static program may be relocatable), PT_TLS.
            let content = program(architecture.elf_machine(), &[1, 2, 7]);
            assert!(check_static(&content, architecture).is_ok(), "{architecture}");
        }
        let refusal =
            |content: &[u8]| check_static(content, Architecture::Amd64).expect_err("refused").to_string();
        assert_eq!(
            refusal(&program(62, &[1, PT_INTERP])),
            "it asks for a dynamic linker: install the static C library (libc6-dev)"
        );
        assert_eq!(refusal(&program(183, &[1])), "it is for the machine 183, not for amd64 (62)");
        assert_eq!(refusal(b"#!/bin/sh"), "it is no 64-bit little-endian ELF file");
        assert_eq!(refusal(&program(62, &[1, 2])[..122]), "it ends before byte 124");
    }
}
