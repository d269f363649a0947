//! What must be true of a set of runs, in one place.

use ackbeat_liveness::Policy;
use serde::{Deserialize, Serialize};

use super::of_single_rows;
use super::result::{GONE_ROWS, outcomes};
use crate::arena::judge::statistics::Durations;
use crate::arena::judge::{Close, DEFAULT_POLICY, Detection, FAST_POLICY, JudgedStage, Outcome};
use crate::arena::rows::INGRESS;

/// A statement about a set of runs, and whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// What must be true.
    pub statement: String,
    /// In how many runs it was looked at.
    pub runs: u64,
    /// Where it is not true; empty if it holds.
    pub violations: Vec<String>,
    /// What was seen, where a figure says more than yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
}

impl Checked {
    /// Whether it holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }
}

/// A violation names at most so many runs.
const NAMED_MAX: usize = 8;
/// The detector of report A.
const PING_COUNTER: &str = "ws-2";
/// `TCP_USER_TIMEOUT` at 2 s.
const USER_TIMEOUT: &str = "user-timeout";
/// Whole round trips are lost by chance in these: what looks like an outage is one, and the verdict says so while it lasts.
/// Every kill there is still a false one.
const LOSSY_ROWS: [u8; 2] = [18, 34];
/// `unreachable` after the first segment that stays unanswered, 99th percentile.
const BOUND_LAN_MS: f64 = 2_000.0;
const BOUND_80_MS: f64 = 3_000.0;
const BOUND_200_MS: f64 = 4_000.0;
/// What a kill may be justified later than its policy says: the segment may have left a round trip before the last sign of
/// life.
const BOUND_SLACK_MS: f64 = 1_000.0;
/// Share of the ends of rows 26 to 28 whose reason must be right.
const RIGHT_REASON_SHARE: f64 = 0.99;

/// Checks everything that these runs can show; what they cannot show is not in it.
#[must_use]
pub fn check(stages: &[JudgedStage]) -> Vec<Checked> {
    let mut checks = vec![
        of_each(stages, "`default` never kills a peer that is there", DEFAULT_POLICY, |outcome| {
            let kill = outcome.kill.as_ref().filter(|_| outcome.is_false_kill());
            kill.map_or_else(Vec::new, |kill| {
                vec![format!("killed after {:.0} ms ({})", kill.after_ms, kill.reason)]
            })
        }),
        of_each(
            stages,
            "`default` gives no verdict that its scenario does not allow (but in 18 and 34: see the mistakes there)",
            DEFAULT_POLICY,
            |outcome| {
                if LOSSY_ROWS.contains(&outcome.row) {
                    return Vec::new();
                }
                outcome.outside.iter().map(|verdict| format!("said {verdict}")).collect()
            },
        ),
        of_each(stages, "`default` gives a verdict that its scenario wants", DEFAULT_POLICY, |outcome| {
            match outcome.wanted_seen {
                Some(false) => vec!["none of them was given".to_owned()],
                _ => Vec::new(),
            }
        }),
        baseline(stages, PING_COUNTER, 2..=8),
        baseline(stages, USER_TIMEOUT, 9..=9),
    ];
    for (name, bound_ms) in [("LAN", BOUND_LAN_MS), ("80 ms", BOUND_80_MS), ("200 ms", BOUND_200_MS)] {
        checks.push(bound(stages, name, bound_ms));
    }
    for (contestant, name, policy) in
        [(DEFAULT_POLICY, "default", Policy::default_policy()), (FAST_POLICY, "fast", Policy::fast_policy())]
    {
        checks.push(kill_bound(stages, contestant, name, &policy));
    }
    checks.push(right_reasons(stages));
    checks.extend(of_single_rows::check(stages));
    checks.extend(port_checks(stages));
    checks.push(whole_recordings(stages));
    checks.extend(super::leaks::check(stages));
    checks.retain(|checked| checked.runs > 0);
    checks
}

/// A run's name in a violation.
pub(super) fn name(outcome: &Outcome) -> String {
    place(outcome.row, &outcome.variant, outcome.seed, &outcome.subject)
}

pub(super) fn place(row: u8, variant: &str, seed: u64, subject: &str) -> String {
    let variant = if variant.is_empty() { String::new() } else { format!(" ({variant})") };
    format!("row {row}{variant} seed {seed} {subject}")
}

