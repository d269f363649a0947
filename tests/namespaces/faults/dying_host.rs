//! A host with ten thousand connections dies: ten thousand records or an exact count of those that are missing, closes before
//! everything else, and bounded memory.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use ackbeat_tests::journal::wait_until;
use ackbeat_tests::metrics_page::MetricsPage;
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::process::Process;
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::sockets::{self, SOCKET_DEADLINE};
use ackbeat_tests::spans::Span;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use crate::load::latest;

/// The host's processes, as a server that forks has them.
const WORKERS: usize = 4;
const CONNECTIONS_OF_EACH: usize = 2_500;
const CONNECTIONS: usize = WORKERS * CONNECTIONS_OF_EACH;
const DEADLINE: Duration = Duration::from_secs(120);
/// Where the sidecar's page is, in its own namespace.
const PAGE: &str = "127.0.0.1:9464";
/// A debug build; 16 KiB for each connection, 8192 spans of 5 kB and what the empty sidecar has are less.
const MEMORY_MAX_KIB: u64 = 300 * 1_024;

/// The most memory that a process ever had, in KiB (`VmHWM`, proc_pid_status(5)).
fn peak_memory_kib(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("reading a status failed")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()).context("no peak is told")?;
    number.parse().context("the peak is no number")
}

fn start_worker(network: &Network) -> Result<(Process, SocketAddr)> {
    let address = network.host_address(IpVersion::V4);
    let mut command = Command::new(env!("CARGO_BIN_EXE_holder"));
    command.arg(address.to_string());
    let worker = Process::spawn("holder", Some(&network.host), command)?;
    let port: u16 =
        worker.stdout.wait_for("a worker's port", SOCKET_DEADLINE, |lines| lines.first()?.parse().ok())?;
    Ok((worker, SocketAddr::new(address, port)))
}

/// Opens all connections, each worker's on a thread of its own.
fn connect_all(network: &Network, workers: &[(Process, SocketAddr)]) -> Result<Vec<TcpStream>> {
    let opened = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter()
            .map(|(_, address)| {
                scope.spawn(|| {
                    network.client.run(|| {
                        (0..CONNECTIONS_OF_EACH)
                            .map(|_| sockets::connect(*address))
                            .collect::<Result<Vec<_>>>()
                    })
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().ok().context("a thread panicked")??)
            .collect::<Result<Vec<_>>>()
    })?;
    Ok(opened.into_iter().flatten().collect())
}

#[test]
fn ten_thousand_connections_of_a_dying_host_leave_ten_thousand_records() -> Result<()> {
    let network = Network::create()?;
    let mut workers = (0..WORKERS).map(|_| start_worker(&network)).collect::<Result<Vec<_>>>()?;
    let options = SidecarOptions {
        ports: workers.iter().map(|(_, address)| address.port()).collect(),
        ..SidecarOptions::default()
    };
    // The queue of spans is as it comes: it has no room for two spans of each.
    let sidecar = Sidecar::start(&network.host, &options.variable("OTEL_BSP_SCHEDULE_DELAY", "200"))?;
    let clients = connect_all(&network, &workers)?;
    let page = || MetricsPage::read(&network.host, PAGE.parse()?);
    wait_until("every connection to be watched", DEADLINE, || {
        Ok(page()?.count("ackbeat_connections", None)? == CONNECTIONS as u64)
    })?;
    let before_kib = peak_memory_kib(sidecar.pid())?;

    let died = Instant::now();
    for (worker, _) in &mut workers {
        worker.signal(Signal::SIGKILL)?;
    }
    wait_until("no connection any more", DEADLINE, || Ok(page()?.count("ackbeat_connections", None)? == 0))?;
    let spans_of =
        |page: &MetricsPage, outcome| page.count("ackbeat_export_spans_total", Some(("outcome", outcome)));
    wait_until("an empty queue", DEADLINE, || Ok(page()?.count("ackbeat_export_waiting", None)? == 0))?;
    let took = died.elapsed();
    let page = page()?;
    let closes = page.count("ackbeat_connection_closes_total", None)?;
    let (exported, dropped) = (spans_of(&page, "exported")?, spans_of(&page, "dropped")?);
    let peak_kib = peak_memory_kib(sidecar.pid())?;
    drop(clients);
    let (all, log) = sidecar.stop_with_log()?;
    let host_closes: Vec<&Span> = all.iter().filter(|span| span.is_host_close()).collect();
    let roots: Vec<&Span> = all.iter().filter(|span| span.is_connection()).collect();
    let lost = latest(&log, "records_dropped=").context("the log does not say what was dropped")?;
    println!(
        "{CONNECTIONS} connections: {closes} closes, told after {took:?}: {} of their spans and {} of connections, {dropped} \
         spans dropped, {lost} kernel records dropped; memory {before_kib} KiB before, {peak_kib} KiB at most",
        host_closes.len(),
        roots.len()
    );
    // Every connection has a record, or a lost kernel record stands for it.
    ensure!(closes == CONNECTIONS as u64, "{closes} closes");
    ensure!(all.len() as u64 == exported, "{exported} spans were exported, {} were read", all.len());
    let by_host = page.count("ackbeat_host_closes_total", None)?;
    ensure!(by_host + lost >= CONNECTIONS as u64, "{by_host} closes by the host, {lost} records lost");
    // A storm's or a leak's span may be among them.
    let others = exported + dropped - closes - by_host;
    ensure!(others <= 8, "{exported} + {dropped} spans of {closes} closes, {by_host} by the host");
    // What found no room is detail.
    ensure!(
        host_closes.len() as u64 == by_host || roots.is_empty(),
        "a close was given up before a detail: {} of {by_host}, and {} roots",
        host_closes.len(),
        roots.len()
    );
    let exits =
        host_closes.iter().filter(|span| span.text("ackbeat.close.kind") == Some("process_exit")).count();
    ensure!(exits as u64 + lost >= host_closes.len() as u64, "{exits} of {} are exits", host_closes.len());
    ensure!(peak_kib < MEMORY_MAX_KIB, "{peak_kib} KiB, and {before_kib} KiB before");
    Ok(())
}
