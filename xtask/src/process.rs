//! Child processes: a clean environment for each, errors that name the step, and the search for programs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Starts the description of a child process without the variables that cargo sets for *this* program.
///
/// Build scripts declare such variables as inputs (`CARGO_MANIFEST_DIR` for one). Left in place, every build through
/// `cargo xtask` would invalidate what a plain `cargo build` made, and the other way round.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_set_by_cargo_run) {
            command.env_remove(name);
        }
    }
    match env::var_os("LD_LIBRARY_PATH").map(|value| without_cargo_folders(&value)) {
        Some(rest) if rest.is_empty() => {
            command.env_remove("LD_LIBRARY_PATH");
        }
        Some(rest) => {
            command.env("LD_LIBRARY_PATH", rest);
        }
        None => {}
    }
    command
}

fn is_set_by_cargo_run(name: &str) -> bool {
    name.starts_with("CARGO_PKG_")
        || name.starts_with("CARGO_MANIFEST_")
        || matches!(
            name,
            "CARGO" | "CARGO_BIN_NAME" | "CARGO_CRATE_NAME" | "CARGO_PRIMARY_PACKAGE" | "OUT_DIR"
        )
}

/// `cargo run` adds the folder of this program, its `deps` and the compiler's libraries; the user added the rest.
fn without_cargo_folders(value: &OsStr) -> OsString {
    let own_folder = env::current_exe().ok().and_then(|program| program.parent().map(Path::to_path_buf));
    let kept = env::split_paths(value).filter(|folder| {
        let ours = own_folder.as_ref().is_some_and(|own| folder.starts_with(own));
        let of_the_compiler = folder.components().any(|part| part.as_os_str() == "toolchains");
        !ours && !of_the_compiler
    });
    env::join_paths(kept).unwrap_or_default()
}

/// The cargo that started this program, else the one in `PATH`.
pub(crate) fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"))
}

/// Cargo's own folder of programs: `$CARGO_HOME/bin`, which `PATH` may lack.
pub(crate) fn cargo_bin() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").unwrap_or_else(|| OsString::from("/root")));
    env::var_os("CARGO_HOME").map_or_else(|| home().join(".cargo"), PathBuf::from).join("bin")
}

/// Runs a child with this program's terminal and waits for it.
///
/// # Errors
/// The child could not be started, or did not end with 0: the message names `step` and the command line.
pub(crate) fn run(command: &mut Command, step: &str) -> Result<()> {
    let status =
        command.status().with_context(|| format!("{step}: could not start `{}`", command_line(command)))?;
    if !status.success() {
        bail!("{step} failed ({status}): `{}`", command_line(command));
    }
    Ok(())
}

/// What a child printed, and whether it ended with 0.
pub(crate) struct Captured {
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a child without a terminal and keeps what it prints.
///
/// # Errors
/// The child could not be started. A child that fails is no error here: see [`Captured::success`].
pub(crate) fn capture(command: &mut Command, step: &str) -> Result<Captured> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{step}: could not start `{}`", command_line(command)))?;
    Ok(Captured {
        success: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// The command as one would type it, without its environment.
pub(crate) fn command_line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        // Writing to a String cannot fail.
        let _ = write!(line, " {}", quoted(&argument.to_string_lossy()));
    }
    line
}

fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

/// The first executable called `name` in the folders of `path`, a value of the form of `PATH`.
pub(crate) fn find_in(path: &OsStr, name: &str) -> Option<PathBuf> {
    env::split_paths(path).map(|folder| folder.join(name)).find(|candidate| is_executable(candidate))
}

/// The first executable called `name` in `PATH`, or in the folders for system programs that `PATH` often lacks.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    find_in(&path, name).or_else(|| find_in(OsStr::new("/usr/sbin:/sbin:/usr/bin:/bin"), name))
}

/// Whether `path` is a file that may be executed.
pub(crate) fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Whether the effective user is root: the owner of `/proc/self` is the effective user (proc(5)).
pub(crate) fn is_root() -> bool {
    Path::new("/proc/self").metadata().is_ok_and(|own| own.uid() == 0)
}

/// The command that repeats `cargo xtask ARGUMENTS` as root with the caller's cargo in `PATH`.
pub(crate) fn as_root(arguments: &str) -> String {
    format!("sudo -E env \"PATH=$PATH\" cargo xtask {arguments}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_pasted_into_a_shell() {
        let mut sample = Command::new("cargo");
        sample.args(["build", "--features", "a b", "it's", ""]);
        assert_eq!(command_line(&sample), r"cargo build --features 'a b' 'it'\''s' ''");
    }

    #[test]
    fn variables_of_cargo_run_are_dropped_and_settings_kept() {
        for dropped in ["CARGO", "CARGO_PKG_NAME", "CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH", "OUT_DIR"] {
            assert!(is_set_by_cargo_run(dropped), "{dropped}");
        }
        for kept in ["CARGO_HOME", "CARGO_TARGET_DIR", "CARGO_TERM_COLOR", "CARGO_NET_RETRY", "RUSTUP_HOME"] {
            assert!(!is_set_by_cargo_run(kept), "{kept}");
        }
    }

    #[test]
    fn a_failing_step_is_named() {
        let error =
            run(&mut Command::new("false"), "building nothing").expect_err("`false` fails").to_string();
        assert_eq!(error, "building nothing failed (exit status: 1): `false`");
    }
}
