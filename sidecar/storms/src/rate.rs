//! Arrivals and closes in bins of time, and what is usual.

use std::collections::VecDeque;

use crate::Settings;

/// A rate is counted over so many bins.
pub(crate) const RATE_BINS: usize = 4;

/// One bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bin {
    pub(crate) arrivals: u32,
    pub(crate) closes: u32,
    /// Records were lost in it, or the sidecar slept: what it holds is not all.
    pub(crate) is_unknown: bool,
}

/// A running mean that one burst does not move: what is far above it counts as a little above it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Baseline {
    per_bin: f64,
    bins: u64,
}

impl Baseline {
    fn learn(&mut self, count: u32, settings: &Settings) {
        let memory = (settings.baseline_ms / settings.bin_ms).max(1);
        self.bins = (self.bins + 1).min(memory);
        // Not 2 × 0 for a port at rest: what is usual must be learnable.
        let bound = 2.0 * self.per_bin + 1.0;
        #[expect(clippy::cast_precision_loss, reason = "some thousand bins")]
        let weight = 1.0 / self.bins as f64;
        self.per_bin += (f64::from(count).min(bound) - self.per_bin) * weight;
    }

    /// What is usual in so many bins.
    pub(crate) fn of_bins(self, bins: usize) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "some dozens of bins")]
        let bins = bins as f64;
        self.per_bin * bins
    }

    /// Whether enough was learned to call something unusual.
    fn is_known(self, settings: &Settings) -> bool {
        self.bins * settings.bin_ms >= settings.warm_up_ms
    }

    /// What was a storm is usual from now on.
    pub(crate) fn adopt(&mut self, per_bin: f64) {
        self.per_bin = per_bin;
    }
}

/// The latest bins of a port, and what is usual there.
#[derive(Debug)]
pub(crate) struct Rates {
    bins: VecDeque<Bin>,
    kept: usize,
    pub(crate) arrivals: Baseline,
    pub(crate) closes: Baseline,
}

impl Rates {
    pub(crate) fn new(settings: &Settings) -> Self {
        let of = |ms: u64| usize::try_from(ms.div_ceil(settings.bin_ms)).unwrap_or(usize::MAX);
        let kept = of(settings.burst_ms).max(of(settings.calm_ms)).max(RATE_BINS);
        Self {
            bins: VecDeque::with_capacity(kept + 1),
            kept,
            arrivals: Baseline::default(),
            closes: Baseline::default(),
        }
    }

    /// A bin is over.
    pub(crate) fn push(&mut self, bin: Bin) {
        self.bins.push_back(bin);
        if self.bins.len() > self.kept {
            self.bins.pop_front();
        }
    }

    /// What is usual is learned from the last bin.
    pub(crate) fn learn(&mut self, settings: &Settings) {
        if let Some(bin) = self.bins.back().filter(|bin| !bin.is_unknown) {
            let (arrivals, closes) = (bin.arrivals, bin.closes);
            self.arrivals.learn(arrivals, settings);
            self.closes.learn(closes, settings);
        }
    }

    /// Whether enough was learned to call something unusual.
    pub(crate) fn is_known(&self, settings: &Settings) -> bool {
        self.arrivals.is_known(settings)
    }

    fn last(&self, bins: usize) -> impl Iterator<Item = &Bin> {
        self.bins.iter().rev().take(bins)
    }

    /// Arrivals in the last so many bins.
    pub(crate) fn arrivals_in(&self, bins: usize) -> u32 {
        self.last(bins).map(|bin| bin.arrivals).sum()
    }

    /// Closes in the last so many bins.
    pub(crate) fn closes_in(&self, bins: usize) -> u32 {
        self.last(bins).map(|bin| bin.closes).sum()
    }

    /// Whether something is not known of the last so many bins.
    pub(crate) fn is_unknown(&self, bins: usize) -> bool {
        self.last(bins).any(|bin| bin.is_unknown)
    }
}

/// Whether `count` is out of what is usual: at least `least`, three times the usual, and four standard deviations of a Poisson
/// count above it.
pub(crate) fn is_out(count: u32, usual: f64, least: u32) -> bool {
    let seen = f64::from(count);
    count >= least && seen > 3.0 * usual && seen > usual + 4.0 * (usual + 1.0).sqrt()
}
