//! What must be true of a set of runs, in one place.

use std::collections::BTreeMap;

use ackbeat_liveness::Policy;

use super::checked::{Checked, Extent, Place, label, name, place, places};
use super::result::{GONE_ROWS, outcomes};
use super::{lossy, of_single_rows};
use crate::arena::judge::statistics::Durations;
use crate::arena::judge::{Close, DEFAULT_POLICY, Detection, FAST_POLICY, JudgedStage, Outcome};
use crate::arena::rows::{INGRESS, row};

/// The detector of report A.
const PING_COUNTER: &str = "ws-2";
/// `TCP_USER_TIMEOUT` at 2 s.
const USER_TIMEOUT: &str = "user-timeout";
/// `unreachable` after the first segment that stays unanswered, 99th percentile.
const BOUND_LAN_MS: f64 = 2_000.0;
const BOUND_80_MS: f64 = 3_000.0;
const BOUND_200_MS: f64 = 4_000.0;
/// What a kill may be justified later than its policy says: the segment may have left a round trip before the last sign of
/// life.
const BOUND_SLACK_MS: f64 = 1_000.0;
/// Share of the ends of rows 26 to 28 whose reason must be right.
const RIGHT_REASON_SHARE: f64 = 0.99;

/// Checks everything that must be true. What these runs cannot show is a violation in a full set, and told in part of one.
#[must_use]
pub fn check(stages: &[JudgedStage], extent: Extent) -> Vec<Checked> {
    let mut checks = vec![
        all_runs(stages, extent),
        of_each(
            stages,
            extent,
            "`default` never kills a peer that is there",
            |_| true,
            |outcome| {
                let kill = outcome.kill.as_ref().filter(|_| outcome.is_false_kill());
                kill.map_or_else(Vec::new, |kill| {
                    vec![format!("killed after {:.0} ms ({})", kill.after_ms, kill.reason)]
                })
            },
        ),
        of_each(
            stages,
            extent,
            "`default` gives no verdict that its scenario does not allow (but in 18 and 34: see the lossy peers below)",
            |number| !lossy::ROWS.contains(&number) && row(number).is_some_and(|row| !row.allowed.is_empty()),
            |outcome| outcome.outside.iter().map(|verdict| format!("said {verdict}")).collect(),
        ),
        of_each(
            stages,
            extent,
            "`default` gives a verdict that its scenario wants (but in 26 and 27: see the reasons of their ends)",
            // That it is over is no verdict that is changed to: the end itself is asked for.
            |number| row(number).is_some_and(|row| row.wanted.iter().any(|word| *word != "closed")),
            |outcome| {
                let is_seen = outcome.wanted_seen == Some(true);
                if is_seen { Vec::new() } else { vec!["none of them was given".to_owned()] }
            },
        ),
        lossy::check(stages, extent),
        baseline(stages, extent, PING_COUNTER, 2..=8),
        baseline(stages, extent, USER_TIMEOUT, 9..=9),
    ];
    for (path, bound_ms) in [("LAN", BOUND_LAN_MS), ("80 ms", BOUND_80_MS), ("200 ms", BOUND_200_MS)] {
        checks.push(bound(stages, extent, path, bound_ms));
    }
    for (contestant, name, policy) in
        [(DEFAULT_POLICY, "default", Policy::default_policy()), (FAST_POLICY, "fast", Policy::fast_policy())]
    {
        checks.push(kill_bound(stages, extent, contestant, name, &policy));
    }
    checks.push(right_reasons(stages, extent));
    checks.extend(of_single_rows::check(stages, extent));
    checks.extend(port_checks(stages, extent));
    checks.push(whole_recordings(stages, extent));
    checks.extend(super::leaks::check(stages, extent));
    checks
}

