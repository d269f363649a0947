//! Evidence: dated facts about the peer, taken from the kernel's accounting.
//!
//! The rungs are those of [`Rung`]. Every date is a lower bound: where a fact lies between two samples, the date of
//! the last ACK-bearing segment (`tcp_sock.rcv_tstamp`, set by `tcp_ack()` in net/ipv4/tcp_input.c) is taken, and
//! never a moment after the sample.

use crate::loss::{Doubt, Loss};
use crate::{Policy, Rung, Seq, Snapshot, Timestamp};

/// The kernel keeps `rcv_tstamp` and `lrcvtime` in jiffies: two readings of one moment may differ by one of them
/// (10 ms at the coarsest, `HZ=100`).
pub(crate) const JIFFY_SLACK_MS: u64 = 10;
/// Smallest and largest room before the right edge that counts as "within a segment" of it. The segment size is not
/// sampled; it lies between Ethernet's and loopback's.
const SEGMENT_MIN_BYTES: u32 = 1_460;
const SEGMENT_MAX_BYTES: u32 = 65_535;

/// Raises a date; dates never go back.
pub(crate) fn raise(date: &mut Option<Timestamp>, at: Timestamp) {
    if date.is_none_or(|known| at > known) {
        *date = Some(at);
    }
}

/// The right edge of the peer's window, `snd_una + snd_wnd` (RFC 9293 section 3.8.6).
pub(crate) fn right_edge(snapshot: &Snapshot) -> Option<Seq> {
    Some(snapshot.snd_una?.plus(snapshot.snd_wnd_bytes?))
}

/// Whether the peer's window keeps data from being sent: something is unsent, and the window is closed or has less
/// room than a segment (`tcp_snd_wnd_test()` in net/ipv4/tcp_output.c asks for a whole one).
///
/// A window with room proves nothing when it moves: receive-buffer tuning moves it too (`tcp_grow_window()`).
pub(crate) fn window_limits(snapshot: &Snapshot) -> Option<bool> {
    let window = snapshot.snd_wnd_bytes?;
    let edge = right_edge(snapshot)?;
    let next = snapshot.snd_nxt?;
    let unsent = snapshot.unsent_bytes?;
    let room = edge.bytes_since(next);
    let segment = (window / 4).clamp(SEGMENT_MIN_BYTES, SEGMENT_MAX_BYTES);
    Some(unsent > 0 && (window == 0 || room < segment))
}

/// Payload bytes that came between two readings of one socket.
///
/// `bytes_received` counts a FIN as one byte (`tcp_queue_rcv()` passes `end_seq` to `tcp_rcv_nxt_update()`), but a
/// bare FIN does not touch `lrcvtime`: one byte without a newer `last_inbound_at` is a FIN.
pub(crate) fn payload_between(earlier: &Snapshot, later: &Snapshot) -> u64 {
    let bytes = match (earlier.bytes_received, later.bytes_received) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => match (earlier.rcv_nxt, later.rcv_nxt) {
            (Some(before), Some(after)) => u64::from(after.bytes_since(before)),
            _ => 0,
        },
    };
    if bytes == 1 && !is_newer(earlier.last_inbound_at, later.last_inbound_at) { 0 } else { bytes }
}

/// Whether a jiffies date moved by more than a reading error.
pub(crate) fn is_newer(earlier: Option<Timestamp>, later: Option<Timestamp>) -> bool {
    match (earlier, later) {
        (Some(before), Some(after)) => after > before.plus_ms(JIFFY_SLACK_MS),
        _ => false,
    }
}

/// Whether the window's right edge moved on between two readings, after it had been limiting at the first.
pub(crate) fn drained_between(earlier: &Snapshot, later: &Snapshot) -> bool {
    window_limits(earlier) == Some(true)
        && matches!((right_edge(earlier), right_edge(later)), (Some(before), Some(after)) if after.after(before))
}

/// Whether a segment behind a hole was acknowledged selectively (RFC 2018) between two readings while the hole stayed.
///
/// The kernel takes a round-trip sample from a segment that is acknowledged for the first time, and where `snd_una` has
/// not moved only a selective acknowledgement can have done that (`tcp_clean_rtx_queue()`, `tcp_ack_update_rtt()` in
/// net/ipv4/tcp_input.c). On a slow link with a long queue a hole stays for several round trips of many seconds each,
/// and this is all that shows that data arrives.
pub(crate) fn sacked_between(earlier: &Snapshot, later: &Snapshot) -> bool {
    is_outstanding(earlier) == Some(true)
        && earlier.snd_una.is_some()
        && earlier.snd_una == later.snd_una
        && matches!((earlier.srtt_us, later.srtt_us), (Some(before), Some(after)) if before != after)
}

