//! A client as a process of its own.

use std::net::Ipv4Addr;
use std::time::Duration;

use ackbeat_tests::client::{ClientOptions, Command, Pace, Seen};
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::mux::{Ask, Host, HostAction, HostOptions};
use ackbeat_tests::peer::Peer;
use anyhow::{Result, ensure};

/// Generous: the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(40);

fn host() -> Result<Host> {
    let interval = Duration::from_millis(200);
    Host::start(
        None,
        HostOptions { interval, ..HostOptions::new(Ipv4Addr::LOCALHOST.into()).watching_only() },
    )
}

fn pongs(host: &Host) -> usize {
    host.events.read(|events| events.iter().filter(|event| event.what == HostAction::Pong).count())
}

#[test]
fn a_stopped_peer_is_silent_until_it_goes_on() -> Result<()> {
    let host = host()?;
    let mut peer = Peer::connect(None, &ClientOptions::new(host.address()))?;
    host.wait_for_pongs(peer.port(), 2, DEADLINE)?;
    peer.stop()?;
    host.wait_for("count of four", peer.port(), DEADLINE, |what| {
        matches!(what, HostAction::Ping { missed: 4.., .. })
    })?;
    let before = pongs(&host);
    peer.go_on()?;
    host.wait_for_pongs(peer.port(), before + 2, DEADLINE)?;
    peer.kill()?;
    host.wait_for("end", peer.port(), DEADLINE, |what| *what == HostAction::Closed)?;
    ensure!(peer.ask(&Ask::Follow).is_err(), "a killed peer takes no commands");
    Ok(())
}

#[test]
fn a_peer_obeys_and_says_what_it_saw() -> Result<()> {
    let host = host()?;
    let pace = Pace::Slow { bytes_per_second: 500_000, read_bytes: 4_096 };
    let peer = Peer::connect(None, &ClientOptions::new(host.address()).paced(pace))?;
    peer.wait_for("opening", DEADLINE, |seen| *seen == Seen::Opened)?;
    peer.ask(&Ask::Bytes { bytes: 300_000 })?;
    let data = peer.wait_for("message", DEADLINE, |seen| *seen == Seen::Data { bytes: 300_000 })?;
    ensure!(data.bytes_read > 300_000, "{data:?}");
    peer.command(&Command::SendBytes { bytes: 1_000 })?;
    peer.wait_for("message of its own", DEADLINE, |seen| *seen == Seen::Sent { bytes: 1_000 })?;
    peer.command(&Command::Freeze { frozen: true })?;
    host.wait_for("count of four", peer.port(), DEADLINE, |what| {
        matches!(what, HostAction::Ping { missed: 4.., .. })
    })?;
    peer.command(&Command::Freeze { frozen: false })?;
    let before = pongs(&host);
    host.wait_for_pongs(peer.port(), before + 1, DEADLINE)?;
    peer.command(&Command::Close { code: 1000, reason: String::new() })?;
    peer.wait_for_end(DEADLINE)?;
    Ok(())
}

#[test]
fn a_dropped_peer_is_gone_even_if_it_was_stopped() -> Result<()> {
    let host = host()?;
    let mut peer = Peer::connect(None, &ClientOptions::new(host.address()))?;
    peer.stop()?;
    let proc_directory = format!("/proc/{}", peer.pid());
    drop(peer);
    wait_until("the end of the process", DEADLINE, || Ok(!std::path::Path::new(&proc_directory).exists()))
}

#[test]
fn a_peer_that_cannot_connect_says_why() {
    // Port 1 of loopback: nobody listens there.
    let refused = Peer::connect(None, &ClientOptions::new((Ipv4Addr::LOCALHOST, 1).into()));
    let message = format!("{:#}", refused.err().expect("nobody listens"));
    assert!(message.contains("connecting to 127.0.0.1:1 failed"), "{message}");
}
