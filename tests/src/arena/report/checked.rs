//! A statement about a set of runs, and what a set must have played for it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::arena::judge::Outcome;
use crate::arena::rows::ROWS;

/// A violation names at most so many runs.
const NAMED_MAX: usize = 8;

/// How much a set was asked to play.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// Every scenario, with all its variants and runs: what was not looked at does not hold.
    #[default]
    Full,
    /// A part of them (`--quick`, `--rows`, `--seeds`): what was not looked at is told, and is no violation.
    Part,
}

/// A scenario and one of its variants.
pub(super) type Place = (u8, String);

/// A statement about a set of runs, and whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// What must be true.
    pub statement: String,
    /// In how many runs it was looked at.
    pub runs: u64,
    /// Where it is not true; empty if it holds.
    pub violations: Vec<String>,
    /// Scenarios that it speaks of and that gave nothing to look at, as `24 (80ms)`. In a full set that is a violation too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
    /// What was seen, where a figure says more than yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<String>,
    /// Where it was looked at.
    #[serde(skip)]
    looked_at: BTreeSet<Place>,
}

impl Checked {
    /// A statement that nothing was looked at for yet.
    pub(super) fn new(statement: impl Into<String>) -> Self {
        Self {
            statement: statement.into(),
            runs: 0,
            violations: Vec::new(),
            lacks: Vec::new(),
            seen: None,
            looked_at: BTreeSet::new(),
        }
    }

    /// Whether it holds. A statement that nothing was looked at for holds in part of a set only, and says so
    /// ([`Self::is_shown`]).
    #[must_use]
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }

    /// Whether anything was looked at for it.
    #[must_use]
    pub const fn is_shown(&self) -> bool {
        self.runs > 0
    }

    /// Counts a run that it was looked at in.
    pub(super) fn look(&mut self, row: u8, variant: &str) {
        self.runs += 1;
        self.looked_at.insert((row, variant.to_owned()));
    }

    /// Measures what was looked at against what it speaks of.
    pub(super) fn complete(mut self, extent: Extent, needs: impl IntoIterator<Item = Place>) -> Self {
        self.lacks = needs
            .into_iter()
            .filter(|place| !self.looked_at.contains(place))
            .map(|(row, variant)| label(row, &variant))
            .collect();
        self.shorten();
        if extent == Extent::Full && !self.lacks.is_empty() {
            self.violations.insert(0, format!("nothing was judged of {}", self.lacks.join(", ")));
        }
        self
    }

    /// Names the first runs only.
    fn shorten(&mut self) {
        let more = self.violations.len().saturating_sub(NAMED_MAX);
        if more > 0 {
            self.violations.truncate(NAMED_MAX);
            self.violations.push(format!("and {more} more"));
        }
    }
}

/// Every variant of the scenarios that `is_meant` picks.
pub(super) fn places(is_meant: impl Fn(u8, &str) -> bool) -> Vec<Place> {
    let of_rows =
        ROWS.iter().flat_map(|row| row.variants.iter().map(|variant| (row.number, variant.name.to_owned())));
    of_rows.filter(|(row, variant)| is_meant(*row, variant)).collect()
}

/// `24 (80ms)`, `20`.
pub(super) fn label(row: u8, variant: &str) -> String {
    if variant.is_empty() { row.to_string() } else { format!("{row} ({variant})") }
}

/// A run's name in a violation.
pub(super) fn name(outcome: &Outcome) -> String {
    place(outcome.row, &outcome.variant, outcome.seed, &outcome.subject)
}

/// The name of a stage and of what is in it, in a violation.
pub(super) fn place(row: u8, variant: &str, seed: u64, subject: &str) -> String {
    format!("row {} seed {seed} {subject}", label(row, variant)).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs() -> Vec<Place> {
        places(|row, _| (24..=25).contains(&row))
    }

    #[test]
    fn what_was_not_looked_at_is_a_violation_of_a_full_set_only() {
        let mut checked = Checked::new("something");
        checked.look(24, "80ms");
        let full = checked.clone().complete(Extent::Full, needs());
        assert_eq!(full.violations, ["nothing was judged of 24 (200ms), 25"]);
        assert!(!full.holds() && full.is_shown());
        let part = checked.complete(Extent::Part, needs());
        assert_eq!(part.lacks, ["24 (200ms)", "25"]);
        assert!(part.holds() && part.is_shown());
        let absent = Checked::new("something").complete(Extent::Part, needs());
        assert!(absent.holds() && !absent.is_shown());
    }

    #[test]
    fn what_lacks_is_named_before_the_list_is_cut() {
        let mut checked = Checked::new("something");
        checked.violations = (0..20).map(|number| format!("run {number}")).collect();
        let full = checked.complete(Extent::Full, needs());
        assert_eq!(
            full.violations.first().map(String::as_str),
            Some("nothing was judged of 24 (80ms), 24 (200ms), 25")
        );
        assert_eq!(full.violations.last().map(String::as_str), Some("and 12 more"));
    }
}
