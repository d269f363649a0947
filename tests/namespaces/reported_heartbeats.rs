//! Heartbeats that TLS hides from the sidecar: the Node.js package tells of them, and the sidecar knows as much as from the wire.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use ackbeat::api::types::Connections;
use ackbeat_liveness::{HeartbeatSource, Verdict};
use ackbeat_tests::api::ApiClient;
use ackbeat_tests::expectations::Expectations;
use ackbeat_tests::mux::{Host, HostAction};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::process::Process;
use ackbeat_tests::sidecar::Sidecar;
use ackbeat_tests::tools;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use crate::scene::{SPAN_DEADLINE, watching};

/// Pongs, verdicts and kills are waited for this long, on a busy machine too.
const DEADLINE: Duration = Duration::from_secs(60);
/// From one Ping of the host to the next.
const INTERVAL_MS: u64 = 1_000;
/// Enough to learn an interval from.
const PONGS: usize = 8;

fn node(program: &str) -> Result<Command> {
    let mut command = Command::new("node");
    command.current_dir(tools::node_directory()?).arg(tools::source("node").join(program));
    Ok(command)
}

#[test]
fn the_node_package_reports_what_tls_hides() -> Result<()> {
    let network = Network::create()?;
    let address = network.host_address(IpVersion::V4);
    let folder = tempfile::tempdir()?;
    let (key, certificate) = (folder.path().join("key.pem"), folder.path().join("certificate.pem"));
    let made = rcgen::generate_simple_self_signed([address.to_string()])?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    std::fs::write(&certificate, made.cert.pem())?;

    let mut command = node("drop-in-host.mjs")?;
    command.args([address.to_string(), INTERVAL_MS.to_string()]).args([&key, &certificate]);
    let process = Process::spawn("the host that reports", Some(&network.host), command)?;
    let host = Host::from_process(process, address)?;
    let options = watching(host.address().port()).argument("--policy", "fast");
    let sidecar = Sidecar::start(&network.host, &options)?;
    let api = ApiClient::of(&network.host)?;

    let mut command = node("tls-client.mjs")?;
    command.arg(host.address().to_string()).arg(&certificate);
    let mut client = Process::spawn("the client over TLS", Some(&network.client), command)?;
    let opened = |what: &HostAction| *what == HostAction::Opened;
    let port = host
        .events
        .wait_for("a WebSocket over TLS", DEADLINE, |events| {
            events.iter().find(|event| opened(&event.what)).map(|event| event.peer_port)
        })
        .with_context(|| client.last_words())?;
    let peer = SocketAddr::new(network.client_address(IpVersion::V4), port);
    host.wait_for_pongs(port, PONGS, DEADLINE)?;
    let known = api.wait_for_verdict("a learned interval", peer, DEADLINE, |connection| {
        connection.heartbeat.interval_ms.is_some() && connection.heartbeat.last_pong_age_ms.is_some()
    })?;
    ensure!(known.heartbeat.source == HeartbeatSource::Application, "{known:#?}");
    ensure!(known.verdict == Verdict::Alive && !known.kill_justified, "{known:#?}");
    let interval_ms = known.heartbeat.interval_ms.context("it was there a moment ago")?;
    ensure!(
        interval_ms.abs_diff(INTERVAL_MS) <= INTERVAL_MS / 10,
        "the host Pings every {INTERVAL_MS} ms, and {interval_ms} ms were learned"
    );
    let all: Connections = api.read("/v1/connections")?;
    ensure!(
        all.total == 1 && all.connections.iter().all(|one| one.heartbeat.source == known.heartbeat.source),
        "{all:#?}"
    );

    // Its process stands still, and its kernel goes on acknowledging: without the reports nobody could tell.
    client.signal(Signal::SIGSTOP)?;
    host.wait_for_kill(port, DEADLINE)?;
    let close = sidecar.wait_for_host_close(port, SPAN_DEADLINE)?;
    client.signal(Signal::SIGCONT)?;
    Expectations::of(&close)
        .text("ackbeat.close.initiator", &["host"])
        .text("ackbeat.verdict", &["silent"])
        .text("ackbeat.heartbeat.source", &["application"])
        .number("ackbeat.close.ws_code", 1_011..=1_011)
        .text("ackbeat.close.ws_reason", &["heartbeat timeout"])
        .error(false)
        .check("the client that stood still")?;
    sidecar.stop().map(drop)
}
