//! `user-timeout`: the socket option `TCP_USER_TIMEOUT`.

use ackbeat_liveness::{Seq, Snapshot, Timestamp};

use crate::rule::{Rule, send_queue_bytes, snapshot};
use crate::{Fact, Kill, NotJudged};

/// Smallest time between zero-window probes (`TCP_RTO_MIN` in `tcp_probe0_base`, `include/net/tcp.h`).
const PROBE_BASE_MIN_MS: u64 = 200;

/// Kills once data stays unacknowledged for `timeout_ms`, as the kernel counts it (RFC 5482; Linux 5.11 and newer,
/// `net/ipv4/tcp_timer.c`). Two clocks, because the kernel has two timers:
///
/// - segments in flight (`retransmits_timed_out`, `tcp_clamp_rto_to_user_timeout`): the clock is `retrans_stamp`, the
///   time of the first retransmission *timeout*, not that of the first transmission. A tail loss probe, which repeats the
///   segment first, does not start it. The retransmission timer is shortened so that it fires when the time is over. Measured (Linux 6.18,
///   LAN, a small segment into a blackhole): 2000 ms give `ETIMEDOUT` after 2.47 s.
/// - nothing in flight and data queued behind a window that is too small (`tcp_probe_timer`,
///   `tcp_clamp_probe0_to_user_timeout`): the clock is `icsk_probes_tstamp`, the time of the first probe, one
///   retransmission timeout after the window closed. An acknowledged probe does not stop it; only a window large enough
///   for the next segment does. Measured: 2000 ms give `ETIMEDOUT` after 2.3 s with every probe acknowledged.
///
/// Both are read off the kernel's accounting: which bytes were acknowledged is exact, the start of a clock is known to
/// within one reading (200 ms) where the kernel's own time of it is not in the reading. A recovery in which the peer
/// acknowledges parts of the flight starts the first clock anew with each part.
#[derive(Debug)]
pub(crate) struct UserTimeout {
    timeout_ms: u64,
    last: Option<Last>,
    clock: Option<Clock>,
}

/// Error of a socket that the kernel gave up (`sk_err` = `ETIMEDOUT`, `tcp_write_err`).
const ETIMEDOUT: u32 = 110;
/// How far the kernel's own clock may be from the one read off its accounting: a reading and its delay.
const READING_MS: u64 = 250;

/// What is needed of the reading before.
#[derive(Clone, Copy, Debug)]
struct Last {
    at: Timestamp,
    has_timed_out: bool,
}

/// What the kernel waits for, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clock {
    waits_for: WaitsFor,
    snd_una: Seq,
    snd_nxt: Option<Seq>,
    since: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    Ack,
    Window,
}

impl UserTimeout {
    pub(crate) const fn new(timeout_ms: u64) -> Self {
        Self { timeout_ms, last: None, clock: None }
    }

    fn read(&mut self, snapshot: &Snapshot) -> Option<Kill> {
        let found = self.clock_of(snapshot);
        self.clock = match (self.clock, found) {
            (Some(running), Some(found)) if running.is_same(&found) => Some(running),
            (_, found) => found,
        };
        let has_timed_out = snapshot.retransmits.is_some_and(|count| count > 0);
        self.last = Some(Last { at: snapshot.at, has_timed_out });
        self.due().filter(|kill| snapshot.at >= kill.at)
    }

    /// What it decides once the clock that is running has run down.
    fn due(&self) -> Option<Kill> {
        let clock = self.clock?;
        let what = match clock.waits_for {
            WaitsFor::Ack => "retransmitted without an acknowledgement",
            WaitsFor::Window => "probed behind a window that stayed too small",
        };
        let at = clock.since.plus_ms(self.timeout_ms);
        Some(Kill { at, reason: format!("{what} for {} ms", self.timeout_ms) })
    }

    /// The clock that a reading shows to be running; its start as well as one reading alone tells it.
    fn clock_of(&self, snapshot: &Snapshot) -> Option<Clock> {
        let snd_una = snapshot.snd_una?;
        let packets_out = snapshot.packets_out?;
        let (waits_for, snd_nxt, since) = if packets_out > 0 {
            if snapshot.retransmits? == 0 {
                return None;
            }
            // The position of new data does not matter to the oldest segment.
            (WaitsFor::Ack, None, self.timed_out_since(snapshot))
        } else {
            if snapshot.unsent_bytes.or_else(|| send_queue_bytes(snapshot))? == 0 {
                return None;
            }
            (WaitsFor::Window, snapshot.snd_nxt, self.probed_since(snapshot))
        };
        Some(Clock { waits_for, snd_una, snd_nxt, since })
    }

    /// `retrans_stamp`.
    fn timed_out_since(&self, snapshot: &Snapshot) -> Timestamp {
        let Some(repeated_at) = snapshot.retransmitting_since else {
            return snapshot.at;
        };
        match self.last {
            // The repetition before this one was a tail loss probe; the timeout came one timeout after it. What the socket
            // holds now was doubled with each timeout since (`icsk_rto <<= 1`).
            Some(last) if !last.has_timed_out && last.at >= repeated_at => {
                let rto_ms = u64::from(snapshot.rto_ms.unwrap_or(0))
                    .checked_shr(u32::from(snapshot.backoff.unwrap_or(0)))
                    .unwrap_or(0);
                repeated_at.plus_ms(rto_ms).clamp(last.at.min(snapshot.at), snapshot.at)
            }
            _ => repeated_at.min(snapshot.at),
        }
    }

    /// `icsk_probes_tstamp`.
    fn probed_since(&self, snapshot: &Snapshot) -> Timestamp {
        // The timer was armed by the acknowledgement that left nothing in flight.
        let earliest = self.last.map_or(Timestamp::from_ns(0), |last| last.at);
        let armed_at = snapshot.last_ack_at.unwrap_or(snapshot.at).max(earliest).min(snapshot.at);
        armed_at.plus_ms(u64::from(snapshot.rto_ms.unwrap_or(0)).max(PROBE_BASE_MIN_MS))
    }
}

impl Clock {
    fn is_same(&self, other: &Self) -> bool {
        self.waits_for == other.waits_for && self.snd_una == other.snd_una && self.snd_nxt == other.snd_nxt
    }
}

impl Rule for UserTimeout {
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill> {
        self.read(snapshot(fact)?)
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        // Only a reading tells what was acknowledged by then.
        None
    }

    fn on_timeout(&mut self, _: Timestamp) -> Option<Kill> {
        None
    }

    /// A host that has set the option is left without a reading after the time; the kernel's queues are empty by then.
    fn on_end(&mut self, fact: &Fact<'_>, _: bool) -> Option<Kill> {
        let kill = self.due()?;
        let gave_up = snapshot(fact).is_some_and(|snapshot| snapshot.socket_error == Some(ETIMEDOUT));
        let margin_ms = if gave_up { READING_MS } else { 0 };
        (fact.at().plus_ms(margin_ms) >= kill.at).then(|| Kill { at: kill.at.min(fact.at()), ..kill })
    }

    fn not_judged(&self) -> Option<NotJudged> {
        None
    }
}
