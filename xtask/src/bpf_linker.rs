//! `bpf-linker`: found by linking with it, built against Debian's LLVM where none fits.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::bpf_compiler::{Compiler, Surroundings};
use crate::bpf_probe::{self, Stage};
use crate::packages::{Installer, with_retries};
use crate::toolchain::Toolchain;
use crate::{console, process};

/// Why the packages with LLVM are needed.
const WHY_LLVM: &str = "the LLVM that bpf-linker links with";

/// A `bpf-linker` that was seen to link what `compiler` emits; one is built where none is.
///
/// # Errors
/// None fits and none may be built, or building one failed. The message has the exact command.
pub(crate) fn find_or_build(
    surroundings: &Surroundings,
    pinned: &Toolchain,
    profile: &str,
    compiler: &Compiler,
    installer: &Installer,
) -> Result<PathBuf> {
    let mut refusals = Vec::new();
    for linker in surroundings.linkers() {
        match bpf_probe::attempt(surroundings, compiler, profile, &Stage::Link(linker.clone()))? {
            Ok(()) => return Ok(linker),
            Err(output) => refusals.push(explain_linker(&linker, compiler, &output)),
        }
    }
    for refusal in &refusals {
        console::progress(refusal);
    }
    if !installer.may_compile_tools() {
        bail!("no bpf-linker fits {compiler}: run `{}`", install_command(pinned));
    }
    build(surroundings, pinned, installer)?;
    let own = surroundings.own_linker();
    match bpf_probe::attempt(surroundings, compiler, profile, &Stage::Link(own.clone()))? {
        Ok(()) => Ok(own),
        Err(output) => bail!("{}", explain_linker(&own, compiler, &output)),
    }
}

fn build(surroundings: &Surroundings, pinned: &Toolchain, installer: &Installer) -> Result<()> {
    installer.packages(&pinned.llvm_packages(), WHY_LLVM)?;
    console::progress(&format!(
        "installing: bpf-linker {} into {} (links the kernel programs; 2 minutes or more)",
        pinned.bpf_linker,
        surroundings.tools.display()
    ));
    let prefix = Path::new(&pinned.debian_llvm_prefix);
    let path =
        env::join_paths(std::iter::once(prefix.join("bin")).chain(env::split_paths(&surroundings.path)))
            .context("the LLVM folder cannot be put into PATH")?;
    let scratch = surroundings.tools.join("build");
    with_retries("installing bpf-linker", || {
        let mut command = process::command(process::cargo());
        command
            .args(install_arguments(pinned))
            .args(["--force", "--root"])
            .arg(&surroundings.tools)
            .env("CARGO_TARGET_DIR", &scratch)
            .env("LLVM_PREFIX", prefix)
            .env("PATH", &path);
        process::run(&mut command, "installing bpf-linker")
    })?;
    // The compiled parts are not needed again; a leftover costs only room.
    let _ = fs::remove_dir_all(&scratch);
    Ok(())
}

fn install_arguments(pinned: &Toolchain) -> Vec<String> {
    let version = format!("={}", pinned.bpf_linker);
    let fixed =
        ["install", "bpf-linker", "--locked", "--version", &version, "--no-default-features", "--features"];
    fixed.into_iter().map(str::to_owned).chain([pinned.debian_llvm_feature.clone()]).collect()
}

/// The command that a user would type.
fn install_command(pinned: &Toolchain) -> String {
    format!(
        "LLVM_PREFIX={} cargo install bpf-linker --locked --version ={} --no-default-features --features {}",
        pinned.debian_llvm_prefix, pinned.bpf_linker, pinned.debian_llvm_feature
    )
}

/// Why a linker could not link the probe.
fn explain_linker(linker: &Path, compiler: &Compiler, output: &str) -> String {
    let mismatch =
        ["nknown attribute kind", "nvalid record", "bitcode", "LLVM ERROR", "roducer", "invalid input"];
    let error = bpf_probe::first_error(output);
    if output.contains("error while loading shared libraries") {
        format!("{} cannot start, the LLVM it was built with is gone: {error}", linker.display())
    } else if mismatch.iter().any(|sign| output.contains(sign)) {
        format!(
            "{} cannot read what {compiler} emits: its LLVM is older than the compiler's, so a bpf-linker built with the \
             compiler's LLVM is needed ({error})",
            linker.display()
        )
    } else {
        format!("{} cannot link for BPF: {error}", linker.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf_probe::fake::{FakeMachine, PROFILE};
    use crate::toolchain::sample;

    fn debian(machine: &FakeMachine) -> Compiler {
        Compiler::Debian { prefix: machine.surroundings().debian_prefix }
    }

    #[test]
    fn a_linker_that_links_is_taken() {
        let machine = FakeMachine::new();
        machine.debian("exit 0");
        let linker = machine.linker();
        let surroundings = machine.surroundings();
        let installer = Installer::that_only_names();
        let found = find_or_build(&surroundings, &sample(), PROFILE, &debian(&machine), &installer)
            .expect("a linker");
        assert_eq!(found, linker);
        assert!(machine.calls().contains("--bin ackbeat-bpf-probe"), "{}", machine.calls());
    }

    #[test]
    fn without_a_linker_the_command_is_printed() {
        let machine = FakeMachine::new();
        machine.debian("exit 0");
        let installer = Installer::that_only_names();
        let error = find_or_build(&machine.surroundings(), &sample(), PROFILE, &debian(&machine), &installer)
            .expect_err("no linker at all")
            .to_string();
        assert!(
            error.ends_with(
                "run `LLVM_PREFIX=/usr/lib/llvm-22 cargo install bpf-linker --locked --version =0.13.0 \
                 --no-default-features --features llvm-22`"
            ),
            "{error}"
        );
    }

    #[test]
    fn a_linker_with_an_older_llvm_is_explained() {
        let compiler =
            Compiler::Rustup { rustup: PathBuf::from("rustup"), toolchain: "nightly".to_owned(), home: None };
        let output = "error: linking with `bpf-linker` failed: exit status: 1\n  = note: Unknown attribute kind (102)\n";
        assert_eq!(
            explain_linker(Path::new("/home/me/.cargo/bin/bpf-linker"), &compiler, output),
            "/home/me/.cargo/bin/bpf-linker cannot read what rustup's toolchain nightly with rust-src emits: its LLVM is older \
             than the compiler's, so a bpf-linker built with the compiler's LLVM is needed \
             (error: linking with `bpf-linker` failed: exit status: 1 = note: Unknown attribute kind (102))"
        );
    }

    #[test]
    fn a_linker_whose_library_is_gone_is_explained() {
        let compiler = Compiler::Debian { prefix: PathBuf::from("/usr") };
        let output = "error: linking failed\n  = note: error while loading shared libraries: libLLVM.so.21\n";
        assert!(explain_linker(Path::new("/x"), &compiler, output).starts_with("/x cannot start, the LLVM"));
    }
}
