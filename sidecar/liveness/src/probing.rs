//! Own window probes: what is asked of a peer behind a closed window, and what its silence proves.
//!
//! While the peer's window is closed and nothing is in flight, the kernel alone asks whether the peer is still there, and
//! its questions come further and further apart, up to `TCP_RTO_MAX` (two minutes). So a peer that dies there is known
//! late. Where a driver is willing to ask in between, the engine says when ([`Output::ProbeWanted`](crate::Output)) and is
//! told that it was done ([`Input::ProbeSent`](crate::Input)); it judges by what was sent, whoever wanted it, so a recording
//! replays as it was.
//!
//! What is sent is what the kernel itself sends (`tcp_xmit_probe_skb()` in net/ipv4/tcp_output.c): a segment without data
//! just before the window. RFC 9293 section 3.10.7.4 asks for an ACK in answer to it, and Linux gives one each 500 ms at most
//! (`tcp_invalid_ratelimit`). But a peer may leave a segment without a timestamp unanswered (RFC 7323 section 3.2 says that
//! it should, on a connection that uses them), and a middle box may drop it. Therefore silence counts only on a connection
//! that has answered such segments before, each by itself, and that proof is lost when it turns out to have been silent
//! while it was there.

use crate::evidence::{JIFFY_SLACK_MS, right_edge, window_limits};
use crate::{Seq, Snapshot, TcpState, Timestamp};

/// How a driver is willing to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowProbes {
    /// A probe is wanted when the peer's last ACK is this old, and not more often than this; at least
    /// [`INTERVAL_MIN_MS`].
    pub interval_ms: u64,
    /// Probes a second at most, over all connections. What is beyond is refused and counted.
    pub per_second_max: u32,
}

/// Linux answers such segments this far apart at the least (`tcp_invalid_ratelimit`).
pub const INTERVAL_MIN_MS: u64 = 500;

impl Default for WindowProbes {
    fn default() -> Self {
        Self { interval_ms: 1_000, per_second_max: 200 }
    }
}

impl WindowProbes {
    fn interval_ms(self) -> u64 {
        self.interval_ms.max(INTERVAL_MIN_MS)
    }
}

/// Unanswered in a row that count as silence: as many as of the kernel's own (`unreachable_retransmits`). RFC 9293
/// section 3.8.6.1 forbids reading one unanswered probe as death.
const SILENT_PROBES: u8 = 3;
/// Answered in a row, each by itself, until silence counts.
const PROVING_ANSWERS: u8 = 2;
/// Unanswered in a row after which no more are sent: the kernel's own go on.
const UNANSWERED_MAX: u8 = 8;
/// Times that a peer that was not proven to answer is asked in vain, each [`SILENT_PROBES`] or more, until it is left alone.
const VAIN_RUNS_MAX: u8 = 3;
/// An answer has at least this long, and at least a retransmission timeout.
const ANSWER_MS: u64 = 1_000;

/// Probes since something last came from the peer.
#[derive(Clone, Debug)]
struct Run {
    /// The latest evidence of any kind at the first of them.
    heard_at: Option<Timestamp>,
    /// How many.
    count: u8,
    /// When the one was sent that makes them enough.
    enough_at: Option<Timestamp>,
    /// When the first was sent.
    first_at: Timestamp,
    /// The socket at the first, as far as an answer leaves it alone.
    before: Undisturbed,
}

impl Run {
    /// Something came since the first of them.
    fn is_over(&self, heard_at: Option<Timestamp>) -> bool {
        match (self.heard_at, heard_at) {
            (_, None) => false,
            (None, Some(_)) => true,
            // Two readings of one date may differ by a jiffy.
            (Some(before), Some(now)) => now > before.plus_ms(JIFFY_SLACK_MS),
        }
    }
}

/// What neither an own probe nor its answer changes; anything else that may have drawn the peer's ACK changes some of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Undisturbed {
    /// Each of the kernel's own probes raises it (`tcp_send_probe0()`).
    backoff: u8,
    /// A window update moves it.
    right_edge: Seq,
    /// Payload moves it.
    rcv_nxt: Seq,
}

impl Undisturbed {
    fn of(snapshot: &Snapshot) -> Option<Self> {
        Some(Self {
            backoff: snapshot.backoff?,
            right_edge: right_edge(snapshot)?,
            rcv_nxt: snapshot.rcv_nxt?,
        })
    }
}

/// The own probes of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probing {
    /// When one was last asked for or sent.
    asked_at: Option<Timestamp>,
    run: Option<Run>,
    /// Answered in a row, each by itself.
    answered: u8,
    /// It answers own probes.
    is_proven: bool,
    /// Runs in vain while nothing proved that it answers.
    vain_runs: u8,
}

