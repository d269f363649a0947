//! Reads so many bytes a second.

use std::time::{Duration, Instant};

/// Bytes at a time at most, so that a fast pace is no stutter …
const ALLOWED_MAX: u64 = 16 * 1024;
/// … and the times a second that a slower one reads.
const READS_PER_SECOND: u64 = 10;
/// A read that is done within this time found its bytes waiting.
const WAITING: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_second: u64,
    next_at: Instant,
    /// The pause before the next read.
    pause: Duration,
    behind: Duration,
}

impl Pace {
    pub(super) fn new(bytes_per_second: u64, now: Instant) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            next_at: now,
            pause: Duration::ZERO,
            behind: Duration::ZERO,
        }
    }

    /// When the next bytes may be read.
    pub(super) const fn next_at(&self) -> Instant {
        self.next_at
    }

    /// How many bytes may be read then.
    pub(super) fn allowed(&self) -> usize {
        let bytes = (self.bytes_per_second / READS_PER_SECOND).clamp(1, ALLOWED_MAX);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// How long there was more to read than was allowed: the pauses after which bytes were waiting.
    pub(super) const fn behind(&self) -> Duration {
        self.behind
    }

    /// Bytes were read between `began` and `now`.
    pub(super) fn has_read(&mut self, bytes: usize, began: Instant, now: Instant) {
        if now.duration_since(began) < WAITING {
            self.behind += self.pause;
        }
        let nanoseconds = bytes as u128 * 1_000_000_000 / u128::from(self.bytes_per_second);
        self.pause = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        // Who came late does not catch up: a burst would be no slow reading.
        self.next_at = self.next_at.max(began) + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_kept_whatever_is_read_at_a_time() {
        let start = Instant::now();
        let mut pace = Pace::new(1_000, start);
        assert_eq!(pace.allowed(), 100);
        pace.has_read(100, start, start);
        assert_eq!(pace.next_at(), start + Duration::from_millis(100));
        // Late by 50 ms: the next read is late too.
        let late = start + Duration::from_millis(150);
        pace.has_read(50, late, late);
        assert_eq!(pace.next_at(), start + Duration::from_millis(200));
        assert_eq!(pace.behind(), Duration::from_millis(100));
        // Nothing waited.
        let waited = start + Duration::from_millis(900);
        pace.has_read(50, start + Duration::from_millis(200), waited);
        assert_eq!(pace.behind(), Duration::from_millis(100));
        assert_eq!(Pace::new(0, start).allowed(), 1);
        assert_eq!(Pace::new(u64::MAX, start).allowed(), 16 * 1024);
    }
}