/// Asks each run of a contestant.
fn of_each(
    stages: &[JudgedStage],
    statement: &str,
    contestant: &str,
    wrong: impl Fn(&Outcome) -> Vec<String>,
) -> Checked {
    let mut checked =
        Checked { statement: statement.to_owned(), runs: 0, violations: Vec::new(), seen: None };
    for outcome in outcomes(stages).filter(|outcome| outcome.contestant == contestant) {
        if let Some(reason) = &outcome.not_judged {
            checked.violations.push(format!("{}: not judged: {reason}", name(outcome)));
        }
        checked.runs += 1;
        checked
            .violations
            .extend(wrong(outcome).into_iter().map(|wrong| format!("{}: {wrong}", name(outcome))));
    }
    shorten(checked)
}

/// A detector that must kill in every run of these scenarios.
fn baseline(stages: &[JudgedStage], contestant: &str, rows: std::ops::RangeInclusive<u8>) -> Checked {
    let of_rows: Vec<Outcome> = outcomes(stages)
        .filter(|outcome| {
            rows.contains(&outcome.row) && outcome.contestant == contestant && outcome.is_judged()
        })
        .cloned()
        .collect();
    let rows = if rows.start() == rows.end() {
        format!("row {}", rows.start())
    } else {
        format!("rows {} to {}", rows.start(), rows.end())
    };
    let killed = of_rows.iter().filter(|outcome| outcome.kill.is_some()).count();
    shorten(Checked {
        statement: format!("`{contestant}` kills in every run of {rows}"),
        runs: of_rows.len() as u64,
        seen: Some(format!("{killed} of {}", of_rows.len())),
        violations: of_rows
            .iter()
            .filter(|outcome| outcome.kill.is_none())
            .map(|outcome| format!("{}: did not kill", name(outcome)))
            .collect(),
    })
}

/// The path of a scenario whose peer is gone, by its variant's name.
fn path_of(variant: &str) -> &'static str {
    let digits: String = variant.chars().filter(char::is_ascii_digit).collect();
    match digits.as_str() {
        "80" => "80 ms",
        "200" => "200 ms",
        _ => "LAN",
    }
}

/// Whether `unreachable` comes within a bound after the first segment that stays unanswered.
fn bound(stages: &[JudgedStage], path: &str, bound_ms: f64) -> Checked {
    let of_path = gone(stages, DEFAULT_POLICY)
        .filter(|outcome| (if outcome.row == 24 { path_of(&outcome.variant) } else { "LAN" }) == path);
    within(
        format!(
            "`default` says unreachable within {:.1} s of the first unanswered segment at p99 ({path}; rows 20 to 22, 24, 25)",
            bound_ms / 1_000.0
        ),
        &of_path.map(|outcome| (outcome, outcome.unreachable_detection)).collect::<Vec<_>>(),
        bound_ms,
    )
}

/// Whether a kill is justified when the policy says so.
fn kill_bound(stages: &[JudgedStage], contestant: &str, name: &str, policy: &Policy) -> Checked {
    #[expect(clippy::cast_precision_loss, reason = "a threshold is a day at most")]
    let bound_ms = policy.unreachable_after_ms as f64 + BOUND_SLACK_MS;
    within(
        format!(
            "`{name}` justifies a kill within {:.1} s of the first unanswered segment at p99: `unreachable_after_ms` and \
             {:.1} s (rows 20 to 22, 24, 25)",
            bound_ms / 1_000.0,
            BOUND_SLACK_MS / 1_000.0
        ),
        &gone(stages, contestant).map(|outcome| (outcome, outcome.kill_detection)).collect::<Vec<_>>(),
        bound_ms,
    )
}

/// Outcomes of peers that were gone.
fn gone<'a>(stages: &'a [JudgedStage], contestant: &'a str) -> impl Iterator<Item = &'a Outcome> {
    outcomes(stages).filter(move |outcome| {
        GONE_ROWS.contains(&outcome.row) && outcome.contestant == contestant && outcome.was_gone
    })
}

