//! Where a stage's files are, and whether they are complete.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use ackbeat::recording::Reader;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::plan::Job;
use crate::arena::report::Build;
use crate::arena::stage::{RECORDING_FILE, TRUTH_FILE};
use crate::arena::truth::Truth;

/// The file that is written last: the stage was played to its end.
const PLAYED_FILE: &str = "played.json";
/// Held by who plays the set.
const LOCK_FILE: &str = "arena.lock";
/// What the stage printed.
const LOG_FILE: &str = "stage.log";

/// How a stage was played.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Played {
    /// Version of the ackbeat that recorded.
    pub ackbeat: String,
    /// The commit that it was built from, where git knew one.
    #[serde(default)]
    pub commit: Option<String>,
    /// In a short set.
    pub is_quick: bool,
    /// For so long.
    pub seconds: f64,
}

/// Keeps others from playing in the set's folder, until the file is dropped or the process ends in any way.
///
/// # Errors
/// If somebody plays in it, or it cannot be written.
pub fn lock(out: &Path) -> Result<File> {
    let path = out.join(LOCK_FILE);
    let file = File::create(&path).with_context(|| format!("making {} failed", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("another arena plays in {}: wait for its end, or name another folder", out.display())
        }
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("locking {} failed", path.display()))
        }
    }
}

/// The folder of a job below the set's.
#[must_use]
pub(super) fn of(out: &Path, job: &Job) -> PathBuf {
    let variant: String = job
        .variant
        .name
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
        .collect();
    let variant = if variant.is_empty() { "only".to_owned() } else { variant };
    out.join(format!("row-{:02}", job.row.number)).join(variant).join(format!("seed-{:03}", job.seed))
}

/// Where what a stage prints is kept.
#[must_use]
pub(super) fn log(folder: &Path) -> PathBuf {
    folder.join(LOG_FILE)
}

/// Whether a stage was played to its end, by this version and for such a set.
#[must_use]
pub(super) fn is_complete(folder: &Path, job: &Job, is_quick: bool) -> bool {
    let Ok(played) = read_played(folder) else { return false };
    let Ok(truth) = Truth::read(&folder.join(TRUTH_FILE)) else { return false };
    let Ok(reader) = Reader::open(&folder.join(RECORDING_FILE)) else { return false };
    played.is_quick == is_quick
        && played.ackbeat == env!("CARGO_PKG_VERSION")
        && reader.header().version == played.ackbeat
        && (truth.row, truth.variant.as_str(), truth.seed) == (job.row.number, job.variant.name, job.seed)
}

/// Marks a stage as played to its end.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn mark_complete(folder: &Path, build: &Build, is_quick: bool, seconds: f64) -> Result<()> {
    let Build { version, commit } = build.clone();
    let played = Played { ackbeat: version, commit, is_quick, seconds };
    let path = folder.join(PLAYED_FILE);
    let text = serde_json::to_vec(&played).context("a mark is no JSON")?;
    std::fs::write(&path, text).with_context(|| format!("writing {} failed", path.display()))
}

fn read_played(folder: &Path) -> Result<Played> {
    let path = folder.join(PLAYED_FILE);
    let text = std::fs::read(&path).with_context(|| format!("reading {} failed", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} makes no sense", path.display()))
}

/// The builds that recorded these stages, each once.
///
/// # Errors
/// If the mark of a stage cannot be read.
pub fn recorded_by(folders: &[PathBuf]) -> Result<Vec<String>> {
    let mut builds = std::collections::BTreeSet::new();
    for folder in folders {
        let played = read_played(folder)?;
        builds.insert(played.commit.unwrap_or_else(|| format!("{}, of no known commit", played.ackbeat)));
    }
    Ok(builds.into_iter().collect())
}

/// Removes what an earlier run left of a stage, and makes its folder.
///
/// # Errors
/// If it cannot.
pub(super) fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("removing {} failed", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("making {} failed", folder.display()))
}

/// Folders below `out` whose stages were played to their end, in the order of their names.
///
/// # Errors
/// If `out` cannot be read.
pub fn stage_folders(out: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![out.to_path_buf()];
    while let Some(folder) = open.pop() {
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("reading {} failed", folder.display()))?;
        for entry in entries {
            let path = entry.with_context(|| format!("reading {} failed", folder.display()))?.path();
            if path.join(PLAYED_FILE).is_file() {
                found.push(path);
            } else if path.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two would remove each other's stages, and keep the truth of one beside the recording of the other.
    #[test]
    fn a_set_is_played_by_one_at_a_time() {
        let out = tempfile::tempdir().expect("a folder");
        let held = lock(out.path()).expect("nobody plays");
        let error = lock(out.path()).expect_err("somebody plays").to_string();
        assert!(error.contains("another arena"), "{error}");
        drop(held);
        lock(out.path()).expect("nobody plays any more");
    }
}
