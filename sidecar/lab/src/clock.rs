//! The clock that hosts, clients and the kernel share.

use nix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds; the same clock as Node.js's `process.hrtime` and the kernel's `bpf_ktime_get_ns`.
#[must_use]
pub fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        u64::try_from(time.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
    })
}

/// Milliseconds from `earlier_ns` to `later_ns`; 0 if they are the other way round.
#[must_use]
pub const fn elapsed_ms(earlier_ns: u64, later_ns: u64) -> u64 {
    later_ns.saturating_sub(earlier_ns) / 1_000_000
}
