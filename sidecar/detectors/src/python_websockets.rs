//! `python-websockets`: the keepalive of the Python library `websockets`.

use ackbeat_liveness::Timestamp;

use crate::own_pings::OwnPings;
use crate::rule::{Rule, SAME_TIMER_MS};
use crate::{Fact, Kill, NotJudged};

/// A Ping, then at most `timeout_ms` for *its* Pong; the next Ping `interval_ms` after the one before. Nothing but a Pong
/// counts.
///
/// `websockets` 17.4, `websockets/asyncio/connection.py` (`keepalive`): `ping_interval` = `ping_timeout` = 20 s, failing the
/// connection with code 1011. It sleeps for the interval less the latency of the last Pong. Its Pings carry random data, and a
/// Pong to a later Ping answers the earlier ones (`acknowledge_pings`).
#[derive(Debug)]
pub(crate) struct PythonWebsockets {
    interval_ms: u64,
    timeout_ms: u64,
    pings: OwnPings,
    /// When the Ping went out that is waited for.
    sent_at: Option<Timestamp>,
}

impl PythonWebsockets {
    pub(crate) const fn new(
        is_reported: bool,
        opened_at: Timestamp,
        interval_ms: u64,
        timeout_ms: u64,
    ) -> Self {
        let pings = OwnPings::scheduled(is_reported, opened_at.plus_ms(interval_ms));
        Self { interval_ms, timeout_ms, pings, sent_at: None }
    }

    fn ends_at(&self) -> Option<Timestamp> {
        Some(self.sent_at?.plus_ms(self.timeout_ms))
    }

    fn verdict(&self, now: Timestamp) -> Option<Kill> {
        let at = self.ends_at().filter(|ends_at| now >= *ends_at)?;
        let timeout_ms = self.timeout_ms;
        Some(Kill { at, reason: format!("no Pong for {timeout_ms} ms after a Ping") })
    }
}

impl Rule for PythonWebsockets {
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill> {
        let at = fact.at();
        let seen = self.pings.on_fact(fact);
        if seen.restarted {
            self.sent_at = None;
            self.pings.schedule(at.plus_ms(self.interval_ms));
        } else if seen.answered
            && let Some(sent_at) = self.sent_at.take()
        {
            self.pings.schedule(sent_at.plus_ms(self.interval_ms).max(at));
        }
        if let Some(sent) = seen.sent {
            self.sent_at = Some(sent.at);
        }
        self.verdict(at)
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.ends_at().or_else(|| self.pings.poll_timeout())
    }

    fn on_timeout(&mut self, now: Timestamp) -> Option<Kill> {
        if let Some(sent) = self.pings.on_timeout(now) {
            self.sent_at = Some(sent.at);
        }
        self.verdict(now)
    }

    fn on_end(&mut self, fact: &Fact<'_>, by_host: bool) -> Option<Kill> {
        let at = fact.at();
        let kill = self.verdict(at.plus_ms(if by_host { SAME_TIMER_MS } else { 0 }))?;
        Some(Kill { at: kill.at.min(at), ..kill })
    }

    fn not_judged(&self) -> Option<NotJudged> {
        self.pings.not_judged()
    }
}
