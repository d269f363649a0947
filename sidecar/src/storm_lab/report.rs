//! The figures, as text and as JSON.

use std::fmt::Write as _;

use ackbeat_storms::WINDOWS_MIN;
use serde::{Deserialize, Serialize};

use super::options::{FIXED_RETRY, Options};

/// How close to the fixed interval its resonance must be, in seconds.
pub const PERIOD_TOLERANCE_S: f64 = 0.1;
/// How close to the truth an outage's beginning and end must be, in seconds.
pub const OUTAGE_TOLERANCE_S: f64 = 3.0;

/// What came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Clients of each fleet.
    pub clients: u32,
    /// Probability that a packet was lost, each way.
    pub loss: f64,
    /// Length of an outage, in seconds, uncompressed.
    pub outage_s: f64,
    /// From one outage to the next, in seconds, uncompressed.
    pub every_s: f64,
    /// Everything but TCP's own timers ran so many times as fast.
    pub time_compression: u32,
    /// The fleets: fixed interval, full jitter.
    pub fleets: Vec<FleetReport>,
}

/// One fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetReport {
    /// How it comes back.
    pub retry: String,
    /// Attempts from the first outage on.
    pub attempts: u64,
    /// Of them, those that got a WebSocket.
    pub successes: u64,
    /// Clients that gave up for good.
    pub gave_up: u64,
    /// Most attempts within a second, as the clients made them.
    pub attempts_per_second_peak: u32,
    /// Most arrivals within a second of a storm, as ackbeat saw them; `null` where there was no storm.
    pub arrivals_per_second_peak: Option<u32>,
    /// Arrivals that ackbeat saw, the first ones too.
    pub arrivals: u64,
    /// Reconnect storms that ackbeat saw.
    pub storms: u64,
    /// The period that ackbeat found.
    pub resonance: Option<ResonanceReport>,
    /// Returns after a burst of closes that it looked for one in, at most the latest 16. Below 4 nobody can tell.
    pub resonance_windows: u32,
    /// Each outage, and what ackbeat said of it.
    pub outages: Vec<OutageReport>,
    /// Outages that ackbeat told and that were none.
    pub outages_made_up: u64,
    /// How long clients were connected outside of outages, together, in seconds as played: lossy, but alive.
    pub watched_s: f64,
    /// Times that ackbeat justified a kill of such a client.
    pub false_kills_justified: u64,
    /// When it began to say `unreachable` of such a client: whole round trips were lost by chance, several in a row.
    pub called_unreachable: Accused,
    /// When it began to say `silent` of such a client: its Pong was lost, and lost again.
    pub called_silent: Accused,
}

/// What was said of clients that were there, until it was taken back, they left, or an outage began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Accused {
    /// How many times.
    pub times: u64,
    /// For how long together, in seconds as played.
    pub total_s: f64,
    /// For how long at most.
    pub longest_s: f64,
}

impl Accused {
    fn words(&self, watched_s: f64) -> String {
        if self.times == 0 {
            return "never".to_owned();
        }
        let share = if watched_s > 0.0 { 100.0 * self.total_s / watched_s } else { 0.0 };
        format!("{}, {:.1} s at most ({share:.2} %)", self.times, self.longest_s)
    }
}

/// A period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResonanceReport {
    /// In seconds, uncompressed.
    pub period_s: f64,
    /// From 0 to 1.
    pub strength: f64,
    /// Bursts of closes that it was seen in.
    pub windows: u32,
}

/// An outage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutageReport {
    /// Whether ackbeat told of it.
    pub seen: bool,
    /// How much later than in truth it began, in seconds as played.
    pub start_error_s: Option<f64>,
    /// How much later than in truth it ended.
    pub end_error_s: Option<f64>,
}

impl OutageReport {
    /// Whether it was told, and its beginning and end are within [`OUTAGE_TOLERANCE_S`].
    #[must_use]
    pub fn is_right(&self) -> bool {
        let is_close = |error: Option<f64>| error.is_some_and(|error| error.abs() <= OUTAGE_TOLERANCE_S);
        self.seen && is_close(self.start_error_s) && is_close(self.end_error_s)
    }
}

impl FleetReport {
    fn share(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "thousands of attempts")]
        (self.attempts > 0).then(|| 100.0 * self.successes as f64 / self.attempts as f64)
    }

    /// Whether enough of them came back, often enough, to tell whether there is a period.
    #[must_use]
    pub const fn can_tell_a_period(&self) -> bool {
        self.resonance_windows as usize >= WINDOWS_MIN
    }

    /// Whether its period is that of the fixed interval.
    #[must_use]
    pub fn resonates_at_the_fixed_interval(&self) -> bool {
        self.resonance.is_some_and(|resonance| {
            (resonance.period_s - FIXED_RETRY.as_secs_f64()).abs() <= PERIOD_TOLERANCE_S
        })
    }
}

const ADVICE: &str = "\
What a client library should do\n\
  - Wait random(0, min(cap, base * 2^attempt)) before each attempt (full jitter): base 1 s, cap 30 s. Never a fixed interval:\n    \
    those who were cut off together come back together, again and again.\n\
  - Start anew with attempt 0 only after a success, and give up after about 8 failures in a row: then let the user ask.\n\
  - After a planned restart (Close 1001, 1012 or 4001) come back within about a second, but at a random moment of it.\n\
  - Do not come back by yourself after a final close (1008, 4000, 4001 with another reason).\n";

