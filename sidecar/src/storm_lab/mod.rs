//! `ackbeat storm-lab`: two fleets of clients on the same bad network, one with a fixed retry interval, one with full jitter.
//!
//! Everything is real but the network's faults: two network namespaces with a router between them for each fleet, the kernel's
//! TCP, WebSockets, a relay that loses packets and is away for a while again and again ([`ackbeat_lab`]), and this same program
//! as the sidecar beside the host. The sidecar's recording is judged against what the lab knows to be true.
//!
//! | module | what |
//! |---|---|
//! | [`options`] | the experiment's times, and what compression does to them |
//! | `fleet` | plays it for one fleet |
//! | `judge` | from the recording and the truth to figures |
//! | [`report`] | the figures, as text and as JSON |

mod fleet;
mod judge;
pub mod options;
pub mod report;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ackbeat_lab::LabError;

use crate::recording::ReadError;
use fleet::Fleet;
pub use options::Options;
pub use report::{Accused, FleetReport, Report};

/// The experiment could not be played.
#[derive(Debug, thiserror::Error)]
pub enum StormLabError {
    /// The network cannot be had.
    #[error(
        "{0}\nstorm-lab needs root, /dev/net/tun, and the programs ip (iproute2), nft (nftables) and chrt (util-linux): run it as root"
    )]
    Network(#[from] LabError),
    /// The sidecar beside the host did not start.
    #[error("the sidecar in the lab did not get ready: {said}")]
    Sidecar {
        /// What it said last.
        said: String,
    },
    /// A file of the lab cannot be written or read.
    #[error("{step} failed: {cause}")]
    File {
        /// The step that failed, as a noun phrase.
        step: &'static str,
        /// Why.
        cause: std::io::Error,
    },
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] ReadError),
    /// A part of the lab ended before its time.
    #[error("{0} ended before its time")]
    Ended(&'static str),
}

/// Plays the experiment with both fleets at the same time, each in a network of its own, and judges it. Once `stop` is set it
/// ends early, with what is known by then.
///
/// # Errors
/// [`StormLabError`], which names what is missing.
pub fn run(options: &Options, stop: &Arc<AtomicBool>) -> Result<Report, StormLabError> {
    let folder = Folder::create(options.keep.as_deref())?;
    let fleets = std::thread::scope(|scope| {
        let running = Fleet::BOTH.map(|fleet| {
            let path = folder.path.join(fleet.name());
            scope.spawn(move || {
                let played = fleet::play(fleet, options, &path, stop);
                if played.is_err() {
                    // Without its counterpart a fleet shows nothing.
                    stop.store(true, Ordering::Relaxed);
                }
                judge::judge(fleet, options, &played?)
            })
        });
        running
            .map(|thread| thread.join().unwrap_or(Err(StormLabError::Ended("the thread of a fleet"))))
            .into_iter()
            .collect::<Result<Vec<FleetReport>, StormLabError>>()
    })?;
    Ok(Report::new(options, fleets))
}

/// Where the recordings are; removed at the end unless they are to be kept.
struct Folder {
    path: PathBuf,
    is_kept: bool,
}

impl Folder {
    fn create(keep: Option<&Path>) -> Result<Self, StormLabError> {
        let path = keep.map_or_else(
            || std::env::temp_dir().join(format!("ackbeat-storm-lab-{}", std::process::id())),
            Path::to_path_buf,
        );
        for fleet in Fleet::BOTH {
            std::fs::create_dir_all(path.join(fleet.name()))
                .map_err(|cause| StormLabError::File { step: "making the folder for recordings", cause })?;
        }
        Ok(Self { path, is_kept: keep.is_some() })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_kept {
            // What cannot be removed is in the system's folder for temporary files.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
