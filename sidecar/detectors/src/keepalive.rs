//! `keepalive`: TCP keepalive.

use ackbeat_liveness::{Direction, Input, Timestamp};

use crate::rule::{Rule, SAME_TIMER_MS, send_queue_bytes, snapshot};
use crate::{Fact, Kill, NotJudged};

/// Probes a socket that has nothing in flight and heard nothing for `idle_ms`, then each `interval_ms`; kills at the time of the
/// next probe when `probes` of them are unanswered.
///
/// RFC 9293 section 3.8.4; Linux 2.6 and newer, `net/ipv4/tcp_timer.c` (`tcp_keepalive_timer`): while anything is in flight
/// or queued it does nothing but wait again, so a peer that disappears behind an unanswered Ping is left to the
/// retransmission timer (about 15 minutes). A heartbeat that pings more often than `idle_ms + probes * interval_ms`
/// therefore switches it off.
///
/// Whether a probe is answered shows only where the host's kernel sends some (`SO_KEEPALIVE`): `icsk_probes_out` of a
/// socket with an empty queue. Where it sent none, a socket that was idle for long enough is not judged.
#[derive(Debug)]
pub(crate) struct Keepalive {
    idle_ms: u64,
    interval_ms: u64,
    probes: u64,
    heard_at: Timestamp,
    in_flight: bool,
    /// Probes that were unanswered at the last reading.
    probes_out: Option<u64>,
    was_not_probed: bool,
}

impl Keepalive {
    pub(crate) const fn new(opened_at: Timestamp, idle_ms: u64, interval_ms: u64, probes: u64) -> Self {
        Self {
            idle_ms,
            interval_ms,
            probes,
            heard_at: opened_at,
            in_flight: false,
            probes_out: None,
            was_not_probed: false,
        }
    }

    fn silence_ms(&self) -> u64 {
        self.idle_ms.saturating_add(self.interval_ms.saturating_mul(self.probes))
    }

    fn heard(&mut self, at: Timestamp) {
        self.heard_at = self.heard_at.max(at);
    }

    /// What it decides once the silence has lasted long enough.
    fn due(&self) -> Option<Kill> {
        let count = self.probes_out.filter(|count| *count >= self.probes && !self.in_flight)?;
        let at = self.heard_at.plus_ms(self.silence_ms());
        Some(Kill { at, reason: format!("{count} keepalive probes unanswered") })
    }
}

impl Rule for Keepalive {
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill> {
        let at = fact.at();
        if let Some(snapshot) = snapshot(fact) {
            for heard_at in [snapshot.last_ack_at, snapshot.last_inbound_at].into_iter().flatten() {
                self.heard(heard_at.min(at));
            }
            let queued = send_queue_bytes(snapshot);
            self.in_flight = queued.is_none_or(|bytes| bytes > 0);
            self.probes_out = snapshot.probes_out.map(u64::from);
        }
        if !self.in_flight && at >= self.heard_at.plus_ms(self.silence_ms()) {
            if let Some(kill) = self.due() {
                return Some(kill);
            }
            self.was_not_probed = true;
        }
        match fact {
            Fact::Input(Input::Frame(frame)) if frame.direction == Direction::Ingress => self.heard(at),
            Fact::Input(Input::Frame(_) | Input::Outstanding { .. }) => self.in_flight = true,
            _ => {}
        }
        None
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        None
    }

    fn on_timeout(&mut self, _: Timestamp) -> Option<Kill> {
        None
    }

    /// The kernel of a host that has set the option resets the connection, and no reading comes after that.
    fn on_end(&mut self, fact: &Fact<'_>, _: bool) -> Option<Kill> {
        let (at, kill) = (fact.at(), self.due()?);
        (at.plus_ms(SAME_TIMER_MS) >= kill.at).then(|| Kill { at: kill.at.min(at), ..kill })
    }

    fn not_judged(&self) -> Option<NotJudged> {
        self.was_not_probed.then_some(NotJudged::NotProbed)
    }
}
