//! The sidecar is killed and started again; the app does not notice, and nothing of the old one stays behind.

use std::io::{Read as _, Write as _};

use ackbeat_tests::journal::wait_until;
use ackbeat_tests::namespace::Namespace;
use ackbeat_tests::network::IpVersion;
use ackbeat_tests::process::run;
use ackbeat_tests::sidecar::Sidecar;
use ackbeat_tests::{sockets, spans};
use anyhow::{Context, Result, ensure};

use super::{DEADLINE, wire_programs};
use crate::scene::{Pair, SPAN_DEADLINE, Scene, watching};

/// Payload both ways.
fn carries(pair: &mut Pair) -> Result<()> {
    let mut received = [0; 4];
    pair.client.write_all(b"ping").context("writing as the client failed")?;
    pair.host.read_exact(&mut received).context("reading as the host failed")?;
    pair.host.write_all(b"pong").context("writing as the host failed")?;
    pair.client.read_exact(&mut received).context("reading as the client failed")
}

/// Nothing on the host's interfaces any more, TCX or clsact.
fn nothing_is_attached(namespace: &Namespace) -> Result<()> {
    wait_until("the end of the wire programs", DEADLINE, || {
        Ok(wire_programs(namespace, "host0")?.is_empty() && wire_programs(namespace, "lo")?.is_empty())
    })?;
    let disciplines = run(Some(namespace), "tc", &["qdisc", "show"])?;
    ensure!(!disciplines.contains("clsact"), "{disciplines}");
    Ok(())
}

#[test]
fn a_sidecar_that_was_killed_leaves_nothing_and_its_successor_takes_over() -> Result<()> {
    let Scene { network, listener, address, sidecar: first } = Scene::new(IpVersion::V4)?;
    let names = wire_programs(&network.host, "host0")?;
    ensure!(names == ["wire_ingress", "wire_egress"], "{names:?}");
    let mut kept = crate::scene::pair(&network, &listener, address)?;
    let mut closed = crate::scene::pair(&network, &listener, address)?;
    carries(&mut kept)?;

    first.kill()?;
    nothing_is_attached(&network.host)?;
    carries(&mut kept)?;
    carries(&mut closed)?;

    // What is there is picked up, and its end is told.
    let second = Sidecar::start(&network.host, &watching(address.port()))?;
    let names = wire_programs(&network.host, "host0")?;
    ensure!(names == ["wire_ingress", "wire_egress"], "{names:?}");
    let closed_port = closed.client_port;
    drop(closed.host);
    sockets::read_to_end(&mut closed.client)?;
    let close = second.wait_for_host_close(closed_port, SPAN_DEADLINE)?;
    ensure!(close.number("process.pid") == Some(i64::from(std::process::id())), "{close:?}");
    ensure!(close.number("ackbeat.connection.lifetime_ms").is_none(), "nobody saw it begin: {close:?}");
    ensure!(close.flag("ackbeat.false_kill") != Some(true), "{close:?}");

    // The sidecar goes first, in order: the app's connection stays.
    let all = second.stop()?;
    ensure!(spans::host_close(&all, kept.client_port).is_none(), "nobody closed it");
    nothing_is_attached(&network.host)?;
    carries(&mut kept)
}
