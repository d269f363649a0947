//! `ws-2`, `ws-2-slow`, `ws-readme`, `buffered-gate` and `queue-moved`: Pings at an interval, a counter of those that were
//! not answered, and in two of them a look at the bytes in the host's own memory.

use ackbeat_liveness::Timestamp;

use crate::own_pings::{OwnPings, Sent};
use crate::rule::Rule;
use crate::{Fact, Kill, NotJudged};

/// Kills at a tick at which `missed` Pings are unanswered; otherwise raises the counter and sends a Ping. The counter is
/// raised when the Ping is sent, not when it reaches the wire; any Pong resets it.
///
/// - `ws-2`: `missed` = 2. The watchdog around the npm package `ws` in which `setInterval` calls `terminate()` at
///   `missed >= 2`, otherwise `missed += 1` and `ping()`.
/// - `ws-readme`: `missed` = 1. `README.md` of the npm package `ws` 8.23.0, "How to detect and close broken
///   connections?": `isAlive` is set by a Pong and cleared at each tick of 30 s; a tick that finds it cleared calls
///   `terminate()`. That timer is one for all connections; here it starts with the connection.
///
/// Its ticks are those that the host reported, where it did; otherwise its own timer, which starts when the connection
/// opens (or is upgraded) and is aligned to the first Ping of the host.
#[derive(Debug)]
pub(crate) struct MissedPings {
    interval_ms: u64,
    missed_max: u64,
    pings: OwnPings,
    missed: u64,
    backlog: Backlog,
}

/// What the bytes in the host's own memory mean at a tick. Only the host can report them: they are `bufferedAmount` of the
/// npm package `ws` 8.23.0 (`lib/websocket.js`; the name is that of the `WebSocket` interface of the HTML standard), what
/// the sender has not handed to the kernel.
#[derive(Debug)]
pub(crate) enum Backlog {
    /// Nothing.
    Ignored,
    /// `buffered-gate`: while more than this wait, the tick does nothing: it kills nobody, counts nothing, sends no Ping.
    Gate {
        /// How many.
        gate_bytes: u64,
    },
    /// `queue-moved`: where they differ from those of the tick before, the peer counts as alive, and counting begins anew.
    ///
    /// The test is that of Node.js 20 (`lib/net.js`, `Socket.prototype._onTimeout`: a timeout is put off while
    /// `kLastWriteQueueSize` is above 0 and differs from `writeQueueSize`) and of Netty 4.1
    /// (`io.netty.handler.timeout.IdleStateHandler`, `hasOutputChanged` with `observeOutput`). Both take *any*
    /// difference, so bytes that the host itself adds count as life.
    Moved {
        /// Those of the tick before.
        last_bytes: u64,
    },
}

impl MissedPings {
    pub(crate) fn new(is_reported: bool, opened_at: Timestamp, interval_ms: u64, missed_max: u64) -> Self {
        let pings = OwnPings::periodic(is_reported, interval_ms, opened_at.plus_ms(interval_ms));
        Self { interval_ms, missed_max, pings, missed: 0, backlog: Backlog::Ignored }
    }

    /// The same with a look at the backlog.
    pub(crate) fn with_backlog(self, backlog: Backlog) -> Self {
        Self { backlog, ..self }
    }

    /// The timer fired.
    fn tick(&mut self, sent: Sent) -> Option<Kill> {
        if let Some(bytes) = sent.buffered_bytes {
            match &mut self.backlog {
                Backlog::Ignored => {}
                Backlog::Gate { gate_bytes } if bytes > *gate_bytes => {
                    self.schedule_after(sent.at);
                    return None;
                }
                Backlog::Gate { .. } => {}
                Backlog::Moved { last_bytes } => {
                    let last = core::mem::replace(last_bytes, bytes);
                    if last > 0 && last != bytes {
                        self.missed = 0;
                    }
                }
            }
        }
        if let Some(kill) = self.verdict(sent.at) {
            return Some(kill);
        }
        self.missed = self.missed.saturating_add(1);
        self.schedule_after(sent.at);
        None
    }

    const fn schedule_after(&mut self, at: Timestamp) {
        self.pings.schedule(at.plus_ms(self.interval_ms));
    }

    fn verdict(&self, at: Timestamp) -> Option<Kill> {
        let Self { missed, .. } = self;
        (*missed >= self.missed_max).then(|| Kill { at, reason: format!("{missed} Pings unanswered") })
    }
}

impl Rule for MissedPings {
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill> {
        let seen = self.pings.on_fact(fact);
        if seen.restarted || seen.answered {
            self.missed = 0;
        }
        if seen.restarted && seen.sent.is_none() {
            self.schedule_after(fact.at());
        }
        self.tick(seen.sent?)
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.pings.poll_timeout()
    }

    fn on_timeout(&mut self, now: Timestamp) -> Option<Kill> {
        let sent = self.pings.on_timeout(now)?;
        self.tick(sent)
    }

    fn on_end(&mut self, fact: &Fact<'_>, by_host: bool) -> Option<Kill> {
        // How much was buffered at that moment is not known.
        let is_known = matches!(self.backlog, Backlog::Ignored);
        if is_known && by_host && self.pings.is_due_at_close(fact.at()) {
            self.verdict(fact.at())
        } else {
            None
        }
    }

    fn not_judged(&self) -> Option<NotJudged> {
        self.pings.not_judged()
    }
}
