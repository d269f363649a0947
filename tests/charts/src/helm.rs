//! The real Helm, version 3 and version 4, away from any cluster and from the user's own settings.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::{manifests, tool};

/// The release's name in all renders.
pub const RELEASE: &str = "ackbeat";
/// The release's namespace in all renders.
pub const NAMESPACE: &str = "ackbeat";
/// The newest API server that is rendered for unless something else is said.
pub const NEWEST: &str = "1.37";

/// One Helm.
pub struct Helm {
    major: u32,
    program: PathBuf,
    home: TempDir,
}

/// What a Helm command printed and how it ended.
pub struct Answer {
    /// Exit code 0.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// What to render, and for which cluster.
#[derive(Default, Clone)]
pub struct Render<'a> {
    /// Files of values, weakest first.
    pub values: Vec<PathBuf>,
    /// `KEY=VALUE`, as `--set` takes them.
    pub set: Vec<&'a str>,
    /// Minor version of the API server, like `1.29`; [`NEWEST`] by default.
    pub kube_version: Option<&'a str>,
    /// API versions that the cluster has besides its own, like `monitoring.coreos.com/v1`.
    pub api_versions: Vec<&'a str>,
}

impl Helm {
    /// Helm 3 or 4.
    ///
    /// # Errors
    /// It is not in `ACKBEAT_TEST_TOOLS`, or no folder for its settings can be made.
    pub fn new(major: u32) -> Result<Self> {
        let program = tool(&format!("helm/v{major}/helm"))?;
        Ok(Self { major, program, home: tempfile::tempdir().context("no folder for Helm's settings")? })
    }

    /// Both.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn both() -> Result<[Self; 2]> {
        Ok([Self::new(3)?, Self::new(4)?])
    }

    /// Runs it.
    ///
    /// # Errors
    /// It does not start. A command that fails is an answer.
    pub fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Result<Answer> {
        self.run_with_kubeconfig(arguments, Path::new("/dev/null"))
    }

    /// Runs it against a cluster.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_with_kubeconfig<S: AsRef<OsStr>>(&self, arguments: &[S], kubeconfig: &Path) -> Result<Answer> {
        let output = Command::new(&self.program)
            .args(arguments)
            .env("HELM_CACHE_HOME", self.home.path().join("cache"))
            .env("HELM_CONFIG_HOME", self.home.path().join("config"))
            .env("HELM_DATA_HOME", self.home.path().join("data"))
            .env("KUBECONFIG", kubeconfig)
            .output()
            .with_context(|| format!("{} does not start", self.program.display()))?;
        Ok(Answer {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// `helm template`, not yet judged.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn try_template(&self, chart: &Path, render: &Render<'_>) -> Result<Answer> {
        let mut arguments: Vec<String> = ["template", RELEASE]
            .map(str::to_owned)
            .into_iter()
            .chain([chart.display().to_string()])
            .collect();
        arguments.extend(["--namespace".to_owned(), NAMESPACE.to_owned()]);
        arguments.extend(["--kube-version".to_owned(), render.kube_version.unwrap_or(NEWEST).to_owned()]);
        for file in &render.values {
            arguments.extend(["--values".to_owned(), file.display().to_string()]);
        }
        for pair in &render.set {
            arguments.extend(["--set".to_owned(), (*pair).to_owned()]);
        }
        for version in &render.api_versions {
            arguments.extend(["--api-versions".to_owned(), (*version).to_owned()]);
        }
        self.run(&arguments)
    }

    /// `helm template`, as manifests.
    ///
    /// # Errors
    /// The chart does not render (with Helm's own message), or what it renders is not YAML.
    pub fn template(&self, chart: &Path, render: &Render<'_>) -> Result<Vec<Value>> {
        let answer = self.try_template(chart, render)?;
        ensure!(answer.success, "{self} does not render {}: {}", chart.display(), answer.stderr);
        manifests::parse(&answer.stdout)
    }
}

impl fmt::Display for Helm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Helm {}", self.major)
    }
}

/// Copies a folder: a chart beside which Helm may put its dependencies.
///
/// # Errors
/// A file cannot be read or written.
pub fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("could not make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("could not read {}", from.display()))? {
        let entry = entry.with_context(|| format!("could not read {}", from.display()))?;
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)
                .with_context(|| format!("could not write {}", target.display()))?;
        }
    }
    Ok(())
}
