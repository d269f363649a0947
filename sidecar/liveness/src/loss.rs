//! Whether the path loses segments by chance: there the next timeout may fail for the same reason as the last ones, and
//! each failure doubles the time to the next.

use crate::{Snapshot, Timestamp};

/// What was lost makes a path lossy for this long.
const MEMORY_MS: u64 = 60_000;

/// A lost segment is repaired without a timeout as long as others get through; at least so many timeouts in at least so many
/// spells say that whole round trips fail by chance. A single outage is one spell.
const TIMEOUTS: u32 = 3;
const SPELLS: usize = 2;
/// Ten bulk transfers through one short queue cost each of them a timeout a second. A queue that overflows was full before:
/// a timeout at so many times the shortest round trip is its doing. More than for single segments, as a chance that is missed
/// may end a living connection.
const QUEUE_ROUND_TRIPS: u32 = 4;

/// Retransmissions say the same, if they go on while others get through: in at least so many readings, and one in so many
/// segments at least. The repair after an outage is over within fewer readings (slow start doubles each round trip).
const READINGS: u32 = 10;
const SEGMENTS_PER_RETRANSMISSION: u64 = 10;
/// Ethernet's, with timestamps (RFC 7323). The segment size is not sampled; where it is larger, more are called lost than are.
const SEGMENT_BYTES: u64 = 1_448;
/// Where little is sent, each exchange of a segment or two shows what the path does: so many that needed a retransmission, and
/// one in so many at least, make it doubtful. (Behind a lossy path whose Pings are all that is sent, timeouts are rare: the
/// probe for a lost tail, RFC 8985 section 7, repairs most.)
const THIN_BYTES: u64 = 2 * SEGMENT_BYTES;
const THIN_REPAIRED: u32 = 3;
const THIN_PER_REPAIRED: u32 = 10;
/// A queue that overflows loses segments too, but it was full before: the round trip takes many times as long as without
/// it. Only what is lost within so many times the shortest one is lost by chance.
const ROUND_TRIPS_MAX: u32 = 2;

/// What one path has lost lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loss {
    /// The last three spells of retransmission timeouts that healed, the oldest one first: when, and how many timeouts were
    /// seen in each.
    healed_spells: [Option<(Timestamp, u8)>; 3],
    /// The shortest smoothed round-trip time that was read.
    least_srtt_us: Option<u32>,
    /// What got through and what did not, in the half of the memory that ended and in the one that runs.
    halves: [Option<Half>; 2],
}

/// Counts from one moment on, for half of [`MEMORY_MS`].
#[derive(Clone, Copy, Debug)]
struct Half {
    began_at: Timestamp,
    counts: Counts,
}

/// What got through and what did not.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    acknowledged_bytes: u64,
    retransmissions: u32,
    /// Readings that saw a retransmission since the one before.
    readings: u32,
    /// Exchanges of a segment or two, and those of them that needed a retransmission.
    thin: u32,
    thin_repaired: u32,
}

impl Counts {
    /// What one reading saw since the one before.
    fn of(acknowledged_bytes: u64, retransmissions: u32) -> Self {
        let (is_thin, is_repaired) = (acknowledged_bytes <= THIN_BYTES, retransmissions > 0);
        Self {
            acknowledged_bytes,
            retransmissions,
            readings: u32::from(is_repaired),
            thin: u32::from(is_thin),
            thin_repaired: u32::from(is_thin && is_repaired),
        }
    }

    const fn plus(self, more: Self) -> Self {
        Self {
            acknowledged_bytes: self.acknowledged_bytes.saturating_add(more.acknowledged_bytes),
            retransmissions: self.retransmissions.saturating_add(more.retransmissions),
            readings: self.readings.saturating_add(more.readings),
            thin: self.thin.saturating_add(more.thin),
            thin_repaired: self.thin_repaired.saturating_add(more.thin_repaired),
        }
    }
}

/// How much more it takes than on a clean path to say that nobody is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Nothing was lost lately, as far as was seen.
    None,
    /// Something was.
    Some,
    /// Segments are lost by chance.
    Strong,
}

impl Loss {
    /// Between two readings `acknowledged_bytes` were acknowledged for the first time: the path is open.
    pub(crate) fn on_progress(&mut self, earlier: &Snapshot, later: &Snapshot, acknowledged_bytes: u64) {
        // A fast retransmission does not count here: it takes others that got through.
        if let Some(timeouts) = earlier.retransmits.filter(|count| *count > 0)
            && !self.had_a_full_queue(earlier)
        {
            let [_, second, third] = self.healed_spells;
            self.healed_spells = [second, third, Some((later.at, timeouts))];
        }
        let (Some(srtt_us), Some(before), Some(after)) = (
            later.srtt_us.filter(|srtt_us| *srtt_us > 0),
            earlier.total_retransmits,
            later.total_retransmits,
        ) else {
            return;
        };
        let least_us = self.least_srtt_us.map_or(srtt_us, |least_us| least_us.min(srtt_us));
        self.least_srtt_us = Some(least_us);
        if srtt_us > least_us.saturating_mul(ROUND_TRIPS_MAX) {
            return;
        }
        let half = self.half(later.at);
        half.counts = half.counts.plus(Counts::of(acknowledged_bytes, after.saturating_sub(before)));
    }

