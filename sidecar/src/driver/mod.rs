//! The one task that everything passes through: evidence in, engine, decisions out.
//!
//! The order of a turn matters. What the kernel has said is fed before time passes, so that a deadline never expires
//! while the input that would have met it waits in the ring. Every input and every tick goes to the recording as it
//! goes to the engine: a replay makes the same calls.

pub mod clock;
mod probes;

use std::sync::Arc;
use std::time::Duration;

use ackbeat_liveness::leak::LeakCounters;
use ackbeat_liveness::{EngineCounters, Input, Opened, Output, Timestamp};
use ackbeat_storms::StormEvent;
use tokio::sync::mpsc;
use tracing::Instrument as _;

use crate::connections::{Connections, INPUTS_AT_ONCE, Step};
use crate::probe::Prober;
use crate::recording::Recorder;
use crate::reload::Rules;
use crate::source::{Source, SourceCounters, SourceError};
use crate::telemetry::own_spans;
use clock::Clock;
pub use probes::ProbeCounters;
use probes::Probes;

/// Records taken from the source at once.
const DRAIN_LIMIT: usize = 4_096;
/// Rounds of that before a turn looks at its other duties. Timeouts and samples wait until the source is drained.
const DRAIN_ROUNDS: usize = 16;
/// Passes of the sampler are at least this far apart, whatever the engine asks for.
const SAMPLE_GAP_MS: u64 = 10;
/// How far apart passes are where nothing tells when data goes out.
const STEADY_SAMPLE_MS: u64 = 500;
/// A turn is at most this long: losses are noticed and told at least this often.
const HOUSEKEEPING_MS: u64 = 1_000;

/// Reports of one turn at most; what is left waits for the next.
const REPORTS_MAX: usize = 64;

/// Where decisions go. Its methods must not block.
pub trait Sink: Send {
    /// A connection is watched from now on.
    fn opened(&mut self, _opened: &Opened) {}
    /// A decision.
    fn output(&mut self, output: &Output);
    /// A storm or an outage of a listening port began or is over.
    fn stormed(&mut self, _event: &StormEvent) {}
    /// Called right before [`Sink::housekeeping`]: every connection that is watched, for whoever sums them up.
    fn sweep(&mut self, _connections: &Connections) {}
    /// Called about once a second, and at the end: how things stand.
    fn housekeeping(&mut self, now: &Housekeeping);
}

/// How things stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Housekeeping {
    /// What the source counted.
    pub source: SourceCounters,
    /// Lines that are missing from the recording.
    pub recording_lost: u64,
    /// Connections that are watched.
    pub connections: usize,
    /// What the engine counted.
    pub engine: EngineCounters,
    /// What became of the own window probes.
    pub probes: ProbeCounters,
    /// What the censuses of all sockets add up to.
    pub leaks: LeakCounters,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// What the source counted.
    pub source: SourceCounters,
    /// Connections whose end was told.
    pub closed: u64,
    /// Connections that were still open or in their post-mortem when the sidecar stopped.
    pub cut_short: u64,
    /// What became of the own window probes.
    pub probes: ProbeCounters,
}

/// Drives one source and one engine.
pub struct Driver<S, C, K> {
    source: S,
    clock: C,
    sink: K,
    connections: Arc<Connections>,
    recorder: Option<Recorder>,
    probes: Probes,
    /// What others report: heartbeats that the host itself saw.
    reports: Option<mpsc::Receiver<Vec<Input>>>,
    /// Reports that were taken and not fed yet.
    reported: Vec<Input>,
    /// Other rules, when the configuration was read anew.
    rules: Option<mpsc::Receiver<Rules>>,
    /// Rules that were taken and are not in force yet.
    next_rules: Option<Rules>,
    drain: Duration,
    inputs: Vec<Input>,
    /// What the engine is told next.
    chunk: Vec<Input>,
    /// What happened and was not told yet.
    steps: Vec<Step>,
    closed: u64,
    sampled_at: Timestamp,
    kept_house_at: Timestamp,
    is_stopping: bool,
}

