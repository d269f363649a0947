//! Writes a recording, on a thread of its own: a slow disk costs lines, and never the driver.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ackbeat_liveness::{ConnectionId, Input, Timestamp};
use serde::Serialize;

use super::carried::OpenConnections;
use super::payload::PayloadHasher;
use super::{Header, Mark, Segment, Tick};
use crate::reload::Rules;

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
    sender: Option<SyncSender<Message>>,
    finished: Receiver<()>,
    writer: Option<JoinHandle<()>>,
    lost: Arc<AtomicU64>,
    /// Lost since the last line that found room; told by a `gap` before the next one.
    gap: u64,
    payloads: PayloadHasher,
    open: OpenConnections,
    segments: Segments,
}

/// Where the recording stands among its segments.
#[derive(Debug)]
struct Segments {
    /// Header of the first one.
    header: Header,
    /// Number of the current one, from 0.
    number: u64,
    /// Bytes that one may have; `None` for a pipe or a device, which is written to until it is full.
    max_bytes: Option<u64>,
    /// Bytes that the current one has left.
    room: u64,
    /// Latest time that was recorded.
    last: Timestamp,
    was_told_full: bool,
}

/// What waits for the disk.
#[derive(Debug)]
enum Message {
    /// A line, and perhaps a `gap` before it.
    Line(Vec<u8>),
    /// A new segment begins with this.
    Segment(Vec<u8>),
}

impl Recorder {
    /// Begins a recording that holds at most `max_bytes`, in two segments of half of it: the current one, and the one
    /// before as `FILE.1`. A file that is there is kept as `FILE.1` until the first segment is full.
    ///
    /// A pipe or a device is written to as it is, and is full after `max_bytes`.
    ///
    /// # Errors
    /// [`RecordError`] if the file cannot be made or its first line cannot be written.
    pub fn begin(path: &Path, max_bytes: u64, header: &Header) -> Result<Self, RecordError> {
        let failed = |step: &'static str| {
            let path = path.to_path_buf();
            move |cause| RecordError { path, step, cause }
        };
        if path.is_file() {
            // A sidecar that writes there now would go on writing into the file that is put aside.
            File::open(path).and_then(|file| lock(&file)).map_err(failed("having the file alone"))?;
            if kept_as(path).exists() {
                tracing::warn!(
                    path = %kept_as(path).display(),
                    "the recording before the last one is replaced: move recordings away that are to stay"
                );
            }
            // A sidecar that starts again must not wipe out what led to its end.
            keep(path).map_err(failed("keeping the recording that was there"))?;
        }
        let rotates = !path.exists();
        let mut file = create(path, rotates).map_err(failed("creating the file"))?;
        let mut first = serde_json::to_vec(header)
            .map_err(|error| failed("writing the first line")(io::Error::other(error)))?;
        first.push(b'\n');
        file.write_all(&first).map_err(failed("writing the first line"))?;

        let (sender, messages) = sync_channel::<Message>(LINES_MAX);
        let (finishing, finished) = sync_channel(1);
        let lost = Arc::new(AtomicU64::new(0));
        let mut writing =
            Writing { path: path.to_path_buf(), file, is_broken: false, lost: Arc::clone(&lost) };
        let writer = std::thread::Builder::new()
            .name("ackbeat-recorder".to_owned())
            .spawn(move || {
                writing.run(&messages);
                // Nobody waits for it any more if that fails.
                let _ = finishing.send(());
            })
            .map_err(failed("starting its thread"))?;
        let segment_bytes = if rotates { max_bytes / 2 } else { max_bytes };
        let segments = Segments {
            header: header.clone(),
            number: 0,
            max_bytes: rotates.then_some(segment_bytes),
            room: segment_bytes.saturating_sub(first.len() as u64),
            last: header.began_at,
            was_told_full: false,
        };
        Ok(Self {
            sender: Some(sender),
            finished,
            writer: Some(writer),
            lost,
            gap: 0,
            payloads: PayloadHasher::default(),
            open: OpenConnections::default(),
            segments,
        })
    }

    /// Records an input.
    pub fn input(&mut self, input: &Input) {
        match self.payloads.without_payload(input) {
            Some(input) => self.line(&input),
            None => self.line(input),
        }
        self.segments.last = self.segments.last.max(input.at());
        // Afterwards: a segment that this line began tells of it once.
        self.open.on_input(input);
    }

    /// Records a call of `handle_timeout`.
    pub fn tick(&mut self, due: Timestamp, at: Timestamp) {
        self.line(&Mark::Tick(Tick { due, at }));
        self.segments.last = self.segments.last.max(at);
    }

    /// Records that other rules are in force from now on. Later segments begin with them.
    pub fn rules(&mut self, rules: &Rules) {
        self.line(&Mark::Rules(Box::new(rules.clone())));
        let header = &mut self.segments.header;
        header.policy.clone_from(&rules.policy);
        header.thresholds.clone_from(&rules.thresholds);
        header.leaks.clone_from(&rules.leaks);
        header.deployment.clone_from(&rules.deployment);
        self.segments.last = self.segments.last.max(rules.at);
    }

    /// Records the end.
    pub fn shut_down(&mut self, at: Timestamp) {
        self.line(&Mark::ShutDown(at));
    }

    /// A connection is closed, or being closed: later segments do not begin with it.
    pub fn forget(&mut self, connection: ConnectionId) {
        self.open.forget(connection);
    }

    /// Lines that are missing: no room in the queue or on the disk, or an error of the disk. A segment that a newer
    /// one has replaced is not missing.
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
        if self.try_line(line).is_none() {
            self.gap += 1;
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// `None` if it found no room.
    fn try_line<T: Serialize>(&mut self, line: &T) -> Option<()> {
        let mut text = Vec::new();
        if self.gap > 0 {
            serde_json::to_writer(&mut text, &Mark::Gap(self.gap)).ok()?;
            text.push(b'\n');
        }
        serde_json::to_writer(&mut text, line).ok()?;
        text.push(b'\n');
        let bytes = text.len() as u64;
        if bytes > self.segments.room {
            self.begin_segment()?;
        }
        let room = self.segments.room.checked_sub(bytes)?;
        self.sender.as_ref()?.try_send(Message::Line(text)).ok()?;
        self.segments.room = room;
        self.gap = 0;
        Some(())
    }

    /// `None` if it found no room.
    fn begin_segment(&mut self) -> Option<()> {
        let segments = &mut self.segments;
        let Some(max_bytes) = segments.max_bytes else {
            if !segments.was_told_full {
                tracing::warn!("the recording is full (recording.max_bytes): it ends here");
            }
            // Nothing may follow a missing line: the rest would replay as if it were whole.
            (segments.was_told_full, segments.room) = (true, 0);
            return None;
        };
        let at = segments.last;
        // What is carried over must leave room for what is new.
        let (carried, left_out) =
            self.open.lines(at, usize::try_from(max_bytes / 2).unwrap_or(usize::MAX)).ok()?;
        let first = &segments.header;
        let header = Header {
            began_at: at,
            began_unix_ns: first.began_unix_ns.saturating_add(at.ns_since(first.began_at)),
            segment: Some(Segment {
                run_began_unix_ns: first.began_unix_ns,
                number: segments.number + 1,
                left_out,
            }),
            ..first.clone()
        };
        let mut start = serde_json::to_vec(&header).ok()?;
        start.push(b'\n');
        start.extend(carried);
        let room = max_bytes.checked_sub(start.len() as u64)?;
        self.sender.as_ref()?.try_send(Message::Segment(start)).ok()?;
        segments.number += 1;
        segments.room = room;
        Some(())
    }
}

