//! Licences of everything that is linked into the program, with their texts as the packages ship them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::process;
use crate::static_build::Architecture;
use crate::workspace::Workspace;

/// Beginnings of the names of files that hold a licence, in small letters.
const NAMES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    /// `None` for a package of this workspace.
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    /// `None` for a dependency that is linked in.
    kind: Option<String>,
}

/// The files of the image's folder `licenses`, by name.
///
/// # Errors
/// The dependencies cannot be listed, or one names no licence.
pub(super) fn gather(workspace: &Workspace, architecture: Architecture) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for name in ["LICENSE-MIT", "LICENSE-APACHE", "LICENSE-GPL2"] {
        let path = workspace.root.join(name);
        files.insert(
            name.to_owned(),
            fs::read(&path).with_context(|| format!("could not read {}", path.display()))?,
        );
    }
    let mut command = process::command(process::cargo());
    command.current_dir(&workspace.root).args([
        "metadata",
        "--format-version=1",
        "--filter-platform",
        architecture.target(),
    ]);
    let answer = process::capture(&mut command, "listing the dependencies")?;
    if !answer.success {
        bail!("listing the dependencies failed: {}", answer.stderr.trim());
    }
    let metadata: Metadata = serde_json::from_str(&answer.stdout).context("reading what cargo lists")?;
    files.insert("third-party.txt".to_owned(), page(&linked(&metadata, "ackbeat")?)?.into_bytes());
    // What the linker adds: Debian says of each package whose it is.
    for (name, package) in [("glibc", "libc6"), ("ca-certificates", "ca-certificates")] {
        let path = Path::new("/usr/share/doc").join(package).join("copyright");
        if let Ok(text) = fs::read(&path) {
            files.insert(format!("{name}.txt"), text);
        }
    }
    Ok(files)
}

/// The packages of other people that a package has linked in, itself left out, by name and version.
fn linked<'a>(metadata: &'a Metadata, name: &str) -> Result<Vec<&'a Package>> {
    let packages: HashMap<&str, &Package> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let nodes: HashMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let root = metadata
        .packages
        .iter()
        .find(|package| package.name == name && package.source.is_none())
        .with_context(|| format!("the workspace has no package {name}"))?;
    let mut waiting = vec![root.id.as_str()];
    let mut seen = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !seen.insert(id) {
            continue;
        }
        let Some(node) = nodes.get(id) else { continue };
        waiting.extend(
            node.deps
                .iter()
                .filter(|dependency| dependency.dep_kinds.iter().any(|found| found.kind.is_none()))
                .map(|dependency| dependency.pkg.as_str()),
        );
    }
    let mut found: Vec<&Package> = seen
        .into_iter()
        .filter_map(|id| packages.get(id).copied())
        .filter(|package| package.source.is_some())
        .collect();
    found.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
    Ok(found)
}

/// Every package with its licence, then every text once, with the packages that it came with.
fn page(packages: &[&Package]) -> Result<String> {
    let mut page = String::from(
        "What is linked into this program, apart from itself. Each package with its licence (SPDX), then the texts that\n\
         the packages ship.\n\n",
    );
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages {
        let called = format!("{} {}", package.name, package.version);
        let license = package.license.as_deref().with_context(|| format!("{called} names no licence"))?;
        // Writing to a string cannot fail.
        let _ = writeln!(page, "{called}  {license}  {}", package.repository.as_deref().unwrap_or_default());
        for text in texts_of(package)? {
            texts.entry(text).or_default().push(called.clone());
        }
    }
    let mut texts: Vec<(String, Vec<String>)> = texts.into_iter().collect();
    texts.sort_by(|one, other| one.1.cmp(&other.1).then_with(|| one.0.cmp(&other.0)));
    for (text, of) in texts {
        let _ = write!(page, "\n{}\n{}\n\n{}\n", "=".repeat(80), of.join(", "), text.trim_end());
    }
    Ok(page)
}

/// The licence files at the top of a package, in the order of their names.
fn texts_of(package: &Package) -> Result<Vec<String>> {
    let folder = package.manifest_path.parent().unwrap_or(Path::new("/"));
    let listed = fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = listed
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
            path.is_file() && NAMES.iter().any(|known| name.starts_with(known))
        })
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
            Ok(String::from_utf8_lossy(&text).replace("\r\n", "\n"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &Path, name: &str, text: &str) -> Package {
        let folder = folder.join(name);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("LICENSE-MIT"), text).expect("a licence");
        fs::write(folder.join("README.md"), "no licence").expect("a file");
        Package {
            id: name.to_owned(),
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            license: Some("MIT".to_owned()),
            repository: None,
            source: Some("registry".to_owned()),
            manifest_path: folder.join("Cargo.toml"),
        }
    }

    #[test]
    fn a_text_that_many_ship_is_there_once_with_all_of_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let [one, two, three] = [("one", "Permission\n"), ("two", "Permission\r\n"), ("three", "Another")]
            .map(|(name, text)| package(folder.path(), name, text));
        let page = page(&[&one, &two, &three]).expect("all have licences");
        assert_eq!(page.matches("Permission").count(), 1, "{page}");
        assert!(page.contains("one 1.0.0, two 1.0.0\n\nPermission"), "{page}");
        assert!(page.contains("three 1.0.0  MIT"), "{page}");
        assert!(!page.contains("no licence"), "{page}");
    }

    #[test]
    fn what_only_builds_and_tests_use_is_left_out() {
        let metadata: Metadata = serde_json::from_str(
            r#"{"packages": [
                {"id": "a", "name": "ackbeat", "version": "0", "license": null, "source": null, "manifest_path": "/a/Cargo.toml"},
                {"id": "b", "name": "linked", "version": "1", "license": "MIT", "source": "registry", "manifest_path": "/b/Cargo.toml"},
                {"id": "c", "name": "below", "version": "1", "license": "MIT", "source": "registry", "manifest_path": "/c/Cargo.toml"},
                {"id": "d", "name": "tests", "version": "1", "license": "MIT", "source": "registry", "manifest_path": "/d/Cargo.toml"}
            ], "resolve": {"nodes": [
                {"id": "a", "deps": [{"pkg": "b", "dep_kinds": [{"kind": null}]}, {"pkg": "d", "dep_kinds": [{"kind": "dev"}]}]},
                {"id": "b", "deps": [{"pkg": "c", "dep_kinds": [{"kind": "build"}, {"kind": null}]}]},
                {"id": "c", "deps": []}, {"id": "d", "deps": []}
            ]}}"#,
        )
        .expect("as cargo writes it");
        let names: Vec<&str> = linked(&metadata, "ackbeat")
            .expect("it is there")
            .iter()
            .map(|package| package.name.as_str())
            .collect();
        assert_eq!(names, ["below", "linked"]);
    }
}