/// Whether every scenario and variant has the runs that its figures are to rest on. Part of a set has fewer.
fn all_runs(stages: &[JudgedStage], extent: Extent) -> Checked {
    let mut judged: BTreeMap<Place, u64> = BTreeMap::new();
    let mut checked = Checked::new(
        "every scenario and variant was judged in 30 runs at least, in 10 where a run takes over half a minute",
    );
    for outcome in outcomes(stages).filter(|outcome| outcome.contestant == DEFAULT_POLICY) {
        match &outcome.not_judged {
            Some(reason) => checked.violations.push(format!("{}: not judged: {reason}", name(outcome))),
            None => {
                checked.look(outcome.row, &outcome.variant);
                *judged.entry((outcome.row, outcome.variant.clone())).or_default() += 1;
            }
        }
    }
    if extent == Extent::Full {
        let wanted = |number| row(number).map_or(0, |row| u64::from(row.runs()));
        let few = judged.iter().filter(|((number, _), runs)| **runs < wanted(*number));
        checked.violations.extend(few.map(|((number, variant), runs)| {
            format!("row {}: {runs} of {} runs", label(*number, variant), wanted(*number))
        }));
    }
    checked.complete(extent, places(|_, _| true))
}

/// Asks each run of `default` in the scenarios that are meant.
fn of_each(
    stages: &[JudgedStage],
    extent: Extent,
    statement: &str,
    is_meant: impl Fn(u8) -> bool,
    wrong: impl Fn(&Outcome) -> Vec<String>,
) -> Checked {
    let mut checked = Checked::new(statement);
    let ours = outcomes(stages).filter(|outcome| outcome.contestant == DEFAULT_POLICY && outcome.is_judged());
    for outcome in ours.filter(|outcome| is_meant(outcome.row)) {
        checked.look(outcome.row, &outcome.variant);
        checked
            .violations
            .extend(wrong(outcome).into_iter().map(|wrong| format!("{}: {wrong}", name(outcome))));
    }
    checked.complete(extent, places(|number, _| is_meant(number)))
}

