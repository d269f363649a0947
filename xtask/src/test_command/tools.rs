//! What the tests talk to and is not ours: WebSocket servers from npm and PyPI, OTLP receivers, Prometheus.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::bpf_probe::write_if_changed;
use crate::packages::{Installer, with_retries};
use crate::workspace::Workspace;
use crate::{console, process};

/// Makes sure that a browser starts on this machine.
///
/// # Errors
/// Chromium is missing and may not be installed, or does not start.
pub(crate) fn browser(installer: &Installer) -> Result<()> {
    installer.program(
        "chromium",
        "chromium",
        "is the browser whose page is the peer in one of the stories",
    )?;
    let answer = process::capture(process::command("chromium").arg("--version"), "trying chromium")?;
    if !answer.success {
        bail!("chromium does not start on this machine: {}", answer.stderr.trim());
    }
    Ok(())
}

/// Makes sure that Prometheus and its tool that checks pages are there.
///
/// # Errors
/// They are missing and may not be installed.
pub(crate) fn prometheus(installer: &Installer) -> Result<()> {
    for program in ["promtool", "prometheus"] {
        installer.program(program, "prometheus", "reads the metrics in the tests")?;
    }
    Ok(())
}

/// Puts the npm packages of `tests/node/package-lock.json` into `<target>/test-tools/node`.
///
/// # Errors
/// Node.js or npm is missing and may not be installed, or npm failed.
pub(crate) fn node(workspace: &Workspace, installer: &Installer) -> Result<()> {
    let folder = workspace.test_tools_folder().join("node");
    let sources = workspace.package("ackbeat-tests")?.folder().join("node");
    let lock = sources.join("package-lock.json");
    let wanted = fs::read(&lock).with_context(|| format!("could not read {}", lock.display()))?;
    installer.program("node", "nodejs", "runs the Node.js hosts of the tests, and a client's own tests")?;
    // npm writes this file last, so it stands for a finished installation.
    let done = folder.join("installed-package-lock.json");
    if fs::read(&done).is_ok_and(|installed| installed == wanted) && folder.join("node_modules").is_dir() {
        return Ok(());
    }
    installer.program("npm", "npm", "installs the npm packages of the tests")?;
    fs::create_dir_all(&folder).with_context(|| format!("could not make the folder {}", folder.display()))?;
    for name in ["package.json", "package-lock.json"] {
        let content =
            fs::read(sources.join(name)).with_context(|| format!("could not read tests/node/{name}"))?;
        write_if_changed(&folder.join(name), &content)?;
    }
    console::progress(&format!(
        "installing: the npm packages of {} (the libraries of the Node.js hosts of the tests, and a compiler that reads types)",
        lock.display()
    ));
    with_retries("installing the npm packages", || {
        let mut command = process::command("npm");
        command.current_dir(&folder).args([
            "ci",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--loglevel=error",
        ]);
        process::run(&mut command, "installing the npm packages")
    })?;
    write_if_changed(&done, &wanted)
}

/// Puts the pinned packages from PyPI into a virtual environment at `<target>/test-tools/python`.
///
/// # Errors
/// Python or its `venv` is missing and may not be installed, or pip failed.
pub(crate) fn python(workspace: &Workspace, installer: &Installer) -> Result<()> {
    let folder = workspace.test_tools_folder().join("python");
    let requirements = workspace.test_tools().python_requirements();
    let wanted = requirements.iter().map(|(pinned, _)| format!("{pinned}\n")).collect::<String>();
    let done = folder.join("installed-requirements.txt");
    if fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let purpose = "runs the OTLP receiver and the Python hosts of the tests";
    python_environment(installer, purpose, &requirements, &folder, &folder)?;
    with_retries("installing the PyPI packages", || pip(&folder, &requirements))?;
    let agent = rotel_agent(&folder)?;
    if let Some(library) = missing_python_library(&agent)? {
        installer.install(&[&library], "the OTLP receiver of the tests is linked with it")?;
        if let Some(still) = missing_python_library(&agent)? {
            bail!("{} cannot start: it needs {still}, the library of the python3 in PATH", agent.display());
        }
    }
    write_if_changed(&done, wanted.as_bytes())
}