impl<S: Source, C: Clock, K: Sink> Driver<S, C, K> {
    /// A driver that, once told to stop, watches for at most `drain` what is still open.
    pub fn new(
        source: S,
        connections: Arc<Connections>,
        clock: C,
        sink: K,
        recorder: Option<Recorder>,
        drain: Duration,
    ) -> Self {
        Self {
            source,
            clock,
            sink,
            connections,
            recorder,
            probes: Probes::default(),
            reports: None,
            reported: Vec::new(),
            rules: None,
            next_rules: None,
            drain,
            inputs: Vec::new(),
            chunk: Vec::new(),
            steps: Vec::new(),
            closed: 0,
            sampled_at: Timestamp::default(),
            kept_house_at: Timestamp::default(),
            is_stopping: false,
        }
    }

    /// The same with someone who sends the own window probes that the engine asks for.
    #[must_use]
    pub fn with_prober(mut self, prober: Box<dyn Prober>) -> Self {
        self.probes.prober = Some(prober);
        self
    }

    /// The same with inputs that others report. They are fed like those of the source, after what the source has to say.
    #[must_use]
    pub fn with_reports(mut self, reports: mpsc::Receiver<Vec<Input>>) -> Self {
        self.reports = Some(reports);
        self
    }

    /// The same with other rules that may come while it runs.
    #[must_use]
    pub fn with_rules(mut self, rules: mpsc::Receiver<Rules>) -> Self {
        self.rules = Some(rules);
        self
    }

    /// Runs until `stop` gives something (or its sender is gone), then drains. A second message ends the drain.
    ///
    /// # Errors
    /// [`SourceError`] if the source broke. What is known by then was emitted.
    pub async fn run(mut self, mut stop: mpsc::Receiver<()>) -> Result<Report, SourceError> {
        let result = self.watch(&mut stop).await;
        let now = self.clock.now();
        let cut_short = self.connections.total() as u64;
        if let Some(recorder) = &mut self.recorder {
            recorder.shut_down(now);
        }
        self.connections.shut_down(now, &mut self.steps);
        self.tell();
        self.keep_house(now);
        if let Some(recorder) = self.recorder.take() {
            recorder.finish();
        }
        result.map(|()| Report {
            source: self.source.counters(),
            closed: self.closed,
            cut_short,
            probes: self.probes.counters,
        })
    }

    async fn watch(&mut self, stop: &mut mpsc::Receiver<()>) -> Result<(), SourceError> {
        {
            let _span = tracing::info_span!(target: own_spans::TARGET, "ackbeat.discover").entered();
            self.source.discover(&mut self.inputs)?;
            self.feed();
        }
        self.connections.set_turned(self.clock.now());
        self.connections.set_ready();
        tracing::info!(connections = self.connections.total(), mode = self.source.mode().as_str(), "ready");
        loop {
            let due = self.due();
            let must_stop = tokio::select! {
                biased;
                _ = stop.recv() => true,
                readable = self.source.readable() => { readable?; false }
                report = next(&mut self.reports), if self.reported.is_empty() => {
                    self.reported = report;
                    false
                }
                rules = next(&mut self.rules), if self.next_rules.is_none() => {
                    self.next_rules = Some(rules);
                    false
                }
                () = sleep_until(due, &self.clock) => false,
            };
            self.turn(due)?;
            if must_stop {
                break;
            }
        }
        let span = tracing::info_span!(target: own_spans::TARGET, "ackbeat.drain");
        self.drain(stop).instrument(span).await
    }

