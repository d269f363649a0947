//! What must be true of leaks: rows 29 to 31.

use ackbeat_liveness::leak::{LeakSign, Side};

use super::checked::{Checked, Extent, place, places};
use crate::arena::judge::{JudgedStage, Leaks};
use crate::arena::rows::{self, CLOSE_WAIT_AFTER_MS};

/// After its threshold a leak is found within this.
const FOUND_WITHIN_MS: u64 = 10_000;

/// What these runs can show.
pub(super) fn check(stages: &[JudgedStage], extent: Extent) -> Vec<Checked> {
    vec![
        of_row(
            stages,
            extent,
            30,
            "every socket that the host leaves in CLOSE_WAIT is found within 10 s of its threshold (row 30)",
            close_waits,
        ),
        of_row(
            stages,
            extent,
            31,
            "64 idle connections at their maximum are found by count and idleness (row 31)",
            flat,
        ),
        of_row(
            stages,
            extent,
            29,
            "a half-closed connection that the host writes to is not called a leak (row 29)",
            |leaks| {
                (
                    leaks.found.len() as u64,
                    leaks.found.iter().map(|found| format!("suspected: {found:?}")).collect(),
                )
            },
        ),
    ]
}

fn of_row(
    stages: &[JudgedStage],
    extent: Extent,
    row: u8,
    statement: &str,
    judge: impl Fn(&Leaks) -> (u64, Vec<String>),
) -> Checked {
    let mut checked = Checked::new(statement);
    let mut found = 0;
    for stage in stages.iter().filter(|stage| stage.row == row) {
        checked.look(row, &stage.variant);
        let (of_stage, violations) = stage
            .leaks
            .as_ref()
            .map_or_else(|| (0, vec!["no census is in its recording".to_owned()]), &judge);
        found += of_stage;
        let of = place(row, &stage.variant, stage.seed, "");
        checked.violations.extend(violations.into_iter().map(|violation| format!("{of}: {violation}")));
    }
    checked.seen = checked.is_shown().then(|| format!("{found} suspicions in {} stages", checked.runs));
    checked.complete(extent, places(|number, _| number == row))
}

/// A scenario whose peers did not leak shows nothing of leaks.
fn too_few(leaks: &Leaks, row: u8) -> Option<String> {
    let wanted = rows::row(row).map_or(0, |row| row.subjects as usize);
    (leaks.leaked.len() != wanted).then(|| format!("{} of {wanted} connections leaked", leaks.leaked.len()))
}

fn close_waits(leaks: &Leaks) -> (u64, Vec<String>) {
    let of_sign = || leaks.found.iter().filter(|found| found.sign == LeakSign::CloseWait);
    let mut violations: Vec<String> = too_few(leaks, 30).into_iter().collect();
    for (subject, leaked_ns) in &leaks.leaked {
        let found: Vec<_> = of_sign().filter(|found| found.subject.as_ref() == Some(subject)).collect();
        match found.as_slice() {
            [] => violations.push(format!("{subject}: not found")),
            [found] => {
                let after_ms = found.at_ns.saturating_sub(*leaked_ns) / 1_000_000;
                let from_threshold_ms = after_ms.saturating_sub(CLOSE_WAIT_AFTER_MS);
                if after_ms < CLOSE_WAIT_AFTER_MS || from_threshold_ms > FOUND_WITHIN_MS {
                    violations.push(format!("{subject}: found after {after_ms} ms"));
                }
            }
            several => violations.push(format!("{subject}: found {} times", several.len())),
        }
    }
    (of_sign().count() as u64, violations)
}

fn flat(leaks: &Leaks) -> (u64, Vec<String>) {
    let count = leaks.leaked.len();
    let found: Vec<_> = leaks
        .found
        .iter()
        .filter(|found| found.sign == LeakSign::FlatCount && found.side == Side::Local)
        .collect();
    let mut violations: Vec<String> = too_few(leaks, 31).into_iter().collect();
    match found.as_slice() {
        [found] if found.count as usize == count && found.idle as usize == count => {}
        other => violations.push(format!("of {count} idle connections it was said: {other:?}")),
    }
    (found.len() as u64, violations)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn stage(row: u8, leaks: Option<Leaks>) -> JudgedStage {
        JudgedStage {
            row,
            variant: String::new(),
            seed: 1,
            outcomes: Vec::new(),
            closes: Vec::new(),
            figures: BTreeMap::new(),
            missing_lines: 0,
            leaks,
        }
    }

    fn violations(stages: &[JudgedStage], extent: Extent) -> Vec<String> {
        check(stages, extent).into_iter().flat_map(|checked| checked.violations).collect()
    }

    #[test]
    fn a_stage_without_censuses_shows_nothing_and_is_a_violation() {
        for row in 29..=31 {
            let named = format!("row {row} seed 1: no census is in its recording");
            assert_eq!(violations(&[stage(row, None)], Extent::Part), [named]);
        }
    }

    #[test]
    fn rows_that_were_not_played_are_violations_of_a_full_set() {
        let missing = |row: u8| format!("nothing was judged of {row}");
        assert_eq!(violations(&[], Extent::Full), [missing(30), missing(31), missing(29)]);
        assert!(violations(&[], Extent::Part).is_empty());
    }

    #[test]
    fn a_stage_whose_connections_did_not_leak_is_a_violation() {
        let nothing = || Some(Leaks::default());
        assert_eq!(
            violations(&[stage(30, nothing())], Extent::Part),
            ["row 30 seed 1: 0 of 20 connections leaked"]
        );
        let of_31 = violations(&[stage(31, nothing())], Extent::Part);
        assert_eq!(of_31.first().map(String::as_str), Some("row 31 seed 1: 0 of 64 connections leaked"));
        assert!(violations(&[stage(29, nothing())], Extent::Part).is_empty(), "there nothing is to leak");
    }
}