/// Whether bytes that lay unread in the host's receive queue at one reading lie there still at the next: the host has not
/// read between them.
fn unread_left_between(earlier: &Snapshot, later: &Snapshot) -> bool {
    matches!((earlier.unread_bytes, later.unread_bytes), (Some(before), Some(after)) if before > 0 && after >= before)
        && earlier.copied_seq == later.copied_seq
}

/// Whether something is written and not acknowledged; `None` where the kernel does not say.
pub(crate) fn is_outstanding(snapshot: &Snapshot) -> Option<bool> {
    match (snapshot.send_queue_bytes, snapshot.packets_out) {
        (None, None) => None,
        (queue, packets) => {
            Some(queue.is_some_and(|bytes| bytes > 0) || packets.is_some_and(|count| count > 0))
        }
    }
}

/// What is known about the peer of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    /// Date of each rung, `None` where it was never seen.
    pub(crate) hop_at: Option<Timestamp>,
    pub(crate) ack_at: Option<Timestamp>,
    pub(crate) drain_at: Option<Timestamp>,
    pub(crate) inbound_at: Option<Timestamp>,
    pub(crate) pong_at: Option<Timestamp>,
    /// The latest reading of the socket.
    pub(crate) snapshot: Option<Snapshot>,
    /// Since when something has been outstanding without a break, as far as is known.
    pub(crate) queued_since: Option<Timestamp>,
    /// When the peer last made `min_progress_bytes` of progress, or nothing waited.
    pub(crate) progress_mark_at: Option<Timestamp>,
    /// Progress since then, less than `min_progress_bytes`.
    unmarked_bytes: u64,
    /// The kernel's count of unanswered retransmissions has passed 255 and begun anew.
    has_retransmits_wrapped: bool,
    /// The widest window that the peer has shown.
    widest_window_bytes: u32,
    /// What was acknowledged when the application was last seen not to keep up, or may have been, until it has read that far.
    behind_seq: Option<Seq>,
    /// How far the application is known to have read: to the end of the last Ping that it answered.
    read_seq: Option<Seq>,
    /// What the path has lost lately.
    loss: Loss,
    /// When what lay unread in the host's receive queue at one reading was last seen to lie there still at the next.
    unread_left_at: Option<Timestamp>,
    /// Nobody looked since the last reading, or since the start of a connection that is older than the sidecar.
    is_unobserved: bool,
}

impl Evidence {
    /// Evidence of a connection that starts at `at`; a handshake that was just seen is a sign of life.
    pub(crate) fn new(at: Timestamp, preexisting: bool) -> Self {
        Self {
            hop_at: (!preexisting).then_some(at),
            progress_mark_at: Some(at),
            is_unobserved: preexisting,
            ..Self::default()
        }
    }

    /// Something was written to the wire: from now on something is outstanding, until a sample says otherwise.
    pub(crate) fn on_sent(&mut self, at: Timestamp) {
        if self.queued_since.is_none() {
            self.queued_since = Some(at);
        }
    }

    /// Unanswered retransmissions of the oldest segment, as of the last reading.
    ///
    /// The kernel counts them in a byte (`icsk_retransmits`) and goes on at 0 after 255. Where a router answers each with
    /// an ICMP error, the timeout does not double (RFC 6069, `tcp_ld_RTO_revert()`), and that takes less than a minute.
    pub(crate) fn retransmits(&self) -> Option<u32> {
        let count = self.snapshot.as_ref()?.retransmits?;
        Some(u32::from(count) + if self.has_retransmits_wrapped { 256 } else { 0 })
    }

    /// Payload of the peer passed on the wire.
    pub(crate) fn on_payload(&mut self, at: Timestamp) {
        raise(&mut self.hop_at, at);
        raise(&mut self.inbound_at, at);
    }

    /// How much narrower than the widest a window must be to say that bytes lie unread in the peer's kernel. A few unread
    /// Pings and the rounding of the window's scale stay below it.
    fn unread_min_bytes(&self) -> u32 {
        (self.widest_window_bytes / 8).clamp(SEGMENT_MIN_BYTES, SEGMENT_MAX_BYTES)
    }

    /// Whether the peer's window is narrower than it was: its kernel took bytes that its application has not read
    /// (`__tcp_select_window()` in net/ipv4/tcp_output.c offers the room that is left). A reader that keeps up shows the
    /// same window again and again, or a wider one.
    fn is_window_closing(&self, snapshot: &Snapshot) -> bool {
        snapshot
            .snd_wnd_bytes
            .is_some_and(|window| self.widest_window_bytes.saturating_sub(window) >= self.unread_min_bytes())
    }

