//! The peer's end is told, by FIN or by RST.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::arena::row::{Row, Variant};
use crate::arena::stage::{INTERVAL, LEARNING_PONGS, Stage, StageOptions};
use crate::arena::truth::State;
use crate::client::Command;
use crate::clock::monotonic_ns;
use crate::journal::wait_until;
use crate::network::IpVersion;
use crate::peer::Peer;
use crate::process::run;

/// What is waited for must come within this time.
const DEADLINE: Duration = Duration::from_secs(20);

/// The peer's process is killed, and its kernel closes the socket.
pub(super) const KILLED: Row = Row {
    number: 27,
    title: "peer killed: nothing unread / unread data",
    truth: "gone",
    expected: "closed, initiator peer, method fin (nothing unread) or rst (unread data)",
    allowed: &["alive", "congested", "unknown", "closed"],
    wanted: &["closed"],
    variants: &[Variant { name: "fin", value: 0.0 }, Variant { name: "rst", value: 1.0 }],
    options: |_| StageOptions::default(),
    play: killed,
    about_s: 25,
    subjects: 10,
    weight: 1,
    quick: Some("rst"),
};

/// What a peer leaves unread.
const UNREAD_BYTES: usize = 1_000;

fn killed(stage: &mut Stage) -> Result<()> {
    let mut peers = Vec::new();
    for number in 1..=stage.row.subjects {
        let peer = Peer::connect(Some(&stage.network.client), &stage.peer_options())?;
        let address = SocketAddr::new(stage.network.client_address(IpVersion::V4), peer.port());
        stage.declare(&format!("peer-{number}"), address);
        peers.push(peer);
    }
    for peer in &peers {
        stage.host.wait_for_pongs(peer.port(), LEARNING_PONGS, DEADLINE)?;
    }
    for peer in &mut peers {
        stage.pass_up_to(INTERVAL);
        if stage.variant.name == "rst" {
            peer.command(&Command::Freeze { frozen: true })?;
            leave_unread(stage, peer.port())?;
        }
        let before_ns = monotonic_ns();
        peer.kill()?;
        stage.from(before_ns, peer.port(), State::Gone)?;
    }
    stage.pass(Duration::from_secs(5));
    Ok(())
}

/// Sends data until the peer with this port, who has been told to stop reading, has some that it has not read.
fn leave_unread(stage: &Stage, port: u16) -> Result<()> {
    wait_until("data in the peer's receive queue", DEADLINE, || {
        stage.host.send_to_all(UNREAD_BYTES);
        let filter = format!("sport = :{port}");
        let line = run(Some(&stage.network.client), "ss", &["-Htn", filter.as_str()])?;
        // State, bytes in the receive queue, …
        let unread = line.split_whitespace().nth(1).context("the peer has no socket")?;
        Ok(unread.parse::<u64>().context("ss shows no receive queue")? > 0)
    })
}
