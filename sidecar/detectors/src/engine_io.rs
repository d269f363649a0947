//! `engine-io`: the heartbeat of engine.io's server, protocol 4.

use ackbeat_liveness::Timestamp;

use crate::inbound::Inbound;
use crate::own_pings::OwnPings;
use crate::rule::{Rule, SAME_TIMER_MS};
use crate::{Fact, Kill, NotJudged};

/// A ping packet `interval_ms` after the last pong packet (or the start); a kill if no pong packet comes for `timeout_ms`
/// after it. The first other packet that comes meanwhile starts the wait once more; later ones do not.
///
/// engine.io 6.6.13, `build/socket.js` (`schedulePing`, `resetPingTimeout`, `onPacket`, `hasRefreshedPingTimeout`); the
/// defaults 25 s and 20 s are those of `build/server.js`. Its packets are text messages (`2` asks, `3` answers); where
/// they end is not recorded, so bytes that come in stand for a packet: kinder to a peer that sends one large message.
#[derive(Debug)]
pub(crate) struct EngineIo {
    interval_ms: u64,
    timeout_ms: u64,
    pings: OwnPings,
    inbound: Inbound,
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    sent_at: Timestamp,
    ends_at: Timestamp,
    has_refreshed: bool,
}

impl EngineIo {
    pub(crate) fn new(is_reported: bool, opened_at: Timestamp, interval_ms: u64, timeout_ms: u64) -> Self {
        Self {
            interval_ms,
            timeout_ms,
            pings: OwnPings::scheduled(is_reported, opened_at.plus_ms(interval_ms)),
            inbound: Inbound::new(opened_at),
            waiting: None,
        }
    }

    fn on_sent(&mut self, at: Timestamp) {
        let ends_at = at.plus_ms(self.timeout_ms);
        self.waiting = Some(Waiting { sent_at: at, ends_at, has_refreshed: false });
    }

    fn refresh(&mut self) {
        let last_at = self.inbound.last_at();
        if let Some(waiting) = &mut self.waiting
            && !waiting.has_refreshed
            && last_at > waiting.sent_at
        {
            waiting.has_refreshed = true;
            waiting.ends_at = last_at.plus_ms(self.timeout_ms);
        }
    }

    fn verdict(&self, until: Timestamp) -> Option<Kill> {
        let waiting = self.waiting.as_ref().filter(|waiting| until >= waiting.ends_at)?;
        let waited_ms = waiting.ends_at.ms_since(waiting.sent_at);
        Some(Kill {
            at: waiting.ends_at,
            reason: format!("no pong packet for {waited_ms} ms after a ping packet"),
        })
    }
}

impl Rule for EngineIo {
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill> {
        let at = fact.at();
        self.inbound.on_fact(fact);
        let seen = self.pings.on_fact(fact);
        if seen.restarted || (seen.answered && self.waiting.is_some()) {
            self.waiting = None;
            self.pings.schedule(at.plus_ms(self.interval_ms));
        }
        self.refresh();
        if let Some(sent) = seen.sent {
            self.on_sent(sent.at);
        }
        // What else came in until the end of the wait is known with the first reading after it.
        self.waiting.as_ref().filter(|waiting| self.inbound.is_known_until(waiting.ends_at))?;
        self.verdict(at)
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
        let at = fact.at();
        self.inbound.on_fact(fact);
        self.refresh();
        let kill = self.verdict(at.plus_ms(if by_host { SAME_TIMER_MS } else { 0 }))?;
        Some(Kill { at: kill.at.min(at), ..kill })
    }

    fn not_judged(&self) -> Option<NotJudged> {
        self.pings.not_judged()
    }
}
