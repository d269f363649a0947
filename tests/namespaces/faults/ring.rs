//! The ring buffer is full: what is lost is counted to the last record, nobody is accused for it, and sampling goes on.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use ackbeat_tests::api::ApiClient;
use ackbeat_tests::network::IpVersion;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use super::DEADLINE;
use crate::load::{latest, short_connections, sum};
use crate::scene::{SPAN_DEADLINE, Scene};

/// The ring holds some 18,000 transitions, and each connection makes four at least.
const CONNECTIONS: usize = 6_000;

#[test]
fn a_full_ring_is_counted_exactly_and_sampling_goes_on() -> Result<()> {
    let mut scene = Scene::new(IpVersion::V4)?;
    let mut witness = scene.pair()?;
    let address = SocketAddr::new(scene.network.client_address(IpVersion::V4), witness.client_port);
    let api = ApiClient::of(&scene.network.host)?;
    api.wait_for_verdict("the connection that stays", address, DEADLINE, |_| true)?;

    scene.sidecar.signal(Signal::SIGSTOP)?;
    short_connections(&scene.network, &scene.listener, scene.address, CONNECTIONS)?;
    // Nobody will hear of its opening.
    let unheard = scene.pair()?;
    scene.sidecar.signal(Signal::SIGCONT)?;
    let unheard_of = SocketAddr::new(address.ip(), unheard.client_port);
    api.wait_for_verdict("the connection whose opening was lost", unheard_of, DEADLINE, |_| true)?;

    // Its peer does not read: what lies in the queue is known by samples alone.
    witness.host.set_write_timeout(Some(Duration::from_millis(500))).context("bounding writes failed")?;
    let mut written = 0;
    let full = loop {
        match witness.host.write(&[0; 65_536]) {
            Ok(bytes) => written += bytes,
            Err(error) => break error,
        }
    };
    ensure!(full.kind() == ErrorKind::WouldBlock, "{full}");
    let held = api.wait_for_verdict("a reading of the full queue", address, DEADLINE, |connection| {
        connection.tcp.send_queue_bytes.is_some_and(|bytes| bytes > 0)
            && connection.tcp.read_age_ms.is_some_and(|age_ms| age_ms < 2_000)
    })?;
    ensure!(!held.kill_justified, "what was lost speaks against nobody: {held:#?}");
    witness.client.read_exact(&mut vec![0; written]).context("reading what was held failed")?;

    // What comes later is told as ever.
    let later = scene.pair()?;
    let later_port = later.client_port;
    drop(later.host);
    let close = scene.sidecar.wait_for_host_close(later_port, SPAN_DEADLINE)?;
    ensure!(close.text("ackbeat.close.kind") == Some("graceful"), "{close:?}");
    drop(witness.host);
    let close = scene.sidecar.wait_for_host_close(witness.client_port, SPAN_DEADLINE)?;
    ensure!(close.number("ackbeat.events_dropped").is_some_and(|dropped| dropped > 0), "{close:?}");
    ensure!(close.flag("ackbeat.false_kill") != Some(true), "{close:?}");

    let (_, log) = scene.sidecar.stop_with_log()?;
    println!("{}", sum(&log)?);
    ensure!(latest(&log, "records_dropped=").is_some_and(|dropped| dropped > 0), "the ring was not full");
    ensure!(super::count(&log, &["kernel records were lost"]) > 0, "nobody said so");
    Ok(())
}
