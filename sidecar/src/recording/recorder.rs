//! Writes a recording, on a thread of its own: a slow disk costs lines, and never the driver.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ackbeat_liveness::{Input, Timestamp};
use serde::Serialize;

use super::{Header, Mark, Tick};

/// Lines that wait for the disk at most.
const LINES_MAX: usize = 16_384;
/// How long the end of a recording may take.
const FINISH_DEADLINE: Duration = Duration::from_secs(2);

/// A recording could not be begun.
#[derive(Debug, thiserror::Error)]
#[error("recording to {path}: {step} failed: {cause}")]
pub struct RecordError {
    /// The file.
    pub path: PathBuf,
    /// The step that failed, as a noun phrase.
    pub step: &'static str,
    /// Why.
    pub cause: io::Error,
}

/// Writes what the engine is told.
#[derive(Debug)]
pub struct Recorder {
    sender: Option<SyncSender<Vec<u8>>>,
    finished: Receiver<()>,
    writer: Option<JoinHandle<()>>,
    lost: Arc<AtomicU64>,
    /// Lost since the last line that found room; told by a `gap` before the next one.
    gap: u64,
}

impl Recorder {
    /// Begins a recording that holds at most `max_bytes`. A file that is there is kept, as `FILE.1`.
    ///
    /// # Errors
    /// [`RecordError`] if the file cannot be made or its first line cannot be written.
    pub fn begin(path: &Path, max_bytes: u64, header: &Header) -> Result<Self, RecordError> {
        let failed = |step: &'static str| {
            let path = path.to_path_buf();
            move |cause| RecordError { path, step, cause }
        };
        if path.is_file() {
            // A sidecar that starts again must not wipe out what led to its end.
            let mut kept = path.as_os_str().to_owned();
            kept.push(".1");
            std::fs::rename(path, kept).map_err(failed("keeping the recording that was there"))?;
        }
        // A pipe or a device (`/dev/stderr`) is written to as it is.
        let is_there = path.exists();
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(!is_there)
            // It holds addresses and heartbeat payloads.
            .mode(0o600)
            .open(path)
            .map_err(failed("creating the file"))?;
        let mut first = serde_json::to_vec(header)
            .map_err(|error| failed("writing the first line")(io::Error::other(error)))?;
        first.push(b'\n');
        file.write_all(&first).map_err(failed("writing the first line"))?;

        let (sender, lines) = sync_channel::<Vec<u8>>(LINES_MAX);
        let (finishing, finished) = sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        let mut writing = Writing {
            file,
            room: max_bytes.saturating_sub(first.len() as u64),
            is_full: false,
            lost: Arc::clone(&lost),
        };
        let writer = std::thread::Builder::new()
            .name("ackbeat-recorder".to_owned())
            .spawn(move || {
                writing.run(&lines);
                // Nobody waits for it any more if that fails.
                let _ = finishing.send(());
            })
            .map_err(failed("starting its thread"))?;
        Ok(Self { sender: Some(sender), finished, writer: Some(writer), lost, gap: 0 })
    }

    /// Records an input.
    pub fn input(&mut self, input: &Input) {
        self.line(input);
    }

    /// Records a call of `handle_timeout`.
    pub fn tick(&mut self, due: Timestamp, at: Timestamp) {
        self.line(&Mark::Tick(Tick { due, at }));
    }

    /// Records the end.
    pub fn shut_down(&mut self, at: Timestamp) {
        self.line(&Mark::ShutDown(at));
    }

    /// Lines that are missing: no room in the queue, no room in the file, or an error of the disk.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Waits until all is written, for 2 s at most. Returns the lines that are missing.
    pub fn finish(mut self) -> u64 {
        self.sender = None;
        match self.finished.recv_timeout(FINISH_DEADLINE) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                if let Some(writer) = self.writer.take() {
                    // A panic of it was told on standard error.
                    let _ = writer.join();
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("the recording's last lines were not written in time");
            }
        }
        self.lost()
    }

    fn line<T: Serialize>(&mut self, line: &T) {
        let Ok(mut text) = serde_json::to_vec(line) else {
            self.lose();
            return;
        };
        text.push(b'\n');
        if self.gap > 0
            && let Ok(mut gap) = serde_json::to_vec(&Mark::Gap(self.gap))
        {
            gap.push(b'\n');
            gap.append(&mut text);
            text = gap;
        }
        match self.sender.as_ref().map(|sender| sender.try_send(text)) {
            Some(Ok(())) => self.gap = 0,
            Some(Err(_)) | None => self.lose(),
        }
    }

    fn lose(&mut self) {
        self.gap += 1;
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

struct Writing {
    file: File,
    room: u64,
    is_full: bool,
    lost: Arc<AtomicU64>,
}

impl Writing {
    fn run(&mut self, lines: &Receiver<Vec<u8>>) {
        while let Ok(mut text) = lines.recv() {
            let mut count = 1;
            // One write for what has gathered meanwhile, up to a size.
            while text.len() < 64 * 1024 {
                let Ok(mut line) = lines.try_recv() else { break };
                text.append(&mut line);
                count += 1;
            }
            self.write(&text, count);
        }
    }

    fn write(&mut self, text: &[u8], count: u64) {
        if self.is_full || text.len() as u64 > self.room {
            if !self.is_full {
                tracing::warn!("the recording is full (recording.max_bytes): it ends here");
            }
            // Once a line is missing nothing may follow: the rest would replay as if it were whole.
            self.is_full = true;
            self.lost.fetch_add(count, Ordering::Relaxed);
            return;
        }
        self.room -= text.len() as u64;
        if let Err(error) = self.file.write_all(text) {
            tracing::warn!(%error, "the recording ends here");
            self.is_full = true;
            self.lost.fetch_add(count, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_counted_and_survived() {
        let lost = Arc::new(AtomicU64::new(0));
        // Every write to it fails with ENOSPC (full(4)).
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut writing = Writing { file, room: 1_000, is_full: false, lost: Arc::clone(&lost) };
        writing.write(b"line\nline\n", 2);
        writing.write(b"line\n", 1);
        assert_eq!(lost.load(Ordering::Relaxed), 3, "what follows a missing line is left out too");
    }
}
