//! The two ways to a compiler that emits BPF, found by trying and never by guessing from versions.
//!
//! 1. **rustup**: a toolchain with the `rust-src` component compiles `core` itself (`-Z build-std=core`).
//! 2. **Debian**: `/usr/bin/rustc` finds a `core` that Debian compiled for BPF.
//!
//! Each candidate compiles the small crate in `bpf_probe`; the first that can is taken. Then each `bpf-linker` at hand links
//! it: a linker whose LLVM is older than the compiler's cannot read the bitcode, and only linking shows that.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use clap::ValueEnum;

use crate::bpf_probe::{self, Stage};
use crate::process;
use crate::toolchain::Toolchain;
use crate::workspace::BPF_TARGET;

/// Which of the two ways may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    /// The first that works: rustup, then Debian.
    Auto,
    /// Only a rustup toolchain with `rust-src`.
    Rustup,
    /// Only Debian's compiler.
    Debian,
}

/// Where things are looked for. Tests put a folder of their own in each place.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    /// The value of `PATH`, for `rustup` and `bpf-linker`.
    pub(crate) path: OsString,
    /// Cargo's own folder of programs, which `PATH` may lack.
    pub(crate) cargo_bin: PathBuf,
    /// Where Debian installs: `bin/cargo` and `bin/rustc` below it.
    pub(crate) debian_prefix: PathBuf,
    /// A rustup toolchain to try instead of the pinned ones.
    pub(crate) rustup_toolchain: Option<String>,
    /// Another home of rustup than the user's.
    pub(crate) rustup_home: Option<PathBuf>,
    /// Caches of probes and builds, one folder for each way.
    pub(crate) ebpf_folder: PathBuf,
    /// Programs that xtask built lie in `bin` below.
    pub(crate) tools: PathBuf,
}

impl Surroundings {
    /// This machine's.
    pub(crate) fn of_this_machine(target: &Path, tools: &Path) -> Self {
        Self {
            path: env::var_os("PATH").unwrap_or_default(),
            cargo_bin: process::cargo_bin(),
            debian_prefix: PathBuf::from("/usr"),
            rustup_toolchain: None,
            rustup_home: None,
            ebpf_folder: target.join("ebpf"),
            tools: tools.to_path_buf(),
        }
    }

    /// A program in `PATH` or in cargo's own folder.
    pub(crate) fn find(&self, program: &str) -> Option<PathBuf> {
        process::find_in(&self.path, program)
            .or_else(|| Some(self.cargo_bin.join(program)).filter(|found| process::is_executable(found)))
    }

    /// Every `bpf-linker` at hand, the user's first.
    pub(crate) fn linkers(&self) -> Vec<PathBuf> {
        let own = self.own_linker();
        let mut found: Vec<PathBuf> = self.find("bpf-linker").into_iter().collect();
        for candidate in [self.cargo_bin.join("bpf-linker"), own] {
            if process::is_executable(&candidate) && !found.contains(&candidate) {
                found.push(candidate);
            }
        }
        found
    }

    /// Where xtask installs a `bpf-linker` of its own.
    pub(crate) fn own_linker(&self) -> PathBuf {
        self.tools.join("bin").join("bpf-linker")
    }
}

/// A compiler that was seen to emit BPF code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Compiler {
    /// `rustup run TOOLCHAIN cargo`, with `-Z build-std`.
    Rustup { rustup: PathBuf, toolchain: String, home: Option<PathBuf> },
    /// Debian's cargo and rustc below a prefix, with a prebuilt `core`.
    Debian { prefix: PathBuf },
}

impl fmt::Display for Compiler {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rustup { toolchain, .. } => {
                write!(formatter, "rustup's toolchain {toolchain} with rust-src")
            }
            Self::Debian { prefix } => write!(formatter, "Debian's {}", prefix.join("bin/rustc").display()),
        }
    }
}

impl Compiler {
    /// The folder below `ebpf_folder` that caches what this way compiles.
    pub(crate) fn cache_name(&self) -> String {
        match self {
            Self::Rustup { toolchain, .. } => format!("rustup-{}", toolchain.replace('/', "-")),
            Self::Debian { .. } => "debian".to_owned(),
        }
    }

