//! The connections that are watched: what the driver feeds, and whoever asks reads.
//!
//! One lock holds the engine and a directory of addresses. Nobody holds it for long: the driver lets go after some dozens
//! of inputs, a reader after some hundred connections, and whoever waits is let in first. Decisions are taken out under
//! the lock and told outside of it.

mod directory;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ackbeat_liveness::leak::{LeakCounters, LeakWatch};
use ackbeat_liveness::{
    Assessed, ConnectionInfo, Engine, EngineCounters, Input, Opened, Output, Timestamp, WindowProbes,
};
use ackbeat_storms::{
    Fact, PortArrivals, Settings as StormSettings, Storm, StormEvent, StormWatch, Totals as StormTotals,
};
use parking_lot::{Mutex, MutexGuard};

use crate::driver::Housekeeping;
use crate::reload::Rules;
use directory::Directory;
pub use directory::{Cursor, Found};

/// Inputs that are fed before a reader may come in between.
pub const INPUTS_AT_ONCE: usize = 64;
/// Connections that are read before the driver may come in between.
pub const READ_AT_ONCE: usize = 128;

/// Something that happened, for whoever must be told once the lock is free. In the order in which it happened.
#[derive(Debug)]
pub enum Step {
    /// The engine was told this. Only where somebody wants to know ([`Connections::feed`]).
    Fed(Box<Input>),
    /// A connection is watched from now on.
    Opened(Opened),
    /// The engine decided this.
    Decided(Output),
    /// A storm or an outage of a listening port began or is over.
    Stormed(StormEvent),
}

/// Storms that are kept for whoever asks.
pub const STORMS_KEPT: usize = 32;

/// How the listening ports stand.
#[derive(Clone, Debug, Default)]
pub struct Storms {
    /// Each listening port.
    pub ports: Vec<PortArrivals>,
    /// Sums over all of them.
    pub totals: StormTotals,
    /// The latest storms that are over, oldest first; [`STORMS_KEPT`] at most.
    pub recent: Vec<Storm>,
}

/// The connections that are watched.
#[derive(Debug)]
pub struct Connections {
    state: Mutex<State>,
    house: Mutex<Housekeeping>,
    is_ready: AtomicBool,
    /// When the driver's loop last turned, in nanoseconds of the monotonic clock; 0 before the first time.
    turned_at_ns: AtomicU64,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    directory: Directory,
    storms: StormWatch,
    recent: VecDeque<Storm>,
}

