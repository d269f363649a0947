//! Rules about the repository as a whole: what its top level holds, and that every package has a changelog.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};

use crate::process;
use crate::workspace::Workspace;

/// Names at the top level. Hidden ones and licences are allowed besides.
const TOP_LEVEL: [&str; 8] =
    ["Cargo.toml", "Cargo.lock", "README.md", "charts", "ebpf", "sidecar", "tests", "xtask"];

/// Every file that git tracks or would track, relative to the root.
///
/// # Errors
/// This is no git work tree.
pub(super) fn files(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let mut command = process::command("git");
    command.current_dir(&workspace.root).args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let answer = process::capture(&mut command, "listing the repository's files")?;
    ensure!(answer.success, "listing the repository's files failed: {}", answer.stderr.trim());
    let listed = answer.stdout.split('\0').filter(|path| !path.is_empty()).map(PathBuf::from);
    // A file that was removed but not yet committed is still listed.
    let mut files: Vec<PathBuf> = listed.filter(|path| workspace.root.join(path).exists()).collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// Checks the names at the top level.
///
/// # Errors
/// Others than the allowed ones; the message lists them.
pub(super) fn top_level(workspace: &Workspace) -> Result<()> {
    let strange = strange_names(&files(workspace)?);
    if !strange.is_empty() {
        bail!(
            "not at the top level: {} (allowed: {}, LICENSE-*, hidden files)",
            strange.join(", "),
            TOP_LEVEL.join(", ")
        );
    }
    Ok(())
}

fn strange_names(files: &[PathBuf]) -> Vec<String> {
    let names: BTreeSet<String> = files
        .iter()
        .filter_map(|path| path.components().next())
        .map(|first| first.as_os_str().to_string_lossy().into_owned())
        .filter(|name| {
            !name.starts_with('.') && !name.starts_with("LICENSE-") && !TOP_LEVEL.contains(&name.as_str())
        })
        .collect();
    names.into_iter().collect()
}

/// Checks that every package has a changelog with a section for what is not released yet.
///
/// # Errors
/// One has none; the message lists them.
pub(super) fn changelogs(workspace: &Workspace) -> Result<()> {
    let without: Vec<String> = workspace
        .packages
        .iter()
        .filter(|package| !has_unreleased_section(&package.folder().join("CHANGELOG.md")))
        .map(|package| package.name.clone())
        .collect();
    ensure!(without.is_empty(), "no CHANGELOG.md with a section Unreleased: {}", without.join(", "));
    Ok(())
}

fn has_unreleased_section(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| {
        text.lines().any(|line| line.starts_with("## ") && line.to_lowercase().contains("unreleased"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_ones_are_allowed_at_the_top() {
        let files = [
            ".ci/run",
            "Cargo.toml",
            "LICENSE-MIT",
            "sidecar/src/main.rs",
            "notes.txt",
            "utils/a.rs",
            "utils/b.rs",
        ];
        assert_eq!(strange_names(&files.map(PathBuf::from)), ["notes.txt", "utils"]);
    }
}
