//! The shipped seccomp profile (`charts/ackbeat/seccomp/ackbeat.json`), in the format of the OCI runtimes.

use std::collections::BTreeSet;
use std::fs;

use ackbeat_chart_tests::repository;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// What no sidecar needs, and what containers have been broken out of with.
const NEVER: [&str; 22] = [
    "add_key",
    "chroot",
    "delete_module",
    "finit_module",
    "fsopen",
    "init_module",
    "io_uring_setup",
    "kexec_load",
    "keyctl",
    "mknod",
    "mount",
    "move_mount",
    "open_by_handle_at",
    "pivot_root",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "reboot",
    "setns",
    "umount2",
    "unshare",
    "userfaultfd",
];

#[test]
fn the_profile_allows_kernel_programs_and_nothing_dangerous() -> Result<()> {
    let text = fs::read_to_string(repository("charts/ackbeat/seccomp/ackbeat.json")?)?;
    let profile: Value = serde_json::from_str(&text)?;
    ensure!(profile["defaultAction"] == "SCMP_ACT_ERRNO", "what is not named must be refused");
    let mut allowed = BTreeSet::new();
    for group in profile["syscalls"].as_array().context("groups of system calls")? {
        for name in group["names"].as_array().context("names")? {
            let name = name.as_str().context("a name")?;
            let is_allowed = group["action"] == "SCMP_ACT_ALLOW";
            ensure!(!is_allowed || allowed.insert(name.to_owned()), "{name} is there twice");
        }
    }
    for name in ["bpf", "perf_event_open"] {
        ensure!(allowed.contains(name), "{name} is refused");
    }
    for name in NEVER {
        ensure!(!allowed.contains(name), "{name} is allowed");
    }
    Ok(())
}