    /// A cargo command for the BPF target; everything after `subcommand` is the caller's.
    ///
    /// `crates` are the parts of the standard library that the code uses; only the rustup way must compile them.
    pub(crate) fn cargo(&self, subcommand: &str, crates: &str, linker: Option<&Path>) -> Command {
        let command = match self {
            Self::Rustup { rustup, toolchain, .. } => rustup_run_cargo(rustup, toolchain),
            Self::Debian { prefix } => process::command(prefix.join("bin/cargo")),
        };
        self.for_bpf(command, subcommand, crates, linker)
    }

    /// Clippy for the BPF target.
    pub(crate) fn clippy(&self) -> Command {
        let command = match self {
            Self::Rustup { rustup, toolchain, .. } => rustup_run_cargo(rustup, toolchain),
            // Started directly: `cargo clippy` would take the first cargo-clippy in PATH, which may be rustup's.
            Self::Debian { prefix } => {
                let mut command = process::command(prefix.join("bin/cargo-clippy"));
                command.env("CARGO", prefix.join("bin/cargo"));
                command
            }
        };
        self.for_bpf(command, "clippy", "core", None)
    }

    fn for_bpf(
        &self,
        mut command: Command,
        subcommand: &str,
        crates: &str,
        linker: Option<&Path>,
    ) -> Command {
        command.arg(subcommand);
        // Neither the toolchain that runs this program nor its libraries may be mixed into the one that is tried.
        for inherited in [
            "LD_LIBRARY_PATH",
            "RUSTUP_TOOLCHAIN",
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTFLAGS",
        ] {
            command.env_remove(inherited);
        }
        match self {
            Self::Rustup { home, .. } => {
                command.arg("-Z").arg(format!("build-std={crates}"));
                if let Some(home) = home {
                    command.env("RUSTUP_HOME", home);
                }
            }
            Self::Debian { prefix } => {
                command.env("RUSTC", prefix.join("bin/rustc"));
            }
        }
        // aya-ebpf uses unstable features; the compiler's release decides what they are, not its channel.
        command.env("RUSTC_BOOTSTRAP", "1");
        command.env("CARGO_ENCODED_RUSTFLAGS", "-Clink-arg=--btf\x1f-Cpanic=abort");
        if let Some(linker) = linker {
            command.env(linker_variable(), linker);
        }
        command.args(["--target", BPF_TARGET]);
        command
    }
}

fn rustup_run_cargo(rustup: &Path, toolchain: &str) -> Command {
    let mut command = process::command(rustup);
    command.args(["run", toolchain, "cargo"]);
    command
}

/// Cargo's name for the setting `target.bpfel-unknown-none.linker`.
fn linker_variable() -> String {
    format!("CARGO_TARGET_{}_LINKER", BPF_TARGET.to_uppercase().replace('-', "_"))
}

/// A way that was tried and did not work: a sentence with the command that repairs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) way: String,
    pub(crate) reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.way, self.reason)
    }
}

/// The first compiler that can emit BPF, in the order of preference, and why those before it cannot.
///
/// # Errors
/// The probe's sources could not be written.
pub(crate) fn find(
    surroundings: &Surroundings,
    pinned: &Toolchain,
    profile: &str,
    choice: Choice,
) -> Result<(Option<Compiler>, Vec<Refusal>)> {
    let mut refusals = Vec::new();
    if choice != Choice::Debian {
        match rustup_toolchains(surroundings, pinned) {
            Ok(toolchains) => {
                for candidate in toolchains {
                    match try_compiler(surroundings, pinned, profile, candidate)? {
                        Ok(compiler) => return Ok((Some(compiler), refusals)),
                        Err(refusal) => refusals.push(refusal),
                    }
                }
            }
            Err(refusal) => refusals.push(refusal),
        }
    }
    if choice != Choice::Rustup {
        let prefix = &surroundings.debian_prefix;
        if ["bin/cargo", "bin/rustc"].iter().all(|program| process::is_executable(&prefix.join(program))) {
            match try_compiler(surroundings, pinned, profile, Compiler::Debian { prefix: prefix.clone() })? {
                Ok(compiler) => return Ok((Some(compiler), refusals)),
                Err(refusal) => refusals.push(refusal),
            }
        } else {
            let reason =
                format!("not installed: run `apt-get install {}` as root", pinned.rust_packages().join(" "));
            refusals.push(Refusal { way: "Debian's compiler".to_owned(), reason });
        }
    }
    Ok((None, refusals))
}

