//! From what was recorded and what was true to what each contestant is worth.

mod contact;
mod leaks;
mod outcome;
pub mod statistics;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use ackbeat::comparison::{self, Compared, Contestant, PeerReport};
use ackbeat::recording::replay::StormStory;
use ackbeat::recording::{Line, Reader};
use ackbeat_detectors::Reported;
use ackbeat_liveness::{ConnectionId, Timestamp};
use ackbeat_storms::StormEvent;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

pub use contact::Contact;
pub use leaks::{LeakFound, Leaks};
pub use outcome::{Account, Detection, JudgedKill, KillKind, Mistake, Outcome, Shown, judge, ms_between};

use super::row::Row;
use super::rows;
use super::stage::{RECORDING_FILE, TRUTH_FILE};
use super::truth::{HostKnowledge, State, Subject, Truth};

/// Name of the contestant that is the engine under the policy `default`.
pub const DEFAULT_POLICY: &str = "ackbeat";
/// Name of the contestant that is the engine under the policy `fast`.
pub const FAST_POLICY: &str = "ackbeat-fast";

/// How a subject's connection ended, as ackbeat tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Close {
    /// Number of the scenario.
    pub row: u8,
    /// Its variant.
    pub variant: String,
    /// Seed of the stage.
    pub seed: u64,
    /// Which of the stage's subjects.
    pub subject: String,
    /// `ackbeat.close.initiator`; `none` where the connection was still open at the end.
    pub initiator: String,
    /// `ackbeat.close.kind`.
    pub kind: String,
    /// `ackbeat.close.method`, where it was seen.
    pub method: Option<String>,
    /// `ackbeat.evidence.scope`.
    pub scope: String,
    /// The kernel's error, a positive errno.
    pub socket_error: Option<u32>,
}

/// What came out of one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgedStage {
    /// Number of the scenario.
    pub row: u8,
    /// Its variant.
    pub variant: String,
    /// Its seed.
    pub seed: u64,
    /// One for each subject and contestant.
    pub outcomes: Vec<Outcome>,
    /// One for each subject.
    pub closes: Vec<Close>,
    /// What the row itself measured.
    pub figures: BTreeMap<String, f64>,
    /// Lines that the recording misses.
    pub missing_lines: u64,
    /// Leaks, where censuses were recorded.
    #[serde(default)]
    pub leaks: Option<Leaks>,
}

/// Judges one stage by its two files.
///
/// # Errors
/// If a file is missing or broken, or a subject has no connection in the recording.
pub fn judge_stage(folder: &Path, contestants: &[Contestant]) -> Result<JudgedStage> {
    let truth = Truth::read(&folder.join(TRUTH_FILE))?;
    let row = rows::row(truth.row).with_context(|| format!("there is no row {}", truth.row))?;
    let recording = folder.join(RECORDING_FILE);
    let mut reader = Reader::open(&recording)?;
    let compared = comparison::compare(&mut reader, &peer_reports(&truth), contestants)?;
    let connections = connections_of(&truth, &compared.connections)
        .with_context(|| format!("judging {} failed", folder.display()))?;
    let unanswered = first_unanswered(&recording, &truth, &connections)?;
    let mut judged = JudgedStage {
        row: truth.row,
        variant: truth.variant.clone(),
        seed: truth.seed,
        outcomes: Vec::new(),
        closes: Vec::new(),
        figures: truth.figures.clone(),
        missing_lines: compared.summary.missing,
        leaks: leaks::judge(&recording, &truth, &connections)?,
    };
    judged.figures.extend(port_figures(&truth, &compared.storms));
    for (subject, connection) in truth.subjects.iter().zip(&connections) {
        let first = unanswered.get(&connection.connection).copied();
        for account in connection.outcomes.iter().map(account) {
            judged.outcomes.push(judge(row, &truth, subject, &account, first));
        }
        judged.closes.push(close(&truth, subject, connection));
    }
    Ok(judged)
}

/// What ackbeat told of the host's listening port: storms, the period of those who come back, and the outages against the
/// truth. Where there was no outage, nothing is asked.
#[expect(clippy::cast_precision_loss, reason = "counts of a few, and nanoseconds of some seconds")]
fn port_figures(truth: &Truth, story: &StormStory) -> BTreeMap<String, f64> {
    let mut figures = BTreeMap::new();
    if truth.outages.is_empty() {
        return figures;
    }
    let mut set = |name: &str, value: f64| {
        figures.insert(name.to_owned(), value);
    };
    let storms = story.events.iter().filter(|event| matches!(event, StormEvent::Ended(_))).count();
    set("storms", storms as f64);
    let port = story.ports.iter().max_by_key(|port| port.arrivals);
    if let Some(resonance) = port.and_then(|port| port.resonance) {
        set("resonance_period_ms", resonance.period_ms);
        set("resonance_strength", resonance.strength);
    }
    let told: Vec<(u64, u64)> = story
        .events
        .iter()
        .filter_map(|event| match event {
            StormEvent::OutageEnded(outage) => {
                Some((outage.began_at.as_ns(), outage.ended_at.map_or(u64::MAX, Timestamp::as_ns)))
            }
            _ => None,
        })
        .collect();
    let overlaps = |one: &(u64, u64), other: &(u64, u64)| one.0 < other.1 && other.0 < one.1;
    let apart = |one: u64, other: u64| one.abs_diff(other) as f64 / 1e6;
    let seen: Vec<((u64, u64), (u64, u64))> = truth
        .outages
        .iter()
        .filter_map(|real| Some((*real, *told.iter().find(|told| overlaps(real, told))?)))
        .collect();
    set("outages", truth.outages.len() as f64);
    set("outages_seen", seen.len() as f64);
    let made_up = told.iter().filter(|told| !truth.outages.iter().any(|real| overlaps(real, told))).count();
    set("outages_made_up", made_up as f64);
    let starts = seen.iter().map(|(real, told)| apart(real.0, told.0));
    let ends = seen.iter().map(|(real, told)| apart(real.1, told.1));
    let worst = [
        ("outage_start_error_ms_max", starts.max_by(f64::total_cmp)),
        ("outage_end_error_ms_max", ends.max_by(f64::total_cmp)),
    ];
    for (name, worst) in worst {
        if let Some(worst) = worst {
            set(name, worst);
        }
    }
    figures
}

