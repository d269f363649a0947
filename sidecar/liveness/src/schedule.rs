//! The schedule of a host's heartbeat, learned from the connections whose Pings reach the wire.
//!
//! A Ping that waits in the host's own queue is on no wire. That it was due can only be told from its siblings: the
//! connections to the same listening port that one watchdog serves. Learned are the interval (the median of the
//! gaps, so that a Ping that was late behind data changes nothing), the phase (many hosts tick once for all
//! sockets), and from observed kills the tolerance.
//!
//! Learned too is whether anybody answers: RFC 6455 asks for a Pong, but a text heartbeat, or a host that reports its own,
//! may have none. And where the peers ask, how often they do.

use alloc::collections::VecDeque;

use crate::{ConnectionId, HeartbeatProfile, Timestamp};

/// Gaps that are kept for the median.
const GAPS_MAX: usize = 33;
/// Shorter gaps are no heartbeat (a burst, a round trip that is measured): watchdogs tick in seconds, the fastest in some
/// hundred milliseconds.
pub(crate) const GAP_MIN_NS: u64 = 200_000_000;
/// Gaps that are needed before an interval is believed.
const GAPS_MIN: usize = 2;
/// Kills that are kept for the tolerance.
const KILLS_MAX: usize = 9;
/// A phase is believed for this many intervals after its last Ping: timers drift.
const PHASE_INTERVALS_MAX: u64 = 100;
/// Votes for or against a phase that all connections share.
const VOTES_MAX: i8 = 8;

/// A tick's actions come this much of an interval before it (drift of the learned phase) …
pub(crate) const EARLY_DIVISOR: u64 = 20;
/// … up to this much of an interval after it (a loaded machine: 6279 ms instead of 6000 were measured).
pub(crate) const LATE_DIVISOR: u64 = 5;

/// What one frame teaches about its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lesson {
    /// The host asked.
    HostAsked {
        /// How.
        profile: HeartbeatProfile,
        /// Its Ping before this one, if none can have been missed between.
        earlier: Option<Timestamp>,
    },
    /// The peer answered.
    PeerAnswered(Answers),
    /// The peer asked.
    PeerAsked {
        /// How.
        profile: HeartbeatProfile,
        /// Since its Ping before this one, in nanoseconds.
        gap_ns: u64,
    },
}

/// A way of answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// A Pong of this profile was seen on the wire.
    Wire(HeartbeatProfile),
    /// The application reports Pongs.
    Reported,
}

impl Answers {
    const fn bit(self) -> u16 {
        match self {
            Self::Reported => 1,
            Self::Wire(profile) => 2 << profile as u16,
        }
    }
}

/// Gaps between heartbeats, and the interval that most of them agree on.
#[derive(Clone, Debug, Default)]
struct Gaps {
    gaps_ns: VecDeque<u64>,
    interval_ns: Option<u64>,
}

impl Gaps {
    fn learn(&mut self, gap_ns: u64) {
        if gap_ns < GAP_MIN_NS {
            return;
        }
        if self.gaps_ns.len() == GAPS_MAX {
            self.gaps_ns.pop_front();
        }
        self.gaps_ns.push_back(gap_ns);
        self.interval_ns = median_interval(self.gaps_ns.iter().copied());
    }

    fn clear(&mut self) {
        self.gaps_ns.clear();
        self.interval_ns = None;
    }
}

/// What was learned about one port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    /// The profile that the host asks with. Where it asks with several, that of the first connections.
    profile: Option<HeartbeatProfile>,
    gaps: Gaps,
    /// The profile that the peers ask with, and how often.
    peers: (Option<HeartbeatProfile>, Gaps),
    /// Which [`Answers`] were seen.
    answers: u16,
    anchor: Option<(Timestamp, ConnectionId)>,
    votes: i8,
    kills: VecDeque<u32>,
}

impl Schedule {
    /// A frame of `connection` passed.
    pub(crate) fn learn(&mut self, connection: ConnectionId, at: Timestamp, lesson: Lesson) {
        match lesson {
            Lesson::HostAsked { profile, earlier } => {
                if self.takes(profile, at) {
                    self.on_ping(connection, at, earlier);
                }
            }
            Lesson::PeerAnswered(answers) => self.answers |= answers.bit(),
            Lesson::PeerAsked { profile, gap_ns } => {
                let (known, gaps) = &mut self.peers;
                // Peers that ask in another way are another crowd; the first of them stands for the port.
                if known.is_none() || gaps.interval_ns.is_none() {
                    if known.replace(profile) != Some(profile) {
                        gaps.clear();
                    }
                } else if *known != Some(profile) {
                    return;
                }
                gaps.learn(gap_ns);
            }
        }
    }

