//! What the engine decides, told to people and backends.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use ackbeat_liveness::leak::{GroupKey, LeakChange, LeakSign, ReapWanted, Side};
use ackbeat_liveness::{
    Assessment, CloseInitiator, CloseRecord, ConnectionId, Opened, Output, Reconnect, VerdictChange,
};
use ackbeat_storms::StormEvent;
use opentelemetry::trace::SpanContext;
use opentelemetry_sdk::trace::SdkTracer;
use tracing::{debug, info, trace, warn};

use super::attributes;
use super::close_waits::CloseWaits;
use super::end_spans::EndSpans;
use super::leaks;
use super::pipeline::{SpanCounts, SpanTotals};
use super::spans;
use super::storms;
use super::wall_clock::WallClock;
use crate::api::events::Publisher;
use crate::census::control::{ReapControl, ReapOutcome};
use crate::connections::Connections;
use crate::driver::{Housekeeping, Sink};
use crate::kubernetes::{Events, PeerName, Peers};
use crate::metrics::Feed;
use crate::source::{Mode, SourceCounters};

/// Emits spans and log lines. Nothing in it waits.
pub struct Telemetry {
    tracer: SdkTracer,
    mode: Mode,
    counts: Arc<SpanCounts>,
    reported_spans: SpanTotals,
    reported: Housekeeping,
    /// Who tells the readers of the API's events.
    publisher: Option<Publisher>,
    metrics: Option<Feed>,
    /// Who tells Kubernetes.
    events: Option<Events>,
    /// Who knows peers by their names.
    peers: Option<Peers>,
    /// Spans of what is suspected now, for the links of those that tell of its end. At most [`SUSPICIONS_MAX`].
    suspected: BTreeMap<SuspicionKey, SpanContext>,
    /// Sockets that are told together.
    close_waits: CloseWaits,
    /// Who destroys sockets, and who counts those for which there was no room.
    reaper: Option<(SyncSender<ReapWanted>, Arc<ReapControl>)>,
    /// What a storm's span may link to.
    ends: EndSpans,
}

/// What a suspicion is about: its sign, its port, and the socket where it is one.
type SuspicionKey = (LeakSign, GroupKey, Option<ConnectionId>);
/// Spans of suspicions that are remembered.
const SUSPICIONS_MAX: usize = 4_096;

impl Telemetry {
    /// For spans through `tracer`, whose fate `counts` knows.
    #[must_use]
    pub fn new(tracer: SdkTracer, mode: Mode, counts: Arc<SpanCounts>) -> Self {
        Self {
            tracer,
            mode,
            counts,
            reported_spans: SpanTotals::default(),
            reported: Housekeeping::default(),
            publisher: None,
            metrics: None,
            events: None,
            peers: None,
            suspected: BTreeMap::new(),
            close_waits: CloseWaits::default(),
            reaper: None,
            ends: EndSpans::default(),
        }
    }

    /// The same, telling the readers of the API's events too.
    #[must_use]
    pub fn with_publisher(mut self, publisher: Publisher) -> Self {
        self.publisher = Some(publisher);
        self
    }

    /// The same, counting what it tells.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Feed) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// The same, telling Kubernetes too.
    #[must_use]
    pub fn with_events(mut self, events: Option<Events>) -> Self {
        self.close_waits = CloseWaits::new(events.clone());
        self.events = events;
        self
    }

    /// The same, naming peers.
    #[must_use]
    pub fn with_peers(mut self, peers: Option<Peers>) -> Self {
        self.peers = peers;
        self
    }

    /// Who has an address, where that is known.
    fn name_of(&self, address: IpAddr) -> Option<Arc<PeerName>> {
        self.peers.as_ref().and_then(|peers| peers.name_of(address))
    }

    /// The other side of a leak, where it is one port or one socket.
    fn peer_of(&self, change: &LeakChange) -> Option<Arc<PeerName>> {
        match (change.endpoints, change.group.side) {
            (Some(endpoints), _) => self.name_of(endpoints.peer_address),
            (None, Side::Remote) => self.name_of(change.group.address),
            (None, Side::Local) => None,
        }
    }

