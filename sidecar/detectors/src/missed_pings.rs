//! `ws-2`, `ws-2-slow` and `ws-readme`: Pings at an interval, a counter of those that were not answered.

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
}

impl MissedPings {
    pub(crate) fn new(is_reported: bool, opened_at: Timestamp, interval_ms: u64, missed_max: u64) -> Self {
        let pings = OwnPings::periodic(is_reported, interval_ms, opened_at.plus_ms(interval_ms));
        Self { interval_ms, missed_max, pings, missed: 0 }
    }

    /// Takes a fact; gives the tick that it made, which is not judged yet.
    pub(crate) fn take(&mut self, fact: &Fact<'_>) -> Option<Sent> {
        let seen = self.pings.on_fact(fact);
        if seen.restarted || seen.answered {
            self.missed = 0;
        }
        if seen.restarted && seen.sent.is_none() {
            self.pings.schedule(fact.at().plus_ms(self.interval_ms));
        }
        seen.sent
    }

    /// Time passed; gives the tick that was due, which is not judged yet.
    pub(crate) fn take_timeout(&mut self, now: Timestamp) -> Option<Sent> {
        self.pings.on_timeout(now)
    }

    /// The timer fired, and nothing is to be done this time.
    pub(crate) const fn skip(&mut self, at: Timestamp) {
        self.pings.schedule(at.plus_ms(self.interval_ms));
    }

    /// Counting begins anew.
    pub(crate) const fn reset(&mut self) {
        self.missed = 0;
    }

    /// The timer fired.
    pub(crate) fn tick(&mut self, at: Timestamp) -> Option<Kill> {
        if let Some(kill) = self.verdict(at) {
            return Some(kill);
        }
        self.missed = self.missed.saturating_add(1);
        self.skip(at);
        None
    }

    fn verdict(&self, at: Timestamp) -> Option<Kill> {
        let Self { missed, .. } = self;
        (*missed >= self.missed_max).then(|| Kill { at, reason: format!("{missed} Pings unanswered") })
    }
}

impl Rule for MissedPings {
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill> {
        let sent = self.take(fact)?;
        self.tick(sent.at)
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.pings.poll_timeout()
    }

    fn on_timeout(&mut self, now: Timestamp) -> Option<Kill> {
        let sent = self.take_timeout(now)?;
        self.tick(sent.at)
    }

    fn on_end(&mut self, fact: &Fact<'_>, by_host: bool) -> Option<Kill> {
        if by_host && self.pings.is_due_at_close(fact.at()) { self.verdict(fact.at()) } else { None }
    }

    fn not_judged(&self) -> Option<NotJudged> {
        self.pings.not_judged()
    }
}
