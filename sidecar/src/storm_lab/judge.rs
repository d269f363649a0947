//! From the recording and the truth to figures.

use std::collections::HashMap;

use ackbeat_lab::crowd::{CrowdEvent, Happened, per_second_peak};
use ackbeat_liveness::{ConnectionId, Input, Output, Timestamp, Verdict};
use ackbeat_storms::{Outage, Settings, StormEvent};

use super::StormLabError;
use super::fleet::{Fleet, Played};
use super::options::Options;
use super::report::{Accused, FleetReport, OutageReport, ResonanceReport};
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

/// What was said against a peer, from when to when.
struct Accusation {
    verdict: Verdict,
    port: u16,
    from_ns: u64,
    until_ns: u64,
}

/// What was said against peers, as the engine tells it change by change.
#[derive(Default)]
struct Accusations {
    ports: HashMap<ConnectionId, u16>,
    /// What is said of whom now, since when.
    standing: HashMap<ConnectionId, (Verdict, u64)>,
    over: Vec<Accusation>,
    /// When a kill of whom began to be justified.
    kills: Vec<(u64, u16)>,
}

impl Accusations {
    fn note(&mut self, output: &Output) {
        match output {
            Output::VerdictChanged(change) => {
                let at_ns = change.at.as_ns();
                if self.standing.get(&change.connection).is_some_and(|(verdict, _)| *verdict != change.to) {
                    self.end(change.connection, at_ns);
                }
                if matches!(change.to, Verdict::Unreachable | Verdict::Silent) {
                    self.standing.entry(change.connection).or_insert((change.to, at_ns));
                }
                if change.kill_justified
                    && let Some(port) = self.ports.get(&change.connection)
                {
                    self.kills.push((at_ns, *port));
                }
            }
            Output::Closed(record) => self.end(record.connection, record.closed_at.as_ns()),
            _ => {}
        }
    }

    fn end(&mut self, connection: ConnectionId, until_ns: u64) {
        if let Some((verdict, from_ns)) = self.standing.remove(&connection)
            && let Some(port) = self.ports.get(&connection)
        {
            self.over.push(Accusation { verdict, port: *port, from_ns, until_ns });
        }
    }

    fn end_all(&mut self, until_ns: u64) {
        let standing: Vec<ConnectionId> = self.standing.keys().copied().collect();
        for connection in standing {
            self.end(connection, until_ns);
        }
    }
}

/// What is true of the clients: when each was connected, and when nobody could be reached.
struct Truth<'a> {
    lives: &'a [Lived],
    outages: &'a [(u64, u64)],
}

impl Truth<'_> {
    fn life(&self, port: u16, at_ns: u64) -> Option<&Lived> {
        self.lives.iter().find(|life| life.port == port && (life.opened_ns..life.ended_ns).contains(&at_ns))
    }

    /// Lossy at worst: the client is connected, and there is no outage.
    fn is_there(&self, port: u16, at_ns: u64) -> bool {
        let is_out = self.outages.iter().any(|(cut, healed)| (*cut..*healed).contains(&at_ns));
        !is_out && self.life(port, at_ns).is_some()
    }

    /// How much of a time of a client that began outside of an outage was before the next one, and while it was connected.
    fn there_ns(&self, port: u16, from_ns: u64, until_ns: u64) -> u64 {
        let Some(life) = self.life(port, from_ns) else { return 0 };
        let next_cut = self.outages.iter().map(|(cut, _)| *cut).filter(|cut| *cut >= from_ns).min();
        until_ns.min(life.ended_ns).min(next_cut.unwrap_or(u64::MAX)).saturating_sub(from_ns)
    }

    /// How long clients were connected outside of outages, together.
    fn watched_ns(&self) -> u64 {
        let of_life = |life: &Lived| {
            let out: u64 = self
                .outages
                .iter()
                .map(|(cut, healed)| (*healed).min(life.ended_ns).saturating_sub((*cut).max(life.opened_ns)))
                .sum();
            life.ended_ns.saturating_sub(life.opened_ns).saturating_sub(out)
        };
        self.lives.iter().map(of_life).sum()
    }

    /// What was begun to be said against clients that were there.
    fn false_ones(&self, accusations: &[Accusation], verdict: Verdict) -> Accused {
        let lasted: Vec<u64> = accusations
            .iter()
            .filter(|accusation| {
                accusation.verdict == verdict && self.is_there(accusation.port, accusation.from_ns)
            })
            .map(|accusation| self.there_ns(accusation.port, accusation.from_ns, accusation.until_ns))
            .collect();
        Accused {
            times: lasted.len() as u64,
            total_s: seconds_between(0, lasted.iter().sum()),
            longest_s: seconds_between(0, lasted.iter().copied().max().unwrap_or(0)),
        }
    }
}

pub(super) fn judge(fleet: Fleet, options: &Options, played: &Played) -> Result<FleetReport, StormLabError> {
    let mut reader = Reader::open(&played.recording)?;
    let settings = Settings::default().compressed(options.compression);
    let mut rerun = Rerun::new(reader.header(), reader.header().thresholds.clone()).with_storms(settings);
    let mut accusations = Accusations::default();
    while let Some(line) = reader.next_line()? {
        if let Line::Input(input) = &line
            && let Input::Opened(opened) = input.as_ref()
        {
            accusations.ports.insert(opened.connection, opened.endpoints.peer_port);
        }
        rerun.line(line, &mut |output| accusations.note(output));
    }
    let story = rerun.finish(&mut |output| accusations.note(output));
    accusations.end_all(played.ended_ns);
    let lives = lives(&played.events, played.ended_ns);
    let truth = Truth { lives: &lives, outages: &played.outages };
    let false_kills = accusations.kills.iter().filter(|(at_ns, port)| truth.is_there(*port, *at_ns)).count();
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
        resonance_windows: port.map_or(0, |port| port.windows),
        outages: played.outages.iter().map(|truth| outage(*truth, &told)).collect(),
        outages_made_up: told
            .iter()
            .filter(|outage| !played.outages.iter().any(|truth| is_of(*truth, outage)))
            .count() as u64,
        watched_s: seconds_between(0, truth.watched_ns()),
        false_kills_justified: false_kills as u64,
        called_unreachable: truth.false_ones(&accusations.over, Verdict::Unreachable),
        called_silent: truth.false_ones(&accusations.over, Verdict::Silent),
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn what_is_said_of_those_who_are_there_is_measured_until_they_are_not() {
        let lives = [Lived { port: 1, opened_ns: 0, ended_ns: 50 * SECOND }];
        let outages = [(10 * SECOND, 20 * SECOND)];
        let truth = Truth { lives: &lives, outages: &outages };
        let said = |from: u64, until: u64| Accusation {
            verdict: Verdict::Unreachable,
            port: 1,
            from_ns: from * SECOND,
            until_ns: until * SECOND,
        };
        // The first goes on into the outage, the second is right, the third goes on after the client's end.
        let accused =
            truth.false_ones(&[said(8, 15), said(12, 25), said(49, 60), said(55, 60)], Verdict::Unreachable);
        assert_eq!(accused, Accused { times: 2, total_s: 3.0, longest_s: 2.0 });
        assert_eq!(truth.false_ones(&[said(8, 9)], Verdict::Silent).times, 0);
        assert_eq!(truth.watched_ns(), 40 * SECOND);
        assert!(truth.is_there(1, 30 * SECOND) && !truth.is_there(1, 15 * SECOND) && !truth.is_there(2, 1));
    }
}
