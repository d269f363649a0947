//! Verdict changes and closes, for whoever listens.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use ackbeat_liveness::{
    Assessment, CloseInitiator, CloseKind, CloseRecord, ConnectionId, Endpoints, Opened, VerdictChange,
};
use opentelemetry::trace::SpanContext;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::answer;
use super::types::{ClosedEvent, ClosedTotals, Event};
use crate::telemetry::wall_clock::{WallClock, unix_ns};

/// Events that are kept for readers that are behind.
pub const EVENTS_KEPT: usize = 1_024;

/// One event, as it is sent.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) kind: EventKind,
    pub(super) peer: IpAddr,
    /// JSON.
    pub(super) text: axum::extract::ws::Utf8Bytes,
}

/// What readers can choose among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    VerdictChanged,
    Closed,
}

impl EventKind {
    /// The kind of this word, which is the `type` of its messages.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        match word {
            "verdict_changed" => Some(Self::VerdictChanged),
            "closed" => Some(Self::Closed),
            _ => None,
        }
    }
}

/// Where readers find events and totals.
#[derive(Clone, Debug)]
pub struct Events {
    sender: broadcast::WeakSender<Message>,
    closed: Arc<Mutex<ClosedTotals>>,
}

/// Where the driver's sink puts them. Nothing here waits for a reader.
#[derive(Debug)]
pub struct Publisher {
    sender: broadcast::Sender<Message>,
    closed: Arc<Mutex<ClosedTotals>>,
    endpoints: HashMap<ConnectionId, Endpoints>,
}

/// A publisher, and where readers find what it publishes. The streams of readers end with the publisher.
#[must_use]
pub fn channel() -> (Publisher, Events) {
    let sender = broadcast::Sender::new(EVENTS_KEPT);
    let closed = Arc::new(Mutex::new(ClosedTotals::default()));
    let events = Events { sender: sender.downgrade(), closed: Arc::clone(&closed) };
    (Publisher { sender, closed, endpoints: HashMap::new() }, events)
}

impl Events {
    /// Ends of connections since the start.
    #[must_use]
    pub fn closed(&self) -> ClosedTotals {
        *self.closed.lock()
    }

    /// What comes from now on; `None` once the publisher is gone.
    pub(super) fn subscribe(&self) -> Option<broadcast::Receiver<Message>> {
        Some(self.sender.upgrade()?.subscribe())
    }
}

fn unix_ms(clock: &WallClock, at: ackbeat_liveness::Timestamp) -> u64 {
    unix_ns(clock.time_of(at)) / 1_000_000
}

impl Publisher {
    /// A connection is watched from now on.
    pub fn opened(&mut self, opened: &Opened) {
        self.endpoints.insert(opened.connection, opened.endpoints);
    }

    /// A verdict changed, or what it justifies.
    pub fn verdict_changed(&self, change: &VerdictChange) {
        // Nobody listens, as a rule.
        if self.sender.receiver_count() == 0 {
            return;
        }
        let Some(ends) = self.endpoints.get(&change.connection) else { return };
        let event = Event::VerdictChanged {
            connection: change.connection.0,
            peer: answer::peer(ends).to_string(),
            local: answer::local(ends).to_string(),
            at_unix_ms: unix_ms(&WallClock::now(), change.at),
            from: change.from,
            to: change.to,
            rung: change.rung,
            kill_justified: change.kill_justified,
        };
        self.publish(EventKind::VerdictChanged, ends, &event);
    }

    /// A connection is over, and its spans went to `context`.
    pub fn closed(&mut self, record: &CloseRecord, context: &SpanContext) {
        self.endpoints.remove(&record.connection);
        // The sidecar stops: nothing was closed.
        if record.still_open {
            return;
        }
        let false_kill = record.assessment == Some(Assessment::FalseKill);
        {
            let mut closed = self.closed.lock();
            closed.total += 1;
            closed.by_host += u64::from(record.initiator == CloseInitiator::Host);
            closed.heartbeat_kills += u64::from(
                record.initiator == CloseInitiator::Host && record.kind == CloseKind::HeartbeatKill,
            );
            closed.false_kills += u64::from(false_kill);
        }
        if self.sender.receiver_count() == 0 {
            return;
        }
        let event = Event::Closed(Box::new(ClosedEvent {
            connection: record.connection.0,
            peer: answer::peer(&record.endpoints).to_string(),
            local: answer::local(&record.endpoints).to_string(),
            at_unix_ms: unix_ms(&WallClock::now(), record.closed_at),
            path: record.upgrade.as_ref().and_then(|upgrade| upgrade.path.clone()),
            kind: record.kind,
            initiator: record.initiator,
            method: record.method,
            ws_frame: record.close_frames,
            ws_code: record.close_code,
            ws_reason: record.close_reason.clone(),
            verdict: record.assessed.verdict,
            rung: record.assessed.rung,
            kill_justified: record.assessed.kill_justified,
            assessment: record.assessment,
            false_kill,
            postmortem: record.postmortem,
            missed: record.assessed.heartbeat.missed,
            lifetime_ms: (!record.preexisting).then(|| record.closed_at.ms_since(record.opened_at)),
            trace_id: context.trace_id().to_string(),
            span_id: context.span_id().to_string(),
        }));
        self.publish(EventKind::Closed, &record.endpoints, &event);
    }

    fn publish(&self, kind: EventKind, ends: &Endpoints, event: &Event) {
        let Ok(text) = serde_json::to_string(event) else { return };
        // The last reader may have left meanwhile.
        let _ = self.sender.send(Message { kind, peer: ends.peer_address.to_canonical(), text: text.into() });
    }
}
