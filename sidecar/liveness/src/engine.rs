//! The engine: all connections, their clocks, and what they want from the driver.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

use crate::agenda::{Agenda, Slots};
use crate::closing::HOLD_MS;
use crate::connection::{Connection, Context, ScheduleKey};
use crate::leak::{LeakSettings, LeakWatch};
use crate::probing::{Budget, WindowProbes};
use crate::reconnects::Reconnects;
use crate::schedule::Schedule;
use crate::termination::Terminations;
use crate::{
    Assessed, CloseFrames, ConnectionId, Deployment, Endpoints, EvidenceScope, Frame, Input, Opened, Output,
    Policy, Reconnect, Role, Snapshot, TcpState, Timestamp, Upgrade, Verdict,
};

/// Passes of the sampler that come for a decision, and not on the grid of [`Policy::sample_interval_ms`], are at least
/// this far from the pass before them.
const DECIDING_GAP_MS: u64 = 40;
/// Connections that an engine tracks unless told otherwise.
pub const CONNECTION_LIMIT_DEFAULT: usize = 65_536;

/// Totals of an engine since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Connections that were tracked.
    pub connections_opened: u64,
    /// Close records that were written.
    pub connections_closed: u64,
    /// Connections that were refused because the limit was reached; they get no record.
    pub connections_refused: u64,
    /// Inputs about connections that are not tracked: refused ones, or ones whose record is out.
    pub inputs_unmatched: u64,
    /// Records that were lost on their way here ([`Input::RecordsLost`]).
    pub records_lost: u64,
    /// Calls that came late by more than [`Policy::late_tick_ms`]; each opened new windows, but for those before which
    /// nothing was seen since the last one.
    pub late_ticks: u64,
    /// Own window probes that were asked for ([`Output::ProbeWanted`]).
    pub probes_wanted: u64,
    /// Own window probes that were worth asking for and beyond [`WindowProbes::per_second_max`]. Each is looked at again
    /// with the next reading of its socket.
    pub probes_refused: u64,
    /// Own window probes that were sent ([`Input::ProbeSent`]).
    pub probes_sent: u64,
}

/// One tracked connection, for whoever lists them.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionInfo<'a> {
    /// The connection.
    pub connection: ConnectionId,
    /// Its two ends.
    pub endpoints: Endpoints,
    /// Who dialled.
    pub role: Role,
    /// It is older than the sidecar.
    pub preexisting: bool,
    /// When it was established, or found.
    pub opened_at: Timestamp,
    /// The upgrade, if one was seen.
    pub upgrade: Option<&'a Upgrade>,
    /// A heartbeat, a Close frame or an upgrade was seen.
    pub is_websocket: bool,
    /// The last TCP state that was seen; `None` if none was.
    pub tcp_state: Option<TcpState>,
    /// The verdict at the last input; [`Verdict::Closed`] while the post-mortem runs.
    pub verdict: Verdict,
    /// Which Close frames have passed.
    pub close_frames: CloseFrames,
    /// The host's Pings are seen on the wire: a report of one changes nothing.
    pub is_ping_report_redundant: bool,
    /// The peer's Pongs are seen on the wire: a report of one changes nothing.
    pub is_pong_report_redundant: bool,
    /// The latest reading of the socket while it was open.
    pub snapshot: Option<&'a Snapshot>,
    /// When each rung of the evidence ladder was last seen.
    pub evidence: EvidenceDates,
}

/// When each rung of the evidence ladder was last seen; `None` where it never was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvidenceDates {
    /// Any segment from the peer.
    pub hop_at: Option<Timestamp>,
    /// `snd_una` advanced.
    pub ack_at: Option<Timestamp>,
    /// The right edge of the peer's window advanced after it had been limiting.
    pub drain_at: Option<Timestamp>,
    /// Payload from the peer.
    pub inbound_at: Option<Timestamp>,
    /// The Pong that answers an outstanding Ping.
    pub pong_at: Option<Timestamp>,
}