    /// After the signal: no new connections, and until nothing is watched or time is up.
    async fn drain(&mut self, stop: &mut mpsc::Receiver<()>) -> Result<(), SourceError> {
        self.is_stopping = true;
        // In a pod the sidecar is told to stop when everything in it is.
        self.inputs.push(Input::Terminating { at: self.clock.now(), process: None });
        self.feed();
        // Whoever stops asks nobody any more.
        self.connections.set_window_probes(None);
        let drain_ms = u64::try_from(self.drain.as_millis()).unwrap_or(u64::MAX);
        let deadline = self.clock.now().plus_ms(drain_ms);
        let watched = self.connections.total();
        if watched > 0 {
            tracing::info!(
                connections = watched,
                drain_ms,
                "stopping: what is open is watched a little longer; a second signal stops at once"
            );
        }
        while self.connections.total() > 0 && self.clock.now() < deadline {
            let due = self.due().min(deadline);
            let must_stop = tokio::select! {
                biased;
                signal = stop.recv() => signal.is_some(),
                readable = self.source.readable() => { readable?; false }
                report = next(&mut self.reports), if self.reported.is_empty() => {
                    self.reported = report;
                    false
                }
                () = sleep_until(due, &self.clock) => false,
            };
            self.turn(due)?;
            if must_stop {
                break;
            }
            if stop.is_closed() {
                // `recv` returns at once from now on: only time can pass here.
                sleep_until(self.due().min(deadline), &self.clock).await;
            }
        }
        Ok(())
    }

    /// When the next turn is due if nothing comes.
    fn due(&self) -> Timestamp {
        let housekeeping = self.kept_house_at.plus_ms(HOUSEKEEPING_MS);
        let (timeout, sample) = self.connections.due();
        [timeout, self.sample_due(sample)].into_iter().flatten().fold(housekeeping, Timestamp::min)
    }

    /// When the next pass of the sampler is due, if the engine wants one at `wanted`; `None` while nothing asks for one.
    fn sample_due(&self, wanted: Option<Timestamp>) -> Option<Timestamp> {
        let wanted = wanted.map(|at| at.max(self.sampled_at.plus_ms(SAMPLE_GAP_MS)));
        let steady = (!self.source.announces_outstanding() && self.connections.total() > 0)
            .then(|| self.sampled_at.plus_ms(STEADY_SAMPLE_MS));
        [wanted, steady].into_iter().flatten().min()
    }

    fn turn(&mut self, due: Timestamp) -> Result<(), SourceError> {
        let mut more = true;
        for _ in 0..DRAIN_ROUNDS {
            more = self.source.drain(DRAIN_LIMIT, &mut self.inputs)?;
            self.feed();
            if !more {
                break;
            }
        }
        let now = self.clock.now();
        if !more {
            self.put_rules_in_force(now);
            self.feed_reports(now);
            if self.sample_due(self.connections.due().1).is_some_and(|at| at <= now) {
                self.source.sample(&mut self.inputs)?;
                self.sampled_at = now;
                self.feed();
            }
            if self.connections.due().0.is_some_and(|at| at <= now) {
                self.tick(due, now);
            }
            self.send_probes();
        }
        if now >= self.kept_house_at.plus_ms(HOUSEKEEPING_MS) {
            self.keep_house(now);
        }
        self.connections.set_turned(now);
        Ok(())
    }

    /// This much time has passed; it was known at `due` that it would.
    fn tick(&mut self, due: Timestamp, now: Timestamp) {
        if let Some(recorder) = &mut self.recorder {
            recorder.tick(due, now);
        }
        self.connections.handle_timeout(now, &mut self.steps);
        self.tell();
    }

    /// Puts other rules in force, if some wait. What came before is judged by the old ones.
    fn put_rules_in_force(&mut self, now: Timestamp) {
        let Some(rules) = self.next_rules.take() else { return };
        self.tick(now, now);
        let rules = Rules { at: now, ..rules };
        if let Some(recorder) = &mut self.recorder {
            recorder.rules(&rules);
        }
        self.connections.set_rules(&rules, &mut self.steps);
        self.tell();
    }

    /// Feeds the reports that wait. By now the source has told of the connections that they are about.
    fn feed_reports(&mut self, now: Timestamp) {
        if let Some(reports) = &mut self.reports {
            self.reported.extend(std::iter::from_fn(|| reports.try_recv().ok()).take(REPORTS_MAX).flatten());
        }
        if self.reported.is_empty() {
            return;
        }
        // One may be a minute old: the engine must know how old, or it would expect things before they could come.
        self.tick(now, now);
        self.inputs.append(&mut self.reported);
        self.feed();
    }