    /// Whether a Ping of this profile belongs to this schedule. Another one may take its place while there is none, or once
    /// it is abandoned.
    fn takes(&mut self, profile: HeartbeatProfile, at: Timestamp) -> bool {
        if self.profile == Some(profile) {
            return true;
        }
        let is_kept = self.gaps.interval_ns.is_some_and(|interval| {
            self.anchor.is_some_and(|(anchor, _)| at.ns_since(anchor) <= interval.saturating_mul(3))
        });
        if self.profile.is_some() && is_kept {
            return false;
        }
        self.profile = Some(profile);
        self.gaps.clear();
        self.anchor = None;
        self.votes = 0;
        true
    }

    /// The profile that the host asks with.
    pub(crate) fn profile(&self) -> Option<HeartbeatProfile> {
        self.profile
    }

    /// Whether it may speak for a connection whose host asks with `profile`; `None` where it has not asked yet.
    pub(crate) fn is_of(&self, profile: Option<HeartbeatProfile>) -> bool {
        self.profile.is_none() || profile.is_none() || self.profile == profile
    }

    /// Whether such an answer was seen.
    pub(crate) fn has_seen(&self, answers: Answers) -> bool {
        self.answers & answers.bit() != 0
    }

    /// How often the peers ask with this profile, in nanoseconds.
    pub(crate) fn peers_interval_ns(&self, profile: Option<HeartbeatProfile>) -> Option<u64> {
        let (known, gaps) = &self.peers;
        gaps.interval_ns.filter(|_| *known == profile)
    }

    /// A Ping of `connection` reached the wire; `earlier` is the one before it, if none can have been missed between.
    pub(crate) fn on_ping(&mut self, connection: ConnectionId, at: Timestamp, earlier: Option<Timestamp>) {
        if let Some(earlier) = earlier {
            self.gaps.learn(at.ns_since(earlier));
        }
        let (Some(interval), Some((anchor, owner))) = (self.gaps.interval_ns, self.anchor) else {
            self.anchor = Some((at, connection));
            return;
        };
        let on_tick = Ticks { phase: anchor, interval_ns: interval }.tick_of(at).is_some();
        if owner != connection {
            self.votes =
                if on_tick { (self.votes + 1).min(VOTES_MAX) } else { (self.votes - 1).max(-VOTES_MAX) };
        }
        // The first Ping of a tick is its date. A Ping off the beat moves it only if the same connection sent both
        // (its timer moved), or if nobody keeps the old beat any more.
        let same_tick = at.ns_since(anchor) < interval / 2;
        let abandoned = at.ns_since(anchor) > interval.saturating_mul(3);
        if (on_tick && !same_tick) || (!on_tick && owner == connection) || abandoned {
            self.anchor = Some((at, connection));
        }
    }

    /// A heartbeat kill was seen, with this many Pings missed.
    pub(crate) fn on_kill(&mut self, missed: u32) {
        if self.kills.len() == KILLS_MAX {
            self.kills.pop_front();
        }
        self.kills.push_back(missed);
    }

    /// The learned interval in nanoseconds.
    pub(crate) fn interval_ns(&self) -> Option<u64> {
        self.gaps.interval_ns
    }

    /// How many Pings this port's watchdog lets go unanswered; the smallest number that was seen to kill.
    pub(crate) fn tolerance(&self) -> Option<u32> {
        self.kills.iter().copied().min()
    }

    /// The beat of this port, and whether connections were seen to share it.
    pub(crate) fn beat(&self, at: Timestamp) -> Option<(Ticks, bool)> {
        let interval_ns = self.gaps.interval_ns?;
        let (phase, _) = self.anchor?;
        let age = at.ns_since(phase);
        (age <= interval_ns.saturating_mul(PHASE_INTERVALS_MAX))
            .then_some((Ticks { phase, interval_ns }, self.votes > 0))
    }
}

/// The median of the gaps, if at least half of them agree with it within 15 %.
pub(crate) fn median_interval(gaps_ns: impl Iterator<Item = u64> + Clone) -> Option<u64> {
    let mut sorted = [u64::MAX; GAPS_MAX];
    let mut count = 0;
    for (slot, gap) in sorted.iter_mut().zip(gaps_ns.clone()) {
        *slot = gap;
        count += 1;
    }
    if count < GAPS_MIN {
        return None;
    }
    sorted.sort_unstable();
    // The lower middle: where a hole doubled one of two gaps, the shorter one is the interval.
    let median = *sorted.get((count - 1) / 2)?;
    let agreeing = gaps_ns.filter(|gap| gap.abs_diff(median) <= median / 7).count();
    (median > 0 && agreeing * 2 >= count).then_some(median)
}

/// A beat: moments `phase + k * interval` for every whole `k`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    pub(crate) phase: Timestamp,
    pub(crate) interval_ns: u64,
}

impl Ticks {
    fn floor(self, at: Timestamp) -> i128 {
        let interval = i128::from(self.interval_ns.max(1));
        (i128::from(at.as_ns()) - i128::from(self.phase.as_ns())).div_euclid(interval)
    }

    fn moment(self, index: i128) -> Timestamp {
        let ns = i128::from(self.phase.as_ns()) + index * i128::from(self.interval_ns);
        Timestamp::from_ns(u64::try_from(ns.max(0)).unwrap_or(u64::MAX))
    }