/// The liveness engine. See the [crate's documentation](crate).
///
/// A driver feeds inputs in the order of their time, as far as their source keeps it, calls [`Engine::poll`] after
/// each call until it gives `None` (outputs wait in memory until then), and calls [`Engine::handle_timeout`] when
/// [`Engine::poll_timeout`] is due. Inputs that are already waiting go in before a timeout is handled.
///
/// What an application reports ([`Frame`]s that are not [on the wire](Frame::is_on_wire)) may be a minute old. Before a driver
/// hands in such inputs it calls [`Engine::handle_timeout`], so that the engine knows how old they are: nothing is expected of
/// a peer before it could have been known.
#[derive(Debug)]
pub struct Engine {
    policy: Policy,
    connections: BTreeMap<ConnectionId, Box<Connection>>,
    connection_limit: usize,
    schedules: BTreeMap<ScheduleKey, Schedule>,
    outputs: VecDeque<Output>,
    slots: Slots,
    /// When connections want to be called.
    deadlines: Agenda,
    /// Since when connections want samples.
    wanting: Agenda,
    /// When a sample would decide about connections.
    deciding: Agenda,
    /// When the sampler last looked.
    last_pass_at: Option<Timestamp>,
    /// Records were lost then: a pass must show which sockets are still there.
    reconcile_since: Option<Timestamp>,
    /// Start of the window in which absence is judged; a late tick moves it.
    window_opened_at: Timestamp,
    /// Something was seen since then.
    has_seen_since: bool,
    now: Timestamp,
    counters: EngineCounters,
    /// `None`: own window probes are not asked for.
    window_probes: Option<WindowProbes>,
    deployment: Deployment,
    terminations: Terminations,
    reconnects: Reconnects,
    probe_budget: Budget,
    leaks: LeakWatch,
}

