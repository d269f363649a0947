//! One direction of the relay as a pure model: packets go in and come out with their time told from outside.

use std::collections::VecDeque;
use std::time::Duration;

/// What a direction does to its packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// How long each packet is held.
    pub delay: Duration,
    /// Each packet is held longer by an evenly distributed time up to this. Packets never overtake each other: one that
    /// would waits for the one before it.
    pub jitter: Duration,
    /// Probability that a packet is lost, from 0 to 1; each is decided on its own.
    pub loss: f64,
    /// Nothing comes out any more, neither what comes in from now on nor what is on its way.
    pub cut: bool,
}

impl Conditions {
    /// No delay, no loss.
    pub const CLEAR: Self = Self { delay: Duration::ZERO, jitter: Duration::ZERO, loss: 0.0, cut: false };

    /// The same with this delay.
    #[must_use]
    pub const fn delayed(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// The same with this probability of loss.
    #[must_use]
    pub const fn lossy(mut self, loss: f64) -> Self {
        self.loss = loss;
        self
    }
}

/// What happened to the packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that came out.
    pub forwarded_packets: u64,
    /// Their size in bytes, IP headers included.
    pub forwarded_bytes: u64,
    /// Packets that were lost at random.
    pub lost_packets: u64,
    /// Packets that met a cut.
    pub cut_packets: u64,
    /// Packets that found the queue full.
    pub overflowed_packets: u64,
    /// Packets that the kernel refused when they came out.
    pub refused_packets: u64,
}

struct Held {
    due_ns: u64,
    packet: Vec<u8>,
}

/// One direction: holds packets in order until they are due.
pub(super) struct Line {
    held: VecDeque<Held>,
    limit_packets: usize,
    random: fastrand::Rng,
    last_due_ns: u64,
    counts: Counts,
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Line {
    /// Holds at most `limit_packets`; the same `seed` makes the same decisions about the same row of packets.
    pub(super) fn new(seed: u64, limit_packets: usize) -> Self {
        Self {
            held: VecDeque::new(),
            limit_packets,
            random: fastrand::Rng::with_seed(seed),
            last_due_ns: 0,
            counts: Counts::default(),
        }
    }

    /// A packet came in.
    pub(super) fn accept(&mut self, now_ns: u64, packet: &[u8], conditions: &Conditions) {
        // Both are drawn for every packet, so that the decisions about later ones depend on the seed alone.
        let (fate, jitter) = (self.random.f64(), self.random.f64());
        if conditions.cut {
            self.counts.cut_packets += 1;
        } else if fate < conditions.loss {
            self.counts.lost_packets += 1;
        } else if self.held.len() >= self.limit_packets {
            self.counts.overflowed_packets += 1;
        } else {
            let held_for = conditions.delay.saturating_add(conditions.jitter.mul_f64(jitter));
            let due_ns = now_ns.saturating_add(nanoseconds(held_for)).max(self.last_due_ns);
            self.last_due_ns = due_ns;
            self.held.push_back(Held { due_ns, packet: packet.to_vec() });
        }
    }

    /// When the next packet is due, if one is held.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.held.front().map(|held| held.due_ns)
    }

