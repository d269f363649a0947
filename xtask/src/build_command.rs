//! `cargo xtask build`: the eBPF object, then the sidecar with the object in it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::bpf_compiler::{self, Choice, Compiler, Refusal, Surroundings};
use crate::packages::Installer;
use crate::static_build::{self, Architecture, Profile};
use crate::workspace::{BPF_TARGET, Workspace};
use crate::{bpf_linker, bpf_probe, console, process};

/// The variable that tells `sidecar/build.rs` which object to embed.
pub(crate) const OBJECT_VARIABLE: &str = "ACKBEAT_EBPF_OBJECT";
/// `EM_BPF` of the ELF header (elf(5), linux/elf-em.h).
const ELF_MACHINE_BPF: u16 = 247;

/// How an eBPF compiler is chosen; the same for every command that builds.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompilerOptions {
    /// Which way to an eBPF compiler to take.
    #[arg(long, value_enum, default_value_t = Choice::Auto, value_name = "WAY")]
    pub(crate) bpf_toolchain: Choice,
    /// A rustup toolchain to compile eBPF with, instead of the pinned ones.
    #[arg(long, env = "ACKBEAT_RUSTUP_TOOLCHAIN", value_name = "NAME")]
    pub(crate) rustup_toolchain: Option<String>,
    /// Name what is missing instead of installing it.
    #[arg(long)]
    pub(crate) no_install: bool,
    /// Another rustup home than the user's, for tests.
    #[arg(skip)]
    pub(crate) rustup_home: Option<PathBuf>,
}

/// Options of `cargo xtask build`.
#[derive(Debug, Args)]
pub(crate) struct BuildOptions {
    /// Build the sidecar with optimisations. The eBPF object always is.
    #[arg(long)]
    pub(crate) release: bool,
    /// Build the eBPF object and stop.
    #[arg(long)]
    pub(crate) only_ebpf: bool,
    /// Build the sidecar, with optimisations, so that it needs no library of the system.
    #[arg(long = "static", conflicts_with = "only_ebpf")]
    pub(crate) is_static: bool,
    /// For another processor than this machine's: needs `rustup target add`, and installs a cross linker.
    #[arg(long, value_enum, default_value_t = Architecture::OF_THIS_MACHINE, requires = "is_static")]
    pub(crate) architecture: Architecture,
    /// Only see whether it compiles (for another processor): no program is made.
    #[arg(long, requires = "is_static")]
    pub(crate) check: bool,
    #[command(flatten)]
    pub(crate) compiler: CompilerOptions,
}

/// A compiler and a linker that were seen to work together.
pub(crate) struct BpfTools {
    pub(crate) compiler: Compiler,
    pub(crate) linker: PathBuf,
}

/// Builds what the options ask for.
///
/// # Errors
/// No compiler, no linker, or the code does not compile.
pub(crate) fn execute(workspace: &Workspace, options: &BuildOptions) -> Result<()> {
    let installer = Installer::new(options.compiler.no_install);
    let object = ebpf_object(workspace, &options.compiler, &installer)?;
    console::progress(&format!("eBPF object: {}", object.display()));
    if options.check {
        static_build::compiles(workspace, &object, options.architecture, &installer)?;
        console::progress(&format!("the static sidecar compiles for {}", options.architecture));
    } else if options.is_static {
        let program =
            static_build::sidecar(workspace, &object, options.architecture, Profile::Release, &installer)?;
        console::progress(&format!("static sidecar: {}", program.display()));
    } else if !options.only_ebpf {
        sidecar(workspace, &object, options.release)?;
        console::progress(&format!("sidecar: {}", workspace.program("ackbeat", options.release).display()));
    }
    Ok(())
}

