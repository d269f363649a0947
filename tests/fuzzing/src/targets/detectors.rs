//! Every detector, over any facts of one connection.

use ackbeat_detectors::{Detector, Evidence, Fact, Report, Reported, Spec};
use ackbeat_liveness::{ConnectionId, Input, Timestamp};

use super::inputs::{self, Clock};
use super::{Target, ensure};
use crate::draw::{Draw, noise};

pub(super) const TARGET: Target = Target {
    name: "detectors",
    about: "every detector: any facts of one connection",
    generate: |rng| noise(rng, 2_048),
    run,
    memory_limit_bytes: |bytes| 256 * 1024 + 32 * bytes as u64,
};

/// Deadlines that a detector may have without time going on.
const STEPS_MAX: u32 = 10_000;

fn run(bytes: &[u8]) -> Result<(), String> {
    let mut draw = Draw::new(bytes);
    let specs = Spec::all();
    let Some(spec) = specs.get(usize::from(draw.byte()) % specs.len().max(1)) else {
        return Err("there are no detectors".to_owned());
    };
    let mut clock = Clock::new();
    let connection = ConnectionId(1);
    let opened = inputs::opened(&mut draw, connection, clock.now);
    let evidence = Evidence { frames: draw.is_odd(), reports: draw.is_odd(), samples: draw.is_odd() };
    let Ok(mut detector) = spec.start(&opened, evidence) else { return Ok(()) };
    let mut latest = clock.now;
    while !draw.is_empty() {
        clock.go_on(&mut draw);
        if draw.below(4) == 0 {
            let what = if draw.is_odd() {
                Reported::Pong
            } else {
                Reported::Tick { buffered_bytes: u64::from(draw.edgy_u32()) }
            };
            let report = Report { connection, at: clock.now, what };
            latest = latest.max(report.at);
            if pass_time(detector.as_mut(), latest, spec)?
                || detector.on_fact(&Fact::Report(&report)).is_some()
            {
                return Ok(());
            }
        } else {
            let input: Input = inputs::input(&mut draw, &clock);
            // Whoever drives a detector keeps the order of time.
            if input.at() < latest || input.at() > clock.now {
                continue;
            }
            latest = latest.max(input.at());
            if pass_time(detector.as_mut(), latest, spec)? || detector.on_fact(&Fact::Input(&input)).is_some()
            {
                return Ok(());
            }
        }
        let _ = detector.not_judged();
    }
    Ok(())
}

/// Lets its deadlines pass; whether it has killed.
fn pass_time(detector: &mut dyn Detector, until: Timestamp, spec: &Spec) -> Result<bool, String> {
    let mut steps = 0;
    while let Some(due) = detector.poll_timeout().filter(|due| *due <= until) {
        if detector.on_timeout(due).is_some() {
            return Ok(true);
        }
        steps += 1;
        ensure!(steps <= STEPS_MAX, "{} stands still at {due:?}", spec.name());
    }
    Ok(false)
}
