//! Sockets that have no use any more, and one that only looks like it.

use std::time::Duration;

use anyhow::Result;

use crate::arena::row::{ONLY, Row};
use crate::arena::stage::{Stage, StageOptions};
use crate::arena::truth::State;
use crate::clock::monotonic_ns;
use crate::journal::wait_until;
use crate::mux::PeerFin;
use crate::process::run;

/// A socket in `CLOSE_WAIT` is a leak after this, in milliseconds: a tenth of the default, as the rows are short.
pub const CLOSE_WAIT_AFTER_MS: u64 = 6_000;

/// The thresholds of leaks in a tenth of their time; a count is looked at for half a minute.
const THRESHOLDS: &[(&str, &str)] = &[
    ("ACKBEAT_LEAKS_CENSUS_INTERVAL_MS", "1000"),
    ("ACKBEAT_LEAKS_CLOSE_WAIT_AFTER_MS", "6000"),
    ("ACKBEAT_LEAKS_IDLE_AFTER_MS", "30000"),
    ("ACKBEAT_LEAKS_FLAT_AFTER_MS", "30000"),
];

/// The peer has finished writing and reads on; the host goes on sending.
pub(super) const HALF_CLOSED: Row = Row {
    number: 29,
    title: "peer half-closes and goes on reading",
    truth: "alive",
    expected: "alive: not leaked, not dead",
    allowed: &["alive", "congested"],
    wanted: &[],
    variants: ONLY,
    options: |_| StageOptions { peer_fin: PeerFin::WriteOn, settings: THRESHOLDS, ..StageOptions::default() },
    play: half_closed,
    about_s: 40,
    subjects: 10,
    weight: 1,
    quick: Some(""),
};

fn half_closed(stage: &mut Stage) -> Result<()> {
    let clients = stage.connect_subjects()?;
    for client in &clients {
        stage.pass_up_to(Duration::from_millis(500));
        client.half_close();
    }
    for _ in 0..20 {
        stage.pass_up_to(Duration::from_secs(2));
        stage.host.send_to_all(50_000);
    }
    stage.clients = clients;
    Ok(())
}

/// The peers close, and the host never does.
pub(super) const CLOSE_WAIT: Row = Row {
    number: 30,
    title: "20 upgrades, peer closes, host never does: CLOSE_WAIT",
    truth: "leaked",
    expected: "leak_suspected × 20",
    allowed: &["alive", "unknown"],
    wanted: &[],
    variants: ONLY,
    options: |_| StageOptions { peer_fin: PeerFin::Forget, settings: THRESHOLDS, ..StageOptions::default() },
    play: close_wait,
    about_s: 60,
    subjects: 20,
    weight: 1,
    quick: Some(""),
};

fn close_wait(stage: &mut Stage) -> Result<()> {
    for (before, client) in stage.connect_subjects()?.into_iter().enumerate() {
        stage.pass_up_to(Duration::from_millis(500));
        let (port, before_ns) = (client.port(), monotonic_ns());
        // A Ping that the host sends before it has read the FIN would be answered with a RST if the socket were gone already.
        client.half_close();
        wait_until("the socket in CLOSE_WAIT", Duration::from_secs(10), || {
            Ok(close_wait_count(stage)? == before + 1)
        })?;
        drop(client);
        stage.from(before_ns, port, State::Leaked)?;
    }
    stage.pass_or(Duration::from_secs(40), Duration::from_secs(14));
    let left = u32::try_from(close_wait_count(stage)?).unwrap_or(u32::MAX);
    stage.figure("close_wait_count", f64::from(left));
    Ok(())
}

/// Sockets of the host in `CLOSE_WAIT`.
fn close_wait_count(stage: &Stage) -> Result<usize> {
    Ok(run(Some(&stage.network.host), "ss", &["-Htn", "state", "close-wait"])?.lines().count())
}

/// Connections that carry nothing for ever, as many as a quota allows.
pub(super) const IDLE_AT_QUOTA: Row = Row {
    number: 31,
    title: "64 idle established to one port, count flat at its maximum",
    truth: "leaked",
    expected: "leak_suspected",
    allowed: &["alive", "unknown"],
    wanted: &[],
    variants: ONLY,
    // No Ping while it lasts: no byte either way.
    options: |_| StageOptions {
        interval: Duration::from_secs(3_600),
        settings: THRESHOLDS,
        ..StageOptions::default()
    },
    play: idle_at_quota,
    about_s: 100,
    subjects: 64,
    weight: 1,
    quick: None,
};

fn idle_at_quota(stage: &mut Stage) -> Result<()> {
    let mut clients = Vec::new();
    for number in 1..=stage.row.subjects {
        let options = stage.peer_options();
        clients.push(stage.connect(&format!("stream-{number}"), options)?);
        stage.pass_up_to(Duration::from_millis(300));
    }
    for client in &clients {
        stage.now(client.port(), State::Leaked)?;
    }
    stage.clients = clients;
    stage.pass_or(Duration::from_secs(90), Duration::from_secs(10));
    let open = run(Some(&stage.network.host), "ss", &["-Htn", "state", "established"])?.lines().count();
    stage.figure("established_count", f64::from(u32::try_from(open).unwrap_or(u32::MAX)));
    Ok(())
}
