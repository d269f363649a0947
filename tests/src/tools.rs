//! Where the programs under test and the programs to test against are.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

fn workspace() -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.parent().map_or_else(|| package.clone(), PathBuf::from)
}

fn target_directories() -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> =
        std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from).into_iter().collect();
    directories.push(workspace().join("target"));
    directories
}

/// The built `ackbeat`: `ACKBEAT_BIN`, else the newest of the workspace's debug and release builds.
///
/// # Errors
/// If there is none.
pub fn ackbeat() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("ACKBEAT_BIN").map(PathBuf::from) {
        if path.is_file() {
            return Ok(path);
        }
        bail!("ACKBEAT_BIN names {}, which is no file", path.display());
    }
    let built = target_directories()
        .iter()
        .flat_map(|target| ["debug", "release"].map(|profile| target.join(profile).join("ackbeat")))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max();
    Ok(built.context("the sidecar is not built: run `cargo xtask build`, or set ACKBEAT_BIN")?.1)
}

/// A program of this package, built beside the program that runs.
///
/// # Errors
/// If it is not there: a test program has them all, another program must be built together with it (`--bins`).
pub fn own_program(name: &str) -> Result<PathBuf> {
    let running = std::env::current_exe().context("finding the running program failed")?;
    // Test programs are in the folder `deps` below the others.
    let found =
        running.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.with_context(|| {
        format!("{name} is not beside {}: run `cargo build -p ackbeat-tests --bins`", running.display())
    })
}

fn tool(relative: &str) -> Result<PathBuf> {
    let directories = match std::env::var_os("ACKBEAT_TEST_TOOLS").map(PathBuf::from) {
        Some(directory) => vec![directory],
        None => target_directories().into_iter().map(|target| target.join("test-tools")).collect(),
    };
    directories.iter().map(|directory| directory.join(relative)).find(|path| path.exists()).with_context(
        || {
            format!(
                "{relative} is not among the test tools: run `cargo xtask test`, or set ACKBEAT_TEST_TOOLS"
            )
        },
    )
}

/// The folder whose `node_modules` has the npm packages that the hosts on Node.js need.
///
/// # Errors
/// If they are not installed.
pub fn node_directory() -> Result<PathBuf> {
    for package in ["ws", "engine.io", "socket.io", "socket.io-client"] {
        tool(&format!("node/node_modules/{package}/package.json"))?;
    }
    tool("node")
}

/// The name and version of an installed npm package.
///
/// # Errors
/// If it is not installed.
pub fn npm_version(package: &str) -> Result<String> {
    let path = tool(&format!("node/node_modules/{package}/package.json"))?;
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("reading {} failed", path.display()))?;
    let description: serde_json::Value = serde_json::from_str(&text)
        .with_context(|| format!("{} does not describe a package", path.display()))?;
    let version = description.get("version").and_then(serde_json::Value::as_str);
    Ok(format!("{package} {}", version.with_context(|| format!("{} has no version", path.display()))?))
}

/// The Python interpreter that has the packages from `PyPI`.
///
/// # Errors
/// If there is none, or they are not installed.
pub fn python() -> Result<PathBuf> {
    for package in ["aiohttp", "websockets"] {
        python_version(package)?;
    }
    tool("python/bin/python3")
}

/// The name and version of an installed `PyPI` package.
///
/// # Errors
/// If it is not installed.
pub fn python_version(package: &str) -> Result<String> {
    let found = site_packages()?.into_iter().find_map(|folder| {
        let entries = std::fs::read_dir(folder).ok()?;
        entries.flatten().find_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let version = name.strip_suffix(".dist-info")?.strip_prefix(package)?.strip_prefix('-')?;
            Some(version.to_owned())
        })
    });
    let version = found.with_context(|| {
        format!("the Python package {package} is not among the test tools: run `cargo xtask test`")
    })?;
    Ok(format!("{package} {version}"))
}

/// The folders of installed Python packages.
fn site_packages() -> Result<Vec<PathBuf>> {
    let library = tool("python/lib")?;
    let versions =
        std::fs::read_dir(&library).with_context(|| format!("reading {} failed", library.display()))?;
    Ok(versions.flatten().map(|version| version.path().join("site-packages")).collect())
}

/// The program of the `PyPI` package `rotel`, an OTLP receiver that is not ours.
///
/// # Errors
/// If it is not installed.
pub fn rotel_agent() -> Result<PathBuf> {
    let found = site_packages()?
        .into_iter()
        .map(|folder| folder.join("rotel/rotel-agent"))
        .find(|path| path.is_file());
    found.context("the Python package rotel is not among the test tools: run `cargo xtask test`")
}

/// The program of the crate `otelite`, an OTLP receiver that is not ours and answers questions.
///
/// # Errors
/// If it is not installed.
pub fn otelite() -> Result<PathBuf> {
    tool("otelite/bin/otelite")
}

/// A source file of this package that is no Rust.
#[must_use]
pub fn source(relative: &str) -> PathBuf {
    workspace().join("tests").join(relative)
}

/// The folder with Kubernetes' own programs: `ACKBEAT_KUBERNETES`.
///
/// # Errors
/// The variable is not set, or one is missing there.
pub fn kubernetes() -> Result<PathBuf> {
    const HOW: &str = "run `cargo xtask test cluster`, which builds them once";
    let folder = std::env::var_os("ACKBEAT_KUBERNETES").map(PathBuf::from).with_context(|| {
        format!("ACKBEAT_KUBERNETES does not name the folder of Kubernetes' programs: {HOW}")
    })?;
    for program in ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet"] {
        if !folder.join(program).is_file() {
            bail!("there is no {program} in {}: {HOW}", folder.display());
        }
    }
    Ok(folder)
}

/// The folder with `helm` and `kubectl` of a generation of Helm, `v3` or `v4`.
///
/// # Errors
/// If it is not among the test tools.
pub fn helm_folder(generation: &str) -> Result<PathBuf> {
    tool(&format!("helm/{generation}"))
}

/// An OCI archive of the tests: `ackbeat`, `pause` or `python`, in the folder `ACKBEAT_IMAGES`.
///
/// # Errors
/// The variable is not set, or it is not there.
pub fn image(name: &str) -> Result<PathBuf> {
    let folder = std::env::var_os("ACKBEAT_IMAGES")
        .map(PathBuf::from)
        .context("ACKBEAT_IMAGES does not name the folder of the images: run `cargo xtask test cluster`")?;
    let archive = folder.join(format!("{name}.tar"));
    if archive.is_file() {
        return Ok(archive);
    }
    bail!("there is no {}: run `cargo xtask test cluster`", archive.display())
}
