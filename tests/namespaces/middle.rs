//! The terminating relay in the middle: it carries, and it swallows while its kernel acknowledges.

use std::time::Duration;

use ackbeat_tests::client::{Client, ClientOptions, Seen};
use ackbeat_tests::expectations::Expectations;
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::middle::Middle;
use ackbeat_tests::mux::{Ask, Host, HostAction, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::process::run;
use ackbeat_tests::relay::Direction;
use ackbeat_tests::sidecar::Sidecar;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use super::scene::{SPAN_DEADLINE, watching};

const DEADLINE: Duration = Duration::from_secs(60);

struct Stage {
    network: Network,
    host: Host,
    middle: Middle,
    client: Client,
    /// The port that the host sees.
    peer_port: u16,
}

impl Stage {
    fn new() -> Result<Self> {
        let network = Network::create()?;
        let interval = Duration::from_millis(200);
        let options =
            HostOptions { interval, ..HostOptions::new(network.host_address(IpVersion::V4)).watching_only() };
        let host = Host::start(Some(&network.host), options)?;
        let between = network.router_address(IpVersion::V4);
        let middle = Middle::start(Some(&network.router), between, host.address())?;
        let client = Client::connect(Some(&network.client), ClientOptions::new(middle.address()))?;
        let peer_port = middle.dialled_port(client.port()).context("the middle dialled nobody")?;
        host.wait_for_pongs(peer_port, 2, DEADLINE)?;
        Ok(Self { network, host, middle, client, peer_port })
    }

    fn pongs(&self) -> usize {
        self.host.events.read(|all| all.iter().filter(|event| event.what == HostAction::Pong).count())
    }

    fn wait_for_missed(&self, wanted: u32) -> Result<()> {
        self.host
            .wait_for(
                "count of missed Pongs",
                self.peer_port,
                DEADLINE,
                |what| matches!(what, HostAction::Ping { missed, .. } if *missed >= wanted),
            )
            .map(drop)
    }

    /// What the kernel says of the host's side of the connection.
    fn statistics(&self) -> Result<String> {
        let port = self.peer_port.to_string();
        Ok(run(Some(&self.network.host), "ss", &["-tinH", "dport", "=", &port])?)
    }
}

#[test]
fn what_is_swallowed_is_acknowledged_and_the_clients_end_is_kept_from_the_host() -> Result<()> {
    let stage = Stage::new()?;
    stage.client.ask(&Ask::Bytes { bytes: 3_000_000 });
    stage.client.wait_for("message", DEADLINE, |seen| *seen == Seen::Data { bytes: 3_000_000 })?;
    // It counts what it has written, and the client may be first.
    wait_until("the relay's count", DEADLINE, || {
        Ok(stage.middle.carried(Direction::ToClient).forwarded_bytes > 3_000_000)
    })?;

    stage.middle.swallow_both();
    stage.client.abandon();
    stage.wait_for_missed(5)?;
    // Much more than any kernel's buffers: somebody reads it.
    stage.host.send_to_all(30_000_000);
    wait_until("the message's end in the middle", DEADLINE, || {
        Ok(stage.middle.carried(Direction::ToClient).swallowed_bytes > 30_000_000)
    })?;
    // A busy reader may have closed its window for a moment.
    let mut statistics = String::new();
    wait_until("everything to be acknowledged", DEADLINE, || {
        statistics = stage.statistics()?;
        Ok(statistics.contains("rto:") && !statistics.contains("backoff:"))
    })
    .with_context(|| statistics.clone())?;
    stage.wait_for_missed(8)?;
    ensure!(!stage.host.events.read(|all| all.iter().any(|event| event.what == HostAction::Closed)));
    Ok(())
}

#[test]
fn one_direction_can_be_swallowed_alone() -> Result<()> {
    let stage = Stage::new()?;
    stage.middle.swallow(Direction::ToClient);
    stage.wait_for_missed(4)?;
    // The client is heard, and its answer does not come.
    stage.client.ask(&Ask::Bytes { bytes: 1_000 });
    stage
        .host
        .wait_for("answer", stage.peer_port, DEADLINE, |what| *what == HostAction::Queued { bytes: 1_000 })?;
    wait_until("the answer in the middle", DEADLINE, || {
        Ok(stage.middle.carried(Direction::ToClient).swallowed_bytes > 1_000)
    })?;
    ensure!(!stage.client.events.read(|all| all.iter().any(|e| e.what == Seen::Data { bytes: 1_000 })));
    // Frames were swallowed whole, so the stream can go on.
    stage.middle.pass_on(Direction::ToClient);
    let before = stage.pongs();
    stage.host.wait_for_pongs(stage.peer_port, before + 2, DEADLINE)
}

#[test]
fn ends_are_passed_on() -> Result<()> {
    let stage = Stage::new()?;
    stage.client.close(1000, "");
    stage.client.wait_for_end(DEADLINE)?;
    stage.host.wait_for("end", stage.peer_port, DEADLINE, |what| *what == HostAction::Closed)?;
    Ok(())
}

/// Report B in seconds: the server asks every 2 s instead of 40 s, and gives up after two Pings that nobody answered. The
/// middle takes everything and passes nothing on, and says by a header that it is there.
#[test]
fn a_peer_behind_a_relay_that_swallows_is_silent_and_the_evidence_ends_at_the_relay() -> Result<()> {
    let network = Network::create()?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let options = watching(host.address().port())
        .variable("ACKBEAT_THRESHOLDS_PONG_BUDGET_MS", "1000")
        .variable("ACKBEAT_THRESHOLDS_SILENT_AFTER_MS", "2000");
    let mut sidecar = Sidecar::start(&network.host, &options)?;
    let middle = Middle::start(Some(&network.router), network.router_address(IpVersion::V4), host.address())?;
    let forwarded_for = Some(network.client_address(IpVersion::V4).to_string());
    let client = Client::connect(
        Some(&network.client),
        ClientOptions { forwarded_for, ..ClientOptions::new(middle.address()) },
    )?;
    let peer_port = middle.dialled_port(client.port()).context("the middle dialled nobody")?;
    host.wait_for_pongs(peer_port, 3, DEADLINE)?;
    // Stopped for more than any threshold, while the server's heartbeats come and go: nobody is accused of that.
    sidecar.signal(Signal::SIGSTOP)?;
    host.wait_for_pongs(peer_port, 6, DEADLINE)?;
    sidecar.signal(Signal::SIGCONT)?;
    host.wait_for_pongs(peer_port, 8, DEADLINE)?;
    ensure!(sidecar.spans()?.is_empty());

    // What the host writes goes on being acknowledged, and arrives nowhere.
    client.ask(&Ask::Steady { bytes: 2_000, period_ms: 100 });
    host.wait_for("stream", peer_port, DEADLINE, |what| matches!(what, HostAction::Queued { .. }))?;
    middle.swallow_both();
    client.abandon();
    host.wait_for_kill(peer_port, DEADLINE)?;
    let swallowed = middle.carried(Direction::ToClient).swallowed_bytes;
    ensure!(swallowed > 20_000, "the relay took {swallowed} bytes");
    let close = sidecar.wait_for_host_close(peer_port, SPAN_DEADLINE)?;
    let root = sidecar.wait_for_connection(peer_port, SPAN_DEADLINE)?;
    Expectations::of(&close)
        .text("ackbeat.close.kind", &["heartbeat_kill"])
        .text("ackbeat.verdict", &["silent"])
        .text("ackbeat.verdict.evidence", &["ack"])
        .text("ackbeat.evidence.scope", &["next_hop"])
        .text("ackbeat.kill.assessment", &["justified"])
        .flag("ackbeat.false_kill", false)
        .check("the peer behind the relay")?;
    // A relay that has not read for a moment is stalled for a moment; what it takes makes its peer neither alive nor unreachable.
    let verdicts = root.event_verdicts();
    let silent = verdicts.iter().position(|verdict| verdict == "silent").context("never silent")?;
    ensure!(
        !verdicts.iter().any(|verdict| verdict == "unreachable")
            && verdicts
                .iter()
                .skip(silent)
                .all(|verdict| ["silent", "stalled", "closed"].contains(&verdict.as_str())),
        "{verdicts:?}"
    );
    sidecar.stop().map(drop)
}
