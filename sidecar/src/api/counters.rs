//! What the API counts of itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// What the API counts of itself. Every label is one of a few words that are known beforehand.
#[derive(Debug, Default)]
pub struct ApiCounters {
    /// By route and status.
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    connections_refused: AtomicU64,
    events_dropped: AtomicU64,
    readers_dropped: AtomicU64,
    heartbeats: [AtomicU64; HeartbeatOutcome::ALL.len()],
}

/// What became of a reported heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatOutcome {
    /// It was taken.
    Accepted,
    /// No such connection is watched.
    Unmatched,
    /// It is seen on the wire already.
    Redundant,
    /// It found no room.
    Dropped,
}

impl HeartbeatOutcome {
    /// Every value.
    pub const ALL: [Self; 4] = [Self::Accepted, Self::Unmatched, Self::Redundant, Self::Dropped];

    /// The stable word for it, as metrics show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Unmatched => "unmatched",
            Self::Redundant => "redundant",
            Self::Dropped => "dropped",
        }
    }

    const fn place(self) -> usize {
        match self {
            Self::Accepted => 0,
            Self::Unmatched => 1,
            Self::Redundant => 2,
            Self::Dropped => 3,
        }
    }
}

impl ApiCounters {
    /// A request was answered. `route` is the route's template, never the path as it was asked for.
    pub fn count_request(&self, route: &'static str, status: u16) {
        *self.requests.lock().entry((route, status)).or_default() += 1;
    }

    /// Requests that were answered, by the route's template and the status.
    #[must_use]
    pub fn requests(&self) -> Vec<(&'static str, u16, u64)> {
        self.requests.lock().iter().map(|((route, status), count)| (*route, *status, *count)).collect()
    }

    pub(super) fn count_connection_refused(&self) {
        self.connections_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Connections to the API that were refused, because there were too many at once.
    #[must_use]
    pub fn connections_refused(&self) -> u64 {
        self.connections_refused.load(Ordering::Relaxed)
    }

    pub(super) fn count_reader_dropped(&self, events: u64) {
        self.readers_dropped.fetch_add(1, Ordering::Relaxed);
        self.events_dropped.fetch_add(events, Ordering::Relaxed);
    }

    /// Events that a reader of `/v1/events` was too slow for.
    #[must_use]
    pub fn events_dropped(&self) -> u64 {
        self.events_dropped.load(Ordering::Relaxed)
    }

    /// Readers of `/v1/events` whose stream was closed because they were too slow.
    #[must_use]
    pub fn readers_dropped(&self) -> u64 {
        self.readers_dropped.load(Ordering::Relaxed)
    }

    pub(super) fn count_heartbeats(&self, outcome: HeartbeatOutcome, count: usize) {
        if let Some(total) = self.heartbeats.get(outcome.place()) {
            total.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// Reported heartbeats with this outcome.
    #[must_use]
    pub fn heartbeats(&self, outcome: HeartbeatOutcome) -> u64 {
        self.heartbeats.get(outcome.place()).map_or(0, |total| total.load(Ordering::Relaxed))
    }
}
