//! Processes come and go all the time, and the app dies first: each close names the process that it was.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ackbeat_tests::expectations::Expectations;
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::process::Process;
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::sockets::{self, SOCKET_DEADLINE};
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use crate::scene::SPAN_DEADLINE;

const HOSTS: usize = 8;
const CONNECTIONS: usize = 2;

/// Hosts one after the other, each killed with its connections, while other processes come and go.
fn kill_hosts(network: &Network, sidecar: &Sidecar) -> Result<()> {
    let address = network.host_address(IpVersion::V4);
    for _ in 0..HOSTS {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holder"));
        command.arg(address.to_string());
        let mut holder = Process::spawn("holder", Some(&network.host), command)?;
        let port: u16 =
            holder.stdout.wait_for("its port", SOCKET_DEADLINE, |lines| lines.first()?.parse().ok())?;
        let mut clients = network.client.run(|| {
            (0..CONNECTIONS).map(|_| sockets::connect((address, port).into())).collect::<Result<Vec<_>>>()
        })??;
        holder.stdout.wait_for("its connections", SOCKET_DEADLINE, |lines| {
            (lines.len() > CONNECTIONS).then_some(())
        })?;
        let pid = i64::from(holder.pid());
        holder.signal(Signal::SIGKILL)?;
        holder.wait(SOCKET_DEADLINE)?;
        for client in &mut clients {
            sockets::read_to_end(client)?;
            let close = sidecar.wait_for_host_close(client.local_addr()?.port(), SPAN_DEADLINE)?;
            Expectations::of(&close)
                .text("ackbeat.close.kind", &["process_exit"])
                .text("process.executable.name", &["holder"])
                .number("process.pid", pid..=pid)
                .number("network.local.port", i64::from(port)..=i64::from(port))
                .check("a host that was killed")?;
        }
    }
    Ok(())
}

#[test]
fn every_close_names_its_process_while_processes_come_and_go() -> Result<()> {
    let network = Network::create()?;
    // Every port, now or later; and the owners of all sockets are looked up in /proc ten times a second.
    let options = SidecarOptions::default()
        .variable("OTEL_BSP_SCHEDULE_DELAY", "200")
        .variable("ACKBEAT_LEAKS_CENSUS_INTERVAL_MS", "100")
        .variable("ACKBEAT_THRESHOLDS_POSTMORTEM_WINDOW_MS", "500");
    let sidecar = Sidecar::start(&network.host, &options)?;
    let (is_over, started) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| -> Result<()> {
        let churn = scope.spawn(|| -> Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                let mut short = Command::new("true");
                short.stdin(Stdio::null()).status().context("starting a short process failed")?;
                started.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let killed = kill_hosts(&network, &sidecar);
        is_over.store(true, Ordering::Relaxed);
        churn.join().ok().context("the thread that starts processes panicked")??;
        killed
    })?;
    println!("{} other processes came and went", started.load(Ordering::Relaxed));
    ensure!(started.load(Ordering::Relaxed) > HOSTS, "nothing came and went");
    sidecar.stop().map(drop)
}