impl Connections {
    /// Those of an engine that was told nothing yet.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        let state = State {
            engine,
            directory: Directory::default(),
            storms: StormWatch::new(StormSettings::default()),
            recent: VecDeque::with_capacity(STORMS_KEPT),
        };
        Self {
            state: Mutex::new(state),
            house: Mutex::default(),
            is_ready: AtomicBool::new(false),
            turned_at_ns: AtomicU64::new(0),
        }
    }

    /// The same with other times and thresholds of storms.
    #[must_use]
    pub fn with_storms(self, settings: StormSettings) -> Self {
        self.state.lock().storms = StormWatch::new(settings);
        self
    }

    // ---- for the driver -----------------------------------------------------------------------------------------

    /// Feeds inputs in their order. What happened is appended to `steps`: inputs themselves only if `keep_inputs`.
    ///
    /// Give it at most [`INPUTS_AT_ONCE`]: a reader that waits comes in after the call.
    pub fn feed(&self, inputs: &mut Vec<Input>, keep_inputs: bool, steps: &mut Vec<Step>) {
        let mut state = self.state.lock();
        for input in inputs.drain(..) {
            if keep_inputs {
                steps.push(Step::Fed(Box::new(input.clone())));
            }
            state.feed(input, steps);
        }
        // A reader that waits gets the lock now, and not only when the driver has nothing more to do.
        MutexGuard::unlock_fair(state);
    }

    /// This much time has passed. What the engine decided is appended to `steps`.
    pub fn handle_timeout(&self, now: Timestamp, steps: &mut Vec<Step>) {
        let mut state = self.state.lock();
        let late_ticks = state.engine.counters().late_ticks;
        state.engine.handle_timeout(now);
        if state.engine.counters().late_ticks != late_ticks {
            state.storms.late(now);
        }
        state.storms.pass(now);
        state.take_outputs(steps);
        MutexGuard::unlock_fair(state);
    }

    /// Whether a storm is over is known by what did not come: this much time has passed. What it decided is appended to
    /// `steps`. The engine is not concerned.
    pub fn pass_time(&self, now: Timestamp, steps: &mut Vec<Step>) {
        let mut state = self.state.lock();
        state.storms.pass(now);
        state.take_storms(steps);
    }

    /// Ends every record. What the engine decided is appended to `steps`.
    pub fn shut_down(&self, now: Timestamp, steps: &mut Vec<Step>) {
        let mut state = self.state.lock();
        state.engine.shut_down(now);
        state.storms.shut_down(now);
        state.take_outputs(steps);
    }

    /// Puts other rules in force, for what is open too. What the engine decided is appended to `steps`.
    pub fn set_rules(&self, rules: &Rules, steps: &mut Vec<Step>) {
        let mut state = self.state.lock();
        state.engine.set_rules(rules.thresholds.clone(), rules.deployment.clone(), rules.leaks.clone());
        state.take_outputs(steps);
        MutexGuard::unlock_fair(state);
    }

    /// See [`Engine::set_window_probes`].
    pub fn set_window_probes(&self, settings: Option<WindowProbes>) {
        self.state.lock().engine.set_window_probes(settings);
    }

    /// When the engine wants to be called, and when it wants a pass of the sampler: [`Engine::poll_timeout`] and
    /// [`Engine::next_sample_at`].
    #[must_use]
    pub fn due(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let state = self.state.lock();
        (state.engine.poll_timeout(), state.engine.next_sample_at())
    }

    /// What the engine counted.
    #[must_use]
    pub fn engine_counters(&self) -> EngineCounters {
        self.state.lock().engine.counters()
    }

    /// What the censuses of all sockets add up to, in numbers.
    #[must_use]
    pub fn leak_counters(&self) -> LeakCounters {
        self.state.lock().engine.leaks().counters()
    }

    /// What existed at the start was found.
    pub fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Release);
    }

    /// The driver's loop turned.
    pub fn set_turned(&self, now: Timestamp) {
        self.turned_at_ns.store(now.as_ns(), Ordering::Relaxed);
    }

    /// How things stand.
    pub fn keep_house(&self, now: &Housekeeping) {
        self.house.lock().clone_from(now);
    }

    // ---- for whoever asks ---------------------------------------------------------------------------------------

    /// Whether what existed at the start was found, so that answers are complete.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// When the driver's loop last turned; `None` before the first time.
    #[must_use]
    pub fn turned_at(&self) -> Option<Timestamp> {
        let at = self.turned_at_ns.load(Ordering::Relaxed);
        (at != 0).then(|| Timestamp::from_ns(at))
    }

    /// How things stood about a second ago.
    #[must_use]
    pub fn housekeeping(&self) -> Housekeeping {
        self.house.lock().clone()
    }

    /// The connection of a peer, and what `read` makes of it. A connection that is over is found until its post-mortem
    /// ends, unless the same addresses have a younger one.
    pub fn find<T>(
        &self,
        peer: SocketAddr,
        local: Option<SocketAddr>,
        now: Timestamp,
        read: impl FnOnce(&ConnectionInfo<'_>, &Assessed) -> T,
    ) -> Found<T> {
        let state = self.state.lock();
        let found = match state.directory.find(peer, local, &state.engine) {
            Found::One(connection) => connection,
            Found::None => return Found::None,
            Found::Several(locals) => return Found::Several(locals),
        };
        match (state.engine.connection(found), state.engine.assess(found, now)) {
            (Some(info), Some(assessed)) => Found::One(read(&info, &assessed)),
            _ => Found::None,
        }
    }

    /// Looks at the next [`READ_AT_ONCE`] connections after `cursor`, in the order of their peers' addresses. Returns
    /// where to go on; `None` at the end.
    pub fn visit(
        &self,
        cursor: Option<Cursor>,
        mut look: impl FnMut(Cursor, &ConnectionInfo<'_>, &dyn Fn(Timestamp) -> Option<Assessed>),
    ) -> Option<Cursor> {
        let state = self.state.lock();
        let mut last = None;
        for (count, place) in state.directory.after(cursor).enumerate() {
            if count == READ_AT_ONCE {
                return last;
            }
            if let Some(info) = state.engine.connection(place.connection()) {
                look(place, &info, &|now| state.engine.assess(place.connection(), now));
            }
            last = Some(place);
        }
        None
    }

    /// Reads these connections, at most [`READ_AT_ONCE`] of them. Those that are gone are left out.
    pub fn read(
        &self,
        places: &[Cursor],
        now: Timestamp,
        mut read: impl FnMut(&ConnectionInfo<'_>, &Assessed),
    ) {
        let state = self.state.lock();
        for place in places.iter().take(READ_AT_ONCE) {
            let connection = place.connection();
            if let (Some(info), Some(assessed)) =
                (state.engine.connection(connection), state.engine.assess(connection, now))
            {
                read(&info, &assessed);
            }
        }
    }

    /// What `read` makes of the censuses of all sockets. They are a few hundred ports: keep it short.
    pub fn leaks<T>(&self, read: impl FnOnce(&LeakWatch) -> T) -> T {
        read(self.state.lock().engine.leaks())
    }

    /// How the listening ports stand.
    #[must_use]
    pub fn storms(&self) -> Storms {
        let state = self.state.lock();
        Storms {
            ports: state.storms.ports().collect(),
            totals: state.storms.totals(),
            recent: state.recent.iter().cloned().collect(),
        }
    }

    /// Connections that are watched.
    #[must_use]
    pub fn total(&self) -> usize {
        self.state.lock().directory.len()
    }

    /// Looks at every connection, without keeping the driver or other readers out for long.
    pub fn for_each(&self, mut look: impl FnMut(&ConnectionInfo<'_>)) {
        let mut cursor = None;
        loop {
            cursor = self.visit(cursor, |_, info, _| look(info));
            if cursor.is_none() {
                return;
            }
        }
    }

    /// Connections that are watched, by the word of their verdict.
    #[must_use]
    pub fn by_verdict(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        self.for_each(|info| *counts.entry(info.verdict.as_str()).or_default() += 1);
        counts
    }
}

impl State {
    fn feed(&mut self, input: Input, steps: &mut Vec<Step>) {
        let opened = match &input {
            // Told twice it is one connection; refused by the engine it is none.
            Input::Opened(opened) if self.engine.connection(opened.connection).is_none() => {
                Some(opened.clone())
            }
            _ => None,
        };
        let (fact, late_ticks) = (Fact::of(&input), self.engine.counters().late_ticks);
        self.engine.handle_input(input);
        if self.engine.counters().late_ticks != late_ticks {
            self.storms.late(fact.at());
        }
        self.storms.fact(&fact);
        if let Some(opened) = opened
            && self.engine.connection(opened.connection).is_some()
        {
            self.directory.insert(opened.connection, &opened.endpoints);
            steps.push(Step::Opened(opened));
        }
        self.take_outputs(steps);
    }

    fn take_outputs(&mut self, steps: &mut Vec<Step>) {
        while let Some(output) = self.engine.poll() {
            if let Output::Closed(record) = &output {
                self.directory.remove(record.connection, &record.endpoints);
            }
            self.storms.output(&output);
            steps.push(Step::Decided(output));
        }
        self.take_storms(steps);
    }

    fn take_storms(&mut self, steps: &mut Vec<Step>) {
        while let Some(event) = self.storms.poll() {
            if let StormEvent::Ended(storm) = &event {
                if self.recent.len() == STORMS_KEPT {
                    self.recent.pop_front();
                }
                self.recent.push_back(Storm::clone(storm));
            }
            steps.push(Step::Stormed(event));
        }
    }
}

#[cfg(test)]
mod tests;
