//! The peer is there and does not read for a while.

use std::time::Duration;

use anyhow::Result;

use crate::arena::row::{ONLY, Row};
use crate::arena::stage::{INTERVAL, Stage, StageOptions};
use crate::client::{Pace, Seen};
use crate::journal::wait_until;
use crate::mux::{Ask, BURST_BYTES};

/// After it reads again, its backlog must be gone within this time.
const DRAIN_DEADLINE: Duration = Duration::from_secs(60);

/// Report A: every session's snapshot at once, while the page is busy.
pub(super) const BURST: Row = Row {
    number: 5,
    title: "12 snapshots, 28 MB burst, reader busy 7 s then drains",
    truth: "alive",
    expected: "stalled → congested → alive",
    allowed: &["alive", "congested", "stalled"],
    wanted: &[],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: burst,
    about_s: 26,
    subjects: 3,
    weight: 2,
    quick: Some(""),
};

fn burst(stage: &mut Stage) -> Result<()> {
    stage.connect_siblings(2)?;
    let options = stage.peer_options().paced(Pace::Busy { busy: Duration::from_secs(7) });
    let mut clients = Vec::new();
    for number in 1..=stage.row.subjects {
        stage.pass_up_to(INTERVAL);
        let client = stage.connect(&format!("page-{number}"), options.clone())?;
        client.ask(&Ask::Follow);
        clients.push(client);
    }
    for client in &clients {
        client.events.wait_for("the whole burst", DRAIN_DEADLINE, |_events| {
            (client.bytes_read() > BURST_BYTES).then_some(())
        })?;
        stage.wait_for_learning(client.port())?;
    }
    stage.clients.extend(clients);
    stage.pass(INTERVAL);
    Ok(())
}

/// A reader that stops for as long as a busy one might.
pub(super) const PAUSED_READER: Row = Row {
    number: 9,
    title: "peer stops reading 10 s, resumes",
    truth: "alive",
    expected: "stalled → alive",
    allowed: &["alive", "congested", "stalled"],
    wanted: &[],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: pause,
    about_s: 28,
    subjects: 5,
    weight: 2,
    quick: Some(""),
};

/// More than both kernels' buffers take, so that a reader that stops stops the host.
const MORE_THAN_BUFFERS_BYTES: usize = 24_000_000;
/// Receive buffers as the kernel has them by default (Documentation/networking/ip-sysctl.rst). A machine may allow larger
/// ones, into which everything would fit: then the reader stops and nobody notices.
const RECEIVE_BUFFERS: &str = "4096 131072 6291456";

fn pause(stage: &mut Stage) -> Result<()> {
    stage.network.client.set_sysctl("ipv4/tcp_rmem", RECEIVE_BUFFERS)?;
    let clients = stage.connect_subjects()?;
    for (number, client) in clients.iter().enumerate() {
        stage.pass_up_to(INTERVAL / stage.row.subjects);
        if number % 2 == 0 {
            client.freeze(true);
            client.ask(&Ask::Bytes { bytes: MORE_THAN_BUFFERS_BYTES });
        } else {
            // In the middle of the transfer, when the window has grown already.
            let before = client.bytes_read();
            client.ask(&Ask::Bytes { bytes: MORE_THAN_BUFFERS_BYTES });
            wait_until("the transfer's beginning", DRAIN_DEADLINE, || {
                Ok(client.bytes_read() > before + 1_000_000)
            })?;
            client.freeze(true);
        }
    }
    stage.pass(Duration::from_secs(10));
    for client in &clients {
        client.freeze(false);
        client.wait_for("transfer", DRAIN_DEADLINE, |seen| matches!(seen, Seen::Data { .. }))?;
    }
    stage.clients.extend(clients);
    stage.pass(3 * INTERVAL);
    Ok(())
}

/// A process whose garbage collector stops it.
pub(super) const COLLECTOR: Row = Row {
    number: 12,
    title: "peer pauses 300 ms every second",
    truth: "alive",
    expected: "alive",
    allowed: &["alive", "congested"],
    wanted: &[],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: collect,
    about_s: 24,
    subjects: 10,
    weight: 1,
    quick: Some(""),
};

fn collect(stage: &mut Stage) -> Result<()> {
    let pace = Pace::Pausing { pause: Duration::from_millis(300), period: Duration::from_secs(1) };
    let options = stage.peer_options().paced(pace);
    let clients = stage.connect_subjects_as(|number| (kind(number), options.clone()))?;
    for client in clients.iter().step_by(2) {
        client.ask(&Ask::Steady { bytes: 20_000, period_ms: 100 });
    }
    stage.clients.extend(clients);
    stage.pass(Duration::from_secs(16));
    Ok(())
}

/// Every other subject, from the first on, gets data.
const fn kind(number: u32) -> &'static str {
    if number % 2 == 1 { "busy" } else { "idle" }
}
