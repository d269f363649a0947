//! Plays sets of stages, many at once, and goes on where an earlier run stopped.

mod folder;
mod interruption;
pub mod machine;
mod plan;
mod pool;
mod progress;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ackbeat::comparison::Contestant;
use anyhow::{Context, Result, anyhow};

pub use folder::{Played, lock, recorded_by, stage_folders};
pub use plan::{Job, Seeds, plan, rows_of};
pub use pool::{Ended, play_all};

use super::judge::{JudgedStage, judge_stage};

/// How a set is played.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The program that plays one stage (`arena`).
    pub program: PathBuf,
    /// The sidecar under test.
    pub ackbeat: PathBuf,
    /// Folder of the set.
    pub out: PathBuf,
    /// Stages at once, at most.
    pub jobs: usize,
    /// Sum of the weights of the stages that run at once.
    pub capacity: u32,
    /// A short set.
    pub is_quick: bool,
    /// Plays what is complete too.
    pub is_fresh: bool,
}

/// Judges stages, as many at once as there are processors; in the order of their folders.
///
/// # Errors
/// If a stage's files are missing or broken.
pub fn judge_all(folders: &[PathBuf], contestants: &[Contestant]) -> Result<Vec<JudgedStage>> {
    in_parallel(folders, |folder| judge_stage(folder, contestants))
}

/// Does something with each folder on all processors and keeps the order.
///
/// # Errors
/// The first that came up, with its folder.
pub fn in_parallel<T: Send>(folders: &[PathBuf], work: impl Fn(&Path) -> Result<T> + Sync) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<T>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..machine::cpus().min(folders.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(folder) = folders.get(index) else { return };
                    let result = work(folder).with_context(|| {
                        format!(
                            "stage {}: remove the folder, and the next run plays it again",
                            folder.display()
                        )
                    });
                    let is_error = result.is_err();
                    if let Ok(mut done) = done.lock() {
                        done.push((index, result));
                    }
                    if is_error {
                        next.store(folders.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().map_err(|_| anyhow!("a thread that judged a stage panicked"))?;
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}
