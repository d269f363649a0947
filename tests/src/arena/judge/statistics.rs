//! Rates with their bounds, and quantiles.

use serde::{Deserialize, Serialize};

/// How often something happened in so many runs, and what the true rate may be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// How often.
    pub count: u64,
    /// In how many runs.
    pub runs: u64,
    /// Lower end of the two-sided 95 % interval (Clopper-Pearson); 0 where it never happened.
    pub lower_95: f64,
    /// Upper end of it. Where it never happened in `n` runs: the one-sided 95 % bound, which is about 3/n.
    pub upper_95: f64,
}

impl Rate {
    /// The rate of `count` in `runs`. Without any run nothing is known: from 0 to 1.
    #[must_use]
    pub fn of(count: u64, runs: u64) -> Self {
        if runs == 0 {
            return Self { count, runs, lower_95: 0.0, upper_95: 1.0 };
        }
        let lower_95 = if count == 0 {
            0.0
        } else {
            // The smallest rate at which so many or more are not too unlikely.
            root(|rate| 1.0 - at_most(count - 1, runs, rate), if count == runs { 0.05 } else { 0.025 })
        };
        let upper_95 = if count == runs {
            1.0
        } else {
            let tail = if count == 0 { 0.05 } else { 0.025 };
            root(|rate| 1.0 - at_most(count, runs, rate), 1.0 - tail)
        };
        Self { count, runs, lower_95, upper_95 }
    }

    /// The share itself; `None` without runs.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "runs are counted in thousands")]
        (self.runs > 0).then(|| self.count as f64 / self.runs as f64)
    }
}

/// Where an increasing function on 0..=1 reaches `wanted`.
fn root(increasing: impl Fn(f64) -> f64, wanted: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if increasing(middle) < wanted { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// The probability of at most `count` in `runs` at this rate (binomial distribution).
fn at_most(count: u64, runs: u64, rate: f64) -> f64 {
    if rate <= 0.0 {
        return 1.0;
    }
    if rate >= 1.0 {
        return if count >= runs { 1.0 } else { 0.0 };
    }
    // Logarithms: the single terms of thousands of runs are too small for a float.
    #[expect(clippy::cast_precision_loss, reason = "runs are counted in thousands")]
    let (runs_f, odds) = (runs as f64, (rate / (1.0 - rate)).ln());
    let mut term = runs_f * (1.0 - rate).ln();
    let mut sum = term.exp();
    for done in 0..count.min(runs) {
        #[expect(clippy::cast_precision_loss, reason = "runs are counted in thousands")]
        let done = done as f64;
        term += ((runs_f - done) / (done + 1.0)).ln() + odds;
        sum += term.exp();
    }
    sum.min(1.0)
}

/// Durations in milliseconds, summed up. What never happened counts as longer than everything that did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Durations {
    /// How many there are.
    pub count: u64,
    /// How many times it never happened while somebody watched.
    pub never: u64,
    /// The median; `None` if that is among those that never happened.
    pub p50_ms: Option<f64>,
    /// The 99th percentile: with less than a hundred of them, the longest.
    pub p99_ms: Option<f64>,
    /// The longest.
    pub max_ms: Option<f64>,
}

impl Durations {
    /// Sums them up; `None` stands for what never happened. `None` if there is nothing to sum up.
    #[must_use]
    pub fn of(values: &[Option<f64>]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let mut sorted: Vec<f64> = values.iter().map(|value| value.unwrap_or(f64::INFINITY)).collect();
        sorted.sort_by(f64::total_cmp);
        let count = values.iter().flatten().count() as u64;
        let finite = |value: f64| value.is_finite().then_some(value);
        Some(Self {
            count,
            never: values.len() as u64 - count,
            p50_ms: quantile(&sorted, 0.50).and_then(finite),
            p99_ms: quantile(&sorted, 0.99).and_then(finite),
            max_ms: sorted.last().copied().and_then(finite),
        })
    }
}

/// The smallest value that at least this part of all values do not exceed (nearest rank).
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank among the values"
    )]
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() < 0.0005
    }

    #[test]
    fn bounds_are_those_of_the_tables() {
        // Never in 30 runs: the rule of three says 0.1, exactly it is 1 - 0.05^(1/30).
        let never = Rate::of(0, 30);
        assert!(
            near(never.lower_95, 0.0) && near(never.upper_95, 1.0 - 0.05_f64.powf(1.0 / 30.0)),
            "{never:?}"
        );
        let always = Rate::of(30, 30);
        assert!(near(always.lower_95, 0.05_f64.powf(1.0 / 30.0)) && near(always.upper_95, 1.0), "{always:?}");
        // Clopper and Pearson: 3 of 10 is from 0.0667 to 0.6525.
        let some = Rate::of(3, 10);
        assert!(near(some.lower_95, 0.0667) && near(some.upper_95, 0.6525), "{some:?}");
        let many = Rate::of(0, 5_000);
        assert!(many.upper_95 > 0.000_59 && many.upper_95 < 0.000_61, "{many:?}");
        assert_eq!(Rate::of(0, 0).share(), None);
    }

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let values: Vec<Option<f64>> = (1..=200).map(|value| Some(f64::from(value))).collect();
        let summed = Durations::of(&values).expect("there are some");
        assert_eq!((summed.p50_ms, summed.p99_ms, summed.max_ms), (Some(100.0), Some(198.0), Some(200.0)));
        assert_eq!(Durations::of(&[Some(7.0)]).and_then(|one| one.p99_ms), Some(7.0));
        assert_eq!(Durations::of(&[]), None);
    }

    #[test]
    fn what_never_happened_is_longer_than_everything() {
        let summed = Durations::of(&[Some(1.0), Some(2.0), None]).expect("there are some");
        assert_eq!((summed.count, summed.never), (2, 1));
        assert_eq!((summed.p50_ms, summed.p99_ms, summed.max_ms), (Some(2.0), None, None));
    }
}
