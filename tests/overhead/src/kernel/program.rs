//! Runs and run time of the kernel programs that a process holds, by the kernel's own statistics.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, bail};
use aya::programs::loaded_programs;
use aya::sys::{Stats, enable_stats};

use super::bpf;

/// Datagrams with which the cost of measuring is measured.
const FLOOR_DATAGRAMS: u32 = 20_000;
/// Name of the empty program: none.
const UNNAMED: &str = "";

/// Run-time statistics of all kernel programs of this machine, as long as this is held (`BPF_ENABLE_STATS`, Linux 5.8).
///
/// Every program pays two readings of a clock for them, so nothing else is measured meanwhile.
pub(crate) struct Statistics(#[expect(dead_code, reason = "its end switches the statistics off")] OwnedFd);

impl Statistics {
    /// Switches them on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn enable() -> Result<Self> {
        enable_stats(Stats::RunTime).map(Self).context(
            "switching on the run-time statistics of kernel programs failed: Linux 5.8 and CAP_SYS_ADMIN are needed",
        )
    }
}

/// How often something ran, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    /// Runs.
    pub(crate) count: u64,
    /// Time of all of them, in nanoseconds.
    pub(crate) time_ns: u64,
}

impl Runs {
    /// Nanoseconds of one run; `None` if there was none.
    #[expect(clippy::cast_precision_loss, reason = "a mean of thousands of runs")]
    pub(crate) fn mean_ns(self) -> Option<f64> {
        (self.count > 0).then(|| self.time_ns as f64 / self.count as f64)
    }

    const fn since(self, earlier: Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            time_ns: self.time_ns.saturating_sub(earlier.time_ns),
        }
    }
}

/// The kernel programs of one process by name, of which the kernel keeps 15 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Programs(BTreeMap<String, Runs>);

impl Programs {
    /// Reads them.
    ///
    /// # Errors
    /// The process is gone, or this user may not look at it.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let ids = program_ids(pid)?;
        let mut programs = BTreeMap::new();
        // One that was unloaded meanwhile belongs to somebody else.
        for info in loaded_programs().flatten().filter(|info| ids.contains(&info.id())) {
            let name = info.name_as_str().unwrap_or(UNNAMED).to_owned();
            let time_ns = u64::try_from(info.run_time().as_nanos()).unwrap_or(u64::MAX);
            programs.insert(name, Runs { count: info.run_count(), time_ns });
        }
        Ok(Self(programs))
    }

    /// What ran since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let before = |name: &String| earlier.0.get(name).copied().unwrap_or_default();
        Self(self.0.iter().map(|(name, runs)| (name.clone(), runs.since(before(name)))).collect())
    }

    /// One of them; no runs if there is none of this name.
    pub(crate) fn named(&self, name: &str) -> Runs {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Run time of all of them, in nanoseconds.
    pub(crate) fn total_ns(&self) -> u64 {
        self.0.values().map(|runs| runs.time_ns).sum()
    }

    /// Whether there is one of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// Numbers of the programs that a process has descriptors of (`prog_id` in `/proc/<pid>/fdinfo`, proc(5)).
fn program_ids(pid: u32) -> Result<Vec<u32>> {
    let folder = format!("/proc/{pid}/fdinfo");
    let entries = fs::read_dir(&folder).with_context(|| format!("reading {folder} failed"))?;
    // A descriptor that was closed meanwhile has nothing to say.
    let texts = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    Ok(texts.filter_map(|text| program_id(&text)).collect())
}

fn program_id(text: &str) -> Option<u32> {
    // A link names its program too, but has a type of its own.
    let is_program = text.lines().any(|line| line.starts_with("prog_type:"));
    let line = text.lines().find_map(|line| line.strip_prefix("prog_id:"))?;
    line.trim().parse().ok().filter(|_| is_program)
}

/// What the kernel reports, in nanoseconds, for a program that does nothing: the cost of measuring, which every other
/// figure of these statistics contains. The statistics must be on.
///
/// # Errors
/// The kernel refuses a program or a socket, or reports no run.
pub(crate) fn floor_ns() -> Result<f64> {
    let receiver = UdpSocket::bind("127.0.0.1:0").context("opening a socket failed")?;
    let filter = bpf::load_empty_filter()?;
    bpf::attach_filter(&receiver, &filter)?;
    let address = receiver.local_addr().context("reading a socket's address failed")?;
    let sender = UdpSocket::bind("127.0.0.1:0").context("opening a socket failed")?;
    for _ in 0..FLOOR_DATAGRAMS {
        sender.send_to(b"nothing", address).context("sending a datagram failed")?;
    }
    let runs = Programs::of(std::process::id())?.named(UNNAMED);
    if runs.count < u64::from(FLOOR_DATAGRAMS) / 2 {
        bail!("an empty kernel program ran {} times for {FLOOR_DATAGRAMS} datagrams", runs.count);
    }
    runs.mean_ns().context("an empty kernel program has no run time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_are_programs() {
        let program =
            "pos:\t0\nflags:\t02000002\nprog_type:\t3\nprog_jited:\t1\nprog_id:\t1741\nrun_time_ns:\t0\n";
        assert_eq!(program_id(program), Some(1741));
        assert_eq!(program_id("link_type:\ttcx\nlink_id:\t12\nprog_tag:\taa\nprog_id:\t1741\n"), None);
        assert_eq!(program_id("pos:\t0\nmap_type:\t27\nmap_id:\t3\n"), None);
    }

    #[test]
    fn a_mean_needs_a_run() {
        assert_eq!(Runs::default().mean_ns(), None);
        assert_eq!(Runs { count: 4, time_ns: 10 }.mean_ns(), Some(2.5));
    }
}
