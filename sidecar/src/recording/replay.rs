//! Feeds a recording through the engine, without a clock.

use ackbeat_liveness::{Engine, Input, Output, Policy, Timestamp};

use ackbeat_storms::{Fact, PortArrivals, Settings as StormSettings, StormEvent, StormWatch};

use super::{Header, Line, ReadError, Reader};

/// What a replay came across.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Inputs that were fed.
    pub inputs: u64,
    /// Lines that the recording misses.
    pub missing: u64,
    /// Its last line was cut off.
    pub is_cut_off: bool,
}

/// Feeds `reader` through an engine under `policy` and hands each decision to `decided`.
///
/// # Errors
/// [`ReadError`], with the number of the line that makes no sense.
pub fn replay(
    reader: &mut Reader,
    policy: Policy,
    mut decided: impl FnMut(&Output),
) -> Result<Summary, ReadError> {
    let mut rerun = Rerun::new(reader.header(), policy);
    let mut summary = Summary::default();
    while let Some(line) = reader.next_line()? {
        summary.count(&line);
        rerun.line(line, &mut decided);
    }
    rerun.finish(&mut decided);
    summary.is_cut_off = reader.is_cut_off();
    Ok(summary)
}

impl Summary {
    /// Counts a line.
    pub fn count(&mut self, line: &Line) {
        match line {
            Line::Input(_) => self.inputs += 1,
            // A damaged line may say anything.
            Line::Gap(count) => self.missing = self.missing.saturating_add(*count),
            Line::Tick(_) | Line::ShutDown(_) | Line::Rules(_) => {}
        }
    }
}

/// An engine that is fed a recording.
///
/// Under the recorded thresholds the engine is called exactly as it was in life, so it decides the same. Under others
/// its deadlines differ: they expire between the lines, but never inside a pause of the recorded sidecar, which stays
/// the pause that it was.
#[derive(Debug)]
pub struct Rerun {
    engine: Engine,
    is_as_recorded: bool,
    last: Timestamp,
    is_shut_down: bool,
    storms: Option<StormWatch>,
    storm_events: Vec<StormEvent>,
}

/// What happened on the listening ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StormStory {
    /// Storms and outages, in their order; [`STORM_EVENTS_MAX`] at most.
    pub events: Vec<StormEvent>,
    /// How each port stood at the end.
    pub ports: Vec<PortArrivals>,
}

/// Events of listening ports that one rerun keeps at most; the first ones.
pub const STORM_EVENTS_MAX: usize = 4_096;

impl Rerun {
    /// An engine under `policy` for the recording with this header.
    #[must_use]
    pub fn new(header: &Header, policy: Policy) -> Self {
        let is_as_recorded = header.ticks && policy == header.thresholds;
        let mut engine = Engine::new(policy);
        engine.set_leak_settings(header.leaks.clone());
        engine.set_deployment(header.deployment.clone());
        Self {
            is_as_recorded,
            engine,
            last: header.began_at,
            is_shut_down: false,
            storms: None,
            storm_events: Vec::new(),
        }
    }

    /// The same, watching for storms and outages of the listening ports as the recorded sidecar did.
    #[must_use]
    pub fn with_storms(mut self, settings: StormSettings) -> Self {
        self.storms = Some(StormWatch::new(settings));
        self
    }

    /// Feeds the next line and hands each decision to `decided`.
    pub fn line(&mut self, line: Line, decided: &mut impl FnMut(&Output)) {
        let fact = match &line {
            Line::Input(input) => Some(Fact::of(input)),
            Line::Gap(_) => Some(Fact::Lost { at: self.last }),
            Line::Tick(_) | Line::ShutDown(_) | Line::Rules(_) => None,
        };
        let late_ticks = self.engine.counters().late_ticks;
        match line {
            Line::Input(input) => {
                let at = input.at();
                if !self.is_as_recorded {
                    self.pass_time(at, decided);
                }
                self.last = self.last.max(at);
                self.engine.handle_input(*input);
            }
            Line::Tick(tick) => {
                if !self.is_as_recorded {
                    self.pass_time(tick.due, decided);
                }
                self.last = self.last.max(tick.at);
                self.engine.handle_timeout(tick.at);
            }
            // What is not there proves nothing.
            Line::Gap(count) => self.engine.handle_input(Input::RecordsLost { at: self.last, count }),
            Line::ShutDown(at) => {
                if !self.is_as_recorded {
                    self.pass_time(at, decided);
                }
                self.engine.shut_down(at);
                self.is_shut_down = true;
            }
            Line::Rules(rules) => {
                if !self.is_as_recorded {
                    self.pass_time(rules.at, decided);
                }
                self.last = self.last.max(rules.at);
                let thresholds =
                    if self.is_as_recorded { rules.thresholds } else { self.engine.policy().clone() };
                self.engine.set_rules(thresholds, rules.deployment, rules.leaks);
            }
        }
        if let Some(storms) = &mut self.storms {
            if self.engine.counters().late_ticks != late_ticks {
                storms.late(self.last);
            }
            match fact {
                Some(fact) => storms.fact(&fact),
                None => storms.pass(self.last),
            }
        }
        self.hand_over(decided);
    }

    /// The recording has ended: ends every record that is still open. Gives the storms and outages of the listening ports, if
    /// they were watched for.
    pub fn finish(mut self, decided: &mut impl FnMut(&Output)) -> StormStory {
        if !self.is_shut_down {
            self.engine.shut_down(self.last);
            self.hand_over(decided);
        }
        if let Some(storms) = &mut self.storms {
            storms.shut_down(self.last);
        }
        self.hand_over(decided);
        let ports = self.storms.as_ref().map_or_else(Vec::new, |storms| storms.ports().collect());
        StormStory { events: self.storm_events, ports }
    }

    /// Lets the engine's own deadlines up to `until` expire, each on time.
    fn pass_time(&mut self, until: Timestamp, decided: &mut impl FnMut(&Output)) {
        let mut last = None;
        while let Some(due) = self.engine.poll_timeout().filter(|due| *due < until) {
            // An engine that stands still must not hold the replay.
            if last.is_some_and(|last| due <= last) {
                break;
            }
            last = Some(due);
            self.engine.handle_timeout(due);
            self.hand_over(decided);
        }
    }

    fn hand_over(&mut self, decided: &mut impl FnMut(&Output)) {
        while let Some(output) = self.engine.poll() {
            if let Some(storms) = &mut self.storms {
                storms.output(&output);
            }
            decided(&output);
        }
        if let Some(storms) = &mut self.storms {
            while let Some(event) = storms.poll() {
                if self.storm_events.len() < STORM_EVENTS_MAX {
                    self.storm_events.push(event);
                }
            }
        }
    }
}
