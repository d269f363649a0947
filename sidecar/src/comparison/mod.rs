//! Who would have killed which connection, and when: detectors that people use today and the engine under named
//! policies, over one recording.
//!
//! One pass feeds everybody. An engine is called as [`Rerun`] calls it: under the recorded thresholds exactly as in
//! life, with the recorded sidecar's pauses. A detector is handed the facts of its connection in the order of their
//! time and its timeouts on time: it stands for a watchdog in the host, for which a pause of the sidecar is none.

mod contestant;
pub mod drawing;
mod lanes;
mod policies;
pub mod table;
mod timeline;

use std::collections::HashMap;
use std::net::SocketAddr;

use ackbeat_detectors::{Kill, Reported};
use ackbeat_liveness::{
    CloseInitiator, CloseRecord, ConnectionId, Endpoints, Input, Opened, Output, Policy, Role, Timestamp,
    VerdictChange,
};
use ackbeat_storms::Settings as StormSettings;

pub use contestant::{Contestant, ContestantError, policy_name};
pub use timeline::{Mark, Point, Timeline, Truth, TruthBand};

use crate::recording::replay::{Rerun, StormStory, Summary};
use crate::recording::{Line, ReadError, Reader};
use crate::source::Mode;
use lanes::{Lanes, Word};
use policies::Judgements;
use timeline::Collector;

/// A recording could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The recording cannot be read.
    #[error(transparent)]
    Recording(#[from] ReadError),
    /// Nobody to compare.
    #[error("nobody to compare: name at least one detector or policy")]
    NoContestant,
    /// Two contestants could not be told apart.
    #[error("{name} is named twice")]
    Twice {
        /// The name.
        name: String,
    },
}

/// What a host reported about the connection to one peer. Whoever writes reports knows no socket cookies: a report
/// belongs to the connection of that peer that is open at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerReport {
    /// Address and port of the peer. An IPv4-mapped address is its IPv4 address.
    pub peer: SocketAddr,
    /// When, on the recorded machine's monotonic clock.
    pub at: Timestamp,
    /// What.
    pub what: Reported,
}

/// A time in which something held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// From when on.
    pub from: Timestamp,
    /// Until when; `None` where it still held at the end of the recording.
    pub until: Option<Timestamp>,
}

/// What one contestant made of one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The contestant's name.
    pub name: String,
    /// It is the engine under a policy.
    pub is_policy: bool,
    /// When it would have killed, and why. For a policy: the first moment at which a kill was justified.
    pub kill: Option<Kill>,
    /// Why it could not judge (`needs application reports`); `None` if it did.
    pub not_judged: Option<String>,
    /// For a detector that had not killed when the connection ended: when its timer was due next.
    pub due: Option<Timestamp>,
    /// For a policy: when it first called the peer `unreachable`.
    pub unreachable_at: Option<Timestamp>,
    /// For a policy: every verdict change, oldest first.
    pub verdicts: Vec<VerdictChange>,
    /// For a policy: when a kill was justified, oldest first.
    pub justified: Vec<Interval>,
}

/// One connection, and what everybody made of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The connection.
    pub connection: ConnectionId,
    /// Its two ends.
    pub endpoints: Endpoints,
    /// Who dialled.
    pub role: Role,
    /// It was older than the recording.
    pub preexisting: bool,
    /// When it was established, or found.
    pub opened_at: Timestamp,
    /// When its socket was gone or its post-mortem ended; `None` if it was open at the end of the recording.
    pub ended_at: Option<Timestamp>,
    /// Its end as the engine tells it under the recorded thresholds; `None` if the engine refused the connection.
    pub closed: Option<Box<CloseRecord>>,
    /// One for each contestant, in their order.
    pub outcomes: Vec<Outcome>,
}

impl Compared {
    /// When the host closed it; `None` if somebody else did, or nobody.
    #[must_use]
    pub fn host_closed_at(&self) -> Option<Timestamp> {
        self.closed
            .as_ref()
            .filter(|record| !record.still_open && record.initiator == CloseInitiator::Host)
            .map(|record| record.closed_at)
    }

    /// The peer's address and port, an IPv4-mapped address as its IPv4 address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        peer_of(&self.endpoints)
    }
}

/// What everybody made of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// When the recording began.
    pub began_at: Timestamp,
    /// The contestants' names, in their order.
    pub contestants: Vec<String>,
    /// Every connection, in the order in which they were first heard of.
    pub connections: Vec<Compared>,
    /// Storms and outages of the listening ports, as the recorded sidecar told them, in their order.
    pub storms: StormStory,
    /// Reports that belonged to no connection.
    pub reports_unmatched: u64,
    /// What the recording held and misses.
    pub summary: Summary,
}

/// What else is wanted of a pass over the recording.
pub struct Options<'a> {
    /// Of which connections timelines are kept.
    pub draw: &'a mut dyn FnMut(&Opened) -> bool,
    /// Is handed each decision of the engine under a contestant's policy, with the contestant's number from 0.
    pub decided: &'a mut dyn FnMut(usize, &Output),
}