fn within(statement: String, detections: &[(&Outcome, Option<Detection>)], bound_ms: f64) -> Checked {
    let mut violations = Vec::new();
    let mut seen = Vec::new();
    let mut late = Vec::new();
    for (outcome, detection) in detections {
        match detection.map(|detection| detection.from_unanswered_ms) {
            None => violations.push(format!("{}: never", name(outcome))),
            Some(None) => violations.push(format!("{}: no unanswered segment is recorded", name(outcome))),
            Some(Some(ms)) => {
                seen.push(Some(ms));
                if ms > bound_ms {
                    late.push(format!("{}: {ms:.0} ms", name(outcome)));
                }
            }
        }
    }
    let summed = Durations::of(&seen);
    if let Some(p99_ms) = summed.and_then(|summed| summed.p99_ms).filter(|p99_ms| *p99_ms > bound_ms) {
        violations.push(format!("p99 is {p99_ms:.0} ms"));
        violations.append(&mut late);
    }
    shorten(Checked {
        statement,
        runs: detections.len() as u64,
        violations,
        seen: summed.map(|summed| {
            let ms =
                |value: Option<f64>| value.map_or_else(|| "never".to_owned(), |ms| format!("{ms:.0} ms"));
            format!("p50 {}, p99 {}, longest {}", ms(summed.p50_ms), ms(summed.p99_ms), ms(summed.max_ms))
        }),
    })
}

/// What an end must be told as, and what it was told as; `None` where nothing is asked.
fn reasons(close: &Close) -> Option<(String, String)> {
    let ended_by = |must: &str| {
        let method = close.method.as_deref().unwrap_or("unseen");
        Some((must.to_owned(), format!("{} {method}", close.initiator)))
    };
    match close.row {
        26 => ended_by("peer rst"),
        // Unread data at the end makes a reset of what would have been a FIN (RFC 1122 section 4.2.2.13).
        27 if close.variant == "rst" => ended_by("peer rst"),
        27 => ended_by("peer fin"),
        // That it is silent is asked for among the verdicts; here, that nobody takes the relay for the peer.
        28 if close.variant == INGRESS => Some(("next_hop".to_owned(), close.scope.clone())),
        _ => None,
    }
}

fn right_reasons(stages: &[JudgedStage]) -> Checked {
    let mut violations = Vec::new();
    let mut runs = 0_u64;
    let closes = stages.iter().flat_map(|stage| &stage.closes);
    for (close, (must, told)) in closes.filter_map(|close| Some((close, reasons(close)?))) {
        runs += 1;
        if must != told {
            violations.push(format!(
                "{}: told as {told}, was {must}",
                place(close.row, &close.variant, close.seed, &close.subject)
            ));
        }
    }
    let wrong = violations.len();
    #[expect(clippy::cast_precision_loss, reason = "runs are counted in thousands")]
    let share = 1.0 - wrong as f64 / (runs.max(1)) as f64;
    if share >= RIGHT_REASON_SHARE {
        violations.clear();
    }
    shorten(Checked {
        statement: "the end of a connection has the right reason in at least 99 % of rows 26 to 28"
            .to_owned(),
        runs,
        violations,
        seen: Some(format!("{} of {runs}", runs - wrong as u64)),
    })
}

/// A fixed interval of 3 s is found this closely.
const PERIOD_MS: std::ops::RangeInclusive<f64> = 2_900.0..=3_100.0;
/// An outage's beginning and end are this close to the truth.
const OUTAGE_ERROR_MS: f64 = 3_000.0;

/// What is told of the listening port in rows 33 and 34.
fn port_checks(stages: &[JudgedStage]) -> Vec<Checked> {
    let figure = |stage: &JudgedStage, name: &str| stage.figures.get(name).copied();
    vec![
        of_ports(stages, &[33], "the arrivals per second after the outage are recorded (row 33)", |stage| {
            let recorded = figure(stage, "arrivals_per_second_peak");
            recorded.is_none().then(|| "no figure".to_owned())
        }),
        of_ports(
            stages,
            // The outage of row 33 is over before it can be told from loss.
            &[34],
            "each outage of all peers is told, its beginning and end within 3 s, and no other is (row 34)",
            |stage| {
                let [real, seen, made_up] =
                    ["outages", "outages_seen", "outages_made_up"].map(|name| figure(stage, name));
                let worst =
                    ["outage_start_error_ms_max", "outage_end_error_ms_max"].map(|name| figure(stage, name));
                let is_right = real.is_some()
                    && real == seen
                    && made_up == Some(0.0)
                    && worst.iter().all(|error| error.is_some_and(|ms| ms <= OUTAGE_ERROR_MS));
                (!is_right).then(|| {
                    format!("{seen:?} of {real:?} told, {made_up:?} made up, start and end off by up to {worst:?} ms")
                })
            },
        ),
        of_ports(stages, &[34], "a reconnect storm is seen with a fixed interval (row 34)", |stage| {
            let is_missing =
                stage.variant == "fixed" && figure(stage, "storms").is_none_or(|storms| storms < 1.0);
            is_missing.then(|| "none".to_owned())
        }),
        of_ports(
            stages,
            &[34],
            "a fixed interval of 3 s is found as 3.0 s, a tenth more or less, and full jitter has no period (row 34)",
            |stage| {
                let period = figure(stage, "resonance_period_ms");
                let is_right = match stage.variant.as_str() {
                    "fixed" => period.is_some_and(|ms| PERIOD_MS.contains(&ms)),
                    _ => period.is_none(),
                };
                (!is_right).then(|| format!("told {period:?} ms"))
            },
        ),
    ]
}

