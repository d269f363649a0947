//! This side stood still: the host, or the sidecar itself. No peer is to blame.

use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::arena::row::{ONLY, Row};
use crate::arena::stage::{INTERVAL, Stage, StageOptions};
use crate::client::{Chatter, Pace};
use crate::mux::Ask;

/// The host does not read the Pongs that have come.
pub(super) const HOST_BLOCKED: Row = Row {
    number: 13,
    title: "the host's own event loop blocked 5 s",
    truth: "alive",
    expected: "alive (the Pong lies unread)",
    allowed: &["alive"],
    wanted: &[],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: block,
    about_s: 24,
    subjects: 10,
    weight: 1,
    quick: Some(""),
};

fn block(stage: &mut Stage) -> Result<()> {
    let plain = stage.peer_options();
    let mut talking = plain.clone();
    talking.chatter = Some(Chatter { period: Duration::from_millis(250), bytes: 500 });
    stage.clients = stage.connect_subjects_as(|number| match number % 2 {
        1 => ("talker", talking.clone()),
        _ => ("idle", plain.clone()),
    })?;
    stage.pass_up_to(INTERVAL);
    let duration = Duration::from_secs(5);
    stage.host.block(duration);
    stage.pass(duration + 3 * INTERVAL);
    Ok(())
}

/// The sidecar sleeps through a minute in which nothing is wrong. That the wall clock steps meanwhile cannot be played
/// without stepping the machine's own; nothing that is judged has a time of the wall clock in it.
pub(super) const SIDECAR_STOPPED: Row = Row {
    number: 14,
    title: "the sidecar stopped 60 s, then continued",
    truth: "alive",
    expected: "no accusation",
    // Some of the subjects are slow readers.
    allowed: &["alive", "congested", "stalled", "unknown"],
    wanted: &[],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: stop_sidecar,
    about_s: 85,
    subjects: 10,
    weight: 1,
    quick: None,
};

const SLOW_BYTES_PER_SECOND: u32 = 20_000;

fn stop_sidecar(stage: &mut Stage) -> Result<()> {
    let plain = stage.peer_options();
    let slow = plain.clone().paced(Pace::Slow { bytes_per_second: SLOW_BYTES_PER_SECOND, read_bytes: 2_000 });
    let clients = stage.connect_subjects_as(|number| match number % 3 {
        0 => ("slow", slow.clone()),
        1 => ("busy", plain.clone()),
        _ => ("idle", plain.clone()),
    })?;
    for (number, client) in (1..).zip(&clients) {
        match number % 3 {
            0 => client.ask(&Ask::Bytes { bytes: 2_000_000 }),
            1 => client.ask(&Ask::Steady { bytes: 20_000, period_ms: 100 }),
            _ => {}
        }
    }
    stage.clients.extend(clients);
    stage.pass_up_to(INTERVAL);
    let sidecar = stage.sidecar.as_mut().context("the sidecar runs")?;
    sidecar.signal(Signal::SIGSTOP)?;
    stage.pass(Duration::from_secs(60));
    let sidecar = stage.sidecar.as_mut().context("the sidecar runs")?;
    sidecar.signal(Signal::SIGCONT)?;
    stage.pass(Duration::from_secs(15));
    Ok(())
}