    /// The same with somebody who destroys sockets.
    #[must_use]
    pub fn with_reaper(mut self, reaper: SyncSender<ReapWanted>, control: Arc<ReapControl>) -> Self {
        self.reaper = Some((reaper, control));
        self
    }

    fn leak(&mut self, change: &LeakChange) {
        if CloseWaits::is_one(change) {
            let context = self.close_waits.begin(change).then(|| self.leak_span(change));
            if context.is_none() {
                self.suspected.remove(&(change.sign, change.group, change.connection));
            }
            self.close_waits.note(change, context);
            return;
        }
        let context = self.leak_span(change);
        let (trace_id, span_id) = (context.trace_id(), context.span_id());
        let owner = change.owner.as_ref();
        let process = owner.map(|owner| owner.command.escape_debug().to_string());
        let sentence = leaks::sentence(change);
        macro_rules! line {
            ($level:ident) => {
                $level!(
                    target: "ackbeat::leak",
                    sign = change.sign.as_str(),
                    side = change.group.side.as_str(),
                    address = %change.group.address,
                    port = change.group.port,
                    count = change.count,
                    maximum = change.maximum,
                    quota = change.quota,
                    idle = change.idle,
                    idle_ms = change.idle_ms,
                    orphans = change.orphans,
                    process,
                    pid = change.pid,
                    fd_count = owner.map(|owner| owner.fd_count),
                    %trace_id,
                    %span_id,
                    "{sentence}"
                )
            };
        }
        if change.suspected {
            line!(warn);
            if let Some(events) = &self.events {
                events.leak_suspected(match self.peer_of(change) {
                    Some(peer) => format!("{sentence} ({peer})"),
                    None => sentence,
                });
            }
        } else {
            line!(info);
        }
    }

    fn leak_span(&mut self, change: &LeakChange) -> SpanContext {
        let key = (change.sign, change.group, change.connection);
        let before = self.suspected.remove(&key);
        let peer = self.peer_of(change);
        let context =
            leaks::emit(&self.tracer, change, before, self.mode, peer.as_deref(), &WallClock::now());
        if change.suspected && self.suspected.len() < SUSPICIONS_MAX {
            self.suspected.insert(key, context.clone());
        }
        context
    }

    fn reap(&self, wanted: &ReapWanted) {
        if let Some((reaper, control)) = &self.reaper
            && reaper.try_send(*wanted).is_err()
        {
            control.count(ReapOutcome::Dropped);
        }
    }

