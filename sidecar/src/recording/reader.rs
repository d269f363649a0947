//! Reads a recording, line by line.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use ackbeat_liveness::Input;

use super::{Carried, FORMAT, Header, Line, Mark};
use crate::config::ThresholdsLayer;

/// Longest line that is read, in bytes; inputs are far below.
const LINE_MAX_BYTES: usize = 1024 * 1024;

/// A recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("recording {path}: {cause}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A line makes no sense.
    #[error("recording {path}, line {number}: {message}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        number: u64,
        /// What is wrong with it.
        message: String,
    },
}

/// A recording, read as a stream.
pub struct Reader {
    path: PathBuf,
    header: Header,
    lines: Box<dyn BufRead>,
    number: u64,
    is_cut_off: bool,
    /// The segments that follow.
    rest: VecDeque<Self>,
    /// What was carried over to this segment was read in the one before.
    is_continuing: bool,
}

impl Reader {
    /// Opens a recording and reads its first line.
    ///
    /// # Errors
    /// [`ReadError`] if it cannot be read or is no recording of this format.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let file = File::open(path).map_err(|cause| ReadError::Io { path: path.to_path_buf(), cause })?;
        Self::new(path, Box::new(BufReader::new(file)))
    }

    /// Opens segments that follow each other, oldest first, as one recording.
    ///
    /// # Errors
    /// As [`Reader::open`]; also if there is none, or one does not follow the one before it.
    pub fn open_segments<P: AsRef<Path>>(paths: &[P]) -> Result<Self, ReadError> {
        let mut segments = VecDeque::new();
        for path in paths {
            let next = Self::open(path.as_ref())?;
            if let Some(before) = segments.back().map(Self::header)
                && !follows(next.header(), before)
            {
                return Err(next.bad(
                    "this is not the segment after the one that was named before it: name segments of one recording, \
                     oldest first (FILE.1 FILE)",
                ));
            }
            segments.push_back(next);
        }
        let Some(mut first) = segments.pop_front() else {
            let cause = io::Error::new(io::ErrorKind::InvalidInput, "no file is named");
            return Err(ReadError::Io { path: PathBuf::new(), cause });
        };
        first.rest = segments;
        Ok(first)
    }

    /// Reads from anything; `path` is for messages.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn new(path: &Path, lines: Box<dyn BufRead>) -> Result<Self, ReadError> {
        let mut reader = Self {
            path: path.to_path_buf(),
            header: Header {
                ackbeat_recording: 0,
                version: String::new(),
                mode: String::new(),
                policy: String::new(),
                thresholds: ackbeat_liveness::Policy::default_policy(),
                leaks: ackbeat_liveness::leak::LeakSettings::default(),
                deployment: ackbeat_liveness::Deployment::default(),
                ticks: false,
                began_at: ackbeat_liveness::Timestamp::default(),
                began_unix_ns: 0,
                segment: None,
            },
            lines,
            number: 0,
            is_cut_off: false,
            rest: VecDeque::new(),
            is_continuing: false,
        };
        let first = reader.text()?.ok_or_else(|| reader.bad("it is empty"))?;
        reader.header = serde_json::from_slice(&first)
            .map_err(|error| reader.bad(format!("no header of a recording: {error}")))?;
        if reader.header.ackbeat_recording != FORMAT {
            return Err(reader.bad(format!(
                "format {} is not known, this ackbeat reads format {FORMAT}",
                reader.header.ackbeat_recording
            )));
        }
        ThresholdsLayer::check(&reader.header.thresholds).map_err(|error| reader.bad(error.to_string()))?;
        Ok(reader)
    }

    /// The first line.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Whether the last line was cut off (a sidecar that was killed leaves such a file).
    #[must_use]
    pub const fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// The next line, or `None` at the end.
    ///
    /// # Errors
    /// [`ReadError`], with the number of the line that makes no sense.
    pub fn next_line(&mut self) -> Result<Option<Line>, ReadError> {
        loop {
            let Some(text) = self.text()? else {
                if !self.go_on() {
                    return Ok(None);
                }
                continue;
            };
            if text.starts_with(b"{\"ackbeat_recording\"") {
                return Err(self.bad(
                    "another recording begins here: name the files one by one (FILE.1 FILE) instead of joining them",
                ));
            }
            let is_carried = text.starts_with(b"{\"carried\"");
            if is_carried && self.is_continuing {
                continue;
            }
            let is_mark = [&b"{\"tick\""[..], b"{\"gap\"", b"{\"shut_down\"", b"{\"rules\""]
                .iter()
                .any(|mark| text.starts_with(mark));
            let line = if is_mark {
                serde_json::from_slice::<Mark>(&text).map(|mark| match mark {
                    Mark::Tick(tick) => Line::Tick(tick),
                    Mark::Gap(count) => Line::Gap(count),
                    Mark::ShutDown(at) => Line::ShutDown(at),
                    Mark::Rules(rules) => Line::Rules(rules),
                })
            } else if is_carried {
                serde_json::from_slice::<Carried<Input>>(&text)
                    .map(|carried| Line::Input(Box::new(carried.carried)))
            } else {
                serde_json::from_slice::<Input>(&text).map(|input| Line::Input(Box::new(input)))
            };
            if let Ok(Line::Rules(rules)) = &line {
                ThresholdsLayer::check(&rules.thresholds).map_err(|error| self.bad(error.to_string()))?;
            }
            return line.map(Some).map_err(|error| {
                // Of a line there is no line within.
                self.bad(error.to_string().replace(" at line 1 column ", " at column "))
            });
        }
    }

    /// Goes on with the next segment, if there is one.
    fn go_on(&mut self) -> bool {
        let Some(next) = self.rest.pop_front() else { return false };
        self.path = next.path;
        self.lines = next.lines;
        self.number = next.number;
        self.is_continuing = true;
        true
    }

    /// The next line's text that is not empty.
    fn text(&mut self) -> Result<Option<Vec<u8>>, ReadError> {
        loop {
            let mut text = Vec::new();
            self.number += 1;
            let limit = LINE_MAX_BYTES as u64 + 1;
            io::Read::take(&mut self.lines, limit)
                .read_until(b'\n', &mut text)
                .map_err(|cause| ReadError::Io { path: self.path.clone(), cause })?;
            if text.is_empty() {
                return Ok(None);
            }
            if text.last() != Some(&b'\n') {
                if text.len() > LINE_MAX_BYTES {
                    return Err(self.bad(format!("longer than {LINE_MAX_BYTES} bytes")));
                }
                // Whole by chance, or a line that a killed sidecar left half written.
                if serde_json::from_slice::<serde::de::IgnoredAny>(&text).is_err() && self.number > 1 {
                    self.is_cut_off = true;
                    return Ok(None);
                }
            }
            if !text.trim_ascii().is_empty() {
                return Ok(Some(text));
            }
        }
    }

    fn bad(&self, message: impl Into<String>) -> ReadError {
        ReadError::Line { path: self.path.clone(), number: self.number, message: message.into() }
    }
}

/// Whether a segment is the one after `before`.
fn follows(header: &Header, before: &Header) -> bool {
    let place = |header: &Header| match header.segment {
        Some(segment) => (segment.run_began_unix_ns, segment.number),
        None => (header.began_unix_ns, 0),
    };
    let (run, number) = place(before);
    place(header) == (run, number + 1)
}