/// What the host reported, as the comparison reads it.
#[must_use]
pub fn peer_reports(truth: &Truth) -> Vec<PeerReport> {
    let reports = truth.reports.iter().map(|report| PeerReport {
        peer: report.peer,
        at: Timestamp::from_ns(report.at_ns),
        what: match report.what {
            HostKnowledge::Tick { buffered_bytes } => Reported::Tick { buffered_bytes },
            HostKnowledge::Pong => Reported::Pong,
        },
    });
    reports.collect()
}

/// The connection of each subject, in their order: the last that its peer had opened when it was declared, else the
/// first after. Addresses and ports are reused, so the time decides.
///
/// # Errors
/// If a subject has none.
pub fn connections_of<'a>(truth: &Truth, connections: &'a [Compared]) -> Result<Vec<&'a Compared>> {
    truth
        .subjects
        .iter()
        .map(|subject| {
            let declared_ns = subject.states.first().map_or(0, |change| change.at_ns);
            let of_peer = || connections.iter().filter(|compared| compared.peer() == subject.peer);
            let before = of_peer().filter(|compared| compared.opened_at.as_ns() <= declared_ns);
            before
                .max_by_key(|compared| compared.opened_at)
                .or_else(|| of_peer().min_by_key(|compared| compared.opened_at))
                .with_context(|| {
                    format!("the recording has no connection of {} ({})", subject.name, subject.peer)
                })
        })
        .collect()
}

/// When each peer that is gone was first asked something that it never answered.
fn first_unanswered(
    recording: &Path,
    truth: &Truth,
    connections: &[&Compared],
) -> Result<HashMap<ConnectionId, Timestamp>> {
    let mut contacts: HashMap<ConnectionId, (Contact, u64)> = HashMap::new();
    for (subject, compared) in truth.subjects.iter().zip(connections) {
        if let Some(gone_ns) = subject.first(State::Gone) {
            contacts.insert(compared.connection, (Contact::default(), gone_ns));
        }
    }
    if contacts.is_empty() {
        return Ok(HashMap::new());
    }
    let mut reader = Reader::open(recording)?;
    while let Some(line) = reader.next_line()? {
        if let Line::Input(input) = line
            && let Some((contact, _)) = input.connection().and_then(|id| contacts.get_mut(&id))
        {
            contact.note(&input);
        }
    }
    Ok(contacts
        .into_iter()
        .filter_map(|(id, (contact, gone_ns))| {
            Some((id, contact.first_unanswered(Timestamp::from_ns(gone_ns))?))
        })
        .collect())
}

/// What a contestant decided, as it is measured.
fn account(outcome: &comparison::Outcome) -> Account {
    Account {
        contestant: outcome.name.clone(),
        not_judged: outcome.not_judged.clone(),
        kill: outcome.kill.as_ref().map(|kill| (kill.at, kill.reason.clone())),
        first_verdict: outcome.verdicts.first().map(|change| change.from),
        verdicts: outcome.verdicts.iter().map(|change| (change.at, change.to)).collect(),
    }
}

fn close(truth: &Truth, subject: &Subject, compared: &Compared) -> Close {
    let record = compared.closed.as_deref().filter(|record| !record.still_open);
    let word = |word: Option<&'static str>| word.unwrap_or("none").to_owned();
    Close {
        row: truth.row,
        variant: truth.variant.clone(),
        seed: truth.seed,
        subject: subject.name.clone(),
        initiator: word(record.map(|record| record.initiator.as_str())),
        kind: word(record.map(|record| record.kind.as_str())),
        method: record.and_then(|record| record.method).map(|method| method.as_str().to_owned()),
        scope: word(compared.closed.as_deref().map(|record| record.assessed.scope.as_str())),
        socket_error: record.and_then(|record| record.socket_error),
    }
}

/// The variant's label in tables and messages: `17 (2 s)`, `20`.
#[must_use]
pub fn label(row: &Row, variant: &str) -> String {
    if variant.is_empty() { row.number.to_string() } else { format!("{} ({variant})", row.number) }
}