fn try_compiler(
    surroundings: &Surroundings,
    pinned: &Toolchain,
    profile: &str,
    compiler: Compiler,
) -> Result<Result<Compiler, Refusal>> {
    Ok(match bpf_probe::attempt(surroundings, &compiler, profile, &Stage::Compile)? {
        Ok(()) => Ok(compiler),
        Err(output) => {
            let reason = explain_compiler(&compiler, pinned, &output);
            Err(Refusal { way: compiler.to_string(), reason })
        }
    })
}

/// The installed toolchains worth trying: the one asked for, or the pinned release, the pinned channel, the active one.
///
/// Only installed ones: `rustup run` would silently download a missing toolchain.
fn rustup_toolchains(surroundings: &Surroundings, pinned: &Toolchain) -> Result<Vec<Compiler>, Refusal> {
    let refuse = |reason: String| Refusal { way: "rustup".to_owned(), reason };
    let rustup = surroundings.find("rustup").ok_or_else(|| refuse("not in PATH".to_owned()))?;
    let mut list = process::command(&rustup);
    list.args(["toolchain", "list"]).env("RUSTUP_AUTO_INSTALL", "0");
    if let Some(home) = &surroundings.rustup_home {
        list.env("RUSTUP_HOME", home);
    }
    let listed = process::capture(&mut list, "listing the rustup toolchains")
        .map_err(|error| refuse(format!("{error:#}")))?;
    let wanted: Vec<&str> = match &surroundings.rustup_toolchain {
        Some(named) => vec![named],
        None => vec![&pinned.rust, &pinned.rustup_bpf_toolchain],
    };
    let installed: Vec<(&str, bool)> = listed
        .stdout
        .lines()
        .filter_map(|line| line.split_whitespace().next().map(|name| (name, line.contains("active"))))
        .collect();
    let mut names: Vec<&str> = Vec::new();
    for name in &wanted {
        let matching = |installed: &str| installed == *name || installed.starts_with(&format!("{name}-"));
        if installed.iter().any(|(installed, _)| matching(installed)) && !names.contains(name) {
            names.push(name);
        }
    }
    if surroundings.rustup_toolchain.is_none() {
        for (name, active) in &installed {
            if *active && !names.iter().any(|known| name.starts_with(&format!("{known}-"))) {
                names.push(name);
            }
        }
    }
    if names.is_empty() {
        let toolchain = wanted.first().copied().unwrap_or(&pinned.rust);
        return Err(refuse(format!(
            "toolchain {toolchain} is not installed: run `rustup toolchain install {toolchain} --component rust-src`"
        )));
    }
    Ok(names
        .into_iter()
        .map(|name| Compiler::Rustup {
            rustup: rustup.clone(),
            toolchain: name.to_owned(),
            home: surroundings.rustup_home.clone(),
        })
        .collect())
}

