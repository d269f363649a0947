//! A short run against the published one: nothing may cost ten times as much.
//!
//! Machines differ, so only what has no machine in it is compared: quotients of one run, and bytes.

use super::result::{Figure, Guard, Outcome};

/// So many times the published cost is too much.
const FACTOR: f64 = 10.0;
/// A share that was published as whole, or nearly, may still lack this much in a short run, before the factor.
const REMAINING_ROOM: f64 = 0.04;
/// A time that was published as the same, or nearly, may still be this much longer in a short run, before the factor.
const EXCESS_ROOM: f64 = 0.1;

/// What costs too much, one line each.
pub(crate) fn regressions(now: &Outcome, published: &Outcome) -> Vec<String> {
    now.figures
        .iter()
        .filter_map(|figure| {
            let published = published.figure(&figure.id)?;
            let limit = limit(published)?;
            let value = figure.spread.median;
            let is_worse = match published.guard {
                Guard::Remaining => value < limit,
                Guard::Excess | Guard::Cost => value > limit,
                Guard::None => false,
            };
            is_worse.then(|| {
                format!(
                    "{} ({}): {value:.3}, published {:.3}, limit {limit:.3}",
                    figure.title, figure.id, published.spread.median
                )
            })
        })
        .collect()
}

/// Figures that were compared.
pub(crate) fn compared(now: &Outcome, published: &Outcome) -> usize {
    let is_compared =
        |figure: &&Figure| published.figure(&figure.id).is_some_and(|published| limit(published).is_some());
    now.figures.iter().filter(is_compared).count()
}

fn limit(published: &Figure) -> Option<f64> {
    let value = published.spread.median;
    match published.guard {
        Guard::Remaining => Some(1.0 - FACTOR * (1.0 - value).max(REMAINING_ROOM)),
        Guard::Excess => Some(1.0 + FACTOR * (value - 1.0).max(EXCESS_ROOM)),
        Guard::Cost => Some(FACTOR * value),
        Guard::None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::result::Unit;

    fn outcome(throughput: f64, latency: f64, cost: f64) -> Outcome {
        let mut outcome = Outcome::here(String::new());
        let figure =
            |id: &str, value, guard| Figure::of(id, id, Unit::Ratio, &[value]).expect("a value").guard(guard);
        outcome.figures = vec![
            figure("throughput", throughput, Guard::Remaining),
            figure("latency", latency, Guard::Excess),
            figure("cost", cost, Guard::Cost),
            figure("machine", cost, Guard::None),
        ];
        outcome
    }

    #[test]
    fn a_tenfold_cost_is_a_regression_and_noise_is_none() {
        let published = outcome(0.95, 1.1, 3.0);
        assert_eq!(regressions(&outcome(0.7, 1.9, 29.0), &published), Vec::<String>::new());
        let worse = regressions(&outcome(0.4, 2.1, 31.0), &published);
        assert_eq!(worse.len(), 3, "{worse:?}");
        assert_eq!(
            worse.first().map(String::as_str),
            Some("throughput (throughput): 0.400, published 0.950, limit 0.500")
        );
    }

    #[test]
    fn what_was_free_may_cost_a_little_in_a_short_run() {
        let published = outcome(1.003, 0.98, 3.0);
        assert_eq!(regressions(&outcome(0.65, 1.95, 3.0), &published), Vec::<String>::new());
        assert_eq!(regressions(&outcome(0.55, 2.05, 3.0), &published).len(), 2);
    }

    #[test]
    fn what_was_not_published_is_not_compared() {
        let mut published = outcome(1.0, 1.0, 1.0);
        published.figures.truncate(1);
        assert_eq!(compared(&outcome(1.0, 1.0, 99.0), &published), 1);
        assert_eq!(regressions(&outcome(1.0, 1.0, 99.0), &published), Vec::<String>::new());
    }
}
