//! The peer's end is told, by FIN or by RST.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::arena::row::{ONLY, Row, Variant};
use crate::arena::stage::{INTERVAL, Stage, StageOptions};
use crate::arena::truth::State;
use crate::client::Command;
use crate::clock::monotonic_ns;
use crate::journal::wait_until;
use crate::mux::HostAction;
use crate::process::run;

/// What is waited for must come within this time.
const DEADLINE: Duration = Duration::from_secs(20);

/// The peer's machine reboots: its new kernel knows no such socket.
pub(super) const REBOOTED: Row = Row {
    number: 26,
    title: "peer host reboots, same address",
    truth: "gone",
    expected: "closed, initiator peer, method rst, a reset of direction ingress",
    allowed: &["alive", "congested", "unreachable", "unknown", "closed"],
    wanted: &["closed"],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: rebooted,
    about_s: 25,
    subjects: 10,
    weight: 1,
    quick: Some(""),
};

fn rebooted(stage: &mut Stage) -> Result<()> {
    let clients = stage.connect_subjects()?;
    stage.pass_up_to(INTERVAL);
    let gone_ns = stage.network.reboot_client()?;
    for client in &clients {
        stage.from(gone_ns, client.port(), State::Gone)?;
    }
    for client in &clients {
        // The answer to the next Ping, or to its retransmission.
        stage.host.wait_for("end", client.port(), DEADLINE, |what| *what == HostAction::Closed)?;
    }
    stage.clients = clients;
    stage.pass(Duration::from_secs(2));
    Ok(())
}

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
        let options = stage.peer_options();
        peers.push(stage.connect_process(&format!("peer-{number}"), &options)?);
    }
    for peer in &peers {
        stage.wait_for_learning(peer.port())?;
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