    fn closed(&mut self, record: &CloseRecord) {
        let follows = self.ends.take_followed_by(record.connection);
        let peer = self.name_of(record.endpoints.peer_address);
        let peer = peer.as_deref();
        let emitted = spans::emit(&self.tracer, record, self.mode, &WallClock::now(), follows.as_ref(), peer);
        let context = emitted.host_close.as_ref().unwrap_or(&emitted.root);
        self.ends.note(record, context);
        if let Some(publisher) = &mut self.publisher {
            publisher.closed(record, context);
        }
        if let Some(feed) = &self.metrics {
            feed.metrics().closed(record, context);
        }
        if record.assessment == Some(Assessment::FalseKill)
            && !record.still_open
            && let Some(events) = &self.events
        {
            events.false_kill(record, context, peer);
        }
        let (trace_id, span_id) = (context.trace_id(), context.span_id());
        let heartbeat = &record.assessed.heartbeat;
        let queue_bytes = record.snapshot.as_ref().and_then(|snapshot| snapshot.send_queue_bytes);
        // Names that processes choose may hold anything: escaped, they cannot forge a line.
        let process = record.process.as_ref().map(|process| process.command.escape_debug().to_string());
        macro_rules! line {
            ($level:ident, $message:literal) => {
                $level!(
                    target: "ackbeat::close",
                    kind = record.kind.as_str(),
                    initiator = record.initiator.as_str(),
                    method = record.method.map(|method| method.as_str()),
                    verdict = record.assessed.verdict.as_str(),
                    rung = record.assessed.rung.as_str(),
                    assessment = record.assessment.map(|assessment| assessment.as_str()),
                    postmortem = record.postmortem.map(|postmortem| postmortem.as_str()),
                    false_kill = attributes::false_kill(record),
                    is_final = record.is_final,
                    peer_address = %record.endpoints.peer_address.to_canonical(),
                    peer_port = record.endpoints.peer_port,
                    peer = peer.map(|peer| peer.to_string()),
                    local_port = record.endpoints.local_port,
                    lifetime_ms =
                        (!record.preexisting).then(|| record.closed_at.ms_since(record.opened_at)),
                    interval_ms = heartbeat.interval_ms,
                    missed = heartbeat.missed,
                    ping_location = heartbeat.ping_location.as_str(),
                    send_queue_bytes = queue_bytes,
                    ws_code = record.close_code,
                    process,
                    pid = record.process.as_ref().map(|process| process.pid),
                    %trace_id,
                    %span_id,
                    $message
                )
            };
        }
        if attributes::is_host_close(record) {
            line!(info, "this side closed");
        } else if record.still_open {
            debug!(target: "ackbeat::close", connection = record.connection.0, "left open: the sidecar stops");
        } else if record.initiator == CloseInitiator::Unknown {
            line!(debug, "closed, nobody saw by whom");
        } else {
            line!(debug, "the peer closed");
        }
    }
}

/// A peer is back.
fn tell_reconnect(reconnect: &Reconnect) {
    macro_rules! line {
        ($level:ident) => {
            $level!(
                target: "ackbeat::reconnect",
                connection = reconnect.connection.0,
                follows = reconnect.follows.0,
                after_ms = reconnect.after_ms,
                kind = reconnect.kind.as_str(),
                initiator = reconnect.initiator.as_str(),
                assessment = reconnect.assessment.map(|assessment| assessment.as_str()),
                "a peer is back"
            )
        };
    }
    // What this side's closes cost is of interest to everybody, what peers do on their own account is not.
    if reconnect.initiator == CloseInitiator::Host {
        line!(info);
    } else {
        line!(debug);
    }
}

impl Sink for Telemetry {
    fn opened(&mut self, opened: &Opened) {
        if let Some(publisher) = &mut self.publisher {
            publisher.opened(opened);
        }
    }

    fn output(&mut self, output: &Output) {
        if let (Output::VerdictChanged(change), Some(publisher)) = (output, &self.publisher) {
            publisher.verdict_changed(change);
        }
        match (&self.metrics, output) {
            (Some(feed), Output::VerdictChanged(change)) => feed.metrics().verdict_changed(change),
            (Some(feed), Output::Answered(answered)) => feed.metrics().answered(answered),
            (Some(feed), Output::Reconnected(reconnect)) => feed.metrics().reconnected(reconnect),
            _ => {}
        }
        match output {
            Output::VerdictChanged(change @ VerdictChange { connection, to, rung, kill_justified, .. })
                if change.is_turn() =>
            {
                debug!(
                    target: "ackbeat::verdict",
                    connection = connection.0,
                    verdict = to.as_str(),
                    rung = rung.as_str(),
                    kill_justified,
                    "whether a kill is justified changed"
                );
            }
            Output::VerdictChanged(VerdictChange { connection, from, to, rung, kill_justified, .. }) => {
                debug!(
                    target: "ackbeat::verdict",
                    connection = connection.0,
                    from = from.as_str(),
                    to = to.as_str(),
                    rung = rung.as_str(),
                    kill_justified,
                    "verdict changed"
                );
            }
            Output::Closing { connection, initiator, .. } => debug!(
                target: "ackbeat::close",
                connection = connection.0,
                initiator = initiator.as_str(),
                "closing"
            ),
            Output::ProbeWanted(wanted) => trace!(
                target: "ackbeat::probe",
                connection = wanted.connection.0,
                "an own window probe is wanted"
            ),
            Output::Answered(answered) => trace!(
                target: "ackbeat::heartbeat",
                connection = answered.connection.0,
                ping_to_pong_us = answered.ping_to_pong_us,
                ping_to_ack_us = answered.ping_to_ack_us,
                ack_to_pong_us = answered.ack_to_pong_us,
                "a Pong answered"
            ),
            Output::Leak(change) => self.leak(change),
            Output::ReapWanted(wanted) => self.reap(wanted),
            Output::Reconnected(reconnect) => {
                self.ends.follow(reconnect);
                tell_reconnect(reconnect);
            }
            Output::Closed(record) => self.closed(record),
        }
    }

