//! The peer's host is there; its application is not.

use std::time::Duration;

use anyhow::Result;

use crate::arena::row::{ONLY, Row};
use crate::arena::stage::{INTERVAL, Stage, StageOptions};
use crate::arena::truth::State;
use crate::client::Chatter;
use crate::clock::monotonic_ns;
use crate::mux::Ask;
use crate::peer::Peer;

/// A stopped process with nothing but Pings in flight: its kernel acknowledges them.
pub(super) const STOPPED: Row = Row {
    number: 10,
    title: "peer stopped (SIGSTOP) 20 s, only Pings in flight",
    truth: "hung",
    expected: "silent",
    allowed: &["alive", "silent"],
    wanted: &["silent"],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: |stage| stop(stage, None, Duration::from_secs(20)),
    about_s: 40,
    subjects: 5,
    weight: 1,
    quick: None,
};

/// A stopped process whose window is full: its kernel answers probes that come ever more seldom.
pub(super) const STOPPED_WITH_FULL_WINDOW: Row = Row {
    number: 11,
    title: "peer stopped 120 s with a full window",
    expected: "stalled, with its age; not unreachable",
    allowed: &["alive", "congested", "stalled", "unknown"],
    wanted: &["stalled"],
    play: |stage| stop(stage, Some(MORE_THAN_BUFFERS_BYTES), Duration::from_secs(120)),
    about_s: 140,
    ..STOPPED
};

/// More than both kernels' buffers take.
const MORE_THAN_BUFFERS_BYTES: usize = 24_000_000;

/// Stops every subject at a moment of its own, queues `bytes` for it then, and lets it go on.
fn stop(stage: &mut Stage, bytes: Option<usize>, duration: Duration) -> Result<()> {
    let mut peers: Vec<Peer> = Vec::new();
    let options = stage.peer_options();
    for number in 1..=stage.row.subjects {
        peers.push(stage.connect_process(&format!("process-{number}"), &options)?);
    }
    for peer in &peers {
        stage.wait_for_learning(peer.port())?;
    }
    let mut stopped_ns = Vec::new();
    for peer in &mut peers {
        stage.pass_up_to(2 * INTERVAL / stage.row.subjects);
        if let Some(bytes) = bytes {
            peer.ask(&Ask::Bytes { bytes })?;
            stage.host.wait_for("bulk", peer.port(), INTERVAL * 10, |what| {
                matches!(what, crate::mux::HostAction::Queued { .. })
            })?;
        }
        peer.stop()?;
        let now_ns = monotonic_ns();
        stage.from(now_ns, peer.port(), State::Hung)?;
        stopped_ns.push(now_ns);
    }
    for (peer, stopped_ns) in peers.iter_mut().zip(stopped_ns) {
        let since = Duration::from_nanos(monotonic_ns().saturating_sub(stopped_ns));
        stage.pass(duration.saturating_sub(since));
        stage.now(peer.port(), State::Alive)?;
        peer.go_on()?;
    }
    stage.peers.extend(peers);
    stage.pass(3 * INTERVAL);
    Ok(())
}

/// A peer whose WebSocket stack answers no Ping, and whose application is well.
pub(super) const NO_PONG_BUT_DATA: Row = Row {
    number: 15,
    title: "peer never answers Pings but keeps sending data",
    truth: "alive",
    expected: "alive on `inbound`",
    allowed: &["alive", "congested"],
    wanted: &[],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: withhold,
    about_s: 75,
    subjects: 10,
    weight: 1,
    quick: None,
};

fn withhold(stage: &mut Stage) -> Result<()> {
    stage.connect_siblings(2)?;
    for number in 1..=stage.row.subjects {
        stage.pass_up_to(INTERVAL / stage.row.subjects);
        let mut options = stage.peer_options();
        options.withhold_pongs = true;
        // From a game's state to a chat's: none is longer apart than the heartbeat.
        let period = Duration::from_millis(stage.random.u64(100..=1_500));
        options.chatter = Some(Chatter { period, bytes: stage.random.usize(10..=2_000) });
        let client = stage.connect(&format!("talker-{number}"), options)?;
        stage.clients.push(client);
    }
    stage.pass(Duration::from_secs(66));
    Ok(())
}

/// A peer whose kernel is all that answers.
pub(super) const DEAF: Row = Row {
    number: 16,
    title: "peer acknowledges, never Pongs, never sends",
    truth: "hung",
    expected: "silent",
    allowed: &["alive", "silent"],
    wanted: &["silent"],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: go_deaf,
    about_s: 40,
    subjects: 10,
    weight: 1,
    quick: None,
};

fn go_deaf(stage: &mut Stage) -> Result<()> {
    let clients = stage.connect_subjects()?;
    for client in &clients {
        stage.pass_up_to(INTERVAL / stage.row.subjects);
        client.mute();
        stage.now(client.port(), State::Hung)?;
    }
    stage.clients.extend(clients);
    stage.pass(Duration::from_secs(30));
    Ok(())
}
