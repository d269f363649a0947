//! What must be true of peers that are lossy but alive: rows 18 and 34.
//!
//! Where every packet may be lost, whole round trips are lost by chance, several in a row: for a while nothing at all comes
//! from the peer, and that is all that anybody on this side can see. `unreachable` says so, and is taken back with the first
//! segment that arrives; it is a mistake all the same, and is counted as one. What must never come of it is a kill.

use std::collections::BTreeMap;

use ackbeat_liveness::Policy;

use super::checked::{Checked, Extent, Place, label, name, places};
use super::result::outcomes;
use crate::arena::judge::{DEFAULT_POLICY, JudgedStage, Outcome};

/// The scenarios with loss.
pub(super) const ROWS: [u8; 2] = [18, 34];
/// Of the time in which they were watched, those who are there are called something else for this part at most, in each
/// scenario and variant.
const MISTAKEN_SHARE_MAX: f64 = 0.05;

/// What was said against those who are there.
#[derive(Default)]
struct Said {
    alive_ms: f64,
    /// Times, sum and longest in milliseconds, by verdict.
    of_verdict: BTreeMap<String, (u64, f64, f64)>,
}

impl Said {
    fn add(&mut self, outcome: &Outcome) {
        self.alive_ms += outcome.alive_ms;
        for mistake in &outcome.mistakes {
            let (times, sum_ms, longest_ms) = self.of_verdict.entry(mistake.verdict.clone()).or_default();
            *times += 1;
            *sum_ms += mistake.for_ms;
            *longest_ms = longest_ms.max(mistake.for_ms);
        }
    }

    fn share(&self) -> f64 {
        // Not `sum`: that of nothing is -0.0.
        let mistaken_ms = self.of_verdict.values().fold(0.0, |sum, (_, sum_ms, _)| sum + sum_ms);
        if self.alive_ms > 0.0 { mistaken_ms / self.alive_ms } else { 0.0 }
    }

    fn words(&self) -> String {
        let words = self.of_verdict.iter().map(|(verdict, (times, _, longest_ms))| {
            format!("{verdict} {times} times, for {:.1} s at most, ", longest_ms / 1_000.0)
        });
        format!(
            "{}{:.2} % of {:.0} s",
            words.collect::<String>(),
            self.share() * 100.0,
            self.alive_ms / 1_000.0
        )
    }
}

/// Whether no kill comes of loss, and mistakes are short and rare.
pub(super) fn check(stages: &[JudgedStage], extent: Extent) -> Checked {
    // On a lossy path both verdicts justify a kill after this at the earliest. Earlier kills are looked for by themselves.
    #[expect(clippy::cast_precision_loss, reason = "a threshold is a day at most")]
    let bound_ms = Policy::default_policy().lossy_after_ms as f64;
    let mut checked = Checked::new(format!(
        "no kill of a peer that is lossy but alive (18, 34) is justified by `default`, and what it says against one is taken \
         back before its kill would be, and is said for {:.0} % of the time at most",
        MISTAKEN_SHARE_MAX * 100.0
    ));
    let mut said: BTreeMap<Place, Said> = BTreeMap::new();
    let ours = outcomes(stages).filter(|outcome| outcome.contestant == DEFAULT_POLICY && outcome.is_judged());
    for outcome in ours.filter(|outcome| ROWS.contains(&outcome.row)) {
        checked.look(outcome.row, &outcome.variant);
        said.entry((outcome.row, outcome.variant.clone())).or_default().add(outcome);
        if outcome.is_false_kill() {
            checked.violations.push(format!("{}: a kill was justified", name(outcome)));
        }
        let long = outcome.mistakes.iter().filter(|mistake| mistake.for_ms >= bound_ms);
        checked.violations.extend(
            long.map(|mistake| {
                format!("{}: {} for {:.0} ms", name(outcome), mistake.verdict, mistake.for_ms)
            }),
        );
    }
    checked.violations.extend(
        said.iter()
            .filter(|(_, said)| said.share() > MISTAKEN_SHARE_MAX)
            .map(|((row, variant), said)| format!("row {}: {}", label(*row, variant), said.words())),
    );
    let words =
        said.iter().map(|((row, variant), said)| format!("{}: {}", label(*row, variant), said.words()));
    checked.seen = checked.is_shown().then(|| words.collect::<Vec<_>>().join("; "));
    checked.complete(extent, places(|row, _| ROWS.contains(&row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::judge::Mistake;
    use crate::arena::report::requirements::tests::{outcome, stage};

    /// A run of 100 s in which a mistake was made.
    fn run(verdict: &str, for_ms: f64) -> Outcome {
        Outcome {
            variant: "15%".to_owned(),
            alive_ms: 100_000.0,
            mistakes: vec![Mistake { verdict: verdict.to_owned(), from_ms: 50.0, for_ms }],
            ..outcome(18, DEFAULT_POLICY)
        }
    }

    fn checked(outcomes: Vec<Outcome>) -> Checked {
        check(&[stage(18, outcomes)], Extent::Part)
    }

    #[test]
    fn mistakes_are_told_and_short_ones_are_no_violation() {
        let checked = checked(vec![run("unreachable", 1_500.0), run("silent", 400.0)]);
        assert_eq!(checked.violations, [""; 0]);
        assert_eq!(
            checked.seen.as_deref(),
            Some(
                "18 (15%): silent 1 times, for 0.4 s at most, unreachable 1 times, for 1.5 s at most, 0.95 % of 200 s"
            )
        );
        assert_eq!(checked.lacks.len(), 5, "{:?}", checked.lacks);
    }

    #[test]
    fn long_mistakes_and_many_are_violations() {
        let long = checked(vec![run("unreachable", 60_000.0)]);
        assert_eq!(long.violations.len(), 2, "{:?}", long.violations);
        assert_eq!(
            long.violations.first().map(String::as_str),
            Some("row 18 (15%) seed 1 peer-1: unreachable for 60000 ms")
        );
        let many = checked(vec![run("unreachable", 6_000.0), run("unreachable", 5_000.0)]);
        assert_eq!(many.violations.len(), 1, "{:?}", many.violations);
    }

    #[test]
    fn a_kill_is_a_violation() {
        use crate::arena::judge::{JudgedKill, KillKind};
        let kill = JudgedKill { kind: KillKind::False, after_ms: 1.0, reason: "why".to_owned() };
        let killed = Outcome { kill: Some(kill), ..run("silent", 1.0) };
        assert_eq!(checked(vec![killed]).violations, ["row 18 (15%) seed 1 peer-1: a kill was justified"]);
    }
}
