//! A heartbeat in which the peer asks: Phoenix, engine.io up to protocol revision 3, libraries that ping from the client, and
//! SignalR, where each side sends its own and nobody answers.
//!
//! Nothing is owed to such a Ping but an answer of the host, so it starts no clock of ours. Each is a sign of life, and what is
//! expected is the next one. Its interval is the peer's own, and mostly that of all peers of a port.

use alloc::boxed::Box;

use crate::schedule::{EARLY_DIVISOR, GAP_MIN_NS, LATE_DIVISOR, median_interval};
use crate::{Frame, HeartbeatProfile, HeartbeatSource, Seq, Timestamp};

/// Gaps of one connection that are kept.
const GAPS_MAX: usize = 8;
/// Gaps of its own after which a peer is expected to go on. Two make an interval; a handful of Pings that measure the round
/// trip after the start must not make a peer late for the rest of its life.
const PROVING_GAPS: u8 = 4;
/// Intervals without anything from the peer after which its next heartbeat is late. Hosts wait for two at least: Phoenix 60 s
/// for 30 s, SignalR 30 s for 15 s.
const LATE_INTERVALS: u64 = 2;

/// What is expected of a peer that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// When its last heartbeat passed.
    pub(crate) heard_at: Timestamp,
    /// How long it may say nothing, in nanoseconds.
    pub(crate) within_ns: u64,
    /// What was acknowledged at the last reading before that heartbeat.
    pub(crate) acked: Option<Seq>,
}

/// The Pings of one peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct PeerHeartbeat {
    profile: Option<HeartbeatProfile>,
    source: Option<HeartbeatSource>,
    last_at: Option<Timestamp>,
    /// The latest gaps, in no order. `None` before the first: mostly it is the host that asks.
    gaps_ns: Option<Box<[u64; GAPS_MAX]>>,
    /// Gaps since the start, up to 255.
    gaps: u8,
    acked: Option<Seq>,
}

impl PeerHeartbeat {
    /// A Ping came in; `acked` is what the latest reading showed to be acknowledged. Gives the gap before it, for the schedule,
    /// where none can have passed unseen in it.
    pub(crate) fn on_ping(&mut self, frame: &Frame, acked: Option<Seq>) -> Option<u64> {
        self.on_seen(frame);
        if self.profile != Some(frame.profile) || self.last_at.is_some_and(|last| frame.at <= last) {
            return None;
        }
        let gap_ns = self.last_at.replace(frame.at).map(|last| frame.at.ns_since(last));
        self.acked = acked;
        let gap_ns = gap_ns.filter(|gap| *gap >= GAP_MIN_NS)?;
        let kept_ns = self.gaps_ns.get_or_insert_default();
        if let Some(place) = kept_ns.get_mut(usize::from(self.gaps) % GAPS_MAX) {
            *place = gap_ns;
        }
        // The count stops growing, its place in the ring goes on.
        self.gaps = self.gaps.checked_add(1).unwrap_or(u8::MAX - 7);
        Some(gap_ns)
    }

    /// A Ping passed, the peer's or one of the host that nobody answers.
    pub(crate) fn on_seen(&mut self, frame: &Frame) {
        self.profile = self.profile.or(Some(frame.profile));
        self.source = self.source.or(Some(HeartbeatSource::of(frame)));
    }

    /// Frames of the peer may have passed unseen.
    pub(crate) fn on_lost(&mut self) {
        self.last_at = None;
    }

    /// Where it is known from; `None` if there is none.
    pub(crate) fn source(&self) -> Option<HeartbeatSource> {
        self.source
    }

    /// How it looks.
    pub(crate) fn profile(&self) -> Option<HeartbeatProfile> {
        self.profile
    }

    /// When the peer last asked.
    pub(crate) fn last_at(&self) -> Option<Timestamp> {
        self.last_at
    }

    fn gaps(&self) -> impl Iterator<Item = u64> + Clone + '_ {
        self.gaps_ns
            .as_deref()
            .map(<[u64; GAPS_MAX]>::as_slice)
            .unwrap_or_default()
            .iter()
            .copied()
            .take(usize::from(self.gaps))
    }

    /// The peer's interval in nanoseconds: the port's, unless its own Pings say otherwise.
    pub(crate) fn interval_ns(&self, port_ns: Option<u64>) -> Option<u64> {
        let own_ns = median_interval(self.gaps());
        match (own_ns, port_ns) {
            (Some(own), Some(port)) if own.abs_diff(port) > port / 20 => Some(own),
            (own, port) => port.or(own),
        }
    }

    /// What is expected of the peer; `None` where it has not shown that it goes on.
    pub(crate) fn expected(&self) -> Option<Expected> {
        let heard_at = self.last_at.filter(|_| self.gaps >= PROVING_GAPS)?;
        let interval_ns = median_interval(self.gaps())?;
        // Some send one only after a while without another message, and a page in the background is slower.
        let longest_ns = self.gaps().fold(interval_ns, u64::max);
        Some(Expected { heard_at, within_ns: longest_ns.saturating_mul(LATE_INTERVALS), acked: self.acked })
    }
}

