//! Many short connections: none is lost without being counted.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ackbeat_tests::network::IpVersion;
use ackbeat_tests::sockets;
use anyhow::{Context, Result, ensure};

use super::scene::Scene;

const CONNECTIONS: usize = 2_000;
const CLIENT_THREADS: usize = 4;
const DEADLINE: Duration = Duration::from_secs(120);

/// Every other connection is closed by the host first, the rest by the client.
#[test]
fn two_thousand_connections_leave_two_thousand_records() -> Result<()> {
    let scene = Scene::new(IpVersion::V4)?;
    let began = Instant::now();
    let ports = std::thread::scope(|scope| -> Result<BTreeSet<u16>> {
        let host = scope.spawn(|| -> Result<()> {
            for number in 0..CONNECTIONS {
                let mut stream = sockets::accept(&scene.listener)?;
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
                    scene.network.client.run(|| {
                        (0..CONNECTIONS / CLIENT_THREADS)
                            .map(|_| {
                                let client = sockets::connect(scene.address)?;
                                Ok(client.local_addr().context("reading the client's address failed")?.port())
                            })
                            .collect::<Result<Vec<u16>>>()
                    })
                })
            })
            .collect();
        let mut ports = BTreeSet::new();
        for client in clients {
            ports.extend(client.join().ok().context("a client panicked")???);
        }
        host.join().ok().context("the host panicked")??;
        Ok(ports)
    })?;
    let rate = f64::from(u32::try_from(CONNECTIONS)?) / began.elapsed().as_secs_f64();
    ensure!(ports.len() == CONNECTIONS, "ports were reused within the test: {}", ports.len());
    println!("{CONNECTIONS} connections at {rate:.0} a second");

    scene.sidecar.wait_for("two thousand connection spans", DEADLINE, |all| {
        (all.iter().filter(|span| span.is_connection()).count() >= CONNECTIONS).then_some(())
    })?;
    let all = scene.sidecar.stop()?;
    let connections: Vec<u16> = all
        .iter()
        .filter(|span| span.is_connection())
        .filter_map(ackbeat_tests::spans::Span::peer_port)
        .collect();
    ensure!(connections.len() == CONNECTIONS, "{} records", connections.len());
    ensure!(
        connections.iter().copied().collect::<BTreeSet<u16>>() == ports,
        "each connection has its own record"
    );
    ensure!(
        all.iter().all(|span| span.number("ackbeat.events_dropped").unwrap_or(0) == 0),
        "nothing was dropped"
    );
    Ok(())
}