    /// The tick that something at `at` belongs to: from a little before it to somewhat after it.
    pub(crate) fn tick_of(self, at: Timestamp) -> Option<Timestamp> {
        let below = self.moment(self.floor(at));
        if at.ns_since(below) <= self.interval_ns / LATE_DIVISOR {
            return Some(below);
        }
        let above = self.moment(self.floor(at) + 1);
        (above.ns_since(at) <= self.interval_ns / EARLY_DIVISOR).then_some(above)
    }

    /// How long after a tick its actions may come.
    pub(crate) fn lateness_ns(self) -> u64 {
        self.interval_ns / LATE_DIVISOR
    }

    /// Ticks after `after` and before `before`.
    pub(crate) fn between(self, after: Timestamp, before: Timestamp) -> u32 {
        if before <= after {
            return 0;
        }
        let first = self.floor(after) + 1;
        let mut last = self.floor(before);
        if self.moment(last) == before {
            last -= 1;
        }
        u32::try_from((last - first + 1).max(0)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{Schedule, Ticks};
    use crate::{ConnectionId, Timestamp};

    const A: ConnectionId = ConnectionId(1);
    const B: ConnectionId = ConnectionId(2);

    fn learn(schedule: &mut Schedule, connection: ConnectionId, pings_ms: &[u64]) {
        for (index, at) in pings_ms.iter().enumerate() {
            let earlier = index.checked_sub(1).map(|before| Timestamp::from_ms(pings_ms[before]));
            schedule.on_ping(connection, Timestamp::from_ms(*at), earlier);
        }
    }

    #[test]
    fn interval_is_the_median_of_the_gaps() {
        let mut schedule = Schedule::default();
        // One Ping waited 1.3 s behind data, and one reached the wire two ticks later.
        learn(&mut schedule, A, &[1_000, 3_001, 5_002, 8_300, 9_004, 11_005, 15_007, 17_008]);
        let interval_ms = schedule.interval_ns().unwrap() / 1_000_000;
        assert!((1_999..=2_002).contains(&interval_ms), "{interval_ms}");
    }

    #[test]
    fn pings_without_a_beat_make_no_interval() {
        let mut schedule = Schedule::default();
        learn(&mut schedule, A, &[0, 100, 3_000, 3_900, 11_000, 12_500]);
        assert_eq!(schedule.interval_ns(), None);
    }

    /// A burst of Pings, or one that measures the round trip, must not teach a port that all others are late.
    #[test]
    fn pings_in_a_burst_make_no_interval() {
        let mut schedule = Schedule::default();
        learn(&mut schedule, A, &[1_000, 1_000, 1_020, 1_040, 1_060, 1_080]);
        assert_eq!(schedule.interval_ns(), None);
        learn(&mut schedule, B, &[1_000, 3_000, 3_020, 5_000]);
        assert_eq!(schedule.interval_ns().map(|ns| ns / 1_000_000), Some(1_980));
    }

    #[test]
    fn phase_is_shared_only_if_others_keep_it() {
        let mut schedule = Schedule::default();
        learn(&mut schedule, A, &[1_000, 3_000, 5_000]);
        assert!(!schedule.beat(Timestamp::from_ms(5_100)).unwrap().1, "one connection shares with nobody");
        learn(&mut schedule, B, &[5_001, 7_001]);
        let (ticks, is_shared) = schedule.beat(Timestamp::from_ms(7_100)).unwrap();
        assert!(is_shared);
        assert_eq!(ticks.between(Timestamp::from_ms(7_002), Timestamp::from_ms(13_000)), 2);

        let mut schedule = Schedule::default();
        learn(&mut schedule, A, &[1_000, 3_000, 5_000]);
        learn(&mut schedule, B, &[4_100, 6_100]);
        assert!(!schedule.beat(Timestamp::from_ms(6_200)).unwrap().1);
    }

    #[test]
    fn old_phase_is_not_believed() {
        let mut schedule = Schedule::default();
        learn(&mut schedule, A, &[1_000, 3_000, 5_000]);
        assert!(schedule.beat(Timestamp::from_ms(3_600_000)).is_none());
        assert!(schedule.interval_ns().is_some());
    }

    #[test]
    fn ticks_between_leaves_both_ends_out() {
        let ticks = Ticks { phase: Timestamp::from_ms(10_000), interval_ns: 2_000_000_000 };
        let at = Timestamp::from_ms;
        assert_eq!(ticks.between(at(10_000), at(16_000)), 2);
        assert_eq!(ticks.between(at(3_999), at(4_001)), 1);
        assert_eq!(ticks.between(at(4_001), at(4_000)), 0);
        assert_eq!(ticks.tick_of(at(16_279)), Some(at(16_000)));
        assert_eq!(ticks.tick_of(at(15_950)), Some(at(16_000)));
        assert_eq!(ticks.tick_of(at(17_000)), None);
    }
}
