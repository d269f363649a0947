//! Processor time and memory of a process.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// Memory of a process, in bytes (`/proc/<pid>/status`, proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Everything that is resident.
    pub(crate) resident_bytes: u64,
    /// What belongs to it alone: heap and stacks. The rest is the program's file, and the ring that the kernel fills.
    pub(crate) anonymous_bytes: u64,
}

impl Memory {
    /// Reads it.
    ///
    /// # Errors
    /// The process is gone.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/status");
        let status = fs::read_to_string(&path).with_context(|| format!("reading {path} failed"))?;
        Ok(Self {
            resident_bytes: bytes(&status, "VmRSS:").with_context(|| format!("{path} has no VmRSS"))?,
            anonymous_bytes: bytes(&status, "RssAnon:").with_context(|| format!("{path} has no RssAnon"))?,
        })
    }
}

fn bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Processor time that a process has taken, all its threads together, those that ended included
/// (`clock_getcpuclockid(3)`: in nanoseconds, where `/proc/<pid>/stat` counts ticks).
///
/// # Errors
/// The process is gone.
pub(crate) fn processor_time(pid: u32) -> Result<Duration> {
    let pid = Pid::from_raw(i32::try_from(pid).context("a process id is positive")?);
    let clock = clock_getcpuclockid(pid).context("finding the clock of a process failed")?;
    clock_gettime(clock).map(Duration::from).context("reading the clock of a process failed")
}

/// Processor time of all children of this process that have ended (`getrusage(2)`).
///
/// # Errors
/// The kernel refuses.
pub(crate) fn processor_time_of_children() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("reading the usage of children failed")?;
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(u64::try_from(microseconds).unwrap_or(0)))
}

/// Measures the share of one processor that a process takes.
pub(crate) struct ShareMeter {
    pid: u32,
    began: Instant,
    processor_time: Duration,
}

impl ShareMeter {
    /// Begins.
    ///
    /// # Errors
    /// As [`processor_time`].
    pub(crate) fn start(pid: u32) -> Result<Self> {
        Ok(Self { pid, began: Instant::now(), processor_time: processor_time(pid)? })
    }

    /// The share since the beginning, in percent of one processor.
    ///
    /// # Errors
    /// As [`processor_time`].
    pub(crate) fn percent(&self) -> Result<f64> {
        let taken = processor_time(self.pid)?.saturating_sub(self.processor_time);
        Ok(100.0 * taken.as_secs_f64() / self.began.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_takes_time_and_memory() {
        let pid = std::process::id();
        let memory = Memory::of(pid).expect("this process runs");
        assert!(memory.resident_bytes >= memory.anonymous_bytes && memory.anonymous_bytes > 0);
        let meter = ShareMeter::start(pid).expect("this process runs");
        let before = processor_time(pid).expect("this process runs");
        while processor_time(pid).expect("this process runs") < before + Duration::from_millis(20) {
            std::hint::black_box(0);
        }
        assert!(meter.percent().expect("this process runs") > 0.0);
    }

    #[test]
    fn kibibytes_are_bytes() {
        assert_eq!(bytes("Name:\tx\nVmRSS:\t    1234 kB\n", "VmRSS:"), Some(1_263_616));
        assert_eq!(bytes("Name:\tx\n", "VmRSS:"), None);
    }
}