impl Probing {
    /// Sequence and acknowledgement number of a probe that is worth sending now; `None` if none is.
    pub(crate) fn wanted(&self, snapshot: &Snapshot, settings: WindowProbes) -> Option<(Seq, Seq)> {
        let (snd_una, rcv_nxt) = (snapshot.snd_una?, snapshot.rcv_nxt?);
        // In flight, the retransmission timer asks. And a socket that its host has closed must run out: each answer would
        // start its persist timer anew.
        let is_quiet = snapshot.packets_out == Some(0) && snapshot.snd_nxt == Some(snd_una);
        let is_open = matches!(snapshot.state, TcpState::Established | TcpState::CloseWait);
        if !is_open || !is_quiet || window_limits(snapshot) != Some(true) {
            return None;
        }
        let interval_ms = settings.interval_ms();
        if snapshot.at.ms_since(snapshot.last_ack_at?) < interval_ms {
            return None;
        }
        let unanswered = self.run.as_ref().map_or(0, |run| run.count);
        if unanswered >= UNANSWERED_MAX || self.vain_runs >= VAIN_RUNS_MAX {
            return None;
        }
        // Once it is enough, the distance doubles, as it does for the kernel's own (RFC 9293 section 3.8.6.1).
        let doublings = u32::from(unanswered.saturating_sub(SILENT_PROBES - 1));
        let gap_ms = interval_ms.saturating_mul(1 << doublings);
        if self.asked_at.is_some_and(|asked| snapshot.at.ms_since(asked) < gap_ms) {
            return None;
        }
        // A number that the peer has acknowledged, so that it drops the segment before it looks at anything else in it.
        Some((snd_una.minus(1), rcv_nxt))
    }

    /// One was asked for.
    pub(crate) fn on_asked(&mut self, at: Timestamp) {
        self.asked_at = self.asked_at.max(Some(at));
    }

    /// One was sent; `snapshot` is the latest reading of the socket.
    pub(crate) fn on_sent(
        &mut self,
        at: Timestamp,
        snapshot: Option<&Snapshot>,
        heard_at: Option<Timestamp>,
    ) {
        self.on_asked(at);
        if let Some(run) = self.run.as_mut() {
            run.count = run.count.saturating_add(1);
            if run.count == SILENT_PROBES {
                run.enough_at = Some(at);
            }
            return;
        }
        // What cannot be told apart from other answers proves nothing.
        self.run = snapshot.and_then(Undisturbed::of).map(|before| Run {
            heard_at,
            count: 1,
            enough_at: None,
            first_at: at,
            before,
        });
    }

    /// A later reading of the socket.
    pub(crate) fn on_snapshot(&mut self, snapshot: &Snapshot, heard_at: Option<Timestamp>) {
        let Some(run) = self.run.take_if(|run| run.is_over(heard_at)) else { return };
        let is_by_itself = run.count == 1
            && Undisturbed::of(snapshot) == Some(run.before)
            && snapshot.last_ack_at.is_some_and(|ack| {
                ack.plus_ms(JIFFY_SLACK_MS) >= run.first_at
                    && ack.ms_since(run.first_at) <= answer_ms(snapshot)
            });
        if is_by_itself {
            self.answered = self.answered.saturating_add(1);
            self.is_proven |= self.answered >= PROVING_ANSWERS;
            self.vain_runs = 0;
            return;
        }
        self.answered = 0;
        if run.count >= SILENT_PROBES {
            // Silent for as long as a dead one would have been, and it lives: its silence proves nothing, until it is proven
            // anew.
            if !self.is_proven {
                self.vain_runs = self.vain_runs.saturating_add(1);
            }
            self.is_proven = false;
        }
    }

    /// A pause of this process: what it did not see was not absent.
    pub(crate) fn reopen(&mut self) {
        self.run = None;
    }

    /// A peer that answered own probes has left enough of them unanswered, and everything else.
    pub(crate) fn is_unanswered(&self, snapshot: &Snapshot, heard_at: Option<Timestamp>) -> bool {
        self.is_proven
            && self.run.as_ref().is_some_and(|run| {
                !run.is_over(heard_at)
                    && run.enough_at.is_some_and(|enough| snapshot.at.ms_since(enough) >= answer_ms(snapshot))
            })
    }
}

/// How long an answer has.
fn answer_ms(snapshot: &Snapshot) -> u64 {
    snapshot.rto_ms.map_or(ANSWER_MS, |ms| ANSWER_MS.max(u64::from(ms)))
}

/// What is left to ask for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    /// When it was counted, and the thousandths of a probe that it was then.
    counted: Option<(Timestamp, u64)>,
}

impl Budget {
    /// Takes one, if there is one. It fills up evenly and holds a fifth of a second, so that not the same connections take
    /// all of it each second.
    pub(crate) fn take(&mut self, now: Timestamp, per_second_max: u32) -> bool {
        let per_second = u64::from(per_second_max);
        let full = (per_second * 1_000 / 5).max(1_000);
        let left = match self.counted {
            None => full,
            // Thousandths of a probe: `per_second` of them each millisecond.
            Some((at, left)) => left.saturating_add(now.ms_since(at).saturating_mul(per_second)).min(full),
        };
        let taken = left.checked_sub(1_000).filter(|_| per_second > 0);
        self.counted = Some((now, taken.unwrap_or(left)));
        taken.is_some()
    }
}
