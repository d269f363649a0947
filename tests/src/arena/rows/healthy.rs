//! Nothing is wrong.

use std::time::Duration;

use anyhow::Result;

use crate::arena::row::{ONLY, Row};
use crate::arena::stage::{Stage, StageOptions};

/// An idle connection that answers every Ping.
pub(super) const IDLE: Row = Row {
    number: 1,
    title: "idle, healthy",
    truth: "alive",
    expected: "alive",
    allowed: &["alive", "unknown"],
    wanted: &[],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: idle,
    about_s: 22,
    subjects: 10,
    weight: 1,
    quick: Some(""),
};

fn idle(stage: &mut Stage) -> Result<()> {
    stage.clients = stage.connect_subjects()?;
    stage.pass(Duration::from_secs(12));
    Ok(())
}
