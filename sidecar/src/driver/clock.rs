//! The one clock that decides.

use ackbeat_liveness::Timestamp;
use nix::time::{ClockId, clock_gettime};

/// Tells monotonic time.
pub trait Clock: Send {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// `CLOCK_MONOTONIC`: the clock of `bpf_ktime_get_ns`, and of every input.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now(&self) -> Timestamp {
        // The call fails for clocks that do not exist only; this one always does.
        let Ok(time) = clock_gettime(ClockId::CLOCK_MONOTONIC) else {
            return Timestamp::default();
        };
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        let nanoseconds = u64::try_from(time.tv_nsec()).unwrap_or(0);
        Timestamp::from_ns(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
    }
}
