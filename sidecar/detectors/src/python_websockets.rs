//! `python-websockets`: the keepalive of the Python library `websockets`.

use ackbeat_liveness::{Direction, FrameKind, Input, Timestamp};

use crate::own_pings::OwnPings;
use crate::rule::{Rule, SAME_TIMER_MS, send_queue_bytes, snapshot};
use crate::{Fact, Kill, NotJudged, Reported};

/// Bytes in the event loop's transport above which a writer waits: `write_limit` of the library.
const WRITE_LIMIT_HIGH_BYTES: u64 = 32_768;
/// Bytes at which it goes on: a quarter of that (`asyncio/transports.py`, `_set_write_buffer_limits`).
const WRITE_LIMIT_LOW_BYTES: u64 = WRITE_LIMIT_HIGH_BYTES / 4;
/// As long as no more is queued in the kernel, it takes what it is given at once: its smallest send buffer is 4 KiB
/// (`SK_MEM_QUANTUM`), and connections begin with four times that or more (`tcp_wmem`).
const SURELY_TAKEN_BYTES: u32 = 4_096;

/// A Ping, then at most `timeout_ms` for *its* Pong; the next Ping `interval_ms` after the one before. Nothing but a Pong
/// counts.
///
/// `websockets` 17.4, `websockets/asyncio/connection.py` (`keepalive`): `ping_interval` = `ping_timeout` = 20 s, failing the
/// connection with code 1011. It sleeps for the interval less the latency of the last Pong. Its Pings carry random data, and a
/// Pong to a later Ping answers the earlier ones (`acknowledge_pings`).
///
/// `ping` waits until the event loop's transport has handed what is before the Ping to the kernel, down to a quarter of
/// `write_limit` (`send_context`, `drain`); only then does `keepalive` begin to wait for the Pong, and it has no other
/// limit. So it does not kill a peer behind a backlog in the host's own memory, and neither one that is gone. That backlog
/// shows in reports. Without them, a Ping that comes upon a longer queue in the kernel is not judged until the queue is
/// short or a Ping of the host passes on the wire.
#[derive(Debug)]
pub(crate) struct PythonWebsockets {
    interval_ms: u64,
    timeout_ms: u64,
    is_reported: bool,
    pings: OwnPings,
    /// The event loop's transport holds more than a writer goes on with.
    is_paused: bool,
    waiting: Option<Waiting>,
}

/// A Ping that is not answered.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    called_at: Timestamp,
    /// When the wait for its Pong began; `None` while bytes before it wait in the host.
    began_at: Option<Timestamp>,
}

impl PythonWebsockets {
    pub(crate) const fn new(
        is_reported: bool,
        opened_at: Timestamp,
        interval_ms: u64,
        timeout_ms: u64,
    ) -> Self {
        let pings = OwnPings::scheduled(is_reported, opened_at.plus_ms(interval_ms));
        Self { interval_ms, timeout_ms, is_reported, pings, is_paused: false, waiting: None }
    }

    fn take_backlog(&mut self, fact: &Fact<'_>) {
        if let Some(bytes) = reported_backlog(fact) {
            let limit = if self.is_paused { WRITE_LIMIT_LOW_BYTES } else { WRITE_LIMIT_HIGH_BYTES };
            self.is_paused = bytes > limit;
        }
    }

    /// A Ping goes out.
    fn call(&mut self, at: Timestamp, on_the_wire: bool) {
        let has_drained = if self.is_reported {
            !self.is_paused
        } else {
            on_the_wire || self.pings.queued_bytes().is_some_and(|bytes| bytes <= SURELY_TAKEN_BYTES)
        };
        self.waiting = Some(Waiting { called_at: at, began_at: has_drained.then_some(at) });
    }

    /// Whether a fact shows that nothing waits in the host any more.
    fn shows_drained(&self, fact: &Fact<'_>) -> bool {
        let queued = snapshot(fact).and_then(send_queue_bytes);
        is_ping_on_the_wire(fact)
            || (reported_backlog(fact).is_some() && !self.is_paused)
            || queued.is_some_and(|bytes| bytes <= SURELY_TAKEN_BYTES)
    }

    fn verdict(&self, now: Timestamp) -> Option<Kill> {
        let at = self.ends_at().filter(|ends_at| now >= *ends_at)?;
        let timeout_ms = self.timeout_ms;
        Some(Kill { at, reason: format!("no Pong for {timeout_ms} ms after a Ping") })
    }

    fn ends_at(&self) -> Option<Timestamp> {
        Some(self.waiting?.began_at?.plus_ms(self.timeout_ms))
    }
}

impl Rule for PythonWebsockets {
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill> {
        let at = fact.at();
        let seen = self.pings.on_fact(fact);
        self.take_backlog(fact);
        if seen.restarted {
            self.waiting = None;
            self.pings.schedule(at.plus_ms(self.interval_ms));
        } else if seen.answered
            && let Some(waiting) = self.waiting.take()
        {
            self.pings.schedule(waiting.called_at.plus_ms(self.interval_ms).max(at));
        }
        let has_drained = self.shows_drained(fact);
        if let Some(sent) = seen.sent {
            self.call(sent.at, is_ping_on_the_wire(fact));
        } else if let Some(waiting) = &mut self.waiting
            && waiting.began_at.is_none()
            && has_drained
        {
            waiting.began_at = Some(at);
        }
        self.verdict(at)
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.ends_at().or_else(|| self.pings.poll_timeout())
    }

    fn on_timeout(&mut self, now: Timestamp) -> Option<Kill> {
        if let Some(sent) = self.pings.on_timeout(now) {
            self.call(sent.at, false);
        }
        self.verdict(now)
    }

    fn on_end(&mut self, fact: &Fact<'_>, by_host: bool) -> Option<Kill> {
        let at = fact.at();
        let kill = self.verdict(at.plus_ms(if by_host { SAME_TIMER_MS } else { 0 }))?;
        Some(Kill { at: kill.at.min(at), ..kill })
    }

    fn not_judged(&self) -> Option<NotJudged> {
        let is_held = self.waiting.is_some_and(|waiting| waiting.began_at.is_none());
        self.pings
            .not_judged()
            .or_else(|| (is_held && !self.is_reported).then_some(NotJudged::BacklogUnknown))
    }
}

/// Bytes in the host's own memory, where it reported them.
fn reported_backlog(fact: &Fact<'_>) -> Option<u64> {
    match fact {
        Fact::Report(report) => match report.what {
            Reported::Tick { buffered_bytes } => Some(buffered_bytes),
            Reported::Pong => None,
        },
        Fact::Input(_) => None,
    }
}

/// A Ping of the host passes, and what was written before it has passed.
fn is_ping_on_the_wire(fact: &Fact<'_>) -> bool {
    matches!(fact, Fact::Input(Input::Frame(frame))
        if frame.direction == Direction::Egress && frame.kind == FrameKind::Ping)
}