/// Asks each stage of these rows.
fn of_ports(
    stages: &[JudgedStage],
    rows: &[u8],
    statement: &str,
    wrong: impl Fn(&JudgedStage) -> Option<String>,
) -> Checked {
    let of_rows: Vec<&JudgedStage> = stages.iter().filter(|stage| rows.contains(&stage.row)).collect();
    shorten(Checked {
        statement: statement.to_owned(),
        runs: of_rows.len() as u64,
        violations: of_rows
            .iter()
            .filter_map(|stage| {
                let wrong = wrong(stage)?;
                Some(format!("{}: {wrong}", place(stage.row, &stage.variant, stage.seed, "").trim_end()))
            })
            .collect(),
        seen: None,
    })
}

/// What is judged by a recording with holes is judged by less than happened.
fn whole_recordings(stages: &[JudgedStage]) -> Checked {
    let holes = stages.iter().filter(|stage| stage.missing_lines > 0);
    shorten(Checked {
        statement: "no line is missing from a recording".to_owned(),
        runs: stages.len() as u64,
        violations: holes
            .map(|stage| {
                format!(
                    "{}: {} lines",
                    place(stage.row, &stage.variant, stage.seed, "").trim_end(),
                    stage.missing_lines
                )
            })
            .collect(),
        seen: None,
    })
}