    /// The next packet that is due by now.
    pub(super) fn release(&mut self, now_ns: u64, conditions: &Conditions) -> Option<Vec<u8>> {
        while self.next_due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            let Held { packet, .. } = self.held.pop_front()?;
            if conditions.cut {
                self.counts.cut_packets += 1;
                continue;
            }
            self.counts.forwarded_packets += 1;
            self.counts.forwarded_bytes += packet.len() as u64;
            return Some(packet);
        }
        None
    }

    /// The packet that was released last, of this size, could not be passed on.
    pub(super) fn refused(&mut self, bytes: usize) {
        self.counts.forwarded_packets -= 1;
        self.counts.forwarded_bytes -= bytes as u64;
        self.counts.refused_packets += 1;
    }

    /// What happened so far.
    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    fn drain(line: &mut Line, conditions: &Conditions) -> Vec<(u64, Vec<u8>)> {
        let mut released = Vec::new();
        while let Some(due_ns) = line.next_due_ns() {
            assert!(due_ns == 0 || line.release(due_ns - 1, conditions).is_none(), "before its time");
            released.extend(line.release(due_ns, conditions).map(|packet| (due_ns, packet)));
        }
        released
    }

    #[test]
    fn a_packet_is_held_for_exactly_the_delay() {
        let conditions = Conditions::CLEAR.delayed(Duration::from_millis(40));
        let mut line = Line::new(1, 10);
        line.accept(5, b"a", &conditions);
        assert_eq!(line.release(40 * MILLISECOND + 4, &conditions), None);
        assert_eq!(line.release(40 * MILLISECOND + 5, &conditions), Some(b"a".to_vec()));
        assert_eq!(line.next_due_ns(), None);
    }

    #[test]
    fn a_shorter_delay_lets_nobody_overtake() {
        let slow = Conditions::CLEAR.delayed(Duration::from_millis(500));
        let mut line = Line::new(1, 10);
        line.accept(0, b"first", &slow);
        line.accept(1, b"second", &Conditions::CLEAR);
        assert_eq!(line.release(499 * MILLISECOND, &Conditions::CLEAR), None);
        let released = drain(&mut line, &Conditions::CLEAR);
        assert_eq!(
            released,
            [(500 * MILLISECOND, b"first".to_vec()), (500 * MILLISECOND, b"second".to_vec())]
        );
    }

    #[test]
    fn a_cut_takes_what_is_on_its_way_and_heals() {
        let conditions = Conditions::CLEAR.delayed(Duration::from_millis(10));
        let cut = Conditions { cut: true, ..conditions };
        let mut line = Line::new(1, 10);
        line.accept(0, b"on its way", &conditions);
        line.accept(1, b"into the cut", &cut);
        assert_eq!(line.release(20 * MILLISECOND, &cut), None);
        line.accept(20 * MILLISECOND, b"after it", &conditions);
        assert_eq!(line.release(30 * MILLISECOND, &conditions), Some(b"after it".to_vec()));
        let expected =
            Counts { forwarded_packets: 1, forwarded_bytes: 8, cut_packets: 2, ..Counts::default() };
        assert_eq!(line.counts(), expected);
    }

    #[test]
    fn a_packet_that_the_kernel_refused_was_not_forwarded() {
        let mut line = Line::new(1, 10);
        line.accept(0, b"abc", &Conditions::CLEAR);
        assert!(line.release(0, &Conditions::CLEAR).is_some());
        line.refused(3);
        assert_eq!(line.counts(), Counts { refused_packets: 1, ..Counts::default() });
    }

    #[test]
    fn losses_are_as_frequent_as_told_and_the_seed_decides_which() {
        for loss in [0.01, 0.05, 0.15, 0.2] {
            let fates = |seed| -> Vec<bool> {
                let (mut line, conditions) = (Line::new(seed, 1), Conditions::CLEAR.lossy(loss));
                let fate = |line: &mut Line| {
                    line.accept(0, b"x", &conditions);
                    line.release(0, &conditions).is_some()
                };
                (0..100_000).map(|_| fate(&mut line)).collect()
            };
            let fates_of_seven = fates(7);
            let lost = fates_of_seven.iter().filter(|arrived| !**arrived).count();
            // Five standard deviations around the expected number.
            let (expected, deviation) = (100_000.0 * loss, (100_000.0_f64 * loss * (1.0 - loss)).sqrt());
            assert!((f64::from(u32::try_from(lost).unwrap()) - expected).abs() < 5.0 * deviation, "{lost}");
            assert_eq!(fates_of_seven, fates(7));
            assert_ne!(fates_of_seven, fates(8));
        }
    }

    proptest! {
        #[test]
        fn packets_keep_their_order_and_each_is_counted_once(
            seed: u64,
            limit in 1_usize..40,
            packets in proptest::collection::vec(
                (0..50 * MILLISECOND, 0_u64..100, 0_u64..50, 0.0..0.5_f64, proptest::bool::weighted(0.1)),
                0..200,
            ),
        ) {
            let mut line = Line::new(seed, limit);
            let (mut now_ns, mut released) = (0, Vec::new());
            for (number, (gap_ns, delay_ms, jitter_ms, loss, cut)) in packets.iter().enumerate() {
                let conditions = Conditions {
                    delay: Duration::from_millis(*delay_ms),
                    jitter: Duration::from_millis(*jitter_ms),
                    loss: *loss,
                    cut: *cut,
                };
                now_ns += gap_ns;
                line.accept(now_ns, &(number as u64).to_be_bytes(), &conditions);
                prop_assert!(line.held.len() <= limit);
                while let Some(packet) = line.release(now_ns, &conditions) {
                    released.push(packet);
                }
            }
            released.extend(drain(&mut line, &Conditions::CLEAR).into_iter().map(|(_, packet)| packet));
            prop_assert!(released.is_sorted());
            let counts = line.counts();
            prop_assert_eq!(counts.forwarded_packets, released.len() as u64);
            prop_assert_eq!(
                counts.forwarded_packets + counts.lost_packets + counts.cut_packets + counts.overflowed_packets,
                packets.len() as u64
            );
        }
    }
}
