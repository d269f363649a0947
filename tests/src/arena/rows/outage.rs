//! The path is gone for a while, and heals.

use std::time::Duration;

use anyhow::Result;

use crate::arena::row::{Row, Variant};
use crate::arena::stage::{INTERVAL, Stage, StageOptions};
use crate::arena::truth::State;
use crate::clock::monotonic_ns;
use crate::mux::Ask;

/// Nobody is told of the outage; who sends meanwhile sends into nothing.
pub(super) const OUTAGE: Row = Row {
    number: 17,
    title: "outage, then heals",
    truth: "alive",
    expected: "unreachable shown, no kill under `default`",
    allowed: &["alive", "congested", "unreachable", "unknown"],
    wanted: &[],
    variants: &[
        Variant { name: "0.5s", value: 0.5 },
        Variant { name: "1s", value: 1.0 },
        Variant { name: "2s", value: 2.0 },
        Variant { name: "3.5s", value: 3.5 },
        Variant { name: "5s", value: 5.0 },
    ],
    options: |_| StageOptions::default(),
    play: outage,
    about_s: 29,
    subjects: 10,
    weight: 1,
    quick: Some("5s"),
};

/// After the longest outage the kernel may wait this long until it tries again: the next step of its back-off.
const UNTIL_RETRANSMITTED: Duration = Duration::from_secs(8);

/// Half of the subjects get data all the time, the others only Pings. Each has its outage at a moment of its own.
fn outage(stage: &mut Stage) -> Result<()> {
    let options = stage.peer_options();
    let clients = stage.connect_subjects_as(|number| match number % 2 {
        1 => ("bulk", options.clone()),
        _ => ("idle", options.clone()),
    })?;
    for client in clients.iter().step_by(2) {
        client.ask(&Ask::Steady { bytes: 10_000, period_ms: 50 });
    }
    let duration_ns = u64::try_from(Duration::from_secs_f64(stage.variant.value).as_nanos())?;
    let interval_ns = u64::try_from(INTERVAL.as_nanos())?;
    let began_ns = monotonic_ns();
    let mut faults: Vec<(u64, u16, bool)> = Vec::new();
    for client in &clients {
        let cut_ns = began_ns + stage.random.u64(0..interval_ns);
        faults.push((cut_ns, client.port(), true));
        faults.push((cut_ns + duration_ns, client.port(), false));
    }
    faults.sort_unstable();
    for (at_ns, port, is_cut) in faults {
        stage.pass(Duration::from_nanos(at_ns.saturating_sub(monotonic_ns())));
        if is_cut {
            stage.now(port, State::Outage)?;
            stage.network.cut(port)?;
        } else {
            stage.network.heal(port)?;
            stage.now(port, State::Alive)?;
        }
    }
    stage.clients.extend(clients);
    stage.pass(UNTIL_RETRANSMITTED + 2 * INTERVAL);
    Ok(())
}
