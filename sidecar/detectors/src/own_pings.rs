//! The Pings that a detector would have sent, mapped onto those that the host did send (see the crate's documentation).

use std::collections::VecDeque;

use ackbeat_liveness::{Input, Timestamp};

use crate::host_heartbeat::{Beat, HostHeartbeat};
use crate::rule::{send_queue_bytes, snapshot};
use crate::{Fact, NotJudged};

/// Own Pings that are remembered.
const PINGS_MAX: usize = 256;

/// What a fact means for the Pings of a detector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// What was counted so far is void: the connection was upgraded only now, or facts were lost.
    pub(crate) restarted: bool,
    /// A Ping of the detector's was answered.
    pub(crate) answered: bool,
    /// A Ping of the detector's went out.
    pub(crate) sent: Option<Sent>,
}

/// A Ping of the detector's went out: its timer fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// When.
    pub(crate) at: Timestamp,
    /// Bytes in the host's own memory, where it reported them.
    pub(crate) buffered_bytes: Option<u64>,
}

/// The Pings of a detector.
#[derive(Debug)]
pub(crate) struct OwnPings {
    heartbeat: HostHeartbeat,
    /// A Ping of the host that comes this much before the detector's own is due is that Ping.
    tolerance_ms: u64,
    /// The first Ping of the host is the detector's first, whenever it comes: its timer is aligned to the host's.
    aligns: bool,
    due: Option<Timestamp>,
    /// How late the last Ping was. A timer that keeps to its schedule is that much early the next time.
    late_ms: u64,
    unanswered: VecDeque<Timestamp>,
    queued_bytes: Option<u32>,
    seen_until: Timestamp,
}

impl OwnPings {
    /// Pings at a fixed interval, aligned to the host's first. The timers of one interval are taken for the same timer
    /// if they are 5 % apart at most.
    pub(crate) fn periodic(is_reported: bool, interval_ms: u64, first_due: Timestamp) -> Self {
        Self {
            tolerance_ms: tolerance_ms(interval_ms),
            aligns: true,
            ..Self::scheduled(is_reported, first_due)
        }
    }

    /// Pings that are scheduled one by one.
    pub(crate) const fn scheduled(is_reported: bool, first_due: Timestamp) -> Self {
        Self {
            heartbeat: HostHeartbeat::new(is_reported),
            tolerance_ms: crate::rule::SAME_TIMER_MS,
            aligns: false,
            due: Some(first_due),
            late_ms: 0,
            unanswered: VecDeque::new(),
            queued_bytes: None,
            seen_until: Timestamp::from_ns(0),
        }
    }

    /// The next Ping is due then.
    pub(crate) const fn schedule(&mut self, due: Timestamp) {
        self.due = Some(due);
    }

    pub(crate) fn on_fact(&mut self, fact: &Fact<'_>) -> Seen {
        let at = fact.at();
        let mut seen = Seen::default();
        self.seen_until = self.seen_until.max(at);
        if let Some(snapshot) = snapshot(fact) {
            self.queued_bytes = send_queue_bytes(snapshot);
        }
        if matches!(fact, Fact::Input(Input::Upgrade(_))) {
            seen.restarted = true;
        }
        match self.heartbeat.on_fact(fact) {
            Some(Beat::Ping { buffered_bytes }) => {
                let is_first = core::mem::take(&mut self.aligns);
                if is_first {
                    self.due = Some(at);
                }
                let early_ms = self.tolerance_ms.saturating_add(self.late_ms);
                if self.due.is_some_and(|due| at >= due.minus_ms(early_ms)) {
                    seen.sent = Some(self.send(at, buffered_bytes));
                }
                // Whether the first tick that was seen was late is not known.
                if is_first && self.heartbeat.is_reported() {
                    self.late_ms = self.tolerance_ms;
                }
            }
            Some(Beat::Pong { asked_at }) => seen.answered = self.answer(asked_at),
            Some(Beat::Forgotten) => seen.restarted = true,
            None => {}
        }
        if seen.restarted {
            self.unanswered.clear();
        }
        // Everything was delivered and every Ping of the host was answered: one of ours was not overdue either.
        if snapshot(fact).is_some()
            && !self.heartbeat.is_reported()
            && self.queued_bytes == Some(0)
            && !self.heartbeat.is_outstanding()
            && !self.unanswered.is_empty()
        {
            self.unanswered.clear();
            seen.answered = true;
        }
        if seen.sent.is_none() {
            seen.sent = self.on_timeout(at);
        }
        seen
    }

    /// Bytes written and not acknowledged, as the last reading had it.
    pub(crate) const fn queued_bytes(&self) -> Option<u32> {
        self.queued_bytes
    }

    /// When to call; `None` while the host must show first that it is running.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.due.filter(|_| self.would_queue())
    }

    pub(crate) fn on_timeout(&mut self, now: Timestamp) -> Option<Sent> {
        self.poll_timeout().filter(|due| now >= *due)?;
        Some(self.send(now, None))
    }

    /// The host closed the connection: its timer ran. Whether the detector's was due too.
    pub(crate) fn is_due_at_close(&self, at: Timestamp) -> bool {
        self.not_judged().is_none()
            && self
                .due
                .is_some_and(|due| at >= due.minus_ms(self.tolerance_ms.max(crate::rule::SAME_TIMER_MS)))
    }

    pub(crate) fn not_judged(&self) -> Option<NotJudged> {
        if self.heartbeat.is_lost() {
            Some(NotJudged::FramesLost)
        } else if self.heartbeat.last_ping_at.is_none()
            && self.unanswered.is_empty()
            // Before, it would have sent none either.
            && self.due.is_some_and(|due| due <= self.seen_until)
        {
            Some(NotJudged::NoPing)
        } else {
            None
        }
    }

    /// Whether a Ping that is written now lies behind something that is not answered or not even delivered.
    fn would_queue(&self) -> bool {
        !self.heartbeat.is_reported()
            && !self.heartbeat.is_lost()
            && (self.heartbeat.is_outstanding() || self.queued_bytes.is_some_and(|bytes| bytes > 0))
    }

    fn send(&mut self, at: Timestamp, buffered_bytes: Option<u64>) -> Sent {
        // On the wire a Ping is late for other reasons: it waits behind data. More than half an interval is another Ping.
        let late_ms = self.due.filter(|_| self.heartbeat.is_reported()).map_or(0, |due| at.ms_since(due));
        self.late_ms = late_ms.min(self.tolerance_ms.saturating_mul(10));
        self.due = None;
        if self.unanswered.len() == PINGS_MAX {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back(at);
        Sent { at, buffered_bytes }
    }

    fn answer(&mut self, asked_at: Option<Timestamp>) -> bool {
        let before = self.unanswered.len();
        match asked_at {
            Some(asked_at) => self.unanswered.retain(|sent_at| *sent_at > asked_at),
            // An unsolicited Pong, or one whose Ping was not seen: every detector here takes it.
            None => self.unanswered.clear(),
        }
        asked_at.is_none() || self.unanswered.len() < before
    }
}

/// How far timers of one interval may be apart, in milliseconds.
pub(crate) const fn tolerance_ms(interval_ms: u64) -> u64 {
    let part = interval_ms / 20;
    if part < 500 { part } else { 500 }
}
