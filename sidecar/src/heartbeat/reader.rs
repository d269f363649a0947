//! From data frames to the engine's frames.

use ackbeat_liveness::{ConnectionId, Direction, Frame, Seq, Timestamp};

use super::adoption::Adoption;
use super::{Message, Selection};

/// A data frame that one of the patterns fits, unmasked. Whether it is a heartbeat is not decided yet.
#[derive(Clone, PartialEq, Eq)]
pub struct DataFrame {
    /// The connection.
    pub connection: ConnectionId,
    /// When it passed.
    pub at: Timestamp,
    /// Which way it went.
    pub direction: Direction,
    /// The pod's port.
    pub local_port: u16,
    /// Whether it is a binary frame.
    pub binary: bool,
    /// Sequence number of its first byte.
    pub seq_start: Seq,
    /// Sequence number after its last byte.
    pub seq_end: Seq,
    /// Its payload, at most 125 bytes.
    pub payload: Vec<u8>,
}

impl std::fmt::Debug for DataFrame {
    /// Without the payload: it may be anybody's words.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("DataFrame")
            .field("connection", &self.connection)
            .field("at", &self.at)
            .field("direction", &self.direction)
            .field("local_port", &self.local_port)
            .field("binary", &self.binary)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderCounters {
    /// Data frames that the kernel handed over.
    pub seen: u64,
    /// Of them, those that are no heartbeat, or one of a profile that is not proven yet.
    pub refused: u64,
}

/// Decides about each data frame.
#[derive(Debug, Default)]
pub struct HeartbeatReader {
    selection: Selection,
    adoption: Adoption,
    counters: ReaderCounters,
}

impl HeartbeatReader {
    /// A reader that looks for these profiles.
    #[must_use]
    pub fn new(selection: Selection) -> Self {
        Self { selection, ..Self::default() }
    }

    /// The heartbeat that a data frame is; `None` where it is none, or must be proven first. The frame that proves a profile
    /// is not one yet: its question was not either.
    pub fn read(&mut self, found: &DataFrame) -> Option<Frame> {
        self.counters.seen += 1;
        let frame = self.recognize(found);
        if frame.is_none() {
            self.counters.refused += 1;
        }
        frame
    }

    fn recognize(&mut self, found: &DataFrame) -> Option<Frame> {
        let message = Message { direction: found.direction, binary: found.binary, payload: &found.payload };
        let decision = self.selection.decide(&message)?;
        let (port, profile) = (found.local_port, decision.profile);
        if self.selection.needs_evidence(profile) && !self.adoption.is_adopted(port, profile) {
            if self.adoption.weigh(port, found.connection, found.at, found.direction, &decision) {
                tracing::info!(
                    port,
                    profile = profile.as_str(),
                    "text heartbeats are recognized on this port"
                );
            }
            return None;
        }
        Some(Frame {
            connection: found.connection,
            at: found.at,
            direction: found.direction,
            kind: decision.kind,
            profile,
            seq_start: Some(found.seq_start),
            seq_end: Some(found.seq_end),
            payload: decision.id,
            close_code: None,
            close_reason: None,
        })
    }

    /// Nothing listens on a port any more.
    pub fn listener_closed(&mut self, port: u16) {
        self.adoption.forget(port);
    }

    /// Totals since the start.
    #[must_use]
    pub const fn counters(&self) -> ReaderCounters {
        self.counters
    }
}