    /// Whether what was lost before this reading may be laid to a queue. An unknown round trip is no long one.
    fn had_a_full_queue(&self, reading: &Snapshot) -> bool {
        match (reading.srtt_us, self.least_srtt_us) {
            (Some(srtt_us), Some(least_us)) => srtt_us >= least_us.saturating_mul(QUEUE_ROUND_TRIPS),
            _ => false,
        }
    }

    /// The half that runs at `at`.
    fn half(&mut self, at: Timestamp) -> &mut Half {
        let [_, running] = self.halves;
        if running.is_none_or(|half| at.ms_since(half.began_at) > MEMORY_MS / 2) {
            self.halves = [running, None];
        }
        let [_, running] = &mut self.halves;
        running.get_or_insert(Half { began_at: at, counts: Counts::default() })
    }

    /// What the halves that count at `at` add up to.
    fn lately(&self, at: Timestamp) -> Counts {
        let recent = self.halves.iter().flatten().filter(|half| at.ms_since(half.began_at) <= MEMORY_MS);
        recent.fold(Counts::default(), |sum, half| sum.plus(half.counts))
    }

    /// The timeouts of each spell that counts at `at`.
    fn recent_spells(&self, at: Timestamp) -> impl Iterator<Item = u8> {
        let spells = self.healed_spells.iter().flatten();
        spells.filter(move |(healed, _)| at.ms_since(*healed) <= MEMORY_MS).map(|(_, timeouts)| *timeouts)
    }

    /// Whether the path was losing segments by chance at `at`.
    pub(crate) fn is_lossy(&self, at: Timestamp) -> bool {
        self.is_lossy_by(&self.lately(at), at)
    }

    fn is_lossy_by(&self, lately: &Counts, at: Timestamp) -> bool {
        self.has_lost_round_trips(at) || has_retransmitted_on_and_on(lately)
    }

    /// How much a silence from `at` on may owe to chance. Weaker than [`Self::is_lossy`]: one repair is a doubt, and where a
    /// peer only answers late, its path is no lossy one.
    pub(crate) fn doubt(&self, at: Timestamp) -> Doubt {
        let lately = self.lately(at);
        let is_thin_lossy = lately.thin_repaired >= THIN_REPAIRED
            && lately.thin_repaired.saturating_mul(THIN_PER_REPAIRED) >= lately.thin;
        if is_thin_lossy || self.is_lossy_by(&lately, at) {
            return Doubt::Strong;
        }
        let has_healed = self.recent_spells(at).next().is_some();
        if has_healed || lately.readings > 0 { Doubt::Some } else { Doubt::None }
    }

    fn has_lost_round_trips(&self, at: Timestamp) -> bool {
        let (spells, timeouts) = self
            .recent_spells(at)
            .fold((0, 0), |(spells, timeouts), count| (spells + 1, timeouts + u32::from(count)));
        spells >= SPELLS && timeouts >= TIMEOUTS
    }
}

