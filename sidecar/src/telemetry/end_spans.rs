//! Which span tells of an end, so that the return of its peer and the storm that it set off can link to it.

use std::collections::{BTreeMap, VecDeque};

use ackbeat_liveness::{CloseRecord, ConnectionId, Reconnect};
use opentelemetry::trace::{Link, SpanContext};

/// Ends that are remembered, over all ports: as many as the engine remembers. Of more the oldest is forgotten, and nothing links
/// to it.
const ENDS_MAX: usize = 4_096;
/// Returns that are remembered until they end themselves: as many as the engine has connections.
const RETURNS_MAX: usize = ackbeat_liveness::CONNECTION_LIMIT_DEFAULT;

/// The spans of the latest ends, and the returns whose own span is still to come.
#[derive(Debug, Default)]
pub(super) struct EndSpans {
    ends: VecDeque<(ConnectionId, SpanContext)>,
    returns: BTreeMap<ConnectionId, SpanContext>,
}

impl EndSpans {
    /// `span` tells of a connection's end.
    pub(super) fn note(&mut self, record: &CloseRecord, span: &SpanContext) {
        if record.still_open {
            return;
        }
        if self.ends.len() == ENDS_MAX {
            self.ends.pop_front();
        }
        self.ends.push_back((record.connection, span.clone()));
    }

    /// Links to the spans of the ends of those of `connections` that are remembered.
    pub(super) fn links(&self, connections: &[ConnectionId]) -> Vec<Link> {
        self.ends
            .iter()
            .filter(|(connection, _)| connections.contains(connection))
            .map(|(_, span)| Link::with_context(span.clone()))
            .collect()
    }

    /// A connection is the return of a peer.
    pub(super) fn follow(&mut self, reconnect: &Reconnect) {
        let span = self.ends.iter().rev().find(|(connection, _)| *connection == reconnect.follows);
        if let Some((_, span)) = span
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