/// Whole intervals from `since` to `at`. What is a little late is not missed yet; `closing` asks about a close, which the
/// timer of a host may have brought a little before the peer's interval, as it was learned, was over.
pub(crate) fn intervals(since: Timestamp, at: Timestamp, closing: bool, interval_ns: u64) -> u32 {
    let elapsed_ns = at.ns_since(since);
    let counted_ns = if closing {
        elapsed_ns.saturating_add(interval_ns / EARLY_DIVISOR)
    } else {
        elapsed_ns.saturating_sub(interval_ns / LATE_DIVISOR)
    };
    u32::try_from(counted_ns / interval_ns.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::{PeerHeartbeat, intervals};
    use crate::{ConnectionId, Direction, Frame, FrameKind, HeartbeatProfile, Seq, Timestamp};

    fn ping(at_ms: u64, profile: HeartbeatProfile) -> Frame {
        Frame {
            connection: ConnectionId(1),
            at: Timestamp::from_ms(at_ms),
            direction: Direction::Ingress,
            kind: FrameKind::Ping,
            profile,
            seq_start: Some(Seq(0)),
            seq_end: Some(Seq(2)),
            payload: Vec::new(),
            close_code: None,
            close_reason: None,
        }
    }

    fn asked(at_ms: &[u64]) -> PeerHeartbeat {
        let mut beats = PeerHeartbeat::default();
        for at in at_ms {
            beats.on_ping(&ping(*at, HeartbeatProfile::Phoenix), None);
        }
        beats
    }

    #[test]
    fn interval_is_the_ports_unless_its_own_pings_say_otherwise() {
        let ms = |ns: u64| ns / 1_000_000;
        assert_eq!(asked(&[0]).interval_ns(None), None);
        assert_eq!(asked(&[0, 30_000, 60_010]).interval_ns(None).map(ms), Some(30_000));
        assert_eq!(asked(&[0]).interval_ns(Some(15_000_000_000)).map(ms), Some(15_000));
        assert_eq!(asked(&[0, 15_100, 30_200]).interval_ns(Some(15_000_000_000)).map(ms), Some(15_000));
        assert_eq!(asked(&[0, 30_000, 60_000]).interval_ns(Some(15_000_000_000)).map(ms), Some(30_000));
    }

    #[test]
    fn pings_that_measure_the_round_trip_promise_no_more_of_them() {
        assert_eq!(asked(&[0, 1_000, 2_000, 3_000]).expected(), None);
        assert_eq!(asked(&[0, 20, 40, 60, 80, 100, 120]).expected(), None);
        let mut beats = asked(&[0, 1_000, 2_000, 3_000, 4_000]);
        assert_eq!(beats.expected().unwrap().within_ns, 2_000_000_000);
        beats.on_lost();
        assert_eq!(beats.expected(), None);
    }

    #[test]
    fn longest_gap_of_late_counts_and_old_ones_are_forgotten() {
        let mut beats = asked(&[0, 15_000, 30_000, 45_000, 85_000, 100_000]);
        assert_eq!(beats.expected().unwrap().within_ns, 80_000_000_000);
        for at in (115_000..6_000_000).step_by(15_000) {
            beats.on_ping(&ping(at, HeartbeatProfile::Phoenix), None);
        }
        assert_eq!(beats.expected().unwrap().within_ns, 30_000_000_000);
    }

    #[test]
    fn another_profile_and_an_older_date_teach_nothing() {
        let mut beats = asked(&[0, 15_000, 30_000]);
        beats.on_ping(&ping(31_000, HeartbeatProfile::Rfc6455), None);
        beats.on_ping(&ping(29_000, HeartbeatProfile::Phoenix), None);
        assert_eq!(beats.profile(), Some(HeartbeatProfile::Phoenix));
        assert_eq!(beats.last_at(), Some(Timestamp::from_ms(30_000)));
        assert_eq!(beats.interval_ns(None), Some(15_000_000_000));
    }

    #[test]
    fn a_close_counts_what_is_almost_over_and_a_question_what_is_certainly_over() {
        let at = Timestamp::from_ms;
        let second = 1_000_000_000;
        assert_eq!(intervals(at(0), at(59_990), true, 30 * second), 2);
        assert_eq!(intervals(at(0), at(40_000), true, 30 * second), 1);
        assert_eq!(intervals(at(0), at(59_990), false, 30 * second), 1);
        assert_eq!(intervals(at(0), at(30_500), false, 30 * second), 0);
        assert_eq!(intervals(at(0), at(80_000), false, 30 * second), 2);
    }
}
