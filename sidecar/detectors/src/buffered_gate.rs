//! `buffered-gate`: `ws-2`, skipped while the host has much to send.

use ackbeat_liveness::Timestamp;

use crate::missed_pings::MissedPings;
use crate::own_pings::Sent;
use crate::rule::Rule;
use crate::{Fact, Kill, NotJudged};

/// Does nothing at a tick at which more than `gate_bytes` wait in the host's own memory: kills nobody, counts nothing,
/// sends no Ping. Otherwise it is `ws-2`.
///
/// The bytes are `bufferedAmount` of the npm package `ws` 8.23.0 (`lib/websocket.js`; the name is that of the
/// `WebSocket` interface of the HTML standard): what the sender has not handed to the kernel. Only the host can report them,
/// so this detector needs its reports.
#[derive(Debug)]
pub(crate) struct BufferedGate {
    gate_bytes: u64,
    pings: MissedPings,
}

impl BufferedGate {
    pub(crate) const fn new(gate_bytes: u64, pings: MissedPings) -> Self {
        Self { gate_bytes, pings }
    }

    fn tick(&mut self, sent: Sent) -> Option<Kill> {
        if sent.buffered_bytes.is_some_and(|bytes| bytes > self.gate_bytes) {
            self.pings.skip(sent.at);
            return None;
        }
        self.pings.tick(sent.at)
    }
}

impl Rule for BufferedGate {
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill> {
        let sent = self.pings.take(fact)?;
        self.tick(sent)
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.pings.poll_timeout()
    }

    fn on_timeout(&mut self, now: Timestamp) -> Option<Kill> {
        let sent = self.pings.take_timeout(now)?;
        self.tick(sent)
    }

    fn on_end(&mut self, _: &Fact<'_>, _: bool) -> Option<Kill> {
        // What was buffered at that moment is not known.
        None
    }

    fn not_judged(&self) -> Option<NotJudged> {
        self.pings.not_judged()
    }
}
