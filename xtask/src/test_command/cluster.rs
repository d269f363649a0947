//! The rank `cluster`: a real API server, and a node that runs pods from our image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::report::RankReport;
use super::{TestOptions, cargo_test, helm, tools};
use crate::build_command::{self, OBJECT_VARIABLE};
use crate::image_command;
use crate::packages::Installer;
use crate::workspace::Workspace;
use crate::{console, kubernetes_binaries, process};

/// What a node is made of besides Kubernetes' own programs: its store, its container runtime, the pods' network, the rules of
/// Services, and names for pods to look up.
const NODE_PACKAGES: [&str; 8] = [
    "etcd-server",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iptables",
    "conntrack",
    "dnsmasq-base",
    "openssl",
];
/// An interpreter with its library, for the image of the demo's host and clients.
const PYTHON_PACKAGES: [&str; 3] = ["python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib"];
/// What those link.
const PYTHON_LIBRARIES: [&str; 8] =
    ["libc6", "zlib1g", "libexpat1", "libssl3", "libffi8", "libbz2-1.0", "liblzma5", "libuuid1"];
const PYTHON: &str = "/usr/bin/python3.11";

/// The container of every pod that holds its namespaces: it waits to be ended.
const PAUSE: &str = r"#include <signal.h>
#include <unistd.h>
static void end(int signal) { (void)signal; _exit(0); }
int main(void) { signal(SIGTERM, end); signal(SIGINT, end); for (;;) pause(); }
";

/// Runs it.
///
/// # Errors
/// Something that the rank needs is missing.
pub(super) fn run(
    workspace: &Workspace,
    options: &TestOptions,
    targets: &[&str],
    installer: &Installer,
    report: &mut RankReport,
) -> Result<()> {
    if !process::is_root() {
        bail!("not root; run `{}`", process::as_root("test cluster"));
    }
    installer.program("ip", "iproute2", "makes the network namespace of the node")?;
    installer.program("nft", "nftables", "cuts a pod off")?;
    installer.packages(&NODE_PACKAGES, "is part of the node of the tests")?;
    installer.packages(&PYTHON_PACKAGES, "runs the demo's host and clients in pods")?;
    installer.packages(&PYTHON_LIBRARIES, "is what Python links")?;
    let binaries = kubernetes_binaries::ensure_built(installer)?;
    helm::helm(workspace, installer)?;
    tools::python(workspace, installer)?;
    let images = images(workspace, options)?;
    let object = build_command::ebpf_object(workspace, &options.compiler, installer)?;
    build_command::sidecar(workspace, &object, false)?;
    for target in targets {
        let mut command = process::command(process::cargo());
        command
            .current_dir(&workspace.root)
            .args([
                "test",
                "--no-fail-fast",
                "--package",
                "ackbeat-tests",
                "--all-features",
                "--test",
                target,
            ])
            .env(OBJECT_VARIABLE, &object)
            .env("ACKBEAT_BIN", workspace.program("ackbeat", false))
            .env("ACKBEAT_TEST_TOOLS", workspace.test_tools_folder())
            .env("ACKBEAT_KUBERNETES", &binaries)
            .env("ACKBEAT_IMAGES", &images);
        cargo_test::run(&mut command, target, report)?;
    }
    Ok(())
}

/// Makes the images that the node runs; gives their folder.
fn images(workspace: &Workspace, options: &TestOptions) -> Result<PathBuf> {
    let folder = workspace.target.join("cluster-images");
    fs::create_dir_all(&folder).with_context(|| format!("could not make {}", folder.display()))?;
    console::progress("making the images: the sidecar, the pause container, and Python for the demo");
    image_command::for_tests(workspace, &options.compiler, folder.join("ackbeat.tar"))?;
    let pause = compile_pause(&folder)?;
    let pause = fs::read(&pause).with_context(|| format!("could not read {}", pause.display()))?;
    let added = vec![("pause".to_owned(), pause)];
    image_command::of_files("localhost/pause:1", "/pause", &[], added, &folder.join("pause.tar"))?;
    let mut packages = PYTHON_PACKAGES.to_vec();
    packages.extend(PYTHON_LIBRARIES);
    let files = files_of(&packages)?;
    ensure!(
        files.iter().any(|file| file == Path::new(PYTHON)),
        "the packages of Python do not hold {PYTHON}"
    );
    image_command::of_files("localhost/python:3", PYTHON, &files, Vec::new(), &folder.join("python.tar"))?;
    Ok(folder)
}

fn compile_pause(folder: &Path) -> Result<PathBuf> {
    let (source, program) = (folder.join("pause.c"), folder.join("pause"));
    fs::write(&source, PAUSE).context("could not write the pause container's source")?;
    let mut compiler = process::command("cc");
    compiler.args(["-static", "-Os", "-o"]).arg(&program).arg(&source);
    process::run(&mut compiler, "compiling the pause container")?;
    Ok(program)
}

/// The files of installed Debian packages, without documentation.
fn files_of(packages: &[&str]) -> Result<Vec<PathBuf>> {
    let mut command: Command = process::command("dpkg");
    command.arg("--listfiles").args(packages);
    let answer = process::capture(&mut command, "asking for the files of packages")?;
    ensure!(answer.success, "`{}` failed: {}", process::command_line(&command), answer.stderr);
    let mut files: Vec<PathBuf> = answer
        .stdout
        .lines()
        .map(PathBuf::from)
        .filter(|path| !path.starts_with("/usr/share") && path.is_file())
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}
