//! Which span tells of an end, so that the return of its peer can link to it.

use std::collections::{BTreeMap, VecDeque};

use ackbeat_liveness::{CloseRecord, ConnectionId, RECONNECT_WITHIN_MS, Reconnect, Timestamp};
use opentelemetry::trace::SpanContext;

/// Ends that are remembered: as many as the engine remembers. Of more the oldest is forgotten, and its return has no link.
const ENDS_MAX: usize = 4_096;
/// Returns that are remembered until they end themselves: as many as the engine has connections.
const RETURNS_MAX: usize = ackbeat_liveness::CONNECTION_LIMIT_DEFAULT;

/// The spans of the latest ends, and the returns whose own span is still to come.
#[derive(Debug, Default)]
pub(super) struct EndSpans {
    ends: VecDeque<(ConnectionId, Timestamp, SpanContext)>,
    returns: BTreeMap<ConnectionId, SpanContext>,
}

impl EndSpans {
    /// `span` tells of a connection's end.
    pub(super) fn note(&mut self, record: &CloseRecord, span: &SpanContext) {
        if record.still_open {
            return;
        }
        // A return is told of right after the record if it was there first, and within the engine's time if not.
        let is_old = |at: Timestamp| record.ended_at.ms_since(at) > RECONNECT_WITHIN_MS;
        while self.ends.len() >= ENDS_MAX || self.ends.front().is_some_and(|(_, at, _)| is_old(*at)) {
            self.ends.pop_front();
        }
        self.ends.push_back((record.connection, record.ended_at, span.clone()));
    }

    /// A connection is the return of a peer.
    pub(super) fn follow(&mut self, reconnect: &Reconnect) {
        let span = self.ends.iter().rev().find(|(connection, ..)| *connection == reconnect.follows);
        if let Some((.., span)) = span
            && self.returns.len() < RETURNS_MAX
        {
            self.returns.insert(reconnect.connection, span.clone());
        }
    }

    /// The span of the end that `connection` followed, if it is a return. Its own end is being told.
    pub(super) fn take_followed_by(&mut self, connection: ConnectionId) -> Option<SpanContext> {
        self.returns.remove(&connection)
    }
}
