//! What the wire parser costs a packet, by the kernel's own run-time statistics.

use anyhow::{Context, Result, ensure};

use super::Bench;
use crate::kernel::program::{Programs, Statistics, floor_ns};
use crate::report::result::{Figure, Goal, Guard, Unit};
use crate::sidecar::{Sidecar, Watch};
use crate::traffic::bulk::{self, Bulk};

/// Towards the peer, from the peer; the kernel keeps 15 bytes of a name.
const EGRESS: &str = "wire_egress";
const INGRESS: &str = "wire_ingress";
/// Payloads of the messages, in bytes, with a name and words for each.
const MESSAGES: [(usize, &str, &str); 3] = [
    (1024 * 1024, "1_mib", "1 MiB messages (most buffers are inside of one)"),
    (16 * 1024, "16_kib", "16 KiB messages (about 4 in a full buffer)"),
    (1024, "1_kib", "1 KiB messages (about 64 in a full buffer)"),
];

/// The values of one kind, over all rounds.
#[derive(Default)]
struct Costs {
    egress_ns: Vec<f64>,
    ingress_ns: Vec<f64>,
}

/// Measures.
///
/// # Errors
/// A socket or the sidecar failed, the kernel keeps no statistics, or a program did not run.
pub(crate) fn measure(bench: &Bench<'_>) -> Result<Vec<Figure>> {
    let mut floors = Vec::new();
    let mut unwatched = Costs::default();
    let mut watched: Vec<Costs> = MESSAGES.iter().map(|_| Costs::default()).collect();
    for round in 0..bench.effort.program_rounds {
        let statistics = Statistics::enable()?;
        floors.push(floor_ns()?);
        {
            let sidecar = Sidecar::start(bench.ackbeat, &bench.scene.network.host, Watch::AnotherPort)?;
            costs(bench, &sidecar, MESSAGES[1].0, &mut unwatched)?;
        }
        let sidecar = Sidecar::start(bench.ackbeat, &bench.scene.network.host, Watch::EveryPort)?;
        for ((message_bytes, _, _), into) in MESSAGES.into_iter().zip(&mut watched) {
            costs(bench, &sidecar, message_bytes, into)?;
        }
        drop(statistics);
        (bench.say)(&format!("kernel programs, round {} of {}", round + 1, bench.effort.program_rounds));
    }
    let mut figures = vec![Figure::of(
        "floor_ns",
        "a program that does nothing: what measuring costs",
        Unit::Nanoseconds,
        &floors,
    )?];
    let mut add = |id: &str, title: &str, values: &[f64], most_ns: Option<f64>| -> Result<()> {
        let figure = Figure::of(format!("{id}_ns"), title, Unit::Nanoseconds, values)?;
        // The clock's own reading is not the program's cost.
        let net: Vec<f64> =
            values.iter().zip(&floors).map(|(value, floor)| (value - floor).max(0.0)).collect();
        let mut of_program = Figure::of(
            format!("{id}_net_ns"),
            format!("{title}, less what measuring costs"),
            Unit::Nanoseconds,
            &net,
        )?;
        if let Some(most_ns) = most_ns {
            of_program = of_program.goal(Goal::AtMost(most_ns));
        }
        let in_floors = Figure::of_ratios(
            format!("{id}_floors"),
            format!("{title}, in empty programs"),
            values,
            &floors,
        )?;
        figures.extend([figure, of_program, in_floors.guard(Guard::Cost)]);
        Ok(())
    };
    add("unwatched_egress", "a buffer out, port not watched", &unwatched.egress_ns, Some(20.0))?;
    add("unwatched_ingress", "a packet in, port not watched", &unwatched.ingress_ns, Some(20.0))?;
    for ((_, id, words), costs) in MESSAGES.into_iter().zip(&watched) {
        let egress = format!("a buffer out, {words}");
        add(&format!("egress_{id}"), &egress, &costs.egress_ns, Some(60.0))?;
        let ingress = format!("an ACK in, {words}");
        add(&format!("ingress_{id}"), &ingress, &costs.ingress_ns, Some(60.0))?;
    }
    Ok(figures)
}

/// Sends data without any control frame and notes what a run of each program took meanwhile.
fn costs(bench: &Bench<'_>, sidecar: &Sidecar, message_bytes: usize, into: &mut Costs) -> Result<()> {
    let mut readings = Vec::new();
    let bulk = Bulk { message_bytes, with_heartbeat: false, duration: bench.effort.segment };
    bulk::run(bench.scene, bulk, || {
        readings.push(Programs::of(sidecar.pid())?);
        Ok(())
    })?;
    let [before, after] = readings.as_slice() else { anyhow::bail!("a run has a beginning and an end") };
    ensure!(after.has(EGRESS) && after.has(INGRESS), "the sidecar has no wire parser loaded");
    let ran = after.since(before);
    into.egress_ns.push(ran.named(EGRESS).mean_ns().context("no buffer went out")?);
    into.ingress_ns.push(ran.named(INGRESS).mean_ns().context("no packet came in")?);
    Ok(())
}
