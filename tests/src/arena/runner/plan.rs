//! Which stages a set has.

use std::collections::BTreeSet;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use crate::arena::row::{Row, Variant};
use crate::arena::rows::{ROWS, row};

/// A stage that is to be played.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// The scenario.
    pub row: &'static Row,
    /// Its variant.
    pub variant: &'static Variant,
    /// Its seed.
    pub seed: u64,
}

/// How many seeds each scenario and variant gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeds {
    /// As many as make the runs that a full set asks for.
    Auto,
    /// So many.
    Count(u64),
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match text.parse() {
            Ok(count @ 1..=10_000) => Ok(Self::Count(count)),
            _ => Err(format!("{text:?} is neither `auto` nor a number from 1 to 10000")),
        }
    }
}

impl Seeds {
    fn of(self, row: &Row) -> u64 {
        match self {
            Self::Auto => u64::from(row.runs().div_ceil(row.subjects.max(1))),
            Self::Count(count) => count,
        }
    }
}

/// Reads a list of scenarios: `1-19,29`; numbers without a scenario inside of a range are left out.
///
/// # Errors
/// If it is no such list, or names a single scenario that does not exist.
pub fn rows_of(list: &str) -> Result<Vec<&'static Row>> {
    let mut numbers: BTreeSet<u8> = BTreeSet::new();
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let number = |text: &str| {
            text.trim().parse::<u8>().with_context(|| format!("{text:?} is no number of a scenario"))
        };
        if let Some((from, to)) = part.split_once('-') {
            let range = number(from)?..=number(to)?;
            numbers.extend(ROWS.iter().map(|row| row.number).filter(|number| range.contains(number)));
        } else {
            let number = number(part)?;
            row(number).with_context(|| format!("there is no scenario {number}"))?;
            numbers.insert(number);
        }
    }
    if numbers.is_empty() {
        bail!("{list:?} names no scenario");
    }
    Ok(ROWS.iter().filter(|row| numbers.contains(&row.number)).collect())
}

/// The stages of a set, the longest first.
#[must_use]
pub fn plan(rows: &[&'static Row], seeds: Seeds, is_quick: bool) -> Vec<Job> {
    let mut jobs = Vec::new();
    for row in rows {
        for variant in row.variants {
            let is_wanted = !is_quick
                || row.quick.is_some_and(|name| {
                    let chosen = if name.is_empty() { row.variants.first() } else { row.variant(name) };
                    chosen.is_some_and(|chosen| chosen.name == variant.name)
                });
            let seeds = if is_wanted { seeds.of(row) } else { 0 };
            jobs.extend((1..=seeds).map(|seed| Job { row, variant, seed }));
        }
    }
    jobs.sort_by_key(|job| (std::cmp::Reverse(job.row.about_s), job.seed, job.row.number));
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_numbers_and_ranges() {
        let numbers =
            |list: &str| -> Vec<u8> { rows_of(list).expect("a list").iter().map(|row| row.number).collect() };
        assert_eq!(numbers("20, 1"), [1, 20]);
        assert!(numbers("1-34").len() >= 2);
        for wrong in ["", "x", "99", "40-50", "1-x"] {
            assert!(rows_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_set_has_enough_runs_and_begins_with_the_longest() {
        let rows = rows_of("1-34").expect("all");
        let jobs = plan(&rows, Seeds::Auto, false);
        for row in &rows {
            for variant in row.variants {
                let stages = jobs
                    .iter()
                    .filter(|job| job.row.number == row.number && job.variant.name == variant.name)
                    .count();
                assert!(
                    stages as u64 * u64::from(row.subjects) >= u64::from(row.runs()),
                    "row {}",
                    row.number
                );
            }
        }
        assert!(jobs.windows(2).all(|pair| pair[0].row.about_s >= pair[1].row.about_s));
        let quick = plan(&rows, Seeds::Count(1), true);
        assert!(quick.len() <= rows.len() && !quick.is_empty());
        assert_eq!("7".parse(), Ok(Seeds::Count(7)));
        assert!("0".parse::<Seeds>().is_err());
    }
}
