//! Throughput, set-up and echo, with and without ackbeat.

use anyhow::{Context, Result};

use super::{Bench, in_turns};
use crate::report::result::{Figure, Goal, Guard, Unit};
use crate::sidecar::{Sidecar, Watch};
use crate::statistics::Spread;
use crate::traffic::bulk::{self, Bulk};
use crate::traffic::echo;
use crate::traffic::set_up::{self, Pace};

/// Payload of a message of the bulk, in bytes.
const MESSAGE_BYTES: usize = 16 * 1024;
/// A rate of connections that leaves time between them.
const PACED_PER_SECOND: u32 = 500;

/// What one segment gives.
#[derive(Clone, Copy)]
struct Segment {
    bytes_per_second: f64,
    set_ups_per_second: f64,
    paced_per_second: f64,
    paced_p50_ns: f64,
    echo_p50_ns: f64,
    echo_p99_ns: f64,
}

/// Measures.
///
/// # Errors
/// A socket or the sidecar failed.
pub(crate) fn measure(bench: &Bench<'_>) -> Result<Vec<Figure>> {
    let mut done = 0;
    let (without, with) = in_turns(bench.effort.pairs, |is_with| {
        let mut sidecar = is_with
            .then(|| Sidecar::start(bench.ackbeat, &bench.scene.network.host, Watch::EveryPort))
            .transpose()?;
        let segment = segment(bench)?;
        if let Some(sidecar) = &mut sidecar {
            sidecar.check()?;
        }
        done += 1;
        (bench.say)(&format!(
            "segment {done} of {}, {}: {:.2} GB/s, {:.0} connections/s, echo p50 {:.1} µs, p99 {:.1} µs",
            bench.effort.pairs * 2,
            if is_with { "with" } else { "without" },
            segment.bytes_per_second / 1e9,
            segment.set_ups_per_second,
            segment.echo_p50_ns / 1e3,
            segment.echo_p99_ns / 1e3,
        ));
        Ok(segment)
    })?;
    figures(&without, &with)
}

fn segment(bench: &Bench<'_>) -> Result<Segment> {
    let (scene, duration) = (bench.scene, bench.effort.segment);
    let echo = echo::run(scene, duration)?;
    let bulk = Bulk { message_bytes: MESSAGE_BYTES, with_heartbeat: true, duration };
    let bytes_per_second = bulk::run(scene, bulk, || Ok(()))?;
    let paced = set_up::run(scene, Pace::PerSecond(PACED_PER_SECOND), duration)?;
    let set_ups = set_up::run(scene, Pace::Unbounded, duration)?;
    Ok(Segment {
        bytes_per_second,
        set_ups_per_second: set_ups.per_second,
        paced_per_second: paced.per_second,
        paced_p50_ns: paced.p50_ns,
        echo_p50_ns: echo.p50_ns,
        echo_p99_ns: echo.p99_ns,
    })
}

fn figures(without: &[Segment], with: &[Segment]) -> Result<Vec<Figure>> {
    let values =
        |segments: &[Segment], of: fn(&Segment) -> f64| segments.iter().map(of).collect::<Vec<f64>>();
    let ratio = |id: &str, title: &str, of: fn(&Segment) -> f64| {
        Figure::of_ratios(id, title, &values(with, of), &values(without, of))
    };
    let p99_without = values(without, |segment| segment.echo_p99_ns);
    let noise = noise(&p99_without).context("noise needs two segments without ackbeat")?;
    Ok(vec![
        ratio("throughput", "bulk throughput, with / without", |segment| segment.bytes_per_second)?
            .goal(Goal::AtLeast(0.99))
            .guard(Guard::Remaining),
        ratio(
            "set_up_rate",
            &format!("connections a second at {PACED_PER_SECOND}/s asked, with / without"),
            |segment| segment.paced_per_second,
        )?
        .goal(Goal::AtLeast(0.99))
        .guard(Guard::Remaining),
        ratio("set_up_time", "time of a set-up at that rate, with / without", |segment| {
            segment.paced_p50_ns
        })?
        .guard(Guard::Excess),
        ratio(
            "set_up_rate_saturated",
            "connections a second, both processors busy with nothing else, with / without",
            |segment| segment.set_ups_per_second,
        )?
        .goal(Goal::AtLeast(0.99))
        .guard(Guard::Remaining),
        ratio("echo_p50", "median echo latency, with / without", |segment| segment.echo_p50_ns)?
            .guard(Guard::Excess),
        ratio("echo_p99", "p99 echo latency, with / without", |segment| segment.echo_p99_ns)?
            .goal(Goal::Within { low: noise.min, high: noise.max }),
        Figure::of(
            "throughput_without",
            "bytes a second without ackbeat",
            Unit::Bytes,
            &values(without, |segment| segment.bytes_per_second),
        )?,
        Figure::of(
            "set_ups_without",
            "connections a second without ackbeat, unbounded",
            Unit::Count,
            &values(without, |segment| segment.set_ups_per_second),
        )?,
        Figure::of("echo_p99_without", "p99 echo latency without ackbeat", Unit::Nanoseconds, &p99_without)?,
    ])
}

/// How far two segments without ackbeat differ: quotients of neighbours, both ways.
fn noise(values: &[f64]) -> Option<Spread> {
    let quotients: Vec<f64> = values
        .windows(2)
        .filter_map(|pair| match pair {
            [first, second] => Some([first / second, second / first]),
            _ => None,
        })
        .flatten()
        .collect();
    Spread::of(&quotients)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_what_neighbours_differ_by_both_ways() {
        let noise = noise(&[2.0, 4.0, 5.0]).expect("two pairs");
        assert_eq!((noise.min, noise.max, noise.count), (0.5, 2.0, 4));
    }
}
