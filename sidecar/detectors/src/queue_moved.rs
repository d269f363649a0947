//! `queue-moved`: `ws-2`, begun anew whenever the host's own queue has moved.

use ackbeat_liveness::Timestamp;

use crate::missed_pings::MissedPings;
use crate::own_pings::Sent;
use crate::rule::Rule;
use crate::{Fact, Kill, NotJudged};

/// At a tick at which the number of bytes in the host's own memory differs from that of the tick before, the peer counts
/// as alive: the counter of unanswered Pings begins anew. Otherwise it is `ws-2`.
///
/// The test is that of Node.js 20 (`lib/net.js`, `Socket.prototype._onTimeout`: a timeout is put off while
/// `kLastWriteQueueSize` is above 0 and differs from `writeQueueSize`) and of Netty 4.1
/// (`io.netty.handler.timeout.IdleStateHandler`, `hasOutputChanged` with `observeOutput`). Both take *any* difference, so
/// bytes that the host itself adds count as life. Only the host can report that queue.
#[derive(Debug)]
pub(crate) struct QueueMoved {
    pings: MissedPings,
    last_buffered_bytes: u64,
}

impl QueueMoved {
    pub(crate) const fn new(pings: MissedPings) -> Self {
        Self { pings, last_buffered_bytes: 0 }
    }

    fn tick(&mut self, sent: Sent) -> Option<Kill> {
        if let Some(bytes) = sent.buffered_bytes {
            let last = core::mem::replace(&mut self.last_buffered_bytes, bytes);
            if last > 0 && last != bytes {
                self.pings.reset();
            }
        }
        self.pings.tick(sent.at)
    }
}

impl Rule for QueueMoved {
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
        // How far the queue was at that moment is not known.
        None
    }

    fn not_judged(&self) -> Option<NotJudged> {
        self.pings.not_judged()
    }
}