    /// Sends what the engine asked for. What was sent is an input like any other.
    fn send_probes(&mut self) {
        while let Some(wanted) = self.probes.next() {
            // Read before it leaves: its answer cannot be older.
            let at = self.clock.now();
            if self.probes.send(&wanted, at) {
                self.inputs.push(Input::ProbeSent { connection: wanted.connection, at });
            }
        }
        self.feed();
    }

    fn feed(&mut self) {
        let mut inputs = std::mem::take(&mut self.inputs);
        let mut waiting = inputs.drain(..);
        loop {
            let is_stopping = self.is_stopping;
            self.chunk.extend(
                waiting
                    .by_ref()
                    .filter(|input| !(is_stopping && matches!(input, Input::Opened(_))))
                    .take(INPUTS_AT_ONCE),
            );
            if self.chunk.is_empty() {
                break;
            }
            self.connections.feed(&mut self.chunk, self.recorder.is_some(), &mut self.steps);
            self.tell();
        }
        drop(waiting);
        // The vector's room is kept for the next turn.
        self.inputs = inputs;
    }

    /// Tells what happened, outside of the lock and in its order.
    fn tell(&mut self) {
        let mut steps = std::mem::take(&mut self.steps);
        for step in steps.drain(..) {
            match step {
                Step::Fed(input) => {
                    if let Some(recorder) = &mut self.recorder {
                        recorder.input(&input);
                    }
                }
                Step::Opened(opened) => {
                    tracing::debug!(
                        connection = opened.connection.0,
                        local_port = opened.endpoints.local_port,
                        preexisting = opened.preexisting,
                        "watched"
                    );
                    self.sink.opened(&opened);
                }
                Step::Decided(output) => self.decided(&output),
                Step::Stormed(event) => self.sink.stormed(&event),
            }
        }
        self.steps = steps;
    }

    fn decided(&mut self, output: &Output) {
        let over = match output {
            Output::VerdictChanged(_)
            | Output::Answered(_)
            | Output::Reconnected(_)
            | Output::Leak(_)
            | Output::ReapWanted(_) => None,
            Output::ProbeWanted(wanted) => {
                self.probes.want(*wanted);
                None
            }
            Output::Closing { connection, .. } => Some(*connection),
            Output::Closed(record) => {
                self.closed += 1;
                Some(record.connection)
            }
        };
        if let (Some(recorder), Some(connection)) = (&mut self.recorder, over) {
            recorder.forget(connection);
        }
        self.sink.output(output);
    }

    fn keep_house(&mut self, now: Timestamp) {
        self.kept_house_at = now;
        self.connections.pass_time(now, &mut self.steps);
        self.tell();
        let state = Housekeeping {
            source: self.source.counters(),
            recording_lost: self.recorder.as_ref().map_or(0, Recorder::lost),
            connections: self.connections.total(),
            engine: self.connections.engine_counters(),
            probes: self.probes.counters,
            leaks: self.connections.leak_counters(),
        };
        self.sink.sweep(&self.connections);
        self.connections.keep_house(&state);
        self.sink.housekeeping(&state);
    }
}

/// What comes next; never, once nobody can send any more.
async fn next<T>(channel: &mut Option<mpsc::Receiver<T>>) -> T {
    if let Some(receiver) = channel
        && let Some(message) = receiver.recv().await
    {
        return message;
    }
    *channel = None;
    std::future::pending().await
}

/// Sleeps until a moment of `clock`; at least a millisecond, so that no mistake can make it spin.
async fn sleep_until<C: Clock>(due: Timestamp, clock: &C) {
    let ns = due.ns_since(clock.now()).max(1_000_000);
    tokio::time::sleep(Duration::from_nanos(ns)).await;
}

#[cfg(test)]
mod tests;
