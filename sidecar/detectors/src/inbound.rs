//! When the last byte came from the peer, and up to when that is known.

use ackbeat_liveness::{Direction, Input, Seq, Timestamp};

use crate::rule::snapshot;
use crate::{Fact, Reported};

/// The bytes that came in.
///
/// `lrcvtime` of the kernel counts in jiffies (1 to 10 ms). A reading in which `rcv_nxt` or `bytes_received` has moved
/// dates the last byte after the reading before it, whatever `lrcvtime` says.
#[derive(Debug)]
pub(crate) struct Inbound {
    last_at: Timestamp,
    known_until: Timestamp,
    rcv_nxt: Option<Seq>,
    bytes_received: Option<u64>,
}

impl Inbound {
    /// Counted from `start`.
    pub(crate) const fn new(start: Timestamp) -> Self {
        Self { last_at: start, known_until: start, rcv_nxt: None, bytes_received: None }
    }

    /// When the last byte came; the start where none did.
    pub(crate) const fn last_at(&self) -> Timestamp {
        self.last_at
    }

    /// Whether everything that came until `at` is known.
    pub(crate) fn is_known_until(&self, at: Timestamp) -> bool {
        self.known_until >= at
    }

    /// Whether the last byte came later than was known.
    pub(crate) fn on_fact(&mut self, fact: &Fact<'_>) -> bool {
        let before = self.last_at;
        match fact {
            Fact::Input(Input::Frame(frame)) if frame.direction == Direction::Ingress => self.came(frame.at),
            Fact::Input(Input::Upgrade(upgrade)) => self.came(upgrade.at),
            Fact::Report(report) if report.what == Reported::Pong => self.came(report.at),
            _ => {}
        }
        if let Some(snapshot) = snapshot(fact) {
            if let Some(at) = snapshot.last_inbound_at {
                self.came(at.min(snapshot.at));
            }
            let has_moved = matches!((self.rcv_nxt, snapshot.rcv_nxt), (Some(old), Some(new)) if new.after(old))
                || matches!((self.bytes_received, snapshot.bytes_received), (Some(old), Some(new)) if new > old);
            if has_moved {
                self.came(if snapshot.last_inbound_at.is_some() { self.known_until } else { snapshot.at });
            }
            self.rcv_nxt = snapshot.rcv_nxt.or(self.rcv_nxt);
            self.bytes_received = snapshot.bytes_received.or(self.bytes_received);
            // Without one of the three the reading says nothing about what came in.
            if snapshot.last_inbound_at.is_some()
                || snapshot.rcv_nxt.is_some()
                || snapshot.bytes_received.is_some()
            {
                self.known_until = self.known_until.max(snapshot.at);
            }
        }
        self.last_at > before
    }

    fn came(&mut self, at: Timestamp) {
        self.last_at = self.last_at.max(at);
    }
}