/// What this machine and these options allow, and the profile of the kernel programs.
fn surroundings(workspace: &Workspace, options: &CompilerOptions) -> Result<(Surroundings, String)> {
    let mut surroundings = Surroundings::of_this_machine(&workspace.target, &workspace.tools());
    surroundings.rustup_toolchain.clone_from(&options.rustup_toolchain);
    surroundings.rustup_home.clone_from(&options.rustup_home);
    let manifest = workspace.root.join("Cargo.toml");
    let manifest =
        fs::read_to_string(&manifest).with_context(|| format!("could not read {}", manifest.display()))?;
    Ok((surroundings, bpf_probe::profile_of(&manifest)))
}

/// Finds an eBPF compiler, and installs Debian's where there is none.
///
/// # Errors
/// Nothing works, and nothing may be installed or what was installed does not work either.
pub(crate) fn bpf_compiler(
    workspace: &Workspace,
    options: &CompilerOptions,
    installer: &Installer,
) -> Result<Compiler> {
    let pinned = workspace.toolchain();
    let (surroundings, profile) = surroundings(workspace, options)?;
    let (found, refusals) = bpf_compiler::find(&surroundings, pinned, &profile, options.bpf_toolchain)?;
    if let Some(compiler) = found {
        return Ok(compiler);
    }
    if options.bpf_toolchain == Choice::Rustup {
        bail!(nothing_works(&refusals));
    }
    if let Err(error) = installer.install(&pinned.rust_packages(), "a compiler for the kernel programs") {
        bail!("{}\n{error:#}", nothing_works(&refusals));
    }
    let (found, refusals) = bpf_compiler::find(&surroundings, pinned, &profile, Choice::Debian)?;
    found.with_context(|| nothing_works(&refusals))
}

/// Finds an eBPF compiler and a linker for it, and installs what is missing.
///
/// # Errors
/// Nothing works, and nothing may be installed or what was installed does not work either.
pub(crate) fn bpf_tools(
    workspace: &Workspace,
    options: &CompilerOptions,
    installer: &Installer,
) -> Result<BpfTools> {
    let compiler = bpf_compiler(workspace, options, installer)?;
    let (surroundings, profile) = surroundings(workspace, options)?;
    match bpf_linker::find_or_build(&surroundings, workspace.toolchain(), &profile, &compiler, installer) {
        Ok(linker) => Ok(BpfTools { compiler, linker }),
        // A rustup toolchain may be newer than every LLVM at hand; Debian's compiler and LLVM always fit.
        Err(error)
            if options.bpf_toolchain == Choice::Auto && matches!(compiler, Compiler::Rustup { .. }) =>
        {
            console::progress(&format!("{error:#}; trying Debian's compiler"));
            let only_debian = CompilerOptions { bpf_toolchain: Choice::Debian, ..options.clone() };
            bpf_tools(workspace, &only_debian, installer).with_context(|| error.to_string())
        }
        Err(error) => Err(error),
    }
}

fn nothing_works(refusals: &[Refusal]) -> String {
    let mut message = String::from("no compiler for the kernel programs; one of these would do:");
    for refusal in refusals {
        message.push_str("\n  - ");
        message.push_str(&refusal.to_string());
    }
    message
}

/// Builds the eBPF object and returns its path.
///
/// # Errors
/// No compiler, no linker, or the code does not compile.
pub(crate) fn ebpf_object(
    workspace: &Workspace,
    options: &CompilerOptions,
    installer: &Installer,
) -> Result<PathBuf> {
    let tools = bpf_tools(workspace, options, installer)?;
    let content = compile_object(workspace, &tools)?;
    let object = workspace.ebpf_object();
    bpf_probe::write_if_changed(&object, &content)?;
    Ok(object)
}

