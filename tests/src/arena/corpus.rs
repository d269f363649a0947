//! Small recordings of real runs, kept for the tests: one peer of each scenario and variant.
//!
//! A stage has several peers. What is about another connection is left out, and so is what came long after the last
//! thing that happened to the peer. The calls of the engine's clock are left out too, but late ones: a recording without
//! ticks is replayed as if the engine had always been called on time, so that a golden timeline depends on the peer and
//! not on how busy the machine was, and a pause of the sidecar stays the pause that it was.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use ackbeat::recording::{Line, Reader};
use ackbeat_liveness::{ConnectionId, Input};
use anyhow::{Context, Result};

use super::runner::stage_folders;
use super::stage::{RECORDING_FILE, TRUTH_FILE};
use super::truth::{State, Truth};

/// Ending of a recording's name.
pub const RECORDING_SUFFIX: &str = ".jsonl";
/// Ending of a truth's name.
pub const TRUTH_SUFFIX: &str = ".truth.json";

/// A call of the engine's clock that came this much after it was due was late.
const LATE_MS: u64 = 500;
/// What came this long after the last change of what was true is left out, if the peer is not alive then: the policies
/// have decided by then, and a detector that has not takes minutes.
const AFTERMATH_NS: u64 = 25_000_000_000;

/// What was kept.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// Recordings.
    pub recordings: usize,
    /// Their bytes, with the truths.
    pub bytes: u64,
    /// A line for people about each.
    pub lines: Vec<String>,
}

/// Keeps the smallest recording of one peer of each scenario and variant below `input`, if it has at most `max_bytes`.
///
/// # Errors
/// If a file cannot be read or written.
pub fn choose(input: &Path, out: &Path, max_bytes: u64) -> Result<Kept> {
    std::fs::create_dir_all(out).with_context(|| format!("making {} failed", out.display()))?;
    let mut stages: Vec<(String, u64, PathBuf)> = Vec::new();
    for folder in stage_folders(input)? {
        let truth = Truth::read(&folder.join(TRUTH_FILE))?;
        let recording = folder.join(RECORDING_FILE);
        let bytes =
            recording.metadata().with_context(|| format!("reading {} failed", recording.display()))?.len();
        stages.push((name(&truth), bytes, folder));
    }
    stages.sort();
    stages.dedup_by(|later, earlier| later.0 == earlier.0);
    let mut kept = Kept::default();
    for (name, _, folder) in stages {
        let mut smallest: Option<(Vec<u8>, Truth)> = None;
        let truth = Truth::read(&folder.join(TRUTH_FILE))?;
        for place in 0..truth.subjects.len() {
            let of_one = only(&folder.join(RECORDING_FILE), &truth, place)
                .with_context(|| format!("trimming {} failed", folder.display()))?;
            if smallest.as_ref().is_none_or(|(text, _)| of_one.0.len() < text.len()) {
                smallest = Some(of_one);
            }
        }
        let Some((text, truth)) = smallest else { continue };
        let bytes = text.len() as u64;
        if bytes > max_bytes {
            kept.lines.push(format!("{name}: left out, {bytes} bytes"));
            continue;
        }
        let recording = out.join(format!("{name}{RECORDING_SUFFIX}"));
        std::fs::write(&recording, text)
            .with_context(|| format!("writing {} failed", recording.display()))?;
        let path = out.join(format!("{name}{TRUTH_SUFFIX}"));
        truth.write(&path)?;
        kept.recordings += 1;
        kept.bytes += bytes + path.metadata().map_or(0, |file| file.len());
        kept.lines.push(format!("{name}: {bytes} bytes"));
    }
    Ok(kept)
}

/// `20`, `17-outage-2-s`.
fn name(truth: &Truth) -> String {
    let variant: String = truth
        .variant
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
        .collect();
    if variant.is_empty() { format!("{:02}", truth.row) } else { format!("{:02}-{variant}", truth.row) }
}

/// The recording and the truth with one subject only.
fn only(recording: &Path, truth: &Truth, place: usize) -> Result<(Vec<u8>, Truth)> {
    let subject = truth.subjects.get(place).context("there is no such subject")?;
    let declared_ns = subject.states.first().map_or(0, |change| change.at_ns);
    let until_ns = match subject.states.last() {
        Some(last) if last.state != State::Alive => truth.ended_at_ns.min(last.at_ns + AFTERMATH_NS),
        _ => truth.ended_at_ns,
    };
    let connection = connection(recording, subject.peer, declared_ns)?;
    let mut reader = Reader::open(recording)?;
    let mut header = reader.header().clone();
    header.ticks = false;
    let mut text = Vec::new();
    serde_json::to_writer(&mut text, &header).context("a header is no JSON")?;
    text.push(b'\n');
    // A pass of the sampler that saw only others still says that this one is not gone.
    let mut is_gone_before = true;
    while let Some(line) = reader.next_line()? {
        let input = match line {
            Line::Input(input) => input,
            Line::Tick(tick) if tick.at.ms_since(tick.due) >= LATE_MS && tick.at.as_ns() <= until_ns => {
                let late = serde_json::json!({ "tick": tick });
                serde_json::to_writer(&mut text, &late).context("a tick is no JSON")?;
                text.push(b'\n');
                continue;
            }
            Line::Tick(_) | Line::Gap(_) | Line::ShutDown(_) | Line::Rules(_) => continue,
        };
        if input.at().as_ns() > until_ns {
            continue;
        }
        let is_kept = match (&*input, input.connection()) {
            (_, Some(of)) => of == connection,
            (Input::RecordsLost { .. }, None) => true,
            // It is about all sockets.
            (Input::Census(_), None) => false,
            (_, None) => !is_gone_before,
        };
        if is_kept {
            is_gone_before = false;
            serde_json::to_writer(&mut text, &input).context("an input is no JSON")?;
            text.write_all(b"\n").context("memory takes every line")?;
        }
    }
    let mut truth = truth.clone();
    let kept = subject_only(&truth, place)?;
    truth.reports.retain(|report| report.peer == kept.peer && report.at_ns <= until_ns);
    truth.ended_at_ns = until_ns;
    truth.subjects = vec![kept];
    truth.figures.clear();
    Ok((text, truth))
}

fn subject_only(truth: &Truth, place: usize) -> Result<super::truth::Subject> {
    truth.subjects.get(place).cloned().context("there is no such subject")
}

/// The connection of a peer: the last that was opened before it was declared, else the first after.
fn connection(recording: &Path, peer: std::net::SocketAddr, declared_ns: u64) -> Result<ConnectionId> {
    let mut reader = Reader::open(recording)?;
    let mut found: Option<(u64, ConnectionId)> = None;
    while let Some(line) = reader.next_line()? {
        if let Line::Input(input) = line
            && let Input::Opened(opened) = *input
            && opened.endpoints.peer_port == peer.port()
            && opened.endpoints.peer_address.to_canonical() == peer.ip()
            && (opened.at.as_ns() <= declared_ns || found.is_none())
        {
            found = Some((opened.at.as_ns(), opened.connection));
        }
    }
    found
        .map(|(_, connection)| connection)
        .with_context(|| format!("the recording has no connection of {peer}"))
}
