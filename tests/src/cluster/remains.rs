//! What a node leaves behind: containers, their shims and their mounts outlive the process that asked for them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Programs that belong to a node where their command line names its folder.
const DAEMONS: [&str; 5] = ["containerd", "kube", "etcd", "runc", "dnsmasq"];

/// Ends every daemon whose command line names `folder`, every process of the containers below it, and takes the mounts below
/// it away. Best effort: what is left is found by the next run.
pub(super) fn remove(folder: &Path) {
    let Some(text) = folder.to_str() else { return };
    for pid in processes_of(text) {
        let _ = kill(pid, Signal::SIGKILL);
    }
    // A killed process holds its mounts until it is gone.
    for _ in 0..50 {
        if processes_of(text).is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    for _ in 0..3 {
        for mount in mounts_below(text) {
            let _ = quietly("umount", &["--lazy", &mount]);
        }
    }
    let _ = std::fs::remove_dir_all(folder);
}

/// Processes that name the folder in their command line (daemons and shims), or whose root file system lies below it.
fn processes_of(folder: &str) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        if u32::try_from(*pid) == Ok(std::process::id()) {
            return false;
        }
        let is_daemon = std::fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| DAEMONS.iter().any(|daemon| name.starts_with(daemon)));
        let names_it = is_daemon
            && std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(folder));
        // A process of a container has its root there, seen from its own mounts.
        let lives_there = std::fs::read_to_string(format!("/proc/{pid}/mountinfo"))
            .is_ok_and(|mounts| mounts.lines().any(|line| is_root_in(line, folder)));
        names_it || lives_there
    })
    .map(Pid::from_raw)
    .collect()
}

/// Whether a line of mountinfo is the root of a container whose layers lie below the folder.
fn is_root_in(line: &str, folder: &str) -> bool {
    line.split(' ').nth(4) == Some("/") && line.contains("overlay") && line.contains(folder)
}

fn mounts_below(folder: &str) -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut below: Vec<String> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|mount| Path::new(mount).starts_with(folder))
        .map(str::to_owned)
        .collect();
    below.sort_by_key(|mount| std::cmp::Reverse(mount.len()));
    below
}

fn quietly(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
