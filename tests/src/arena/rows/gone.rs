//! The peer is gone and nobody says so.

use std::time::Duration;

use anyhow::Result;

use crate::arena::row::{ONLY, Row, Variant};
use crate::arena::stage::{INTERVAL, PathKind, Stage, StageOptions};
use crate::arena::truth::State;
use crate::client::Client;
use crate::clock::monotonic_ns;
use crate::mux::{Ask, HostAction};
use crate::network::Network;

/// Long enough for the slowest detector: a Ping every 30 s, and two unanswered at the next.
const UNTIL_EVERYBODY_KNOWS: Duration = Duration::from_secs(95);
/// Long enough for ackbeat's default policy to justify a kill.
const UNTIL_ACKBEAT_KNOWS: Duration = Duration::from_secs(14);
/// Verdicts on a peer that is there or unreachable, and never that it is there and does not answer.
const HEARD_OR_UNREACHABLE: &[&str] = &["alive", "congested", "unreachable", "unknown"];

/// Cuts a subject off, by `lose`, and says since when it is gone. The rule takes some milliseconds to be made: the peer
/// counts as gone from before it, which is never in a detector's favour.
fn cut_by(lose: impl Fn(&Network, u16) -> Result<()>, stage: &mut Stage, client: &Client) -> Result<()> {
    let before_ns = monotonic_ns();
    lose(&stage.network, client.port())?;
    stage.from(before_ns, client.port(), State::Gone)
}

/// Cuts a subject off without a word.
fn cut(stage: &mut Stage, client: &Client) -> Result<()> {
    cut_by(|network, port| Ok(network.cut(port)?), stage, client)
}

/// Keeps the subjects until every detector has had its time.
fn wait_for_verdicts(stage: &mut Stage, clients: Vec<Client>) {
    stage.clients = clients;
    stage.pass_or(UNTIL_EVERYBODY_KNOWS, UNTIL_ACKBEAT_KNOWS);
}

/// The path is cut just before a Ping.
pub(super) const BLACKHOLE_WITH_PING: Row = Row {
    number: 20,
    title: "blackhole, a Ping outstanding, LAN",
    truth: "gone",
    expected: "unreachable",
    allowed: HEARD_OR_UNREACHABLE,
    wanted: &["unreachable"],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: blackhole_with_ping,
    about_s: 125,
    subjects: 10,
    weight: 1,
    quick: Some(""),
};

fn blackhole_with_ping(stage: &mut Stage) -> Result<()> {
    let clients = stage.connect_subjects()?;
    for client in &clients {
        // Early enough for the rule to be there before the Ping on a busy machine.
        let early = Duration::from_millis(stage.random.u64(60..200));
        stage.pass_until_tick(early)?;
        cut(stage, client)?;
    }
    wait_for_verdicts(stage, clients);
    Ok(())
}

/// The path is cut while data flows as fast as the link lets it, and the send queue is full.
pub(super) const BLACKHOLE_IN_BULK: Row = Row {
    number: 21,
    title: "blackhole during bulk, send queue full",
    truth: "gone",
    expected: "unreachable",
    allowed: HEARD_OR_UNREACHABLE,
    wanted: &["unreachable"],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: blackhole_in_bulk,
    about_s: 125,
    subjects: 10,
    weight: 2,
    quick: Some(""),
};

/// A link that is slow for what is asked of it; its queue makes 32 ms of round-trip time.
const BULK_LINK_KB_PER_S: u32 = 4_000;
const BULK_LINK_QUEUE_KB: u32 = 128;
/// Lasts for half a minute over that link, for all subjects together.
const BULK_BYTES: usize = 12_000_000;

fn blackhole_in_bulk(stage: &mut Stage) -> Result<()> {
    let clients = stage.connect_subjects()?;
    stage.network.slow_down(BULK_LINK_KB_PER_S, BULK_LINK_QUEUE_KB)?;
    for client in &clients {
        client.ask(&Ask::Bytes { bytes: BULK_BYTES });
        stage.host.wait_for("data", client.port(), Duration::from_secs(20), |what| {
            matches!(what, HostAction::Queued { .. })
        })?;
    }
    stage.pass(Duration::from_secs(2));
    for client in &clients {
        stage.pass_up_to(Duration::from_secs(1));
        cut(stage, client)?;
    }
    wait_for_verdicts(stage, clients);
    Ok(())
}

/// The path is cut between two Pings.
pub(super) const BLACKHOLE_WHILE_IDLE: Row = Row {
    number: 22,
    title: "blackhole while idle",
    truth: "gone",
    expected: "unreachable (next Ping + ladder)",
    allowed: HEARD_OR_UNREACHABLE,
    wanted: &["unreachable"],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: blackhole_while_idle,
    about_s: 115,
    subjects: 10,
    weight: 1,
    quick: None,
};

