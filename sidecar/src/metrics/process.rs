//! What the sidecar itself costs: CPU time and memory of this process.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::{SysconfVar, sysconf};

/// CPU time since the start of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuTime {
    /// In user mode.
    pub(super) user: Duration,
    /// In the kernel, the kernel programs that ran for others not included.
    pub(super) system: Duration,
}

/// CPU time of all threads of this process (getrusage(2)); `None` if the kernel does not tell.
#[must_use]
pub(super) fn cpu_time() -> Option<CpuTime> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    Some(CpuTime { user: duration(usage.user_time())?, system: duration(usage.system_time())? })
}

fn duration(time: TimeVal) -> Option<Duration> {
    let seconds = u64::try_from(time.tv_sec()).ok()?;
    let microseconds = u64::try_from(time.tv_usec()).ok()?;
    Duration::from_secs(seconds).checked_add(Duration::from_micros(microseconds))
}

/// Memory of this process that is in RAM, in bytes; `None` if the kernel does not tell.
///
/// The second number of `/proc/self/statm` is in pages (proc_pid_statm(5)). The kernel counts them per thread and sums up
/// now and then, so it may be some hundred KiB off.
#[must_use]
pub(super) fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let page_bytes = u64::try_from(sysconf(SysconfVar::PAGE_SIZE).ok()??).ok()?;
    pages.checked_mul(page_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_costs_time_and_memory_is_that_of_a_process() {
        let before = cpu_time().unwrap();
        let start = std::time::Instant::now();
        let mut sum = 0_u64;
        while cpu_time().unwrap().user < before.user + Duration::from_millis(20) {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
            assert!(start.elapsed() < Duration::from_secs(30), "no user time passed: {before:?}");
        }
        let resident = resident_bytes().unwrap();
        assert!((100_000..100_000_000_000).contains(&resident), "{resident}");
        let held = vec![1_u8; 64 << 20];
        assert!(resident_bytes().unwrap() > resident + (32 << 20), "{resident}, {}", held.len());
    }
}
