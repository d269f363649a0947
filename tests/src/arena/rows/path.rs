//! The path is poor: it loses packets, or it is long.

use std::time::Duration;

use anyhow::Result;

use crate::arena::row::{Row, Variant};
use crate::arena::stage::{INTERVAL, PathKind, Stage, StageOptions};
use crate::mux::Ask;

/// Packets are lost at random, each way.
pub(super) const LOSS: Row = Row {
    number: 18,
    title: "random loss",
    truth: "alive",
    expected: "alive or congested",
    allowed: &["alive", "congested"],
    wanted: &[],
    variants: &[
        Variant { name: "1%", value: 0.01 },
        Variant { name: "5%", value: 0.05 },
        Variant { name: "15%", value: 0.15 },
        Variant { name: "20%", value: 0.2 },
    ],
    options: |variant| StageOptions {
        path: PathKind::Relay { round_trip: Duration::from_millis(20), loss: variant.value },
        ..StageOptions::default()
    },
    play: lose,
    about_s: 45,
    subjects: 10,
    weight: 1,
    quick: None,
};

/// Half of the subjects get data all the time, the others only Pings.
fn lose(stage: &mut Stage) -> Result<()> {
    let options = stage.peer_options();
    let clients = stage.connect_subjects_as(|number| match number % 2 {
        1 => ("bulk", options.clone()),
        _ => ("idle", options.clone()),
    })?;
    for client in clients.iter().step_by(2) {
        client.ask(&Ask::Steady { bytes: 10_000, period_ms: 100 });
    }
    stage.clients.extend(clients);
    stage.pass(Duration::from_secs(30));
    Ok(())
}

/// Whatever is answered is answered late.
pub(super) const LONG_PATH_IN_BULK: Row = Row {
    number: 19,
    title: "long path with bulk",
    expected: "congested",
    variants: &[Variant { name: "200ms", value: 0.2 }, Variant { name: "500ms", value: 0.5 }],
    options: |variant| StageOptions {
        path: PathKind::Relay { round_trip: Duration::from_secs_f64(variant.value), loss: 0.0 },
        ..StageOptions::default()
    },
    play: fill_long_path,
    about_s: 36,
    subjects: 3,
    weight: 2,
    ..LOSS
};

/// What the host queues at once, and what it goes on with every 200 ms.
const AT_ONCE_BYTES: usize = 8_000_000;
const STEADY_BYTES: usize = 100_000;

fn fill_long_path(stage: &mut Stage) -> Result<()> {
    let clients = stage.connect_subjects()?;
    for client in &clients {
        stage.pass_up_to(INTERVAL / stage.row.subjects);
        client.ask(&Ask::Bytes { bytes: AT_ONCE_BYTES });
        client.ask(&Ask::Steady { bytes: STEADY_BYTES, period_ms: 200 });
    }
    stage.clients.extend(clients);
    stage.pass(Duration::from_secs(25));
    Ok(())
}
