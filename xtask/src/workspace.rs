//! What `cargo metadata` says about this workspace: folders, packages, test targets and the pinned versions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::process;
use crate::toolchain::{TestTools, Toolchain};

/// The target that the kernel programs are compiled for. The kernels we run on are little-endian.
pub(crate) const BPF_TARGET: &str = "bpfel-unknown-none";

/// This workspace as cargo sees it.
#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    /// Cargo's target directory; everything that xtask makes lies below it.
    #[serde(rename = "target_directory")]
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
    metadata: WorkspaceMetadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct WorkspaceMetadata {
    toolchain: Toolchain,
    test_tools: TestTools,
}

/// One member of the workspace.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) description: Option<String>,
    /// An SPDX expression.
    #[serde(default)]
    pub(crate) license: Option<String>,
    #[serde(default)]
    pub(crate) repository: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) targets: Vec<Target>,
    metadata: Option<PackageMetadata>,
}

#[derive(Debug, Deserialize)]
struct PackageMetadata {
    #[serde(default)]
    ranks: BTreeMap<String, Vec<String>>,
}

/// One target of a package: a library, a program, a file of tests.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

impl Workspace {
    /// Asks cargo.
    ///
    /// # Errors
    /// `cargo metadata` failed (a broken manifest), or the root manifest lacks a table of versions.
    pub(crate) fn load() -> Result<Self> {
        let mut command = process::command(process::cargo());
        command.args(["metadata", "--no-deps", "--format-version=1"]);
        let answer = process::capture(&mut command, "reading the workspace")?;
        if !answer.success {
            bail!("reading the workspace failed: {}", answer.stderr.trim());
        }
        Self::parse(&answer.stdout)
    }

    fn parse(metadata: &str) -> Result<Self> {
        serde_json::from_str(metadata).context(
            "the root Cargo.toml must have [workspace.metadata.toolchain] and [workspace.metadata.test-tools] as xtask knows them",
        )
    }

    /// The pinned set.
    pub(crate) fn toolchain(&self) -> &Toolchain {
        &self.metadata.toolchain
    }

    /// The pinned programs that only the tests use.
    pub(crate) fn test_tools(&self) -> &TestTools {
        &self.metadata.test_tools
    }

    /// The member called `name`.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn package(&self, name: &str) -> Result<&Package> {
        self.packages
            .iter()
            .find(|package| package.name == name)
            .with_context(|| format!("the workspace has no package `{name}`"))
    }

    /// Where `cargo xtask build` leaves the eBPF object.
    pub(crate) fn ebpf_object(&self) -> PathBuf {
        self.target.join("ebpf").join("ackbeat-ebpf")
    }

    /// Programs that xtask built for itself (`bpf-linker`, `cargo-deny`) lie in `bin` below this folder.
    pub(crate) fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// What the tests need and is not ours: `node/node_modules`, `python/bin`.
    pub(crate) fn test_tools_folder(&self) -> PathBuf {
        self.target.join("test-tools")
    }

    /// A program of this workspace, as built.
    pub(crate) fn program(&self, name: &str, release: bool) -> PathBuf {
        self.target.join(if release { "release" } else { "debug" }).join(name)
    }
}

impl Package {
    /// The folder of the package's manifest.
    pub(crate) fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }

    /// Names of the targets of one kind: `bin`, `lib`, `test`, …
    pub(crate) fn targets_of(&self, kind: &str) -> Vec<&str> {
        self.targets
            .iter()
            .filter(|target| target.kind.iter().any(|known| known == kind))
            .map(|target| target.name.as_str())
            .collect()
    }

    /// Test targets by rank, from `[package.metadata.ranks]`.
    pub(crate) fn ranks(&self) -> BTreeMap<&str, Vec<&str>> {
        let declared = self.metadata.iter().flat_map(|metadata| &metadata.ranks);
        declared.map(|(rank, names)| (rank.as_str(), names.iter().map(String::as_str).collect())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_is_understood() {
        let workspace = Workspace::load().expect("cargo metadata of this workspace");
        assert!(workspace.package("ackbeat").is_ok());
        assert!(
            workspace
                .package("ackbeat-tests")
                .expect("the tests' package")
                .ranks()
                .contains_key("namespaces")
        );
        assert_eq!(
            workspace.package("nothing").expect_err("no such package").to_string(),
            "the workspace has no package `nothing`"
        );
    }

    #[test]
    fn a_missing_table_is_named() {
        let metadata = r#"{"workspace_root": "/", "target_directory": "/t", "packages": [], "metadata": {}}"#;
        let error = format!("{:#}", Workspace::parse(metadata).expect_err("no toolchain table"));
        assert!(error.contains("[workspace.metadata.toolchain]"), "{error}");
        assert!(error.contains("missing field `toolchain`"), "{error}");
    }
}
