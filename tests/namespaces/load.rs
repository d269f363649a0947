//! Many short connections: none is lost without being counted.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sockets;
use ackbeat_tests::spans::Span;
use anyhow::{Context, Result, ensure};

use super::scene::Scene;

const CONNECTIONS: usize = 2_000;
const CLIENT_THREADS: usize = 4;
const DEADLINE: Duration = Duration::from_secs(120);

/// Opens and closes `count` connections, every other one closed by the host first, and gives the clients' ports.
pub(crate) fn short_connections(
    network: &Network,
    listener: &TcpListener,
    address: SocketAddr,
    count: usize,
) -> Result<Vec<u16>> {
    std::thread::scope(|scope| -> Result<Vec<u16>> {
        let host = scope.spawn(|| -> Result<()> {
            for number in 0..count {
                let mut stream = sockets::accept(listener)?;
                if number % 2 == 0 {
                    // The client closes first, if it is not quicker than this side anyway.
                    sockets::read_to_end(&mut stream)?;
                }
            }
            Ok(())
        });
        let clients: Vec<_> = (0..CLIENT_THREADS)
            .map(|_| {
                scope.spawn(|| {
                    network.client.run(|| {
                        (0..count / CLIENT_THREADS)
                            .map(|_| {
                                let client = sockets::connect(address)?;
                                Ok(client.local_addr().context("reading the client's address failed")?.port())
                            })
                            .collect::<Result<Vec<u16>>>()
                    })
                })
            })
            .collect();
        let mut ports = Vec::new();
        for client in clients {
            ports.extend(client.join().ok().context("a client panicked")???);
        }
        host.join().ok().context("the host panicked")??;
        Ok(ports)
    })
}

/// Every other connection is closed by the host first, the rest by the client.
#[test]
fn two_thousand_connections_leave_two_thousand_records() -> Result<()> {
    let scene = Scene::new(IpVersion::V4)?;
    let began = Instant::now();
    let ports = short_connections(&scene.network, &scene.listener, scene.address, CONNECTIONS)?;
    let rate = f64::from(u32::try_from(CONNECTIONS)?) / began.elapsed().as_secs_f64();
    println!("{CONNECTIONS} connections at {rate:.0} a second");

    let every_record =
        |all: &[Span]| (all.iter().filter(|span| span.is_connection()).count() >= CONNECTIONS).then_some(());
    // If some do not come, the counters below must say so.
    let came = scene.sidecar.wait_for("two thousand connection spans", DEADLINE, every_record);
    let (all, log) = scene.sidecar.stop_with_log()?;
    let lost = counted_losses(&log);
    println!("{}", sum(&log)?);
    let connections: Vec<u16> =
        all.iter().filter(|span| span.is_connection()).filter_map(Span::peer_port).collect();
    // A client's port may have served twice within the test: then it has two records.
    let (made, told) = (times(&ports), times(&connections));
    for (port, count) in &told {
        let made = made.get(port).copied().unwrap_or(0);
        ensure!(*count <= made, "port {port} was connected {made} times and has {count} records");
    }
    let missing = CONNECTIONS - connections.len();
    println!("{} records, {missing} missing, {lost} counted as lost", connections.len());
    ensure!(came.is_ok() || lost > 0, "{missing} records are missing and nothing was counted");
    ensure!(missing as u64 <= lost, "{missing} records are missing and {lost} were counted");
    if lost == 0 {
        let dropped = |span: &Span| span.number("ackbeat.events_dropped").unwrap_or(0);
        ensure!(all.iter().all(|span| dropped(span) == 0), "nothing was dropped");
    }
    Ok(())
}

fn times(ports: &[u16]) -> BTreeMap<u16, usize> {
    let mut times = BTreeMap::new();
    for port in ports {
        *times.entry(*port).or_default() += 1;
    }
    times
}

/// The latest total of this name in the sidecar's log.
pub(crate) fn latest(log: &[String], key: &str) -> Option<u64> {
    log.iter().rev().find_map(|line| {
        let (_, value) = line.split_once(key)?;
        value.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    })
}

/// What the sidecar's log counts as lost, in the kernel's ring buffer and on the way to the exporter: the latest totals.
fn counted_losses(log: &[String]) -> u64 {
    ["records_dropped=", " dropped=", "flows_rejected="].into_iter().filter_map(|key| latest(log, key)).sum()
}

/// Every record that the kernel programs wanted to send was seen, dropped or refused; none vanished.
pub(crate) fn sum(log: &[String]) -> Result<String> {
    let total = |key: &str| latest(log, key).with_context(|| format!("the log does not say {key}"));
    let sent = total("records_sent=")?;
    let (seen, dropped, rejected) =
        (total("records_seen=")?, total("records_dropped=")?, total("records_rejected=")?);
    // Two thousand connections open and close.
    ensure!(sent >= 4_000, "only {sent} records were sent");
    ensure!(seen + dropped + rejected == sent, "{seen} + {dropped} + {rejected} is not {sent}");
    Ok(format!("{seen} records seen + {dropped} dropped + {rejected} rejected = {sent} sent"))
}
