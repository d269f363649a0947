//! From monotonic time to the wall clock, for export only.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ackbeat_liveness::Timestamp;

use crate::driver::clock::{Clock, MonotonicClock};

/// The distance between both clocks at one moment.
///
/// It is taken once for each record, at export. A wall clock that was stepped while the connection lived moves its
/// spans as a whole; differences within a record are those of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    monotonic: Timestamp,
    wall: SystemTime,
}

impl WallClock {
    /// The distance now.
    #[must_use]
    pub fn now() -> Self {
        Self::at(MonotonicClock.now(), SystemTime::now())
    }

    /// The distance if both clocks show this at once.
    #[must_use]
    pub const fn at(monotonic: Timestamp, wall: SystemTime) -> Self {
        Self { monotonic, wall }
    }

    /// What the wall clock, as it goes now, would have shown at `moment`.
    #[must_use]
    pub fn time_of(&self, moment: Timestamp) -> SystemTime {
        if moment >= self.monotonic {
            self.wall + Duration::from_nanos(moment.ns_since(self.monotonic))
        } else {
            let back = Duration::from_nanos(self.monotonic.ns_since(moment));
            self.wall.checked_sub(back).unwrap_or(UNIX_EPOCH)
        }
    }
}

/// Nanoseconds since 1970; 0 before it.
#[must_use]
pub fn unix_ns(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).ok().and_then(|since| u64::try_from(since.as_nanos()).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_those_of_the_monotonic_clock() {
        let clock = WallClock::at(Timestamp::from_ms(5_000), UNIX_EPOCH + Duration::from_secs(1_000));
        let earlier = clock.time_of(Timestamp::from_ms(4_000));
        let later = clock.time_of(Timestamp::from_ms(6_500));
        assert_eq!(later.duration_since(earlier).unwrap(), Duration::from_millis(2_500));
        assert_eq!(unix_ns(earlier), 999_000_000_000);
    }

    #[test]
    fn a_clock_before_1970_does_not_panic() {
        let clock = WallClock::at(Timestamp::from_ms(5_000), UNIX_EPOCH);
        assert_eq!(unix_ns(clock.time_of(Timestamp::from_ms(0))), 0);
    }
}