impl Report {
    pub(super) fn new(options: &Options, fleets: Vec<FleetReport>) -> Self {
        Self {
            clients: options.clients,
            loss: options.loss,
            outage_s: options.outage.as_secs_f64(),
            every_s: options.every.as_secs_f64(),
            time_compression: options.compression,
            fleets,
        }
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{} clients in each fleet, {:.0} % loss each way, an outage of {} s every {} s{}",
            self.clients,
            self.loss * 100.0,
            self.outage_s,
            self.every_s,
            if self.time_compression > 1 {
                format!("; {} times as fast, but for TCP's own timers", self.time_compression)
            } else {
                String::new()
            }
        );
        let _ = writeln!(text);
        type Cell = fn(&FleetReport) -> String;
        let rows: [(&str, Cell); 14] = [
            ("retry", |fleet| fleet.retry.clone()),
            ("attempts after the first outage", |fleet| fleet.attempts.to_string()),
            ("  that got a WebSocket", |fleet| {
                let share = fleet.share().map_or_else(String::new, |share| format!(" ({share:.1} %)"));
                format!("{}{share}", fleet.successes)
            }),
            ("clients that gave up", |fleet| fleet.gave_up.to_string()),
            ("attempts in the worst second", |fleet| fleet.attempts_per_second_peak.to_string()),
            ("arrivals in the worst second of a storm", |fleet| {
                fleet.arrivals_per_second_peak.map_or_else(|| "no storm".to_owned(), |peak| peak.to_string())
            }),
            ("storms", |fleet| fleet.storms.to_string()),
            ("they come back every", |fleet| match fleet.resonance {
                Some(found) => format!("{:.2} s (strength {:.2})", found.period_s, found.strength),
                None if !fleet.can_tell_a_period() => {
                    format!("too few returns: {} of {WINDOWS_MIN}", fleet.resonance_windows)
                }
                None => "no period".to_owned(),
            }),
            ("outages seen", |fleet| {
                let seen = fleet.outages.iter().filter(|outage| outage.seen).count();
                format!("{seen} of {}, {} made up", fleet.outages.len(), fleet.outages_made_up)
            }),
            ("  start off by at most", |fleet| worst(&fleet.outages, |outage| outage.start_error_s)),
            ("  end off by at most", |fleet| worst(&fleet.outages, |outage| outage.end_error_s)),
            ("kills of lossy but living clients justified", |fleet| fleet.false_kills_justified.to_string()),
            ("  called unreachable (share of their time)", |fleet| {
                fleet.called_unreachable.words(fleet.watched_s)
            }),
            ("  called silent", |fleet| fleet.called_silent.words(fleet.watched_s)),
        ];
        for (name, cell) in rows {
            let _ = write!(text, "{name:<55}");
            for fleet in &self.fleets {
                let _ = write!(text, "{:<28}", cell(fleet));
            }
            let trimmed = text.trim_end().len();
            text.truncate(trimmed);
            text.push('\n');
        }
        let _ = write!(text, "\n{ADVICE}");
        text
    }
}

fn worst(outages: &[OutageReport], error: fn(&OutageReport) -> Option<f64>) -> String {
    let worst = outages.iter().filter_map(error).map(f64::abs).max_by(f64::total_cmp);
    worst.map_or_else(|| "-".to_owned(), |worst| format!("{worst:.1} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_reads_like_a_table() {
        let outages = vec![
            OutageReport { seen: true, start_error_s: Some(-1.2), end_error_s: Some(0.4) },
            OutageReport { seen: false, start_error_s: None, end_error_s: None },
        ];
        assert!(outages[0].is_right() && !outages[1].is_right());
        let fixed = FleetReport {
            retry: "fixed 3 s".to_owned(),
            attempts: 312,
            successes: 162,
            gave_up: 0,
            attempts_per_second_peak: 24,
            arrivals_per_second_peak: Some(17),
            arrivals: 201,
            storms: 4,
            resonance: Some(ResonanceReport { period_s: 3.004, strength: 0.91, windows: 4 }),
            outages: outages.clone(),
            outages_made_up: 0,
            resonance_windows: 4,
            watched_s: 1_000.0,
            false_kills_justified: 0,
            called_unreachable: Accused { times: 3, total_s: 4.5, longest_s: 1.7 },
            called_silent: Accused::default(),
        };
        assert!(fixed.resonates_at_the_fixed_interval());
        let jitter = FleetReport {
            retry: "full jitter".to_owned(),
            resonance: None,
            arrivals_per_second_peak: None,
            storms: 0,
            attempts: 0,
            successes: 0,
            outages: Vec::new(),
            resonance_windows: 3,
            ..fixed.clone()
        };
        assert!(fixed.can_tell_a_period() && !jitter.can_tell_a_period());
        let report = Report {
            clients: 24,
            loss: 0.15,
            outage_s: 10.0,
            every_s: 120.0,
            time_compression: 2,
            fleets: vec![fixed, jitter],
        };
        insta::assert_snapshot!(report.text());
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }
}
