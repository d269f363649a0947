//! More sidecars on the machine, each in a network namespace of its own: what they cost the others.

use ackbeat_lab::namespace::Namespace;
use anyhow::{Context, Result, ensure};

use super::{Bench, in_turns};
use crate::kernel::program::{Programs, Runs, Statistics};
use crate::report::result::{Figure, Goal, Guard, Unit};
use crate::sidecar::{Sidecar, Watch};
use crate::traffic::bulk::{self, Bulk};
use crate::traffic::set_up::{self, Pace};

/// Payload of a message of the bulk, in bytes.
const MESSAGE_BYTES: usize = 16 * 1024;
/// Programs that run for a packet.
const WIRE: [&str; 2] = ["wire_egress", "wire_ingress"];
/// The program that runs for every transition of every socket of the machine.
const LIFECYCLE: &str = "lifecycle";

/// Measures, beside a sidecar in the host's namespace.
///
/// # Errors
/// A socket or a sidecar failed, or a program of another namespace ran for a packet of this one.
pub(crate) fn measure(bench: &Bench<'_>) -> Result<Vec<Figure>> {
    let namespaces =
        (0..bench.effort.several).map(|_| Ok(Namespace::create("other")?)).collect::<Result<Vec<_>>>()?;
    let start = || -> Result<Vec<Sidecar>> {
        namespaces
            .iter()
            .map(|namespace| Sidecar::start(bench.ackbeat, namespace, Watch::EveryPort))
            .collect()
    };
    let _own = Sidecar::start(bench.ackbeat, &bench.scene.network.host, Watch::EveryPort)?;
    let duration = bench.effort.segment;
    let bulk = Bulk { message_bytes: MESSAGE_BYTES, with_heartbeat: true, duration };
    let (without, with) = in_turns(bench.effort.several_pairs, |is_with| {
        let _others = if is_with { start()? } else { Vec::new() };
        let bytes_per_second = bulk::run(bench.scene, bulk, || Ok(()))?;
        let set_ups = set_up::run(bench.scene, Pace::Unbounded, duration)?;
        Ok((bytes_per_second, set_ups.per_second))
    })?;
    let first = |values: &[(f64, f64)]| values.iter().map(|(rate, _)| *rate).collect::<Vec<f64>>();
    let second = |values: &[(f64, f64)]| values.iter().map(|(_, rate)| *rate).collect::<Vec<f64>>();
    let others = start()?;
    let (packets, transition_ns, floor_ns) = foreign_work(bench, &others, bulk)?;
    let count = bench.effort.several;
    (bench.say)(&format!(
        "{count} more sidecars: {packets} runs for others' packets, {transition_ns:?} ns a transition"
    ));
    Ok(vec![
        Figure::of(
            "several_packets",
            format!("{count} more sidecars: runs of their programs for another namespace's packets"),
            Unit::Count,
            &[packets],
        )?
        .goal(Goal::AtMost(0.0)),
        Figure::of_ratios(
            "several_throughput",
            format!("bulk throughput, {count} more sidecars / none more"),
            &first(&with),
            &first(&without),
        )?
        .guard(Guard::Remaining),
        Figure::of_ratios(
            "several_set_up_rate",
            format!("connections a second, {count} more sidecars / none more"),
            &second(&with),
            &second(&without),
        )?
        .guard(Guard::Remaining),
        Figure::of(
            "several_transition_ns",
            "a transition of another namespace's socket, each more sidecar",
            Unit::Nanoseconds,
            &transition_ns,
        )?,
        Figure::of(
            "several_transition_floors",
            "the same, in empty programs",
            Unit::Ratio,
            &transition_ns.iter().map(|ns| ns / floor_ns).collect::<Vec<f64>>(),
        )?
        .guard(Guard::Cost),
    ])
}

/// Runs for packets of the host's namespace, and nanoseconds of a transition there, of the sidecars in other namespaces;
/// and nanoseconds of a program that does nothing.
#[expect(clippy::cast_precision_loss, reason = "a count of packets")]
fn foreign_work(bench: &Bench<'_>, others: &[Sidecar], bulk: Bulk) -> Result<(f64, Vec<f64>, f64)> {
    let _statistics = Statistics::enable()?;
    let floor_ns = crate::kernel::program::floor_ns()?;
    let read = || others.iter().map(|other| Programs::of(other.pid())).collect::<Result<Vec<Programs>>>();
    let before = read()?;
    bulk::run(bench.scene, bulk, || Ok(()))?;
    set_up::run(bench.scene, Pace::Unbounded, bench.effort.segment)?;
    let (mut packets, mut transition_ns) = (0, Vec::new());
    for (after, before) in read()?.iter().zip(&before) {
        let ran = after.since(before);
        ensure!(WIRE.iter().all(|name| after.has(name)), "another sidecar has no wire parser loaded");
        packets += WIRE.iter().map(|name| ran.named(name)).map(|runs: Runs| runs.count).sum::<u64>();
        transition_ns.push(ran.named(LIFECYCLE).mean_ns().context("no transition reached another sidecar")?);
    }
    Ok((packets as f64, transition_ns, floor_ns))
}