    /// Whether so much was delivered while nobody looked that the application may not have read it since: a window that
    /// was closed meanwhile may be open again.
    fn has_taken_unobserved(&self, snapshot: &Snapshot) -> bool {
        let taken = match &self.snapshot {
            Some(earlier) => match (earlier.snd_una, snapshot.snd_una) {
                (Some(before), Some(after)) => Some(u64::from(after.bytes_since(before))),
                _ => None,
            },
            None => snapshot.bytes_acked,
        };
        self.is_unobserved && taken.is_none_or(|bytes| bytes >= u64::from(SEGMENT_MIN_BYTES))
    }

    /// Whether the peer's kernel took more since the last answer than a few messages: a reader that is busy may have all of it
    /// before it, and a receive buffer that is large enough shows nothing of that in its window.
    fn has_taken_unanswered(&self, snapshot: &Snapshot) -> bool {
        matches!(
            (self.read_seq, snapshot.snd_una),
            (Some(read), Some(acked)) if acked.after(read) && acked.bytes_since(read) >= SEGMENT_MAX_BYTES
        )
    }

    /// Whether bytes may lie unread before whatever the application does next: its kernel took more than a few messages since
    /// `acked` was acknowledged, or its window is narrower than it was. `None` where it is not known.
    pub(crate) fn may_lie_unread(&self, snapshot: &Snapshot, acked: Option<Seq>) -> Option<bool> {
        let taken = match (acked, snapshot.snd_una) {
            (Some(before), Some(after)) => u64::from(after.bytes_since(before)),
            // Nobody looked before: all of it.
            _ => snapshot.bytes_acked?,
        };
        Some(taken >= u64::from(SEGMENT_MAX_BYTES) || self.is_window_closing(snapshot))
    }

    /// A late tick: what the next reading shows happened while nobody looked.
    pub(crate) fn reopen(&mut self) {
        self.is_unobserved = true;
    }

    /// Whether the application was seen not to keep up, and has answered no Ping since that it could only have read after
    /// what was delivered until then. A window may be as wide as ever while much lies unread: a receive buffer that grew
    /// (`tcp_rcv_space_adjust()`) or was collapsed (`tcp_collapse()`, both in net/ipv4/tcp_input.c) opens it.
    pub(crate) const fn is_behind(&self) -> bool {
        self.behind_seq.is_some()
    }

    /// A Ping was answered; `oldest_end` is the end of the oldest that was unanswered, the only one that was read
    /// certainly where all have the same payload.
    pub(crate) fn on_answer(&mut self, at: Timestamp, oldest_end: Option<Seq>) {
        raise(&mut self.pong_at, at);
        // Answers come in the order of the stream; no comparison, for one is not to be had after half the sequence space.
        self.read_seq = oldest_end.or(self.read_seq);
        if !matches!((self.behind_seq, oldest_end), (Some(behind), Some(end)) if behind.after(end)) {
            self.behind_seq = None;
        }
    }

    /// When the host last left unread what the peer has sent. Its window is not sampled; if it is closed, nothing more can
    /// come from the peer than ACKs (RFC 9293 section 3.8.6.1).
    pub(crate) const fn unread_left_at(&self) -> Option<Timestamp> {
        self.unread_left_at
    }

    /// Whether a window that was closing opened again between two readings: the application has read. Buffer tuning
    /// does not do that, it only widens a window that is as wide as it ever was.
    fn reopened_between(&self, earlier: &Snapshot, later: &Snapshot) -> bool {
        self.is_window_closing(earlier)
            && matches!(
                (earlier.snd_wnd_bytes, later.snd_wnd_bytes),
                (Some(before), Some(after)) if after.saturating_sub(before) >= self.unread_min_bytes()
            )
    }

