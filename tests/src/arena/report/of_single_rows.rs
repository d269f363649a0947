//! Rows that have a reason of their own to be right, each by itself: what they ask for drowns in a sum over all rows.

use super::checked::{Checked, Extent, name, place, places};
use super::result::outcomes;
use crate::arena::judge::{Close, DEFAULT_POLICY, JudgedStage, KillKind, Outcome};
use crate::arena::rows::INGRESS;

/// Checks what these runs can show of each.
pub(super) fn check(stages: &[JudgedStage], extent: Extent) -> Vec<Checked> {
    vec![
        of_row(
            stages,
            extent,
            28,
            "behind a relay that acknowledges and forwards nothing (28) `default` says silent and stays with it, never \
             unreachable; where a header tells of the relay, the evidence reaches to the next hop",
            deaf_relay,
            |close| {
                let is_told = close.variant != INGRESS || close.scope == "next_hop";
                (!is_told).then(|| format!("the scope is {}", close.scope))
            },
        ),
        of_row(
            stages,
            extent,
            29,
            "a peer that half-closes and reads on (29) is alive under `default`: not killed, never called dead, and its end is \
             its own",
            half_closed,
            |close| {
                let is_its_own = ["peer", "none"].contains(&close.initiator.as_str());
                (!is_its_own).then(|| format!("ended by {}", close.initiator))
            },
        ),
        of_row(
            stages,
            extent,
            32,
            "a trickler (32) is never called dead by `default`: what ends it is the policy, once it cannot be a busy page any \
             more",
            trickler,
            |_| None,
        ),
    ]
}

fn of_row(
    stages: &[JudgedStage],
    extent: Extent,
    row: u8,
    statement: &str,
    wrong: impl Fn(&Outcome) -> Vec<String>,
    wrong_end: impl Fn(&Close) -> Option<String>,
) -> Checked {
    let mut checked = Checked::new(statement);
    let ours = outcomes(stages).filter(|outcome| outcome.contestant == DEFAULT_POLICY && outcome.is_judged());
    for outcome in ours.filter(|outcome| outcome.row == row) {
        checked.look(row, &outcome.variant);
        checked
            .violations
            .extend(wrong(outcome).into_iter().map(|wrong| format!("{}: {wrong}", name(outcome))));
    }
    for close in stages.iter().flat_map(|stage| &stage.closes).filter(|close| close.row == row) {
        let of_close = place(close.row, &close.variant, close.seed, &close.subject);
        checked.violations.extend(wrong_end(close).map(|wrong| format!("{of_close}: {wrong}")));
    }
    checked.complete(extent, places(|number, _| number == row))
}

/// Verdicts among these that were given.
fn said(outcome: &Outcome, verdicts: &[&str]) -> Vec<String> {
    let given = outcome.verdicts.iter().filter(|shown| verdicts.contains(&shown.verdict.as_str()));
    given.map(|shown| format!("said {} after {:.0} ms", shown.verdict, shown.from_ms)).collect()
}

fn deaf_relay(outcome: &Outcome) -> Vec<String> {
    let mut wrong = said(outcome, &["unreachable"]);
    match outcome.verdicts.iter().position(|shown| shown.verdict == "silent") {
        None => wrong.push("never said silent".to_owned()),
        Some(place) => {
            let later = outcome.verdicts.iter().skip(place + 1);
            let back = later.filter(|shown| ["alive", "congested"].contains(&shown.verdict.as_str()));
            wrong.extend(back.map(|shown| format!("said {} after it had said silent", shown.verdict)));
        }
    }
    wrong
}

fn half_closed(outcome: &Outcome) -> Vec<String> {
    let mut wrong = said(outcome, &["stalled", "silent", "unreachable"]);
    wrong.extend(outcome.kill.as_ref().map(|kill| format!("killed after {:.0} ms", kill.after_ms)));
    wrong
}

fn trickler(outcome: &Outcome) -> Vec<String> {
    let mut wrong = said(outcome, &["silent", "unreachable"]);
    let early = outcome.kill.as_ref().filter(|kill| kill.kind != KillKind::OfHung);
    wrong.extend(early.map(|kill| format!("killed after {:.0} ms ({})", kill.after_ms, kill.reason)));
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::judge::{JudgedKill, Shown};
    use crate::arena::report::requirements::tests::outcome;

    fn shown(verdicts: &[&str]) -> Vec<Shown> {
        let one = |verdict: &&str| Shown { verdict: (*verdict).to_owned(), from_ms: 5.0, for_ms: 1.0 };
        verdicts.iter().map(one).collect()
    }

    fn after(row: u8, verdicts: &[&str]) -> Outcome {
        Outcome { verdicts: shown(verdicts), ..outcome(row, DEFAULT_POLICY) }
    }

    #[test]
    fn silence_behind_a_relay_is_said_once_and_kept() {
        assert!(deaf_relay(&after(28, &["alive", "silent"])).is_empty());
        assert_eq!(deaf_relay(&after(28, &["alive"])), ["never said silent"]);
        assert_eq!(
            deaf_relay(&after(28, &["silent", "unreachable", "alive"])),
            ["said unreachable after 5 ms", "said alive after it had said silent"]
        );
    }

    #[test]
    fn neither_half_closed_nor_trickling_peers_are_dead() {
        assert!(half_closed(&after(29, &["alive", "congested"])).is_empty());
        assert_eq!(half_closed(&after(29, &["silent"])), ["said silent after 5 ms"]);
        assert!(trickler(&after(32, &["alive", "stalled", "congested"])).is_empty());
        assert_eq!(trickler(&after(32, &["unreachable"])), ["said unreachable after 5 ms"]);
        let killed = |kind| Outcome {
            kill: Some(JudgedKill { kind, after_ms: 9.0, reason: "why".to_owned() }),
            ..outcome(32, DEFAULT_POLICY)
        };
        assert!(trickler(&killed(KillKind::OfHung)).is_empty());
        assert_eq!(trickler(&killed(KillKind::False)), ["killed after 9 ms (why)"]);
        assert_eq!(half_closed(&killed(KillKind::OfHung)), ["killed after 9 ms"]);
    }
}