pub(super) fn shorten(mut checked: Checked) -> Checked {
    let more = checked.violations.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        checked.violations.truncate(NAMED_MAX);
        checked.violations.push(format!("and {more} more"));
    }
    checked
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::arena::judge::{Detection, JudgedKill, KillKind};

    pub(in crate::arena::report) fn outcome(row: u8, contestant: &str) -> Outcome {
        Outcome {
            row,
            variant: String::new(),
            seed: 1,
            subject: "peer-1".to_owned(),
            contestant: contestant.to_owned(),
            not_judged: None,
            kill: None,
            kill_detection: None,
            unreachable_detection: None,
            verdicts: Vec::new(),
            outside: Vec::new(),
            wanted_seen: None,
            mistake_ms: 0.0,
            lived: false,
            was_gone: false,
        }
    }

    fn violations(outcomes: Vec<Outcome>, closes: Vec<Close>) -> Vec<String> {
        let stage = JudgedStage {
            row: 1,
            variant: String::new(),
            seed: 1,
            outcomes,
            closes,
            figures: std::collections::BTreeMap::new(),
            missing_lines: 0,
            leaks: None,
        };
        check(&[stage]).into_iter().flat_map(|checked| checked.violations).collect()
    }

    #[test]
    fn a_false_kill_of_the_default_policy_is_a_violation_and_of_others_is_not() {
        let kill = Some(JudgedKill { kind: KillKind::False, after_ms: 6_000.0, reason: "why".to_owned() });
        let ours = Outcome { kill: kill.clone(), ..outcome(3, DEFAULT_POLICY) };
        assert_eq!(violations(vec![ours], Vec::new()), ["row 3 seed 1 peer-1: killed after 6000 ms (why)"]);
        assert!(violations(vec![Outcome { kill, ..outcome(3, PING_COUNTER) }], Vec::new()).is_empty());
    }

    #[test]
    fn a_baseline_that_does_not_lose_is_a_violation() {
        assert_eq!(
            violations(vec![outcome(3, PING_COUNTER)], Vec::new()),
            ["row 3 seed 1 peer-1: did not kill"]
        );
        assert!(violations(vec![outcome(1, PING_COUNTER)], Vec::new()).is_empty());
    }

    #[test]
    fn slow_knowledge_is_a_violation() {
        let said = |ms| Outcome {
            was_gone: true,
            unreachable_detection: Some(Detection { from_gone_ms: ms, from_unanswered_ms: Some(ms) }),
            kill_detection: Some(Detection { from_gone_ms: 10_000.0, from_unanswered_ms: Some(10_000.0) }),
            ..outcome(20, DEFAULT_POLICY)
        };
        assert!(violations(vec![said(1_900.0)], Vec::new()).is_empty());
        assert_eq!(violations(vec![said(2_100.0)], Vec::new()).len(), 2);
        let delayed = Outcome { row: 24, variant: "80 ms".to_owned(), ..said(2_900.0) };
        assert!(violations(vec![delayed], Vec::new()).is_empty());
        let never = Outcome { unreachable_detection: None, ..said(0.0) };
        assert_eq!(violations(vec![never], Vec::new()), ["row 20 seed 1 peer-1: never"]);
    }

    #[test]
    fn a_kill_that_is_justified_later_than_its_policy_says_is_a_violation() {
        let justified = |ms: Option<f64>| Outcome {
            was_gone: true,
            unreachable_detection: Some(Detection {
                from_gone_ms: 1_700.0,
                from_unanswered_ms: Some(1_700.0),
            }),
            kill_detection: ms.map(|ms| Detection { from_gone_ms: ms, from_unanswered_ms: Some(ms) }),
            ..outcome(20, DEFAULT_POLICY)
        };
        assert!(violations(vec![justified(Some(10_200.0))], Vec::new()).is_empty());
        assert_eq!(violations(vec![justified(Some(12_000.0))], Vec::new()).len(), 2);
        assert_eq!(violations(vec![justified(None)], Vec::new()), ["row 20 seed 1 peer-1: never"]);
    }

    #[test]
    fn a_recording_with_holes_is_a_violation() {
        let stage = JudgedStage {
            row: 33,
            variant: String::new(),
            seed: 2,
            outcomes: Vec::new(),
            closes: Vec::new(),
            figures: std::collections::BTreeMap::new(),
            missing_lines: 7,
            leaks: None,
        };
        let violations: Vec<_> = check(&[stage]).into_iter().flat_map(|checked| checked.violations).collect();
        assert!(violations.contains(&"row 33 seed 2: 7 lines".to_owned()), "{violations:?}");
    }

    #[test]
    fn an_outage_that_is_told_wrongly_and_a_period_that_is_none_are_violations() {
        let stage = |variant: &str, figures: &[(&str, f64)]| JudgedStage {
            row: 34,
            variant: variant.to_owned(),
            seed: 1,
            outcomes: Vec::new(),
            closes: Vec::new(),
            figures: figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            leaks: None,
            missing_lines: 0,
        };
        let right = [
            ("outages", 7.0),
            ("outages_seen", 7.0),
            ("outages_made_up", 0.0),
            ("outage_start_error_ms_max", 2_000.0),
            ("outage_end_error_ms_max", 2_900.0),
            ("storms", 7.0),
        ];
        let of = |stage: JudgedStage| -> usize {
            check(&[stage]).iter().map(|checked| checked.violations.len()).sum()
        };
        assert_eq!(of(stage("jitter", &right)), 0);
        assert_eq!(of(stage("fixed", &right)), 1, "no period");
        let period = |ms| [right.as_slice(), &[("resonance_period_ms", ms)]].concat();
        assert_eq!(of(stage("fixed", &period(3_040.0))), 0);
        assert_eq!(of(stage("fixed", &period(1_000.0))), 1);
        assert_eq!(of(stage("jitter", &period(3_000.0))), 1);
        let late = [right.as_slice(), &[("outage_end_error_ms_max", 3_100.0)]].concat();
        assert_eq!(of(stage("jitter", &late)), 1);
    }

    #[test]
    fn a_wrong_reason_is_a_violation() {
        let close = Close {
            row: 26,
            variant: String::new(),
            seed: 1,
            subject: "peer-1".to_owned(),
            initiator: "kernel".to_owned(),
            kind: "kernel_timeout".to_owned(),
            method: None,
            scope: "peer".to_owned(),
            socket_error: Some(110),
        };
        assert_eq!(
            violations(Vec::new(), vec![close]),
            ["row 26 seed 1 peer-1: told as kernel unseen, was peer rst"]
        );
    }
}