/// Lets all contestants judge a recording, in one pass.
///
/// # Errors
/// [`CompareError`] if a line makes no sense, or if there is no contestant or one twice.
pub fn compare(
    reader: &mut Reader,
    reports: &[PeerReport],
    contestants: &[Contestant],
) -> Result<Comparison, CompareError> {
    let options = Options { draw: &mut |_| false, decided: &mut |_, _| {} };
    compare_with(reader, reports, contestants, options).map(|(comparison, _)| comparison)
}

/// The same, with timelines of chosen connections and a look at the engine's decisions as they come.
///
/// # Errors
/// As [`compare`].
pub fn compare_with(
    reader: &mut Reader,
    reports: &[PeerReport],
    contestants: &[Contestant],
    options: Options<'_>,
) -> Result<(Comparison, Vec<Timeline>), CompareError> {
    let Options { draw, decided } = options;
    check(contestants)?;
    let mut pass = Pass::new(reader, reports, contestants);
    while let Some(line) = reader.next_line()? {
        pass.line(line, draw, decided);
    }
    let (mut comparison, timelines) = pass.finish(decided);
    comparison.summary.is_cut_off = reader.is_cut_off();
    Ok((comparison, timelines))
}

fn check(contestants: &[Contestant]) -> Result<(), CompareError> {
    if contestants.is_empty() {
        return Err(CompareError::NoContestant);
    }
    let mut names = std::collections::HashSet::new();
    match contestants.iter().map(Contestant::name).find(|name| !names.insert(name.clone())) {
        Some(name) => Err(CompareError::Twice { name }),
        None => Ok(()),
    }
}

/// An engine that several contestants may share: those whose thresholds are the same.
struct Shared {
    policy: Policy,
    rerun: Rerun,
    judgements: Judgements,
    contestants: Vec<usize>,
}

impl Shared {
    fn line(&mut self, line: Line, decided: &mut dyn FnMut(usize, &Output), ended: Option<&mut Ends>) {
        let Self { rerun, judgements, contestants, .. } = self;
        rerun.line(line, &mut taking(judgements, contestants, decided, ended));
    }
}

/// Ends of connections, as the engine tells them under the recorded thresholds.
type Ends = HashMap<ConnectionId, Box<CloseRecord>>;

fn taking<'a>(
    judgements: &'a mut Judgements,
    contestants: &'a [usize],
    decided: &'a mut dyn FnMut(usize, &Output),
    mut ends: Option<&'a mut Ends>,
) -> impl FnMut(&Output) + 'a {
    move |output| {
        judgements.decided(output);
        if let (Some(ends), Output::Closed(record)) = (ends.as_deref_mut(), output) {
            ends.insert(record.connection, record.clone());
        }
        for contestant in contestants {
            decided(*contestant, output);
        }
    }
}

/// One pass over a recording.
struct Pass<'a> {
    began_at: Timestamp,
    contestants: &'a [Contestant],
    /// The first one runs under the recorded thresholds.
    engines: Vec<Shared>,
    lanes: Lanes<'a>,
    opened: Vec<Opened>,
    known: HashMap<ConnectionId, usize>,
    ends: Ends,
    collectors: HashMap<ConnectionId, Collector>,
    summary: Summary,
}

impl<'a> Pass<'a> {
    fn new(reader: &Reader, reports: &[PeerReport], contestants: &'a [Contestant]) -> Self {
        let header = reader.header();
        let shared = |policy: &Policy| Shared {
            policy: policy.clone(),
            rerun: Rerun::new(header, policy.clone()),
            judgements: Judgements::default(),
            contestants: Vec::new(),
        };
        let mut engines = vec![shared(&header.thresholds)];
        if let Some(first) = engines.first_mut() {
            first.rerun = Rerun::new(header, header.thresholds.clone()).with_storms(storm_settings(header));
        }
        let mut starts: Vec<lanes::Start<'a>> = Vec::new();
        for (index, contestant) in contestants.iter().enumerate() {
            match contestant {
                Contestant::Policy { policy, .. } => {
                    let place = engines.iter().position(|engine| engine.policy == *policy);
                    let place = place.unwrap_or_else(|| {
                        engines.push(shared(policy));
                        engines.len() - 1
                    });
                    if let Some(engine) = engines.get_mut(place) {
                        engine.contestants.push(index);
                    }
                }
                Contestant::Detector(spec) => {
                    starts.push(Box::new(|opened, evidence| spec.start(opened, evidence)));
                }
            }
        }
        Self {
            began_at: header.began_at,
            contestants,
            engines,
            lanes: Lanes::new(starts, reports),
            opened: Vec::new(),
            known: HashMap::new(),
            ends: Ends::new(),
            collectors: HashMap::new(),
            summary: Summary::default(),
        }
    }