    fn stormed(&mut self, event: &StormEvent) {
        let span = match event {
            StormEvent::Ended(storm) => {
                Some(storms::emit(&self.tracer, storm, &self.ends, self.mode, &WallClock::now()))
            }
            _ => None,
        };
        storms::log(event, span.as_ref());
    }

    fn sweep(&mut self, connections: &Connections) {
        if let Some(feed) = &mut self.metrics {
            feed.metrics().storms(connections.storms());
            feed.sweep(|look| connections.for_each(look));
        }
    }

    fn housekeeping(&mut self, now: &Housekeeping) {
        self.close_waits.tell();
        if let Some(feed) = &self.metrics {
            feed.metrics().keep_house(now);
        }
        let spans = self.counts.totals();
        if spans.dropped > self.reported_spans.dropped || spans.failed > self.reported_spans.failed {
            warn!(
                target: "ackbeat::loss",
                dropped = spans.dropped,
                failed = spans.failed,
                exported = spans.exported,
                waiting = spans.waiting,
                "spans were lost on their way out"
            );
        }
        if lost(&now.source) > lost(&self.reported.source) {
            warn!(
                target: "ackbeat::loss",
                records_sent = now.source.records_sent,
                records_seen = now.source.records_seen,
                records_dropped = now.source.records_dropped,
                records_rejected = now.source.records_rejected,
                flows_rejected = now.source.flows_rejected,
                "kernel records were lost; verdicts that would need them are unknown"
            );
        }
        if now.recording_lost > self.reported.recording_lost {
            warn!(
                target: "ackbeat::loss",
                lines = now.recording_lost,
                "lines are missing from the recording"
            );
        }
        if now.engine.connections_refused > self.reported.engine.connections_refused {
            warn!(
                target: "ackbeat::loss",
                refused = now.engine.connections_refused,
                "connections are not watched: there are too many at once"
            );
        }
        if now.leaks.sockets_left_out > 0 && self.reported.leaks.sockets_left_out == 0 {
            warn!(
                target: "ackbeat::loss",
                "there are more sockets than a census tells of: leaks among the others are not seen"
            );
        }
        if now.leaks.groups_left_out > 0 && self.reported.leaks.groups_left_out == 0 {
            warn!(
                target: "ackbeat::loss",
                "there are more ports than a census tells apart: leaks of the others are not seen"
            );
        }
        let (probes, reported) = (&now.probes, &self.reported.probes);
        if probes.failed > reported.failed
            || probes.dropped > reported.dropped
            || now.engine.probes_refused > self.reported.engine.probes_refused
        {
            warn!(
                target: "ackbeat::loss",
                sent = probes.sent,
                failed = probes.failed,
                stale = probes.stale,
                dropped = probes.dropped,
                refused = now.engine.probes_refused,
                "own window probes were not sent; peers behind a closed window are judged by the kernel's own"
            );
        }
        if now.engine.late_ticks > self.reported.engine.late_ticks {
            info!(
                target: "ackbeat::clock",
                late_ticks = now.engine.late_ticks,
                "this process stood still for a while; nobody is judged by that time"
            );
        }
        self.reported_spans = spans;
        self.reported = now.clone();
    }
}

const fn lost(counters: &SourceCounters) -> u64 {
    counters.records_dropped + counters.records_rejected + counters.flows_rejected
}
