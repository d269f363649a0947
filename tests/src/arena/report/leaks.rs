//! What must be true of leaks: rows 29 to 31.

use ackbeat_liveness::leak::{LeakSign, Side};

use super::requirements::{Checked, place, shorten};
use crate::arena::judge::{JudgedStage, Leaks};
use crate::arena::rows::CLOSE_WAIT_AFTER_MS;

/// After its threshold a leak is found within this.
const FOUND_WITHIN_MS: u64 = 10_000;

/// What these runs can show.
pub(super) fn check(stages: &[JudgedStage]) -> Vec<Checked> {
    vec![
        of_row(
            stages,
            30,
            "every socket that the host leaves in CLOSE_WAIT is found within 10 s of its threshold (row 30)",
            close_waits,
        ),
        of_row(
            stages,
            31,
            "64 idle connections at their maximum are found by count and idleness (row 31)",
            flat,
        ),
        of_row(
            stages,
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
    row: u8,
    statement: &str,
    judge: impl Fn(&Leaks) -> (u64, Vec<String>),
) -> Checked {
    let mut checked =
        Checked { statement: statement.to_owned(), runs: 0, violations: Vec::new(), seen: None };
    let mut found = 0;
    for stage in stages.iter().filter(|stage| stage.row == row) {
        // Recordings from before there were censuses show nothing.
        let Some(leaks) = &stage.leaks else { continue };
        checked.runs += 1;
        let (of_stage, violations) = judge(leaks);
        found += of_stage;
        let of = place(row, &stage.variant, stage.seed, "");
        checked.violations.extend(violations.into_iter().map(|violation| format!("{of}{violation}")));
    }
    checked.seen = (checked.runs > 0).then(|| format!("{found} suspicions in {} stages", checked.runs));
    shorten(checked)
}

fn close_waits(leaks: &Leaks) -> (u64, Vec<String>) {
    let of_sign = || leaks.found.iter().filter(|found| found.sign == LeakSign::CloseWait);
    let mut violations = Vec::new();
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
    let violations = match found.as_slice() {
        [found] if found.count as usize == count && found.idle as usize == count => Vec::new(),
        other => vec![format!("of {count} idle connections it was said: {other:?}")],
    };
    (found.len() as u64, violations)
}
