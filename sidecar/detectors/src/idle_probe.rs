//! `idle-probe` and `idle-probe-fast`: a probe after a long silence, and a short wait for any frame.

use ackbeat_liveness::Timestamp;

use crate::inbound::Inbound;
use crate::own_pings::OwnPings;
use crate::rule::{Rule, SAME_TIMER_MS};
use crate::{Fact, Kill, NotJudged};

/// A probe once nothing came in for `idle_ms`; a kill if nothing at all comes in for `answer_ms` after it. A check that comes
/// more than `late_ms` late opens a new wait instead of ending the old one.
///
/// The rule of a client behind a CDN whose half-open connections it was made for: 120 s (three of its server's
/// heartbeats), 10 s, 30 s. The fast one is the same at a fifteenth of the time. There any *frame* counts; where
/// data frames end is not recorded, so bytes stand for frames: kinder to a peer that sends one large message.
#[derive(Debug)]
pub(crate) struct IdleProbe {
    idle_ms: u64,
    answer_ms: u64,
    late_ms: u64,
    pings: OwnPings,
    inbound: Inbound,
    /// When the probe went out, or when the wait for its answer began anew.
    probed_at: Option<Timestamp>,
}

impl IdleProbe {
    pub(crate) const fn new(
        is_reported: bool,
        opened_at: Timestamp,
        idle_ms: u64,
        answer_ms: u64,
        late_ms: u64,
    ) -> Self {
        Self {
            idle_ms,
            answer_ms,
            late_ms,
            pings: OwnPings::scheduled(is_reported, opened_at.plus_ms(idle_ms)),
            inbound: Inbound::new(opened_at),
            probed_at: None,
        }
    }

    fn rearm(&mut self) {
        self.probed_at = None;
        self.pings.schedule(self.inbound.last_at().plus_ms(self.idle_ms));
    }

    fn verdict(&mut self, now: Timestamp) -> Option<Kill> {
        let at = self.probed_at?.plus_ms(self.answer_ms);
        if now < at {
            return None;
        }
        if now.ms_since(at) > self.late_ms {
            self.probed_at = Some(now);
            return None;
        }
        let silent_ms = at.ms_since(self.inbound.last_at());
        Some(Kill { at, reason: format!("a probe, and no byte from the peer for {silent_ms} ms") })
    }
}

impl Rule for IdleProbe {
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill> {
        let at = fact.at();
        let came = self.inbound.on_fact(fact);
        let seen = self.pings.on_fact(fact);
        let is_answered = self.probed_at.is_some_and(|probed_at| self.inbound.last_at() >= probed_at);
        let is_due_later = came && self.probed_at.is_none();
        if seen.restarted || is_answered || (seen.answered && self.probed_at.is_some()) || is_due_later {
            self.rearm();
        }
        match seen.sent {
            Some(sent) if self.inbound.last_at() < sent.at => self.probed_at = Some(sent.at),
            Some(_) => self.rearm(),
            None => {}
        }
        let ends_at = self.probed_at?.plus_ms(self.answer_ms);
        if self.inbound.is_known_until(ends_at) { self.verdict(at) } else { None }
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.pings.poll_timeout()
    }

    fn on_timeout(&mut self, now: Timestamp) -> Option<Kill> {
        let sent = self.pings.on_timeout(now)?;
        self.probed_at = Some(sent.at);
        None
    }

    fn on_end(&mut self, fact: &Fact<'_>, by_host: bool) -> Option<Kill> {
        let at = fact.at();
        self.inbound.on_fact(fact);
        if self.probed_at.is_some_and(|probed_at| self.inbound.last_at() >= probed_at) {
            return None;
        }
        let kill = self.verdict(at.plus_ms(if by_host { SAME_TIMER_MS } else { 0 }))?;
        Some(Kill { at: kill.at.min(at), ..kill })
    }

    fn not_judged(&self) -> Option<NotJudged> {
        self.pings.not_judged()
    }
}