/// Keeps a file as `FILE.1`, in the place of the one that was kept before.
fn keep(path: &Path) -> io::Result<()> {
    std::fs::rename(path, kept_as(path))
}

fn kept_as(path: &Path) -> PathBuf {
    let mut kept = path.as_os_str().to_owned();
    kept.push(".1");
    PathBuf::from(kept)
}

/// For as long as the file is open (flock(2)). A file system that knows no locks keeps nobody away.
fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another ackbeat records into it; choose another file",
        )),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

fn create(path: &Path, is_new: bool) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(is_new)
        // It holds addresses and paths of requests.
        .mode(0o600)
        .open(path)?;
    if is_new {
        lock(&file)?;
    }
    Ok(file)
}

struct Writing {
    path: PathBuf,
    file: File,
    /// A write failed.
    is_broken: bool,
    lost: Arc<AtomicU64>,
}

impl Writing {
    fn run(&mut self, messages: &Receiver<Message>) {
        let mut next = None;
        while let Some(message) = next.take().or_else(|| messages.recv().ok()) {
            let mut text = match message {
                Message::Line(text) => text,
                Message::Segment(start) => {
                    self.begin_segment(&start);
                    continue;
                }
            };
            let mut count = 1;
            // One write for what has gathered meanwhile, up to a size.
            while text.len() < 64 * 1024 {
                match messages.try_recv() {
                    Ok(Message::Line(mut line)) => text.append(&mut line),
                    Ok(segment @ Message::Segment(_)) => {
                        next = Some(segment);
                        break;
                    }
                    Err(_) => break,
                }
                count += 1;
            }
            self.write(&text, count);
        }
    }

    fn write(&mut self, text: &[u8], count: u64) {
        if !self.is_broken
            && let Err(error) = self.file.write_all(text)
        {
            self.give_up(&error);
        }
        if self.is_broken {
            self.lost.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn begin_segment(&mut self, start: &[u8]) {
        // A segment that could not be written must not take the place of a whole one.
        if self.is_broken {
            return;
        }
        let begun = keep(&self.path).and_then(|()| create(&self.path, true)).and_then(|mut file| {
            file.write_all(start)?;
            Ok(file)
        });
        match begun {
            Ok(file) => self.file = file,
            Err(error) => self.give_up(&error),
        }
    }

    /// Nothing may follow a missing line: the rest would replay as if it were whole.
    fn give_up(&mut self, error: &io::Error) {
        tracing::warn!(%error, "the recording ends here");
        self.is_broken = true;
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
        let path = PathBuf::from("/dev/full");
        let mut writing = Writing { path, file, is_broken: false, lost: Arc::clone(&lost) };
        writing.write(b"line\nline\n", 2);
        writing.begin_segment(b"header\n");
        writing.write(b"line\n", 1);
        assert_eq!(lost.load(Ordering::Relaxed), 3, "what follows a missing line is left out too");
        assert!(Path::new("/dev/full").exists(), "what is broken replaces nothing");
    }
}