    /// Takes one reading of the socket. A reading older than the last one is left alone.
    pub(crate) fn on_snapshot(&mut self, snapshot: &Snapshot, policy: &Policy) {
        if self.snapshot.as_ref().is_some_and(|latest| latest.at > snapshot.at) {
            return;
        }
        if let Some(at) = snapshot.last_ack_at {
            raise(&mut self.hop_at, at.min(snapshot.at));
        }
        if let Some(at) = snapshot.last_inbound_at {
            raise(&mut self.hop_at, at.min(snapshot.at));
            // The kernel starts `lrcvtime` at the handshake (`tcp_create_openreq_child()`): without a payload byte
            // it is no payload.
            if snapshot.bytes_received.is_some_and(|bytes| bytes > 0) {
                raise(&mut self.inbound_at, at.min(snapshot.at));
            }
        }
        let mut progress = 0;
        if let Some(earlier) = self.snapshot.as_ref() {
            let date = |known: Option<Timestamp>| match known {
                Some(at) if at >= earlier.at && at <= snapshot.at => at,
                _ => snapshot.at,
            };
            // Only what is acknowledged sets the count back (`tcp_ack()`).
            self.has_retransmits_wrapped = earlier.snd_una == snapshot.snd_una
                && (self.has_retransmits_wrapped || earlier.retransmits > snapshot.retransmits);
            if let (Some(before), Some(after)) = (earlier.snd_una, snapshot.snd_una)
                && after.after(before)
            {
                progress = u64::from(after.bytes_since(before));
                raise(&mut self.ack_at, date(snapshot.last_ack_at));
                raise(&mut self.hop_at, date(snapshot.last_ack_at));
                self.loss.on_progress(earlier, snapshot, progress);
            }
            if unread_left_between(earlier, snapshot) {
                self.unread_left_at = Some(snapshot.at);
            }
            if sacked_between(earlier, snapshot) {
                // How much is not known: one segment at least.
                progress = u64::from(SEGMENT_MIN_BYTES.min(snapshot.send_queue_bytes.unwrap_or(0)));
                raise(&mut self.ack_at, date(snapshot.last_ack_at));
                raise(&mut self.hop_at, date(snapshot.last_ack_at));
            }
            if drained_between(earlier, snapshot) || self.reopened_between(earlier, snapshot) {
                if let (Some(before), Some(after)) = (right_edge(earlier), right_edge(snapshot)) {
                    progress = progress.max(u64::from(after.bytes_since(before)));
                }
                raise(&mut self.drain_at, date(snapshot.last_ack_at));
                raise(&mut self.hop_at, date(snapshot.last_ack_at));
            }
            let payload = payload_between(earlier, snapshot);
            if payload > 0 {
                progress = progress.saturating_add(payload);
                self.on_payload(date(snapshot.last_inbound_at));
            }
        }
        self.unmarked_bytes = self.unmarked_bytes.saturating_add(progress);
        match is_outstanding(snapshot) {
            Some(true) => self.on_sent(snapshot.at),
            Some(false) if self.queued_since.is_some_and(|since| since <= snapshot.at) => {
                self.queued_since = None;
            }
            _ => {}
        }
        if self.unmarked_bytes >= policy.min_progress_bytes || is_outstanding(snapshot) == Some(false) {
            self.unmarked_bytes = 0;
            self.progress_mark_at = Some(snapshot.at);
        }
        if window_limits(snapshot) == Some(true)
            || self.is_window_closing(snapshot)
            || self.has_taken_unobserved(snapshot)
            || self.has_taken_unanswered(snapshot)
        {
            self.behind_seq = snapshot.snd_una;
        }
        self.is_unobserved = false;
        // What was taken before the first reading is not known to be much.
        self.read_seq = self.read_seq.or(snapshot.snd_una);
        self.widest_window_bytes = self.widest_window_bytes.max(snapshot.snd_wnd_bytes.unwrap_or(0));
        self.snapshot = Some(snapshot.clone());
    }

    /// Whether the path was losing segments by chance at `at`.
    pub(crate) fn is_lossy(&self, at: Timestamp) -> bool {
        self.loss.is_lossy(at)
    }

    /// How much a silence from `at` on may owe to chance.
    pub(crate) fn doubt(&self, at: Timestamp) -> Doubt {
        self.loss.doubt(at)
    }

    /// When anything last came from the peer.
    pub(crate) fn heard_at(&self) -> Option<Timestamp> {
        [self.hop_at, self.ack_at, self.drain_at, self.inbound_at, self.pong_at].into_iter().flatten().max()
    }

    /// When the peer's application last showed itself: it read, it wrote, or it answered a Ping.
    pub(crate) fn application_at(&self) -> Option<Timestamp> {
        [self.drain_at, self.inbound_at, self.pong_at].into_iter().flatten().max()
    }

    /// Progress since the last mark.
    pub(crate) fn has_unmarked_progress(&self) -> bool {
        self.unmarked_bytes > 0
    }

    /// The dates, strongest rung first.
    pub(crate) fn dates(&self) -> [(Rung, Option<Timestamp>); 5] {
        [
            (Rung::Pong, self.pong_at),
            (Rung::Inbound, self.inbound_at),
            (Rung::Drain, self.drain_at),
            (Rung::Ack, self.ack_at),
            (Rung::Hop, self.hop_at),
        ]
    }
}