/// A detector that must kill in every run of these scenarios.
fn baseline(
    stages: &[JudgedStage],
    extent: Extent,
    contestant: &str,
    rows: std::ops::RangeInclusive<u8>,
) -> Checked {
    let title = if rows.start() == rows.end() {
        format!("row {}", rows.start())
    } else {
        format!("rows {} to {}", rows.start(), rows.end())
    };
    let mut checked = Checked::new(format!("`{contestant}` kills in every run of {title}"));
    let mut killed = 0_u64;
    for outcome in
        outcomes(stages).filter(|outcome| rows.contains(&outcome.row) && outcome.contestant == contestant)
    {
        checked.look(outcome.row, &outcome.variant);
        if let Some(reason) = &outcome.not_judged {
            checked.violations.push(format!("{}: not judged: {reason}", name(outcome)));
        } else if outcome.kill.is_none() {
            checked.violations.push(format!("{}: did not kill", name(outcome)));
        } else {
            killed += 1;
        }
    }
    checked.seen = checked.is_shown().then(|| format!("{killed} of {}", checked.runs));
    checked.complete(extent, places(|number, _| rows.contains(&number)))
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

/// Whether a scenario and its variant is one of peers that are gone behind such a path.
fn is_of_path(number: u8, variant: &str, path: &str) -> bool {
    GONE_ROWS.contains(&number) && (if number == 24 { path_of(variant) } else { "LAN" }) == path
}

/// Whether `unreachable` comes within a bound after the first segment that stays unanswered.
fn bound(stages: &[JudgedStage], extent: Extent, path: &str, bound_ms: f64) -> Checked {
    let of_path = gone(stages, DEFAULT_POLICY)
        .filter(|outcome| is_of_path(outcome.row, &outcome.variant, path))
        .map(|outcome| (outcome, outcome.unreachable_detection));
    let statement = format!(
        "`default` says unreachable within {:.1} s of the first unanswered segment at p99 ({path}; rows 20 to 22, 24, 25)",
        bound_ms / 1_000.0
    );
    within(statement, of_path, bound_ms)
        .complete(extent, places(|number, variant| is_of_path(number, variant, path)))
}

/// Whether a kill is justified when the policy says so.
fn kill_bound(
    stages: &[JudgedStage],
    extent: Extent,
    contestant: &str,
    name: &str,
    policy: &Policy,
) -> Checked {
    #[expect(clippy::cast_precision_loss, reason = "a threshold is a day at most")]
    let bound_ms = policy.unreachable_after_ms as f64 + BOUND_SLACK_MS;
    let statement = format!(
        "`{name}` justifies a kill within {:.1} s of the first unanswered segment at p99: `unreachable_after_ms` and \
         {:.1} s (rows 20 to 22, 24, 25)",
        bound_ms / 1_000.0,
        BOUND_SLACK_MS / 1_000.0
    );
    within(statement, gone(stages, contestant).map(|outcome| (outcome, outcome.kill_detection)), bound_ms)
        .complete(extent, places(|number, _| GONE_ROWS.contains(&number)))
}

/// Outcomes of peers that were gone.
fn gone<'a>(stages: &'a [JudgedStage], contestant: &'a str) -> impl Iterator<Item = &'a Outcome> {
    outcomes(stages).filter(move |outcome| {
        GONE_ROWS.contains(&outcome.row) && outcome.contestant == contestant && outcome.was_gone
    })
}

fn within<'a>(
    statement: String,
    detections: impl Iterator<Item = (&'a Outcome, Option<Detection>)>,
    bound_ms: f64,
) -> Checked {
    let mut checked = Checked::new(statement);
    let mut seen = Vec::new();
    let mut late = Vec::new();
    for (outcome, detection) in detections {
        checked.look(outcome.row, &outcome.variant);
        match detection.map(|detection| detection.from_unanswered_ms) {
            None => checked.violations.push(format!("{}: never", name(outcome))),
            Some(None) => {
                checked.violations.push(format!("{}: no unanswered segment is recorded", name(outcome)));
            }
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
        checked.violations.push(format!("p99 is {p99_ms:.0} ms"));
        checked.violations.append(&mut late);
    }
    checked.seen = summed.map(|summed| {
        let ms = |value: Option<f64>| value.map_or_else(|| "never".to_owned(), |ms| format!("{ms:.0} ms"));
        format!("p50 {}, p99 {}, longest {}", ms(summed.p50_ms), ms(summed.p99_ms), ms(summed.max_ms))
    });
    checked
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

fn right_reasons(stages: &[JudgedStage], extent: Extent) -> Checked {
    let mut checked =
        Checked::new("the end of a connection has the right reason in at least 99 % of rows 26 to 28");
    let closes = stages.iter().flat_map(|stage| &stage.closes);
    for (close, (must, told)) in closes.filter_map(|close| Some((close, reasons(close)?))) {
        checked.look(close.row, &close.variant);
        if must != told {
            checked.violations.push(format!(
                "{}: told as {told}, was {must}",
                place(close.row, &close.variant, close.seed, &close.subject)
            ));
        }
    }
    let (wrong, runs) = (checked.violations.len() as u64, checked.runs);
    #[expect(clippy::cast_precision_loss, reason = "runs are counted in thousands")]
    let share = 1.0 - wrong as f64 / (runs.max(1)) as f64;
    if share >= RIGHT_REASON_SHARE {
        checked.violations.clear();
    }
    checked.seen = checked.is_shown().then(|| format!("{} of {runs}", runs - wrong));
    checked.complete(
        extent,
        places(|number, variant| (26..=27).contains(&number) || (number == 28 && variant == INGRESS)),
    )
}

/// A fixed interval of 3 s is found this closely.
const PERIOD_MS: std::ops::RangeInclusive<f64> = 2_900.0..=3_100.0;
/// An outage's beginning and end are this close to the truth.
const OUTAGE_ERROR_MS: f64 = 3_000.0;

/// What is told of the listening port in rows 33 and 34.
fn port_checks(stages: &[JudgedStage], extent: Extent) -> Vec<Checked> {
    let figure = |stage: &JudgedStage, name: &str| stage.figures.get(name).copied();
    let of_ports =
        |is_meant: fn(u8, &str) -> bool, statement: &str, wrong: &dyn Fn(&JudgedStage) -> Option<String>| {
            let mut checked = Checked::new(statement);
            for stage in stages.iter().filter(|stage| is_meant(stage.row, &stage.variant)) {
                checked.look(stage.row, &stage.variant);
                let of = place(stage.row, &stage.variant, stage.seed, "");
                checked.violations.extend(wrong(stage).map(|wrong| format!("{of}: {wrong}")));
            }
            checked.complete(extent, places(is_meant))
        };
    vec![
        of_ports(
            |number, _| number == 33,
            "the arrivals per second after the outage are recorded (row 33)",
            &|stage| {
                let recorded = figure(stage, "arrivals_per_second_peak");
                recorded.is_none().then(|| "no figure".to_owned())
            },
        ),
        of_ports(
            // The outage of row 33 is over before it can be told from loss.
            |number, _| number == 34,
            "each outage of all peers is told, its beginning and end within 3 s, and no other is (row 34)",
            &|stage| {
                let [real, seen, made_up] =
                    ["outages", "outages_seen", "outages_made_up"].map(|name| figure(stage, name));
                let worst =
                    ["outage_start_error_ms_max", "outage_end_error_ms_max"].map(|name| figure(stage, name));
                let is_right = real.is_some_and(|real| real >= 1.0)
                    && real == seen
                    && made_up == Some(0.0)
                    && worst.iter().all(|error| error.is_some_and(|ms| ms <= OUTAGE_ERROR_MS));
                (!is_right).then(|| {
                    format!("{seen:?} of {real:?} told, {made_up:?} made up, start and end off by up to {worst:?} ms")
                })
            },
        ),
        of_ports(
            |number, variant| number == 34 && variant == "fixed",
            "a reconnect storm is seen with a fixed interval (row 34)",
            &|stage| figure(stage, "storms").is_none_or(|storms| storms < 1.0).then(|| "none".to_owned()),
        ),
        of_ports(
            |number, _| number == 34,
            "a fixed interval of 3 s is found as 3.0 s, a tenth more or less, and full jitter has no period (row 34)",
            &|stage| {
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

/// What is judged by a recording with holes is judged by less than happened.
fn whole_recordings(stages: &[JudgedStage], extent: Extent) -> Checked {
    let mut checked = Checked::new("no line is missing from a recording");
    for stage in stages {
        checked.look(stage.row, &stage.variant);
        if stage.missing_lines > 0 {
            let of = place(stage.row, &stage.variant, stage.seed, "");
            checked.violations.push(format!("{of}: {} lines", stage.missing_lines));
        }
    }
    checked.complete(extent, places(|_, _| true))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::arena::Row;
    use crate::arena::judge::{Detection, JudgedKill, KillKind};
    use crate::arena::rows::ROWS;

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
            mistakes: Vec::new(),
            alive_ms: 0.0,
            lived: false,
            was_gone: false,
        }
    }

    pub(in crate::arena::report) fn stage(row: u8, outcomes: Vec<Outcome>) -> JudgedStage {
        JudgedStage {
            row,
            variant: String::new(),
            seed: 1,
            outcomes,
            closes: Vec::new(),
            figures: std::collections::BTreeMap::new(),
            missing_lines: 0,
            leaks: None,
        }
    }

    fn of_stages(stages: &[JudgedStage]) -> Vec<String> {
        check(stages, Extent::Part).into_iter().flat_map(|checked| checked.violations).collect()
    }

    fn violations(outcomes: Vec<Outcome>, closes: Vec<Close>) -> Vec<String> {
        of_stages(&[JudgedStage { closes, ..stage(1, outcomes) }])
    }

    #[test]
    fn a_statement_that_nothing_was_judged_for_does_not_hold_in_a_full_set() {
        let absent = check(&[], Extent::Full);
        assert!(absent.len() > 20, "{}", absent.len());
        for checked in &absent {
            assert!(!checked.holds() && !checked.is_shown(), "{checked:?}");
            assert!(checked.violations[0].starts_with("nothing was judged of "), "{checked:?}");
        }
        let of_part = check(&[], Extent::Part);
        assert_eq!(of_part.len(), absent.len(), "part of a set names what it does not show");
        assert!(of_part.iter().all(|checked| checked.holds() && !checked.lacks.is_empty()));
    }

    #[test]
    fn a_row_that_was_not_played_is_named_by_every_statement_that_speaks_of_it() {
        let all_but_22 = ROWS.iter().filter(|row| row.number != 22).flat_map(|row| {
            row.variants.iter().map(|variant| Outcome {
                variant: variant.name.to_owned(),
                was_gone: true,
                ..outcome(row.number, DEFAULT_POLICY)
            })
        });
        let checks = check(&[stage(1, all_but_22.collect())], Extent::Full);
        let naming: Vec<&str> = checks
            .iter()
            .filter(|checked| checked.violations.iter().any(|named| named == "nothing was judged of 22"))
            .map(|checked| checked.statement.as_str())
            .collect();
        // Runs, kills, allowed and wanted verdicts, `unreachable`, and the kill of `default`.
        assert_eq!(naming.len(), 6, "{naming:#?}");
    }

    #[test]
    fn fewer_runs_than_the_figures_rest_on_are_a_violation_of_a_full_set() {
        let named = "row 20: 1 of 10 runs".to_owned();
        let stages = [stage(20, vec![outcome(20, DEFAULT_POLICY)])];
        let wanted = row(20).map(Row::runs).unwrap_or_default();
        let named = named.replace("10", &wanted.to_string());
        let of = |extent| all_runs(&stages, extent).violations;
        assert!(of(Extent::Full).contains(&named), "{:?}", of(Extent::Full));
        assert!(of(Extent::Part).is_empty());
    }

    #[test]
    fn the_scenarios_ask_for_what_the_page_of_scenarios_does() {
        let of = |number: u8| row(number).expect("there is such a row");
        for number in (2..=8).chain([15]) {
            let allowed = of(number).allowed;
            assert!(!allowed.is_empty(), "row {number}");
            assert!(
                allowed.iter().all(|word| ["alive", "congested", "stalled"].contains(word)),
                "row {number}"
            );
        }
        for number in [10, 11, 16, 28] {
            let row = of(number);
            assert!(!row.allowed.is_empty() && !row.allowed.contains(&"unreachable"), "row {number}");
            assert!(
                !row.wanted.is_empty() && row.wanted.iter().all(|word| ["silent", "stalled"].contains(word)),
                "row {number}"
            );
        }
        for number in [20, 21, 22, 24, 25] {
            assert_eq!(of(number).wanted, ["unreachable"], "row {number}");
        }
        assert!(!["silent", "unreachable"].iter().any(|word| of(14).allowed.contains(word)), "no accusation");
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
            wanted_seen: Some(true),
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
            wanted_seen: Some(true),
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
        let violations = of_stages(&[JudgedStage { seed: 2, missing_lines: 7, ..stage(33, Vec::new()) }]);
        assert!(violations.contains(&"row 33 seed 2: 7 lines".to_owned()), "{violations:?}");
    }

    #[test]
    fn an_outage_that_is_told_wrongly_and_a_period_that_is_none_are_violations() {
        let stage = |variant: &str, figures: &[(&str, f64)]| JudgedStage {
            variant: variant.to_owned(),
            figures: figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ..stage(34, Vec::new())
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
            check(&[stage], Extent::Part).iter().map(|checked| checked.violations.len()).sum()
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
