//! A crate of a few lines that shows whether a compiler and a linker can make a BPF object together.
//!
//! It is compiled with the profile and into the cache of the real build, so the `core` that it needs is compiled once.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::bpf_compiler::{Compiler, Surroundings};
use crate::process;

/// How far the probe goes.
pub(crate) enum Stage {
    /// Compile a library: shows a compiler with a `core` for BPF.
    Compile,
    /// Link a program with this `bpf-linker`: shows that the two agree about LLVM.
    Link(PathBuf),
}

const LIBRARY: &str = "#![no_std]\n";

const PROGRAM: &str = r#"#![no_std]
#![no_main]

#[unsafe(no_mangle)]
#[unsafe(link_section = "socket")]
extern "C" fn probe(context: *const u8) -> u32 {
    u32::from(context.is_null())
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
"#;

/// Tries one compiler. The inner error is what the compiler printed.
///
/// # Errors
/// The probe's sources could not be written.
pub(crate) fn attempt(
    surroundings: &Surroundings,
    compiler: &Compiler,
    profile: &str,
    stage: &Stage,
) -> Result<Result<(), String>> {
    let sources = surroundings.ebpf_folder.join("probe");
    write_sources(&sources, profile)?;
    // Cargo compiles a crate anew when the linker's name changes, so both stages name the one that will be tried first.
    let (part, linker): (&[&str], Option<PathBuf>) = match stage {
        Stage::Compile => (&["--lib"], surroundings.linkers().into_iter().next()),
        Stage::Link(linker) => (&["--bin", "ackbeat-bpf-probe"], Some(linker.clone())),
    };
    let mut command = compiler.cargo("build", "core", linker.as_deref());
    command
        .args(part)
        .args(["--profile", "ebpf", "--manifest-path"])
        .arg(sources.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(surroundings.ebpf_folder.join(compiler.cache_name()));
    Ok(match process::capture(&mut command, "trying a BPF compiler") {
        Ok(answer) if answer.success => Ok(()),
        Ok(answer) => Err(answer.stderr),
        Err(error) => Err(format!("error: {error:#}")),
    })
}

fn write_sources(folder: &Path, profile: &str) -> Result<()> {
    let manifest = format!(
        "[package]\nname = \"ackbeat-bpf-probe\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n\
         [lib]\ntest = false\n\n[[bin]]\nname = \"ackbeat-bpf-probe\"\ntest = false\n\n[workspace]\n\n{profile}"
    );
    fs::create_dir_all(folder.join("src"))
        .with_context(|| format!("could not make the folder {}", folder.display()))?;
    for (name, text) in [("Cargo.toml", manifest.as_str()), ("src/lib.rs", LIBRARY), ("src/main.rs", PROGRAM)]
    {
        write_if_changed(&folder.join(name), text.as_bytes())?;
    }
    Ok(())
}

/// Writes a file only where its content differs, so that cargo does not take it for a change.
///
/// # Errors
/// The file could not be written.
pub(crate) fn write_if_changed(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    fs::write(path, content).with_context(|| format!("could not write {}", path.display()))
}

/// The table `[profile.ebpf]` of the root manifest, so that the probe is compiled like the real thing.
pub(crate) fn profile_of(manifest: &str) -> String {
    let mut table = String::new();
    let mut inside = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.trim() == "[profile.ebpf]";
        }
        if inside {
            table.push_str(line);
            table.push('\n');
        }
    }
    table
}

/// The first error that a compiler printed, as one line.
pub(crate) fn first_error(output: &str) -> String {
    let mut lines = output.lines().map(str::trim).skip_while(|line| !line.starts_with("error"));
    match lines.next() {
        Some(error) => {
            let rest: Vec<&str> = lines.take(4).take_while(|line| !line.is_empty()).collect();
            std::iter::once(error).chain(rest).collect::<Vec<_>>().join(" ")
        }
        None => crate::packages::last_lines(output, 2),
    }
}

#[cfg(test)]
pub(crate) mod fake {
    //! A machine made of shell scripts that write down how they were called.

    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::{Path, PathBuf};

    use tempfile::TempDir;

    use crate::bpf_compiler::Surroundings;

    pub(crate) const PROFILE: &str = "[profile.ebpf]\ninherits = \"release\"\n";

    pub(crate) struct FakeMachine {
        folder: TempDir,
    }

    impl FakeMachine {
        pub(crate) fn new() -> Self {
            Self { folder: TempDir::new().expect("a temporary folder") }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.folder.path().join(path)
        }

        fn script(path: &Path, text: &str) {
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder for the script");
            fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("a script");
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("an executable script");
        }

        /// A rustup that knows `toolchains`; `behaviour` is what `rustup run` does.
        pub(crate) fn rustup(&self, toolchains: &[&str], behaviour: &str) {
            let log = self.at("calls");
            let list = toolchains.join("\n");
            let text = format!(
                "echo \"rustup $*\" >> '{}'\nif [ \"$1\" = toolchain ]; then cat <<'END'\n{list}\nEND\nexit 0; fi\n{behaviour}",
                log.display()
            );
            Self::script(&self.at("path/rustup"), &text);
        }

        /// A Debian compiler; `behaviour` is what its cargo does.
        pub(crate) fn debian(&self, behaviour: &str) {
            let text = format!("echo \"debian cargo $*\" >> '{}'\n{behaviour}", self.at("calls").display());
            Self::script(&self.at("debian/bin/cargo"), &text);
            Self::script(&self.at("debian/bin/rustc"), "exit 0");
        }

        /// A `bpf-linker` in `PATH`, never called itself: the fake cargo decides.
        pub(crate) fn linker(&self) -> PathBuf {
            let path = self.at("path/bpf-linker");
            Self::script(&path, "exit 0");
            path
        }

        pub(crate) fn surroundings(&self) -> Surroundings {
            Surroundings {
                path: OsString::from(self.at("path")),
                cargo_bin: self.at("cargo-home/bin"),
                debian_prefix: self.at("debian"),
                rustup_toolchain: None,
                rustup_home: None,
                ebpf_folder: self.at("target/ebpf"),
                tools: self.at("target/tools"),
            }
        }

        /// What was called, one line each.
        pub(crate) fn calls(&self) -> String {
            fs::read_to_string(self.at("calls")).unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_cut_out_of_the_manifest() {
        let manifest = "[profile.release]\nlto = true\n\n[profile.ebpf]\ninherits = \"release\"\ndebug = 2\n\n[other]\na = 1\n";
        assert_eq!(profile_of(manifest), "[profile.ebpf]\ninherits = \"release\"\ndebug = 2\n\n");
    }

    #[test]
    fn the_first_error_is_one_line() {
        let output =
            "   Compiling probe\nerror: linking failed\n  = note: bad bitcode\n\nerror: could not compile\n";
        assert_eq!(first_error(output), "error: linking failed = note: bad bitcode");
        assert_eq!(first_error("Killed\n"), "Killed");
    }
}
