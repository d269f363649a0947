//! `window-3x`: too long without a Pong, looked at once an interval.

use ackbeat_liveness::Timestamp;

use crate::own_pings::OwnPings;
use crate::rule::Rule;
use crate::{Fact, Kill, NotJudged};

/// Sends a Ping each `interval_ms`, and kills at a tick at which the last Pong (or the start) lies `intervals` intervals or
/// more back.
///
/// The rule of watchdogs that remember a time instead of a counter. Gorilla's `websocket` expresses the same in
/// `examples/chat/client.go` (`pongWait` as a read deadline that each Pong pushes on, `pingPeriod` below it); there the deadline is
/// a timer of its own, here it is looked at with each tick.
#[derive(Debug)]
pub(crate) struct Window {
    interval_ms: u64,
    intervals: u64,
    pings: OwnPings,
    last_pong_at: Timestamp,
}

impl Window {
    pub(crate) fn new(is_reported: bool, opened_at: Timestamp, interval_ms: u64, intervals: u64) -> Self {
        let pings = OwnPings::periodic(is_reported, interval_ms, opened_at.plus_ms(interval_ms));
        Self { interval_ms, intervals, pings, last_pong_at: opened_at }
    }

    fn tick(&mut self, at: Timestamp) -> Option<Kill> {
        self.pings.schedule(at.plus_ms(self.interval_ms));
        self.verdict(at)
    }

    fn verdict(&self, at: Timestamp) -> Option<Kill> {
        let elapsed_ms = at.ms_since(self.last_pong_at);
        (elapsed_ms >= self.interval_ms.saturating_mul(self.intervals))
            .then(|| Kill { at, reason: format!("{elapsed_ms} ms without a Pong") })
    }
}

impl Rule for Window {
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill> {
        let at = fact.at();
        let is_first = self.pings.not_judged() == Some(NotJudged::NoPing);
        let seen = self.pings.on_fact(fact);
        // Before the first Ping nothing was asked.
        if seen.restarted || seen.answered || (is_first && seen.sent.is_some()) {
            self.last_pong_at = self.last_pong_at.max(at);
        }
        if let Some(sent) = seen.sent {
            return self.tick(sent.at);
        }
        if seen.restarted {
            self.pings.schedule(at.plus_ms(self.interval_ms));
        }
        None
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.pings.poll_timeout()
    }

    fn on_timeout(&mut self, now: Timestamp) -> Option<Kill> {
        let sent = self.pings.on_timeout(now)?;
        self.tick(sent.at)
    }

    fn on_end(&mut self, fact: &Fact<'_>, by_host: bool) -> Option<Kill> {
        if by_host && self.pings.is_due_at_close(fact.at()) { self.verdict(fact.at()) } else { None }
    }

    fn not_judged(&self) -> Option<NotJudged> {
        self.pings.not_judged()
    }
}