/// Why a compiler could not compile the probe, and the command that repairs it.
fn explain_compiler(compiler: &Compiler, pinned: &Toolchain, output: &str) -> String {
    match compiler {
        Compiler::Rustup { toolchain, .. }
            if output.contains("rust-src") || output.contains("library/Cargo.lock") =>
        {
            format!("has no source of `core`: run `rustup component add rust-src --toolchain {toolchain}`")
        }
        Compiler::Debian { .. } if output.contains("can't find crate for `core`") => format!(
            "has no `core` for BPF: run `apt-get install {}` as root",
            pinned.rust_packages().join(" ")
        ),
        Compiler::Debian { .. } if output.contains("edition") => {
            format!("is too old: run `apt-get install {}` as root", pinned.rust_packages().join(" "))
        }
        Compiler::Rustup { .. } | Compiler::Debian { .. } => {
            format!("cannot compile for {BPF_TARGET}: {}", bpf_probe::first_error(output))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf_probe::fake::{FakeMachine, PROFILE};
    use crate::toolchain::sample;

    #[test]
    fn a_rustup_toolchain_with_sources_is_taken_first() {
        let machine = FakeMachine::new();
        machine.rustup(
            &["1.95.0-x86_64-unknown-linux-gnu (active, default)", "nightly-x86_64-unknown-linux-gnu"],
            "exit 0",
        );
        machine.debian("exit 0");
        let (compiler, refusals) =
            find(&machine.surroundings(), &sample(), PROFILE, Choice::Auto).expect("probe written");
        assert_eq!(compiler.expect("one works").to_string(), "rustup's toolchain 1.95.0 with rust-src");
        assert_eq!(refusals, []);
        let calls = machine.calls();
        assert!(
            calls.contains("rustup run 1.95.0 cargo build -Z build-std=core --target bpfel-unknown-none"),
            "{calls}"
        );
        assert!(!calls.contains("debian"), "the second way was not needed: {calls}");
    }

    #[test]
    fn debian_is_taken_where_no_toolchain_has_sources() {
        let machine = FakeMachine::new();
        machine.rustup(
            &["stable-x86_64-unknown-linux-gnu (active, default)", "nightly-x86_64-unknown-linux-gnu"],
            "echo 'error: \"/x/library/Cargo.lock\" does not exist, unable to build with the standard library' >&2; exit 101",
        );
        machine.debian("exit 0");
        let (compiler, refusals) =
            find(&machine.surroundings(), &sample(), PROFILE, Choice::Auto).expect("probe written");
        assert_eq!(compiler, Some(Compiler::Debian { prefix: machine.surroundings().debian_prefix }));
        let sentences: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        assert_eq!(
            sentences,
            [
                "rustup's toolchain nightly with rust-src: has no source of `core`: \
                 run `rustup component add rust-src --toolchain nightly`",
                "rustup's toolchain stable-x86_64-unknown-linux-gnu with rust-src: has no source of `core`: \
                 run `rustup component add rust-src --toolchain stable-x86_64-unknown-linux-gnu`",
            ]
        );
        assert!(
            machine.calls().contains("debian cargo build --target bpfel-unknown-none"),
            "{}",
            machine.calls()
        );
    }

    #[test]
    fn a_forced_way_does_not_try_the_other() {
        let machine = FakeMachine::new();
        machine.rustup(&["nightly-x86_64-unknown-linux-gnu"], "exit 0");
        machine.debian("exit 0");
        let (compiler, _) =
            find(&machine.surroundings(), &sample(), PROFILE, Choice::Debian).expect("probe written");
        assert!(matches!(compiler, Some(Compiler::Debian { .. })));
        assert!(!machine.calls().contains("rustup"), "{}", machine.calls());
    }

    #[test]
    fn a_machine_with_nothing_gets_one_sentence_for_each_way() {
        let machine = FakeMachine::new();
        let (compiler, refusals) =
            find(&machine.surroundings(), &sample(), PROFILE, Choice::Auto).expect("probe written");
        assert_eq!(compiler, None);
        let sentences: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        assert_eq!(
            sentences,
            [
                "rustup: not in PATH",
                "Debian's compiler: not installed: run `apt-get install rustc-web cargo-web libstd-rust-web-dev-bpf` as root",
            ]
        );
    }

    #[test]
    fn a_toolchain_that_is_not_installed_is_never_run() {
        let machine = FakeMachine::new();
        machine.rustup(&["stable-x86_64-unknown-linux-gnu"], "exit 0");
        let (compiler, refusals) =
            find(&machine.surroundings(), &sample(), PROFILE, Choice::Rustup).expect("probe written");
        assert_eq!(compiler, None);
        assert_eq!(
            refusals.first().map(ToString::to_string).as_deref(),
            Some(
                "rustup: toolchain 1.95.0 is not installed: run `rustup toolchain install 1.95.0 --component rust-src`"
            )
        );
        assert!(!machine.calls().contains("rustup run"), "{}", machine.calls());
    }

    #[test]
    fn a_prebuilt_core_that_is_missing_is_named() {
        let machine = FakeMachine::new();
        machine.debian("echo \"error[E0463]: can't find crate for \\`core\\`\" >&2; exit 101");
        let (compiler, refusals) =
            find(&machine.surroundings(), &sample(), PROFILE, Choice::Debian).expect("probe written");
        assert_eq!(compiler, None);
        let sentence = refusals.first().map(|refusal| refusal.reason.clone()).expect("a reason");
        assert_eq!(
            sentence,
            "has no `core` for BPF: run `apt-get install rustc-web cargo-web libstd-rust-web-dev-bpf` as root"
        );
    }
}
