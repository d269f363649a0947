//! What the running sidecar has given up, as the kernel tells it of every thread (proc_pid_status(5)).

use std::fs;
use std::process::Command;

use ackbeat_tests::journal::wait_until;
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::sockets;
use anyhow::{Context, Result, ensure};

use super::scene::{SPAN_DEADLINE, pair, watching};

const CAP_DAC_OVERRIDE: u64 = 1 << 1;
const CAP_DAC_READ_SEARCH: u64 = 1 << 2;
const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_SYS_PTRACE: u64 = 1 << 19;
const CAP_BPF: u64 = 1 << 39;
/// `SECCOMP_MODE_FILTER` (linux/seccomp.h).
const FILTER: &str = "2";

/// One thread, as the kernel tells of it.
#[derive(Debug)]
struct Thread {
    is_main: bool,
    name: String,
    status: String,
}

impl Thread {
    fn field(&self, name: &str) -> Result<&str> {
        self.status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
            .with_context(|| format!("no {name}: {}", self.status))
    }

    fn capabilities(&self, set: &str) -> Result<u64> {
        u64::from_str_radix(self.field(set)?, 16).with_context(|| format!("{set} of {}", self.name))
    }
}

fn threads(pid: u32) -> Result<Vec<Thread>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let entry = entry?;
        // A thread may end at any time.
        let Ok(status) = fs::read_to_string(entry.path().join("status")) else { continue };
        let mut thread =
            Thread { is_main: entry.file_name() == pid.to_string().as_str(), name: String::new(), status };
        thread.name = thread.field("Name")?.to_owned();
        threads.push(thread);
    }
    Ok(threads)
}

/// What threads may keep, and that every other set is empty and every thread confined.
fn check_threads(pid: u32, of_main: u64, of_census: u64) -> Result<()> {
    let threads = threads(pid)?;
    ensure!(threads.len() >= 4, "main, census and the runtime's at least: {threads:?}");
    for thread in &threads {
        let allowed = match thread.name.as_str() {
            _ if thread.is_main => of_main,
            "ackbeat-census" => of_census,
            // Its name is longer than what the kernel keeps.
            name if name.starts_with("ackbeat-record") => CAP_DAC_OVERRIDE,
            _ => 0,
        };
        for set in ["CapEff", "CapPrm"] {
            let held = thread.capabilities(set)?;
            ensure!(held & !allowed == 0, "{set} of {} is {held:x}, allowed is {allowed:x}", thread.name);
        }
        for set in ["CapInh", "CapAmb", "CapBnd"] {
            ensure!(thread.capabilities(set)? == 0, "{set} of {}: {}", thread.name, thread.status);
        }
        ensure!(thread.field("NoNewPrivs")? == "1", "{}: {}", thread.name, thread.status);
        ensure!(thread.field("Seccomp")? == FILTER, "{}: {}", thread.name, thread.status);
    }
    Ok(())
}

/// With kernel programs, a census, a recording that begins new files and an interface that comes later: all of it works
/// with what is left.
#[test]
fn every_thread_has_given_up_what_it_does_not_need() -> Result<()> {
    let network = Network::create()?;
    let (listener, address) = network.host.run(|| sockets::listen(network.host_address(IpVersion::V4)))??;
    let folder = tempfile::tempdir().context("making a folder failed")?;
    let recording = folder.path().join("all.jsonl");
    let options = watching(address.port())
        .argument("--record", &recording)
        .variable("ACKBEAT_RECORDING_MAX_BYTES", "8192")
        .variable("ACKBEAT_LEAKS_CENSUS_INTERVAL_MS", "200")
        .variable("RUST_LOG", "ackbeat=debug");
    let sidecar = Sidecar::start(&network.host, &options)?;
    check_threads(sidecar.pid(), CAP_NET_ADMIN | CAP_BPF, CAP_SYS_PTRACE | CAP_DAC_READ_SEARCH)?;
    ensure!(
        sidecar
            .log()
            .iter()
            .any(|line| line.contains("the sandbox is in force") && line.contains("CAP_NET_ADMIN")),
        "{:#?}",
        sidecar.log()
    );

    let attached =
        || sidecar.log().iter().filter(|line| line.contains("the wire parser is attached")).count();
    let before = attached();
    for arguments in [
        &["link", "add", "later0", "type", "veth", "peer", "name", "later1"][..],
        &["link", "set", "later0", "up"],
    ] {
        let status = network.host.run(|| Command::new("ip").args(arguments).status())??;
        ensure!(status.success(), "ip {arguments:?}: {status}");
    }
    wait_until("the new interface", SPAN_DEADLINE, || Ok(attached() > before))?;

    for _ in 0..20 {
        let connected = pair(&network, &listener, address)?;
        drop(connected.host);
        let client_port = connected.client_port;
        drop(connected.client);
        sidecar.wait_for_host_close(client_port, SPAN_DEADLINE)?;
    }
    let earlier = folder.path().join("all.jsonl.1");
    wait_until("a second file of the recording", SPAN_DEADLINE, || Ok(earlier.exists()))?;
    let (_, log) = sidecar.stop_with_log()?;
    let told: Vec<&String> =
        log.iter().filter(|line| line.contains("WARN") || line.contains("ERROR")).collect();
    ensure!(!told.iter().any(|line| line.contains("sandbox") || line.contains("not permitted")), "{told:#?}");
    Ok(())
}

/// Without kernel programs nothing is left at all; with reaping, what destroys a socket.
#[test]
fn sock_diag_keeps_only_what_reaping_needs() -> Result<()> {
    let network = Network::create()?;
    let options = SidecarOptions::default().argument("--mode", "sock-diag");
    let sidecar = Sidecar::start(&network.host, &options)?;
    check_threads(sidecar.pid(), 0, CAP_SYS_PTRACE | CAP_DAC_READ_SEARCH)?;
    sidecar.stop()?;
    let reaps =
        options.variable("ACKBEAT_LEAKS_REAP", "on").variable("ACKBEAT_LEAKS_REAP_QUOTA", "local:9=5");
    let sidecar = Sidecar::start(&network.host, &reaps)?;
    check_threads(sidecar.pid(), 0, CAP_SYS_PTRACE | CAP_DAC_READ_SEARCH | CAP_NET_ADMIN)?;
    sidecar.stop().map(drop)
}

#[test]
fn the_sandbox_can_be_switched_off() -> Result<()> {
    let network = Network::create()?;
    let options = SidecarOptions::default().variable("ACKBEAT_SECURITY_SANDBOX", "false");
    let sidecar = Sidecar::start(&network.host, &options)?;
    for thread in threads(sidecar.pid())? {
        ensure!(thread.field("Seccomp")? == "0" && thread.field("NoNewPrivs")? == "0", "{thread:?}");
    }
    ensure!(sidecar.log().iter().any(|line| line.contains("the sandbox is off")), "{:#?}", sidecar.log());
    sidecar.stop().map(drop)
}
