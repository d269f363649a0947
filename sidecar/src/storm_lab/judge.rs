//! From the recording and the truth to figures.

use std::collections::HashMap;

use ackbeat_lab::crowd::{CrowdEvent, Happened, per_second_peak};
use ackbeat_liveness::{ConnectionId, Input, Output, Timestamp, Verdict};
use ackbeat_storms::{Outage, Settings, StormEvent};

use super::StormLabError;
use super::fleet::{Fleet, Played};
use super::options::Options;
use super::report::{FleetReport, OutageReport, ResonanceReport};
use crate::recording::replay::Rerun;
use crate::recording::{Line, Reader};

/// An outage that was told belongs to a true one if they overlap, or are at most this far from each other.
const OUTAGE_SLACK_NS: u64 = 3_000_000_000;

/// A connection as the lab knows it: a client's port, from when to when.
struct Lived {
    port: u16,
    opened_ns: u64,
    ended_ns: u64,
}

/// What was said against a peer.
struct Accusation {
    at_ns: u64,
    port: u16,
    is_kill: bool,
}

pub(super) fn judge(fleet: Fleet, options: &Options, played: &Played) -> Result<FleetReport, StormLabError> {
    let mut reader = Reader::open(&played.recording)?;
    let settings = Settings::default().compressed(options.compression);
    let mut rerun = Rerun::new(reader.header(), reader.header().thresholds.clone()).with_storms(settings);
    let mut ports: HashMap<ConnectionId, u16> = HashMap::new();
    let mut accusations = Vec::new();
    let mut accuse = |ports: &HashMap<ConnectionId, u16>, output: &Output| {
        if let Output::VerdictChanged(change) = output
            && (change.kill_justified || change.to == Verdict::Unreachable)
            && let Some(port) = ports.get(&change.connection)
        {
            accusations.push(Accusation {
                at_ns: change.at.as_ns(),
                port: *port,
                is_kill: change.kill_justified,
            });
        }
    };
    while let Some(line) = reader.next_line()? {
        if let Line::Input(input) = &line
            && let Input::Opened(opened) = input.as_ref()
        {
            ports.insert(opened.connection, opened.endpoints.peer_port);
        }
        rerun.line(line, &mut |output| accuse(&ports, output));
    }
    let story = rerun.finish(&mut |output| accuse(&ports, output));
    let lives = lives(&played.events, played.ended_ns);
    let is_false = |accusation: &&Accusation| {
        let is_out = played.outages.iter().any(|(cut, healed)| (*cut..*healed).contains(&accusation.at_ns));
        let is_there = lives.iter().any(|life| {
            life.port == accusation.port && (life.opened_ns..life.ended_ns).contains(&accusation.at_ns)
        });
        !is_out && is_there
    };
    let false_kills = accusations.iter().filter(|accusation| accusation.is_kill).filter(is_false).count();
    let false_unreachable =
        accusations.iter().filter(|accusation| !accusation.is_kill).filter(is_false).count();
    let storms: Vec<_> = story
        .events
        .iter()
        .filter_map(|event| if let StormEvent::Ended(storm) = event { Some(storm) } else { None })
        .collect();
    let told: Vec<Outage> = story
        .events
        .iter()
        .filter_map(|event| if let StormEvent::OutageEnded(outage) = event { Some(*outage) } else { None })
        .collect();
    let port = story.ports.iter().max_by_key(|port| port.arrivals);
    let factor = f64::from(options.compression.max(1));
    let first_ns = played.outages.first().map_or(u64::MAX, |(cut, _)| *cut);
    // What follows the first outage; the clients' first attempts are no reconnects.
    let times = |wanted: fn(&Happened) -> bool| -> Vec<u64> {
        let later = played.events.iter().filter(move |event| event.at_ns >= first_ns && wanted(&event.what));
        later.map(|event| event.at_ns).collect()
    };
    let attempts = times(|what| matches!(what, Happened::Attempt));
    let successes = times(|what| matches!(what, Happened::Opened { .. }));
    Ok(FleetReport {
        retry: fleet.title().to_owned(),
        attempts: attempts.len() as u64,
        successes: successes.len() as u64,
        gave_up: times(|what| matches!(what, Happened::Stopped)).len() as u64,
        attempts_per_second_peak: per_second_peak(stretched(&attempts, options.compression)),
        arrivals_per_second_peak: storms.iter().map(|storm| storm.peak_per_second).max(),
        arrivals: port.map_or(0, |port| port.arrivals),
        storms: storms.len() as u64,
        resonance: port.and_then(|port| port.resonance).map(|resonance| ResonanceReport {
            period_s: resonance.period_ms * factor / 1_000.0,
            strength: resonance.strength,
            windows: resonance.windows,
        }),
        outages: played.outages.iter().map(|truth| outage(*truth, &told)).collect(),
        outages_made_up: told
            .iter()
            .filter(|outage| !played.outages.iter().any(|truth| is_of(*truth, outage)))
            .count() as u64,
        false_kills_justified: false_kills as u64,
        unreachable_outside_outages: false_unreachable as u64,
    })
}

/// A second of the uncompressed experiment is a second again.
fn stretched(at_ns: &[u64], compression: u32) -> Vec<u64> {
    let first = at_ns.iter().copied().min().unwrap_or(0);
    at_ns.iter().map(|at| (at - first).saturating_mul(u64::from(compression.max(1)))).collect()
}

fn lives(events: &[CrowdEvent], ended_ns: u64) -> Vec<Lived> {
    let mut open: HashMap<u32, Lived> = HashMap::new();
    let mut lives = Vec::new();
    for event in events {
        match event.what {
            Happened::Opened { port } => {
                open.insert(event.member, Lived { port, opened_ns: event.at_ns, ended_ns });
            }
            Happened::Ended { .. } => {
                if let Some(life) = open.remove(&event.member) {
                    lives.push(Lived { ended_ns: event.at_ns, ..life });
                }
            }
            Happened::Attempt | Happened::Failed | Happened::Stopped => {}
        }
    }
    lives.extend(open.into_values());
    lives
}

fn is_of(truth: (u64, u64), outage: &Outage) -> bool {
    let ended_ns = outage.ended_at.map_or(u64::MAX, Timestamp::as_ns);
    outage.began_at.as_ns() < truth.1.saturating_add(OUTAGE_SLACK_NS)
        && ended_ns.saturating_add(OUTAGE_SLACK_NS) > truth.0
}

fn outage(truth: (u64, u64), told: &[Outage]) -> OutageReport {
    let of_truth = told.iter().filter(|outage| is_of(truth, outage));
    let seen = of_truth.min_by_key(|outage| outage.began_at.as_ns().abs_diff(truth.0));
    OutageReport {
        seen: seen.is_some(),
        start_error_s: seen.map(|outage| seconds_between(truth.0, outage.began_at.as_ns())),
        end_error_s: seen.and_then(|outage| outage.ended_at).map(|at| seconds_between(truth.1, at.as_ns())),
    }
}

/// From `from_ns` to `to_ns`; negative if it is the earlier one.
#[expect(clippy::cast_precision_loss, reason = "some seconds in nanoseconds")]
fn seconds_between(from_ns: u64, to_ns: u64) -> f64 {
    (to_ns as f64 - from_ns as f64) / 1e9
}