/// Makes a virtual environment in `environment`, and names the packages that are going to be installed into `folder`.
///
/// # Errors
/// Python or its `venv` is missing and may not be installed, or the environment cannot be made.
pub(super) fn python_environment(
    installer: &Installer,
    purpose: &str,
    requirements: &[(String, &str)],
    folder: &Path,
    environment: &Path,
) -> Result<()> {
    installer.program("python3", "python3", purpose)?;
    if !makes_environments() {
        installer.install(&["python3-venv"], "a folder of its own for the Python packages of the tests")?;
        if !makes_environments() {
            bail!(
                "`python3 -m venv` does not work with the python3 in PATH: install venv and ensurepip for it"
            );
        }
    }
    for (pinned, purpose) in requirements {
        console::progress(&format!(
            "installing: the PyPI package {pinned} into {} ({purpose})",
            folder.display()
        ));
    }
    let mut venv = process::command("python3");
    venv.args(["-m", "venv"]).arg(environment);
    process::run(&mut venv, "making a Python environment")
}

/// Compiles the second OTLP receiver, in the pinned version, into `<target>/test-tools/otelite`.
///
/// # Errors
/// It is missing and may not be compiled, or the compilation failed.
pub(crate) fn otelite(workspace: &Workspace, installer: &Installer) -> Result<()> {
    let folder = workspace.test_tools_folder().join("otelite");
    let pinned = workspace.test_tools().otelite.as_str();
    let program = folder.join("bin/otelite");
    let is_there = process::is_executable(&program)
        && process::capture(process::command(&program).arg("--version"), "asking otelite for its version")
            .is_ok_and(|answer| answer.stdout.split_whitespace().any(|word| word == pinned));
    if is_there {
        return Ok(());
    }
    let version = format!("={pinned}");
    if !installer.may_compile_tools() {
        bail!(
            "otelite {pinned} is missing: run `cargo install otelite --locked --version {version} --root {}`",
            folder.display()
        );
    }
    console::progress(&format!(
        "installing: the crate otelite {pinned} into {} (a second OTLP receiver; about 4 minutes)",
        folder.display()
    ));
    let scratch = folder.join("build");
    with_retries("installing otelite", || {
        let mut command = process::command(process::cargo());
        command
            // Nobody measures it: what is quick to compile is good enough.
            .args([
                "install",
                "--quiet",
                "otelite",
                "--locked",
                "--force",
                "--debug",
                "--version",
                &version,
                "--root",
            ])
            .arg(&folder)
            .env("CARGO_TARGET_DIR", &scratch)
            .env("CARGO_PROFILE_DEV_DEBUG", "false");
        process::run(&mut command, "installing otelite")
    })?;
    // The compiled parts are not needed again; a leftover costs only room.
    let _ = fs::remove_dir_all(&scratch);
    Ok(())
}

/// The program inside the package: a Rust program that is linked with the interpreter's library.
fn rotel_agent(environment: &Path) -> Result<PathBuf> {
    let library = environment.join("lib");
    let versions = fs::read_dir(&library).with_context(|| format!("could not read {}", library.display()))?;
    versions
        .flatten()
        .map(|version| version.path().join("site-packages/rotel/rotel-agent"))
        .find(|agent| agent.is_file())
        .with_context(|| format!("the package rotel put no rotel-agent below {}", library.display()))
}

/// The Debian package of the library that keeps the program from starting. Found by starting it: a python that was not
/// built by Debian has the library elsewhere, or does not need it.
fn missing_python_library(agent: &Path) -> Result<Option<String>> {
    let answer = process::capture(process::command(agent).arg("--version"), "trying rotel")?;
    Ok(if answer.success { None } else { library_package(&answer.stderr) })
}

/// `libpython3.11` out of the dynamic linker's `libpython3.11.so.1.0: cannot open shared object file`.
fn library_package(message: &str) -> Option<String> {
    let library = message.split_whitespace().find(|word| word.starts_with("libpython"))?;
    library.split(".so").next().map(str::to_owned)
}

fn pip(folder: &Path, requirements: &[(String, &str)]) -> Result<()> {
    let mut command = process::command(folder.join("bin/python3"));
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]);
    command.args(requirements.iter().map(|(pinned, _)| pinned));
    process::run(&mut command, "installing the PyPI packages")
}

/// Debian splits the module that `venv` needs into a package of its own.
fn makes_environments() -> bool {
    let mut command = process::command("python3");
    command.args(["-c", "import venv, ensurepip"]);
    process::capture(&mut command, "trying python3").is_ok_and(|answer| answer.success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_library_names_its_package() {
        let message = "/x/rotel-agent: error while loading shared libraries: libpython3.11.so.1.0: cannot open shared \
                       object file: No such file or directory";
        assert_eq!(library_package(message).as_deref(), Some("libpython3.11"));
        assert_eq!(library_package("unexpected argument"), None);
    }
}