fn has_retransmitted_on_and_on(lately: &Counts) -> bool {
    let segments = lately.acknowledged_bytes / SEGMENT_BYTES;
    let retransmissions = u64::from(lately.retransmissions);
    lately.readings >= READINGS && retransmissions.saturating_mul(SEGMENTS_PER_RETRANSMISSION) >= segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConnectionId, TcpState};

    fn reading(at: Timestamp) -> Snapshot {
        Snapshot::unavailable(ConnectionId(1), at, TcpState::Established)
    }

    /// What is read every 200 ms: the round-trip time, segments lost, and bytes acknowledged since the last reading.
    fn after(readings: u64, srtt_us: impl Fn(u64) -> u32, lost: u32, bytes: u64) -> (Loss, Timestamp) {
        let mut loss = Loss::default();
        let mut earlier = Snapshot { total_retransmits: Some(0), ..reading(Timestamp::from_ns(0)) };
        for index in 1..=readings {
            let later = Snapshot {
                srtt_us: Some(srtt_us(index)),
                total_retransmits: earlier.total_retransmits.map(|total| total + lost),
                ..reading(Timestamp::from_ns(index * 200_000_000))
            };
            loss.on_progress(&earlier, &later, bytes);
            earlier = later;
        }
        (loss, earlier.at)
    }

    #[test]
    fn segments_that_are_lost_on_and_on_make_a_path_lossy_for_a_minute() {
        let (loss, now) = after(13, |_| 25_000, 3, 25_000);
        assert!(loss.is_lossy(now));
        assert!(loss.is_lossy(now.plus_ms(50_000)));
        assert!(!loss.is_lossy(now.plus_ms(61_000)));
    }

    #[test]
    fn a_repair_after_an_outage_does_not() {
        let (loss, now) = after(7, |_| 200_000, 30, 100_000);
        assert!(!loss.is_lossy(now));
    }

    #[test]
    fn a_segment_now_and_then_does_not() {
        let (loss, now) = after(100, |_| 25_000, 1, 100_000);
        assert!(!loss.is_lossy(now));
    }

    #[test]
    fn a_queue_that_overflows_does_not() {
        let (loss, now) = after(100, |index| if index == 1 { 400 } else { 90_000 }, 5, 25_000);
        assert!(!loss.is_lossy(now));
    }

    /// Three timeouts that heal, a second apart, at this round-trip time; the shortest was 10 ms.
    fn after_timeouts(srtt_us: Option<u32>) -> (Loss, Timestamp) {
        let mut loss = Loss::default();
        let first =
            Snapshot { srtt_us: Some(10_000), total_retransmits: Some(0), ..reading(Timestamp::from_ns(0)) };
        loss.on_progress(&first, &Snapshot { at: Timestamp::from_ns(1_000_000), ..first.clone() }, 100);
        for index in 1..=3_u64 {
            let earlier = Snapshot {
                srtt_us,
                retransmits: Some(1),
                total_retransmits: Some(1),
                ..reading(Timestamp::from_ns(index * 1_000_000_000))
            };
            loss.on_progress(&earlier, &Snapshot { retransmits: Some(0), ..earlier.clone() }, 100);
        }
        (loss, Timestamp::from_ns(4_000_000_000))
    }

    #[test]
    fn timeouts_that_heal_make_a_path_lossy_unless_a_queue_was_full() {
        for (srtt_us, is_lossy) in
            [(Some(12_000), true), (Some(39_000), true), (None, true), (Some(40_000), false)]
        {
            let (loss, now) = after_timeouts(srtt_us);
            assert_eq!(loss.is_lossy(now), is_lossy, "{srtt_us:?}");
        }
    }

    /// Pings of ten bytes, one in `every` needs a retransmission.
    fn after_pings(pings: u64, every: u64) -> (Loss, Timestamp) {
        let mut loss = Loss::default();
        let mut earlier =
            Snapshot { srtt_us: Some(12_000), total_retransmits: Some(0), ..reading(Timestamp::from_ns(0)) };
        for index in 1..=pings {
            let later = Snapshot {
                total_retransmits: earlier
                    .total_retransmits
                    .map(|total| total + u32::from(index % every == 0)),
                at: Timestamp::from_ns(index * 2_000_000_000),
                ..earlier.clone()
            };
            loss.on_progress(&earlier, &later, 10);
            earlier = later;
        }
        (loss, earlier.at)
    }

    #[test]
    fn single_repairs_raise_a_doubt_that_passes() {
        for (pings, every, doubt) in [
            (30, 31, Doubt::None),
            (30, 30, Doubt::Some),
            (30, 15, Doubt::Some),
            (30, 10, Doubt::Strong),
            (30, 4, Doubt::Strong),
        ] {
            let (loss, now) = after_pings(pings, every);
            assert_eq!(loss.doubt(now), doubt, "one in {every}");
            assert!(!loss.is_lossy(now), "a few repairs move no kill");
            assert_eq!(loss.doubt(now.plus_ms(2 * MEMORY_MS)), Doubt::None);
        }
    }

    #[test]
    fn what_was_not_read_says_nothing() {
        let mut loss = Loss::default();
        for index in 0..100_u64 {
            let at = |index| reading(Timestamp::from_ns(index * 200_000_000));
            loss.on_progress(&at(index), &at(index + 1), 1);
        }
        assert!(!loss.is_lossy(Timestamp::from_ns(20_000_000_000)));
    }

    #[test]
    fn a_path_that_became_good_is_not_lossy_any_more() {
        let (mut loss, now) = after(50, |_| 25_000, 3, 25_000);
        let mut earlier = Snapshot { srtt_us: Some(25_000), total_retransmits: Some(150), ..reading(now) };
        for index in 1..=400 {
            let later = Snapshot { at: now.plus_ms(index * 200), ..earlier.clone() };
            loss.on_progress(&earlier, &later, 25_000);
            earlier = later;
        }
        assert!(!loss.is_lossy(earlier.at));
    }
}
