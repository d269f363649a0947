//! A sidecar that dies, stands still or is asked to go: it accuses nobody, and loses nothing that it need not lose.

use std::time::Duration;

use ackbeat_tests::client::{Client, ClientOptions, Seen};
use ackbeat_tests::mux::{Host, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::Sidecar;
use ackbeat_tests::spans::{self, Span};
use ackbeat_tests::story;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use super::scene::{SPAN_DEADLINE, watching};

const DEADLINE: Duration = Duration::from_secs(60);

/// Verdicts of a peer that answers: never anything that speaks against it.
fn accuses_nobody(span: &Span) -> Result<()> {
    let verdicts = span.event_verdicts();
    let last = span.text("ackbeat.verdict").map(str::to_owned);
    for verdict in verdicts.iter().chain(last.iter()) {
        ensure!(
            ["alive", "congested", "unknown", "closed"].contains(&verdict.as_str()),
            "{verdict}: {span:?}"
        );
    }
    Ok(())
}

fn healthy(network: &Network, host: &Host) -> Result<Client> {
    Client::connect(Some(&network.client), ClientOptions::new(host.address()))
}

#[test]
fn a_sidecar_that_died_picks_the_open_connections_up() -> Result<()> {
    let network = Network::create()?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let port = host.address().port();
    let first = Sidecar::start(&network.host, &watching(port))?;
    let staying = healthy(&network, &host)?;
    let leaving = healthy(&network, &host)?;
    let slow = story::burst(&network, &host, story::slow_reader(&host))?;
    host.wait_for_pongs(staying.port(), 2, DEADLINE)?;
    let told = first.kill()?;
    ensure!(!told.iter().any(Span::is_host_close), "nobody was closed so far: {told:?}");

    let second = Sidecar::start(&network.host, &watching(port))?;
    // The host's watchdog kills the slow reader in front of a sidecar that saw none of its heartbeat.
    host.wait_for_kill(slow.port(), DEADLINE)?;
    leaving.abandon();
    let left = second.wait_for_connection(leaving.port(), SPAN_DEADLINE)?;
    ensure!(left.text("ackbeat.close.initiator") == Some("peer"), "{left:?}");
    accuses_nobody(&left)?;
    let killed = second.wait_for_host_close(slow.port(), SPAN_DEADLINE)?;
    ensure!(
        matches!(killed.text("ackbeat.kill.assessment"), Some("false_kill" | "premature" | "unknown")),
        "a reader that goes on reading is not rightly killed: {killed:?}"
    );
    ensure!(killed.text("ackbeat.close.initiator") == Some("host"), "{killed:?}");

    // A connection that stays is followed again: its end is told in full.
    let pongs =
        host.events.read(|events| events.iter().filter(|event| event.peer_port == staying.port()).count());
    ensure!(pongs > 0, "the staying client lives");
    story::wait_between_ticks(&host, staying.port())?;
    story::wait_between_ticks(&host, staying.port())?;
    staying.ask(&ackbeat_tests::mux::Ask::Leave { code: story::POLITE_CODE, reason: String::new() });
    staying.wait_for("Close frame", DEADLINE, |seen| matches!(seen, Seen::CloseFrame { .. }))?;
    let close = second.wait_for_host_close(staying.port(), SPAN_DEADLINE)?;
    accuses_nobody(&close)?;
    ensure!(close.flag("ackbeat.false_kill") != Some(true), "{close:?}");
    second.stop().map(drop)
}

#[test]
fn a_heartbeat_is_unknown_right_after_a_restart() -> Result<()> {
    let network = Network::create()?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    // The connection is older than the sidecar, and is closed before the next tick could teach anything.
    let client = healthy(&network, &host)?;
    host.wait_for_pongs(client.port(), 2, DEADLINE)?;
    let sidecar = Sidecar::start(&network.host, &watching(host.address().port()))?;
    drop(host);
    client.wait_for_end(DEADLINE)?;
    let close = sidecar.wait_for_host_close(client.port(), SPAN_DEADLINE)?;
    ensure!(close.number("ackbeat.heartbeat.missed").is_none(), "{close:?}");
    ensure!(close.text("ackbeat.close.kind") != Some("heartbeat_kill"), "{close:?}");
    accuses_nobody(&close)?;
    sidecar.stop().map(drop)
}

#[test]
fn a_sidecar_that_stood_still_accuses_nobody() -> Result<()> {
    let network = Network::create()?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let mut sidecar = Sidecar::start(&network.host, &watching(host.address().port()))?;
    let client = healthy(&network, &host)?;
    host.wait_for_pongs(client.port(), 2, DEADLINE)?;
    sidecar.signal(Signal::SIGSTOP)?;
    // Longer than every threshold of the default policy that is counted from a Ping.
    host.wait_for_pongs(client.port(), 14, DEADLINE)?;
    sidecar.signal(Signal::SIGCONT)?;
    host.wait_for_pongs(client.port(), 16, DEADLINE)?;
    client.close(1000, "");
    let connection = sidecar.wait_for_connection(client.port(), SPAN_DEADLINE)?;
    accuses_nobody(&connection)?;
    let all = sidecar.stop()?;
    ensure!(spans::host_close(&all, client.port()).is_none(), "nobody killed it");
    Ok(())
}

#[test]
fn a_sidecar_that_is_asked_to_go_tells_what_it_knows_first() -> Result<()> {
    let network = Network::create()?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let sidecar = Sidecar::start(&network.host, &watching(host.address().port()))?;
    let open = healthy(&network, &host)?;
    let cut = healthy(&network, &host)?;
    host.wait_for_pongs(cut.port(), 2, DEADLINE)?;
    network.cut(cut.port())?;
    host.wait_for_kill(cut.port(), DEADLINE)?;
    // In the middle of the post-mortem.
    let began = std::time::Instant::now();
    let all = sidecar.stop()?;
    ensure!(began.elapsed() < Duration::from_secs(15), "the drain took {:?}", began.elapsed());
    let close = spans::host_close(&all, cut.port()).context("the kill was not told")?;
    ensure!(close.text("ackbeat.verdict") == Some("unreachable"), "{close:?}");
    ensure!(
        matches!(close.text("ackbeat.postmortem"), Some("unresolved" | "no_answer")),
        "the post-mortem was cut short: {close:?}"
    );
    ensure!(spans::host_close(&all, open.port()).is_none(), "the open connection was not closed");
    Ok(())
}