    fn line(
        &mut self,
        line: Line,
        draw: &mut dyn FnMut(&Opened) -> bool,
        decided: &mut dyn FnMut(usize, &Output),
    ) {
        self.summary.count(&line);
        match &line {
            Line::Input(input) => self.input(input, draw),
            Line::Tick(tick) => self.lanes.pass(tick.at),
            Line::Gap(count) => self.lanes.gap(*count),
            Line::ShutDown(at) => self.lanes.pass(*at),
            Line::Rules(rules) => self.lanes.pass(rules.at),
        }
        if let Some((first, others)) = self.engines.split_first_mut() {
            for engine in others {
                engine.line(line.clone(), decided, None);
            }
            first.line(line, decided, Some(&mut self.ends));
        }
    }

    fn input(&mut self, input: &Input, draw: &mut dyn FnMut(&Opened) -> bool) {
        if let Input::Opened(opened) = input
            && !self.known.contains_key(&opened.connection)
        {
            self.known.insert(opened.connection, self.opened.len());
            self.opened.push(opened.clone());
            if draw(opened) {
                self.collectors.insert(opened.connection, Collector::new(opened));
            }
        }
        if let Some(collector) = input.connection().and_then(|id| self.collectors.get_mut(&id)) {
            collector.input(input);
        }
        self.lanes.input(input.clone());
    }

    fn finish(mut self, decided: &mut dyn FnMut(usize, &Output)) -> (Comparison, Vec<Timeline>) {
        let mut judgements: Vec<(Judgements, Vec<usize>)> = Vec::new();
        let mut storms = StormStory::default();
        for (index, engine) in self.engines.into_iter().enumerate() {
            let Shared { rerun, judgements: mut judged, contestants, .. } = engine;
            let ends = (index == 0).then_some(&mut self.ends);
            let story = rerun.finish(&mut taking(&mut judged, &contestants, decided, ends));
            if index == 0 {
                storms = story;
            }
            judgements.push((judged, contestants));
        }
        let (mut said, reports_unmatched) = self.lanes.finish();
        let mut connections = Vec::new();
        for opened in self.opened {
            let id = opened.connection;
            let judged: Vec<_> = judgements.iter_mut().map(|(judged, of)| (judged.take(id), &*of)).collect();
            let said = said.remove(&id).unwrap_or_default();
            let closed = self.ends.remove(&id);
            connections.push(Compared {
                connection: id,
                endpoints: opened.endpoints,
                role: opened.role,
                preexisting: opened.preexisting,
                opened_at: opened.at,
                ended_at: closed.as_ref().filter(|record| !record.still_open).map(|record| record.ended_at),
                closed,
                outcomes: outcomes(self.contestants, &judged, said),
            });
        }
        let timelines = connections
            .iter()
            .filter_map(|compared| {
                Some(self.collectors.remove(&compared.connection)?.finish(compared.clone()))
            })
            .collect();
        let comparison = Comparison {
            began_at: self.began_at,
            contestants: self.contestants.iter().map(Contestant::name).collect(),
            connections,
            storms,
            reports_unmatched,
            summary: self.summary,
        };
        (comparison, timelines)
    }
}

/// In mode `sock_diag` nobody sees a connection open: those that are found count.
fn storm_settings(header: &crate::recording::Header) -> StormSettings {
    StormSettings { found: header.mode == Mode::SockDiag.as_str(), ..StormSettings::default() }
}

/// One outcome for each contestant.
fn outcomes(
    contestants: &[Contestant],
    judged: &[(policies::Judgement, &Vec<usize>)],
    words: Vec<Word>,
) -> Vec<Outcome> {
    let mut words = words.into_iter();
    contestants
        .iter()
        .enumerate()
        .map(|(index, contestant)| {
            let mut outcome = Outcome {
                name: contestant.name(),
                is_policy: matches!(contestant, Contestant::Policy { .. }),
                kill: None,
                not_judged: None,
                due: None,
                unreachable_at: None,
                verdicts: Vec::new(),
                justified: Vec::new(),
            };
            match contestant {
                Contestant::Detector(_) => {
                    let Word { kill, not_judged, due } = words.next().unwrap_or_default();
                    outcome.due = due;
                    outcome.not_judged = not_judged.map(|why| contestant::doubt(&why));
                    outcome.kill = kill;
                }
                Contestant::Policy { .. } => {
                    if let Some((judgement, _)) = judged.iter().find(|(_, of)| of.contains(&index)) {
                        outcome.kill.clone_from(&judgement.kill);
                        outcome.unreachable_at = judgement.unreachable_at;
                        outcome.verdicts.clone_from(&judgement.verdicts);
                        outcome.justified.clone_from(&judgement.justified);
                    }
                }
            }
            outcome
        })
        .collect()
}

/// The peer's address and port, an IPv4-mapped address as its IPv4 address.
fn peer_of(endpoints: &Endpoints) -> SocketAddr {
    SocketAddr::new(endpoints.peer_address.to_canonical(), endpoints.peer_port)
}

#[cfg(test)]
mod tests;
