//! `any-inbound`: `ws-2` in which any byte from the peer counts as an answer.

use ackbeat_liveness::Timestamp;

use crate::inbound::Inbound;
use crate::own_pings::OwnPings;
use crate::rule::Rule;
use crate::{Fact, Kill, NotJudged};

/// Kills at a tick at which nothing came in since the Ping `missed` ticks ago.
///
/// What aiohttp, engine.io and Envoy's HTTP/2 keepalive have in common (Envoy, `source/common/http/http2/codec_impl.cc`,
/// `onBeforeFrameReceived`: any frame begins the wait for the PING's answer anew, because the answer may be
/// behind it); aiohttp and engine.io have their own detectors with their own timers.
#[derive(Debug)]
pub(crate) struct AnyInbound {
    interval_ms: u64,
    missed_max: u64,
    pings: OwnPings,
    inbound: Inbound,
    /// When the Pings went out that nothing came in after, newest last.
    waiting: Vec<Timestamp>,
    /// It would kill at that time if nothing had come in until then, which is not known yet.
    pending: Option<Timestamp>,
}

impl AnyInbound {
    pub(crate) fn new(is_reported: bool, opened_at: Timestamp, interval_ms: u64, missed_max: u64) -> Self {
        Self {
            interval_ms,
            missed_max,
            pings: OwnPings::periodic(is_reported, interval_ms, opened_at.plus_ms(interval_ms)),
            inbound: Inbound::new(opened_at),
            waiting: Vec::new(),
            pending: None,
        }
    }

    fn tick(&mut self, at: Timestamp) {
        self.pings.schedule(at.plus_ms(self.interval_ms));
        if u64::try_from(self.waiting.len()).is_ok_and(|missed| missed < self.missed_max) {
            self.waiting.push(at);
        } else if self.pending.is_none() {
            self.pending = Some(at);
        }
    }

    fn on_inbound(&mut self) {
        let last_at = self.inbound.last_at();
        if self.waiting.first().is_some_and(|sent_at| last_at >= *sent_at) {
            self.waiting.retain(|sent_at| *sent_at > last_at);
            self.pending = None;
        }
    }

    fn verdict(&self) -> Option<Kill> {
        let at = self.pending.filter(|at| self.inbound.is_known_until(*at))?;
        let silent_ms = at.ms_since(self.inbound.last_at());
        let missed = self.waiting.len();
        Some(Kill { at, reason: format!("{missed} Pings and no byte from the peer for {silent_ms} ms") })
    }
}

impl Rule for AnyInbound {
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill> {
        let at = fact.at();
        self.inbound.on_fact(fact);
        self.on_inbound();
        let seen = self.pings.on_fact(fact);
        if seen.restarted {
            self.waiting.clear();
            self.pending = None;
            self.pings.schedule(at.plus_ms(self.interval_ms));
        }
        // The answers to Pings that were never sent are not known.
        if seen.answered {
            self.waiting.clear();
            self.pending = None;
        }
        if let Some(sent) = seen.sent {
            self.tick(sent.at);
        }
        self.verdict()
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.pings.poll_timeout()
    }

    fn on_timeout(&mut self, now: Timestamp) -> Option<Kill> {
        let sent = self.pings.on_timeout(now)?;
        self.tick(sent.at);
        self.verdict()
    }

    fn on_end(&mut self, fact: &Fact<'_>, by_host: bool) -> Option<Kill> {
        self.inbound.on_fact(fact);
        self.on_inbound();
        if by_host && self.pending.is_none() && self.pings.is_due_at_close(fact.at()) {
            self.tick(fact.at());
        }
        self.verdict()
    }

    fn not_judged(&self) -> Option<NotJudged> {
        self.pings.not_judged()
    }
}
