//! The kernel's first program: mounts what programs expect, starts the tests, and switches the machine off.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};

/// What is mounted, and where.
const MOUNTS: [(&str, &str); 5] =
    [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/run"), ("tmpfs", "/tmp")];
/// Loaded before anything asks for them: what netlink loads on demand it loads by these names too.
const MODULES: [&str; 3] = ["veth", "tcp_diag", "nf_tables"];

/// Makes the machine usable, runs this program again, and switches the machine off.
///
/// # Errors
/// What a first program fails with ends in a kernel panic, which the console shows and which ends the machine too.
pub(super) fn run() -> Result<()> {
    for (kind, place) in MOUNTS {
        mount(Some(kind), place, Some(kind), MsFlags::empty(), None::<&Path>)
            .with_context(|| format!("mounting {place} failed"))?;
    }
    for module in MODULES {
        // Built in, or missing: then what needs it says so.
        let _ = Command::new("/sbin/modprobe").args(["--quiet", module]).status();
    }
    let ended = Command::new("/init")
        .env("PATH", "/bin:/sbin")
        .env("ACKBEAT_BIN", "/bin/ackbeat")
        .env("TMPDIR", "/tmp")
        // The console then has what the sidecar says, spans too.
        .env("ACKBEAT_TEST_ECHO", "1")
        .env("RUST_BACKTRACE", "1")
        .stdin(Stdio::null())
        .status()
        .context("starting the tests failed")?;
    let _ = fs::write("/dev/console", format!("vm_guest: the tests ended: {ended}\n"));
    // Restarting at once, without a word to anybody: QEMU takes it for the end (Documentation/admin-guide/sysrq.rst).
    fs::write("/proc/sysrq-trigger", "b").context("switching the machine off failed")?;
    loop {
        std::thread::park();
    }
}

/// `uname -r`.
///
/// # Errors
/// If `/proc` is not there.
pub(super) fn release() -> Result<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").context("reading the release failed")?;
    Ok(release.trim().to_owned())
}
