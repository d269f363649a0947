//! The peer is gone and nobody says so.

use std::time::Duration;

use anyhow::Result;

use crate::arena::row::{ONLY, Row};
use crate::arena::stage::{INTERVAL, Stage, StageOptions};
use crate::arena::truth::State;

/// Long enough for the slowest detector: a Ping every 30 s, and two unanswered at the next.
const UNTIL_EVERYBODY_KNOWS: Duration = Duration::from_secs(95);

/// The path is cut while a Ping is on its way.
pub(super) const BLACKHOLE_WITH_PING: Row = Row {
    number: 20,
    title: "blackhole, a Ping outstanding, LAN",
    truth: "gone",
    expected: "unreachable",
    allowed: &["alive", "congested", "unreachable", "unknown"],
    wanted: &["unreachable"],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: blackhole_with_ping,
    about_s: 30,
    subjects: 10,
    weight: 1,
    quick: Some(""),
};

fn blackhole_with_ping(stage: &mut Stage) -> Result<()> {
    let clients = stage.connect_subjects()?;
    for client in &clients {
        stage.pass_up_to(INTERVAL / 5);
        stage.network.cut(client.port())?;
        stage.now(client.port(), State::Gone)?;
    }
    stage.clients = clients;
    stage.pass(UNTIL_EVERYBODY_KNOWS);
    Ok(())
}