impl Engine {
    /// An engine that tracks at most [`CONNECTION_LIMIT_DEFAULT`] connections.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self::with_connection_limit(policy, CONNECTION_LIMIT_DEFAULT)
    }

    /// An engine that tracks at most this many connections at a time. Connections beyond it are refused and counted
    /// ([`EngineCounters::connections_refused`]).
    #[must_use]
    pub fn with_connection_limit(policy: Policy, connection_limit: usize) -> Self {
        Self {
            policy,
            connections: BTreeMap::new(),
            connection_limit,
            schedules: BTreeMap::new(),
            outputs: VecDeque::new(),
            slots: Slots::default(),
            deadlines: Agenda::default(),
            wanting: Agenda::default(),
            deciding: Agenda::default(),
            last_pass_at: None,
            reconcile_since: None,
            window_opened_at: Timestamp::default(),
            has_seen_since: true,
            now: Timestamp::default(),
            counters: EngineCounters::default(),
            window_probes: None,
            deployment: Deployment::default(),
            terminations: Terminations::default(),
            reconnects: Reconnects::default(),
            probe_budget: Budget::default(),
            leaks: LeakWatch::default(),
        }
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Puts another policy in force. What it changes for the connections that are there comes out of [`Engine::poll`].
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
        self.judge_anew();
    }

    /// Puts another policy, what no socket shows, and other thresholds for leaks in force at once. What it changes for the
    /// connections that are there comes out of [`Engine::poll`], judged under all of them.
    pub fn set_rules(&mut self, policy: Policy, deployment: Deployment, leaks: LeakSettings) {
        self.policy = policy;
        self.deployment = deployment;
        self.leaks.set_settings(leaks);
        self.judge_anew();
    }

    /// Tells what no socket shows. What it changes for the connections that are there comes out of [`Engine::poll`].
    pub fn set_deployment(&mut self, deployment: Deployment) {
        self.deployment = deployment;
        self.judge_anew();
    }

    /// What every connection's decisions depend on has changed.
    fn judge_anew(&mut self) {
        let ids: alloc::vec::Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in ids {
            self.update(id, |_, _, _| {});
        }
    }

    /// Lets the engine ask for own window probes ([`Output::ProbeWanted`]), or no longer. An engine that may not, as one is
    /// made, judges those that were sent ([`Input::ProbeSent`]) all the same.
    pub fn set_window_probes(&mut self, settings: Option<WindowProbes>) {
        self.window_probes = settings;
    }

    /// Puts other thresholds for leaks in force.
    pub fn set_leak_settings(&mut self, settings: LeakSettings) {
        self.leaks.set_settings(settings);
    }

    /// What the censuses add up to.
    #[must_use]
    pub const fn leaks(&self) -> &LeakWatch {
        &self.leaks
    }

    /// Totals since the engine was made.
    #[must_use]
    pub fn counters(&self) -> EngineCounters {
        self.counters
    }

    /// Something was seen.
    pub fn handle_input(&mut self, input: Input) {
        let at = input.at();
        self.arrive(at);
        self.has_seen_since = true;
        self.expire(at);
        match input {
            Input::Opened(opened) => self.on_opened(opened),
            Input::Transition(transition) => {
                self.update(transition.snapshot.connection, |connection, context, outputs| {
                    connection.on_transition(transition, context, outputs);
                });
            }
            Input::Reset(reset) => self.update(reset.connection, |connection, context, outputs| {
                connection.on_reset(&reset, context, outputs);
            }),
            Input::Sample(snapshot) => {
                self.last_pass_at = self.last_pass_at.max(Some(at));
                let id = snapshot.connection;
                self.update(id, |connection, context, outputs| {
                    connection.on_sample(snapshot, context, outputs);
                });
                self.ask_for_probe(id, at);
            }
            Input::Frame(frame) => self.on_frame(frame),
            Input::Synchronization(synchronization) => {
                self.update(synchronization.connection, |connection, _, _| {
                    connection.on_synchronization(&synchronization);
                });
            }
            Input::Upgrade(upgrade) => {
                let id = upgrade.connection;
                self.update(id, |connection, _, _| connection.on_upgrade(upgrade));
                self.look_for_end_before(id);
            }
            Input::Outstanding { connection, .. } => {
                self.update(connection, |connection, _, _| connection.on_outstanding(at));
            }
            Input::ProbeSent { connection, .. } => {
                self.counters.probes_sent = self.counters.probes_sent.saturating_add(1);
                self.update(connection, |connection, _, _| connection.on_probe_sent(at));
            }
            Input::Census(census) => self.leaks.on_census(*census, &mut self.outputs),
            Input::Terminating { process, .. } => self.terminations.on_told(process, at),
            Input::RecordsLost { count, .. } => self.on_records_lost(at, count),
            Input::SamplingDone { began_at, .. } => self.on_sampling_done(began_at, at),
        }
    }

    /// This much time has passed. Inputs that are already waiting must be handled first.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.arrive(now);
        self.expire(now);
    }

    /// When [`Engine::handle_timeout`] wants to be called; `None` while nothing is awaited.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(at, _)| at)
    }

    /// The next decision. Call it until it gives `None`.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When a pass of the sampler is worth its cost: at most every [`Policy::sample_interval_ms`], and `None` while
    /// nothing is outstanding anywhere. A Ping that is answered at once costs no pass of its own. The retransmission
    /// timeout that decides whether a peer is unreachable has a moment that is known, and gets a pass right after it.
    #[must_use]
    pub fn next_sample_at(&self) -> Option<Timestamp> {
        // A policy of 0 must not turn the driver into a busy loop.
        let interval_ms = self.policy.sample_interval_ms.max(1);
        let wanted = self.wanting.first().map(|(since, _)| since);
        let since = [wanted, self.reconcile_since].into_iter().flatten().min()?;
        let last_pass_at = self.last_pass_at.unwrap_or(since);
        let due = since.max(last_pass_at).plus_ms(interval_ms);
        // One pass serves all whose moment comes soon after it, so a crowd that is lost at once costs a few of them.
        let decides_at = self
            .deciding
            .first()
            .map(|(at, _)| at.max(last_pass_at.plus_ms(DECIDING_GAP_MS.min(interval_ms))));
        Some(decides_at.map_or(due, |at| at.min(due)))
    }

    /// What is known about a connection now; `None` if it is not tracked (any more).
    #[must_use]
    pub fn assess(&self, connection: ConnectionId, now: Timestamp) -> Option<Assessed> {
        let connection = self.connections.get(&connection)?;
        Some(connection.assessed(now, &self.context_of(connection)))
    }

    /// What a connection's decisions depend on beside itself.
    fn context_of(&self, connection: &Connection) -> Context<'_> {
        Context {
            policy: &self.policy,
            schedule: self.schedules.get(&connection.schedule_key()),
            window_opened_at: self.window_opened_at,
            now: self.now,
            deployment: &self.deployment,
            terminations: &self.terminations,
        }
    }

    /// The tracked connections, in the order of their cookies.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionInfo<'_>> {
        self.connections.values().map(|connection| connection.info())
    }

    /// One tracked connection; `None` if it is not tracked (any more).
    #[must_use]
    pub fn connection(&self, connection: ConnectionId) -> Option<ConnectionInfo<'_>> {
        self.connections.get(&connection).map(|connection| connection.info())
    }

    /// Ends every record now. Open connections come out with [`still_open`](crate::CloseRecord::still_open) and are
    /// nobody's close; host closes whose post-mortem has shown nothing yet come out as
    /// [`Unresolved`](crate::Postmortem::Unresolved).
    pub fn shut_down(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        while let Some(id) = self.connections.keys().next().copied() {
            self.update(id, |connection, context, outputs| {
                connection.on_shut_down(now, context, outputs);
            });
        }
        self.reconcile_since = None;
    }

    // ---- time ---------------------------------------------------------------------------------------------------

    /// Notes the time of a call. One that comes late opens new windows: what was absent while nobody looked is not
    /// known to have been absent.
    fn arrive(&mut self, at: Timestamp) {
        let expected = [self.poll_timeout(), self.next_sample_at()].into_iter().flatten().min();
        self.now = self.now.max(at);
        // Measured from the last window on, so that a driver that stays late costs one new window at a time.
        let is_late = expected.is_some_and(|expected| {
            at.ms_since(expected.max(self.window_opened_at)) > self.policy.late_tick_ms
        });
        if !is_late {
            return;
        }
        self.counters.late_ticks = self.counters.late_ticks.saturating_add(1);
        // A driver that is late again and again and tells nothing in between has nothing to tell: one window for it, or
        // what is too old would stay young for ever.
        if !core::mem::replace(&mut self.has_seen_since, false) {
            return;
        }
        self.window_opened_at = self.window_opened_at.max(at);
        let ids: alloc::vec::Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in ids {
            self.update(id, |connection, context, _| connection.reopen(at, context.policy));
        }
    }

    fn expire(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.deadlines.first() {
            if at > now {
                return;
            }
            self.update(id, |connection, context, outputs| {
                connection.on_deadline(now, context, outputs);
            });
            if self.deadlines.first() == Some((at, id))
                && let Some(connection) = self.connections.get(&id)
            {
                // It has nothing to do after all; do not ask again before something new is seen.
                self.deadlines.set(connection.slot, id, None);
            }
        }
    }

    // ---- inputs -------------------------------------------------------------------------------------------------

    fn on_opened(&mut self, opened: Opened) {
        let id = opened.connection;
        if self.connections.contains_key(&id) {
            // Found by the iterator and told of by a transition: one socket, one record.
            return;
        }
        if self.connections.len() >= self.connection_limit {
            self.counters.connections_refused = self.counters.connections_refused.saturating_add(1);
            return;
        }
        self.counters.connections_opened = self.counters.connections_opened.saturating_add(1);
        let slot = self.slots.take();
        self.connections.insert(id, Box::new(Connection::new(opened, slot)));
    }

    fn on_frame(&mut self, frame: Frame) {
        let (id, at) = (frame.connection, frame.at);
        let mut learned = None;
        self.update(id, |connection, context, outputs| {
            let key = connection.schedule_key();
            learned = connection.on_frame(frame, context, outputs).map(|lesson| (key, lesson));
        });
        if let Some((key, lesson)) = learned {
            self.schedules.entry(key).or_default().learn(id, at, lesson);
        }
    }

    fn on_records_lost(&mut self, at: Timestamp, count: u64) {
        self.counters.records_lost = self.counters.records_lost.saturating_add(count);
        self.reconcile_since = self.reconcile_since.or(Some(at));
        // Rare, and every connection may be concerned.
        let ids: alloc::vec::Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in ids {
            self.update(id, |connection, _, _| connection.on_records_lost(count));
        }
    }

    fn on_sampling_done(&mut self, began_at: Timestamp, at: Timestamp) {
        self.last_pass_at = self.last_pass_at.max(Some(at));
        if self.reconcile_since.is_some_and(|since| since <= began_at) {
            self.reconcile_since = None;
        }
        // One hold's grace: a connection that was opened while the pass began may not have been in it.
        let settled_at = began_at.minus_ms(HOLD_MS);
        let missing: alloc::vec::Vec<ConnectionId> = self
            .connections
            .values()
            .filter(|connection| {
                connection.opened.at < settled_at
                    && connection.sampled_at.is_none_or(|sampled| sampled < began_at)
            })
            .map(|connection| connection.opened.connection)
            .collect();
        for id in missing {
            self.update(id, |connection, context, _| connection.on_missing(began_at, at, context.policy));
        }
    }

    /// Asks for an own window probe, if one may be asked for and is worth it. It changes nothing else: whether a probe was
    /// sent is an input.
    fn ask_for_probe(&mut self, id: ConnectionId, at: Timestamp) {
        let (Some(settings), Some(connection)) = (self.window_probes, self.connections.get_mut(&id)) else {
            return;
        };
        // Numbers that were read before this are no longer those of the socket.
        let Some(wanted) = connection.probe_wanted(settings).filter(|wanted| wanted.at == at) else { return };
        if !self.probe_budget.take(at, settings.per_second_max) {
            self.counters.probes_refused = self.counters.probes_refused.saturating_add(1);
            return;
        }
        self.counters.probes_wanted = self.counters.probes_wanted.saturating_add(1);
        connection.on_probe_asked(at);
        self.outputs.push_back(Output::ProbeWanted(wanted));
    }

    /// Lets one connection do something, and files what it wants afterwards.
    fn update(
        &mut self,
        id: ConnectionId,
        act: impl FnOnce(&mut Connection, &Context<'_>, &mut VecDeque<Output>),
    ) {
        let Some(connection) = self.connections.get_mut(&id) else {
            self.counters.inputs_unmatched = self.counters.inputs_unmatched.saturating_add(1);
            return;
        };
        let key = connection.schedule_key();
        let context = Context {
            policy: &self.policy,
            schedule: self.schedules.get(&key),
            window_opened_at: self.window_opened_at,
            now: self.now,
            deployment: &self.deployment,
            terminations: &self.terminations,
        };
        act(connection, &context, &mut self.outputs);
        // Whatever it was, it may have changed what the facts add up to.
        connection.update_verdict(&context, &mut self.outputs);
        let is_finished = connection.is_finished();
        let deadline = if is_finished { None } else { connection.next_deadline(&context) };
        let wants = !is_finished && connection.wants_samples(&context);
        let decides_at = if wants { connection.decides_at(&context) } else { None };
        let slot = connection.slot;
        if self.deadlines.of(slot) != deadline {
            self.deadlines.set(slot, id, deadline);
        }
        if self.deciding.of(slot) != decides_at {
            self.deciding.set(slot, id, decides_at);
        }
        if self.wanting.of(slot).is_some() != wants {
            // Not since `at`: what is reported late makes no pass late.
            self.wanting.set(slot, id, wants.then_some(self.now));
        }
        if let Some(missed) = connection.learned_kill.take() {
            self.schedules.entry(key).or_default().on_kill(missed);
        }
        if let Some(ended) = connection.ended.take() {
            self.reconnects.on_end(id, ended.0, connection.opened.endpoints, &ended.1);
        }
        if is_finished {
            // Its record is what was told last.
            if let Some(Output::Closed(record)) = self.outputs.back() {
                self.leaks.on_closed(record);
            }
            self.connections.remove(&id);
            self.slots.give_back(slot);
            self.counters.connections_closed = self.counters.connections_closed.saturating_add(1);
            self.on_record_out();
        }
    }

    /// The last output is a close record.
    fn on_record_out(&mut self) {
        let Some(Output::Closed(record)) = self.outputs.back_mut() else { return };
        record.is_final = self.deployment.is_final(record.kind, record.close_code);
        let reconnect = self.reconnects.on_record(record);
        self.tell_reconnect(reconnect);
    }

    /// The path of a new connection is known: it may be the return of a peer.
    fn look_for_end_before(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(&id) else { return };
        // Found in its middle, its beginning is not known; behind a proxy every peer has the same address.
        if connection.opened.preexisting
            || connection.scope(&self.context_of(connection)) == EvidenceScope::NextHop
        {
            return;
        }
        let opened = &connection.opened;
        let path = connection.upgrade.as_ref().and_then(|upgrade| upgrade.path.as_deref());
        let reconnect =
            path.and_then(|path| self.reconnects.on_upgrade(id, opened.at, opened.endpoints, path));
        self.tell_reconnect(reconnect);
    }

    fn tell_reconnect(&mut self, reconnect: Option<Reconnect>) {
        let Some(reconnect) = reconnect else { return };
        if let Some(connection) = self.connections.get_mut(&reconnect.connection) {
            connection.reconnect = Some(Box::new(reconnect));
        }
        self.outputs.push_back(Output::Reconnected(reconnect));
    }
}
