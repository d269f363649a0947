//! `aiohttp`: the heartbeat of aiohttp's WebSocket server and client.

use ackbeat_liveness::Timestamp;

use crate::inbound::Inbound;
use crate::own_pings::OwnPings;
use crate::rule::{Rule, SAME_TIMER_MS};
use crate::{Fact, Kill, NotJudged};

/// aiohttp rounds a time up to a whole second of its loop's clock, which is `CLOCK_MONOTONIC`, if it lies further away
/// than this.
const CEIL_ABOVE_MS: u64 = 5_000;

/// A Ping once nothing came in for `heartbeat_ms`; a kill if nothing comes in for half of that after it.
///
/// aiohttp 3.14.5, `aiohttp/web_ws.py` (`_reset_heartbeat`, `_send_heartbeat`, `_pong_not_received`; `client_ws.py` does the
/// same): every chunk of bytes that is read puts the Ping off and ends the wait for the Pong
/// (`_on_data_received`), whatever the bytes are. `heartbeat` has no default there. Times further away than 5 s are rounded up
/// to whole seconds (`aiohttp/helpers.py`, `calculate_timeout_when`).
#[derive(Debug)]
pub(crate) struct Aiohttp {
    heartbeat_ms: u64,
    pings: OwnPings,
    inbound: Inbound,
    /// When the wait for an answer ends, and when the Ping went out.
    waiting: Option<(Timestamp, Timestamp)>,
}

impl Aiohttp {
    pub(crate) fn new(is_reported: bool, opened_at: Timestamp, heartbeat_ms: u64) -> Self {
        Self {
            heartbeat_ms,
            pings: OwnPings::scheduled(is_reported, timeout_at(opened_at, heartbeat_ms)),
            inbound: Inbound::new(opened_at),
            waiting: None,
        }
    }

    fn on_sent(&mut self, at: Timestamp) {
        self.waiting = Some((timeout_at(at, self.heartbeat_ms / 2), at));
    }

    fn rearm(&mut self) {
        self.waiting = None;
        self.pings.schedule(timeout_at(self.inbound.last_at(), self.heartbeat_ms));
    }

    fn verdict(&self) -> Option<Kill> {
        let (at, sent_at) = self.waiting?;
        let waited_ms = at.ms_since(sent_at);
        self.inbound
            .is_known_until(at)
            .then(|| Kill { at, reason: format!("no byte from the peer for {waited_ms} ms after a Ping") })
    }
}

impl Rule for Aiohttp {
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill> {
        let came = self.inbound.on_fact(fact);
        let seen = self.pings.on_fact(fact);
        let is_answered = self.waiting.is_some_and(|(_, sent_at)| self.inbound.last_at() >= sent_at);
        let is_due_later = came && self.waiting.is_none();
        if seen.restarted || is_answered || (seen.answered && self.waiting.is_some()) || is_due_later {
            self.rearm();
        }
        match seen.sent {
            Some(sent) if self.inbound.last_at() < sent.at => self.on_sent(sent.at),
            Some(_) => self.rearm(),
            None => {}
        }
        self.verdict()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.pings.poll_timeout()
    }

    fn on_timeout(&mut self, now: Timestamp) -> Option<Kill> {
        let sent = self.pings.on_timeout(now)?;
        self.on_sent(sent.at);
        None
    }

    fn on_end(&mut self, fact: &Fact<'_>, by_host: bool) -> Option<Kill> {
        self.inbound.on_fact(fact);
        let (at, sent_at) = self.waiting?;
        let margin_ms = if by_host { SAME_TIMER_MS } else { 0 };
        (self.inbound.last_at() < sent_at && fact.at().plus_ms(margin_ms) >= at).then(|| Kill {
            at: at.min(fact.at()),
            reason: format!("no byte from the peer for {} ms after a Ping", at.ms_since(sent_at)),
        })
    }

    fn not_judged(&self) -> Option<NotJudged> {
        self.pings.not_judged()
    }
}

/// `calculate_timeout_when`.
fn timeout_at(from: Timestamp, timeout_ms: u64) -> Timestamp {
    let at = from.plus_ms(timeout_ms);
    if timeout_ms > CEIL_ABOVE_MS {
        Timestamp::from_ms(at.as_ns().div_ceil(1_000_000_000) * 1_000)
    } else {
        at
    }
}