/// Compiles the kernel programs and returns the object's content, checked.
///
/// # Errors
/// The code does not compile, or what came out is no BPF object.
pub(crate) fn compile_object(workspace: &Workspace, tools: &BpfTools) -> Result<Vec<u8>> {
    console::progress(&format!("kernel programs: {}, linked by {}", tools.compiler, tools.linker.display()));
    let cache = workspace.target.join("ebpf").join(tools.compiler.cache_name());
    let mut command = tools.compiler.cargo("build", "core", Some(&tools.linker));
    command
        .current_dir(&workspace.root)
        .args(["--package", "ackbeat-ebpf", "--profile", "ebpf", "--target-dir"])
        .arg(&cache);
    process::run(&mut command, "building the kernel programs")?;
    let built = cache.join(BPF_TARGET).join("ebpf").join("ackbeat-ebpf");
    let content = fs::read(&built).with_context(|| format!("could not read {}", built.display()))?;
    check_object(&content).with_context(|| format!("{} is not usable", built.display()))?;
    Ok(content)
}

/// Whether these bytes are what a loader expects: an ELF object for BPF, with BTF.
///
/// # Errors
/// They are not; the message says what is missing.
fn check_object(content: &[u8]) -> Result<()> {
    ensure!(content.starts_with(b"\x7fELF"), "the linker did not write an ELF file");
    let machine = content.get(18..20).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    ensure!(machine == ELF_MACHINE_BPF, "the ELF file is for machine {machine}, not for BPF");
    let has_btf = content.windows(5).any(|window| window == b".BTF\0");
    ensure!(has_btf, "the object has no .BTF section: the linker ignored --btf");
    Ok(())
}

/// Builds the sidecar around the object.
///
/// # Errors
/// The code does not compile.
pub(crate) fn sidecar(workspace: &Workspace, object: &Path, release: bool) -> Result<()> {
    let mut command = process::command(process::cargo());
    command.current_dir(&workspace.root).env(OBJECT_VARIABLE, object).args(["build", "--package", "ackbeat"]);
    if release {
        command.arg("--release");
    }
    process::run(&mut command, "building the sidecar")
}

/// Builds the sidecar, and then programs of the tests' package beside it: one package at a time, as the tests are built.
/// Together their dependencies would have other features, and cargo would compile everything a second time; so it would
/// the sidecar's library, which both have in them, without the object that it was built around.
///
/// # Errors
/// The code does not compile.
pub(crate) fn sidecar_and_test_programs(workspace: &Workspace, object: &Path, which: &str) -> Result<()> {
    sidecar(workspace, object, false)?;
    let mut command = process::command(process::cargo());
    command.current_dir(&workspace.root).env(OBJECT_VARIABLE, object).args([
        "build",
        "--package=ackbeat-tests",
        which,
    ]);
    process::run(&mut command, "building the programs of the tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(machine: u16, tail: &[u8]) -> Vec<u8> {
        let mut content = b"\x7fELF".to_vec();
        content.resize(18, 0);
        content.extend(machine.to_le_bytes());
        content.extend(tail);
        content
    }

    #[test]
    fn an_object_for_bpf_with_btf_is_accepted() {
        assert!(check_object(&elf(247, b"...\0.BTF\0.BTF.ext\0")).is_ok());
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        let refusal = |content: &[u8]| check_object(content).expect_err("not an object").to_string();
        assert_eq!(refusal(b""), "the linker did not write an ELF file");
        assert_eq!(refusal(&elf(62, b".BTF\0")), "the ELF file is for machine 62, not for BPF");
        assert_eq!(
            refusal(&elf(247, b".text\0")),
            "the object has no .BTF section: the linker ignored --btf"
        );
    }

    #[test]
    fn every_way_that_failed_is_listed() {
        let refusals = [
            Refusal { way: "rustup".to_owned(), reason: "not in PATH".to_owned() },
            Refusal { way: "Debian's compiler".to_owned(), reason: "not installed: run `x`".to_owned() },
        ];
        assert_eq!(
            nothing_works(&refusals),
            "no compiler for the kernel programs; one of these would do:\n  - rustup: not in PATH\n  \
             - Debian's compiler: not installed: run `x`"
        );
    }
}