fn blackhole_while_idle(stage: &mut Stage) -> Result<()> {
    let clients = stage.connect_subjects()?;
    for client in &clients {
        stage.pass_up_to(INTERVAL);
        cut(stage, client)?;
    }
    wait_for_verdicts(stage, clients);
    Ok(())
}

/// The peer has stopped reading, its window is closed, and then the path is cut: only window probes are under way,
/// and they come further and further apart; in one variant ackbeat sends its own in between.
pub(super) const BLACKHOLE_BEHIND_CLOSED_WINDOW: Row = Row {
    number: 23,
    title: "blackhole behind a closed window",
    truth: "gone",
    expected: "unreachable late, or unknown with the evidence's age",
    allowed: &["alive", "congested", "stalled", "unreachable", "unknown"],
    wanted: &["unreachable", "unknown"],
    variants: &[Variant { name: "kernel", value: 0.0 }, Variant { name: "own-probes", value: 1.0 }],
    options: |variant| StageOptions {
        settings: if variant.value > 0.0 { &[("ACKBEAT_PROBE_WINDOW", "true")] } else { &[] },
        ..StageOptions::default()
    },
    play: blackhole_behind_closed_window,
    about_s: 140,
    subjects: 10,
    weight: 1,
    quick: None,
};

/// More than send and receive queue hold together.
const MORE_THAN_FITS_BYTES: usize = 16_000_000;

fn blackhole_behind_closed_window(stage: &mut Stage) -> Result<()> {
    let clients = stage.connect_subjects()?;
    let mut cuts = Vec::new();
    for client in &clients {
        client.freeze(true);
        client.ask(&Ask::Bytes { bytes: MORE_THAN_FITS_BYTES });
        let queued = stage.host.wait_for("data", client.port(), Duration::from_secs(20), |what| {
            matches!(what, HostAction::Queued { .. })
        })?;
        // A full window for 3 to 20 s.
        cuts.push((queued.at_ns + stage.random.u64(3_000..20_000) * 1_000_000, client));
    }
    cuts.sort_by_key(|(at_ns, _)| *at_ns);
    for (at_ns, client) in cuts {
        stage.pass(Duration::from_nanos(at_ns.saturating_sub(monotonic_ns())));
        cut(stage, client)?;
    }
    wait_for_verdicts(stage, clients);
    Ok(())
}

/// The path is cut while data and Pings are on a long way.
pub(super) const BLACKHOLE_ON_LONG_PATH: Row = Row {
    number: 24,
    title: "blackhole at 80 / 200 ms RTT",
    truth: "gone",
    expected: "unreachable",
    allowed: HEARD_OR_UNREACHABLE,
    wanted: &["unreachable"],
    variants: &[Variant { name: "80ms", value: 80.0 }, Variant { name: "200ms", value: 200.0 }],
    options: |variant| StageOptions {
        path: PathKind::Relay { round_trip: Duration::from_secs_f64(variant.value / 1_000.0), loss: 0.0 },
        ..StageOptions::default()
    },
    play: blackhole_on_long_path,
    about_s: 125,
    subjects: 10,
    weight: 1,
    quick: Some("80ms"),
};

fn blackhole_on_long_path(stage: &mut Stage) -> Result<()> {
    let clients = stage.connect_subjects()?;
    // Half of them while a Ping may be under way, half of them at any moment.
    for (number, client) in clients.iter().enumerate() {
        if number % 2 == 0 {
            let early = Duration::from_millis(stage.random.u64(0..100));
            stage.pass_until_tick(early)?;
        } else {
            stage.pass_up_to(INTERVAL);
        }
        cut(stage, client)?;
    }
    wait_for_verdicts(stage, clients);
    Ok(())
}

/// A router on the way has no route to the peer any more, and says so.
pub(super) const UNREACHABLE_BY_ICMP: Row = Row {
    number: 25,
    title: "ICMP unreachable",
    truth: "gone",
    expected: "unreachable (icmp)",
    allowed: HEARD_OR_UNREACHABLE,
    wanted: &["unreachable"],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: unreachable_by_icmp,
    about_s: 115,
    subjects: 10,
    weight: 1,
    quick: Some(""),
};

fn unreachable_by_icmp(stage: &mut Stage) -> Result<()> {
    let clients = stage.connect_subjects()?;
    for client in &clients {
        stage.pass_up_to(INTERVAL);
        cut_by(|network, port| Ok(network.refuse(port)?), stage, client)?;
    }
    wait_for_verdicts(stage, clients);
    Ok(())
}
