//! Medians, and how sure they are.

use serde::{Deserialize, Serialize};

/// Samples drawn for an interval.
const RESAMPLES: usize = 4_000;
/// The interval is the same for the same numbers.
const SEED: u64 = 0x0af0_5eed;

/// A median with its spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    /// The median of what was measured.
    pub(crate) median: f64,
    /// Lower end of the median's 95 % interval, by the bootstrap (percentiles of the medians of resamples).
    pub(crate) low: f64,
    /// Upper end of it.
    pub(crate) high: f64,
    /// The smallest value.
    pub(crate) min: f64,
    /// The largest value.
    pub(crate) max: f64,
    /// How many values there are.
    pub(crate) count: usize,
}

impl Spread {
    /// Of these values; `None` if there are none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let mut random = fastrand::Rng::with_seed(SEED);
        let mut medians: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let mut drawn: Vec<f64> = sorted
                    .iter()
                    .filter_map(|_| sorted.get(random.usize(0..sorted.len())).copied())
                    .collect();
                drawn.sort_by(f64::total_cmp);
                median(&drawn)
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        let at = |share: usize| medians.get(RESAMPLES * share / 1_000).copied().unwrap_or(f64::NAN);
        Some(Self { median: median(&sorted), low: at(25), high: at(975), min, max, count: sorted.len() })
    }
}

fn median(sorted: &[f64]) -> f64 {
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { at(middle) } else { f64::midpoint(at(middle.saturating_sub(1)), at(middle)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_holds_its_median() {
        let spread = Spread::of(&[5.0, 1.0, 3.0, 2.0, 4.0]).expect("five values");
        assert_eq!((spread.min, spread.median, spread.max, spread.count), (1.0, 3.0, 5.0, 5));
        assert!(spread.min <= spread.low && spread.low <= 3.0 && 3.0 <= spread.high && spread.high <= 5.0);
        assert_eq!(Spread::of(&[1.0, 2.0]).map(|spread| spread.median), Some(1.5));
        assert_eq!(Spread::of(&[]), None);
    }
}
