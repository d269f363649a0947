//! The terminating relay in the middle: it carries, and it swallows while its kernel acknowledges.

use std::time::Duration;

use ackbeat_tests::client::{Client, ClientOptions, Seen};
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::middle::Middle;
use ackbeat_tests::mux::{Ask, Host, HostAction, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::process::run;
use ackbeat_tests::relay::Direction;
use anyhow::{Context, Result, ensure};

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
    ensure!(stage.middle.carried(Direction::ToClient).forwarded_bytes > 3_000_000);

    stage.middle.swallow_both();
    stage.client.abandon();
    stage.wait_for_missed(5)?;
    // Much more than any kernel's buffers: somebody reads it.
    stage.host.send_to_all(30_000_000);
    wait_until("the message's end in the middle", DEADLINE, || {
        Ok(stage.middle.carried(Direction::ToClient).swallowed_bytes > 30_000_000)
    })?;
    let statistics = stage.statistics()?;
    ensure!(statistics.contains("ESTAB") || statistics.contains("rto:"), "{statistics}");
    ensure!(!statistics.contains("backoff:"), "everything is acknowledged: {statistics}");
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
