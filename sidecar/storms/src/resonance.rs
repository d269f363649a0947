//! The period at which clients come back in lock-step.
//!
//! Clients that lose their connection at the same moment and retry after the same time come back together, again and again:
//! the arrivals after a burst of closes have the distance of one retry between them. One pair of crowds at some distance proves
//! nothing, each two have one. So each burst gets a *window*, its autocorrelation says which distances its arrivals have, and a
//! distance is a resonance only if more windows agree on it than windows of independent clients ever would.
//!
//! - The autocorrelation comes from a Fourier transform (Wiener–Khinchin), is smoothed over a few bins, and is measured against
//!   its own surroundings: a crowd that thins out slowly has short distances more often than long ones, and no period.
//! - Each window has the same say, whatever the size of its crowd: its most frequent distance counts as 1.
//! - How likely so much agreement is by chance is bounded by Chernoff's inequality, for windows whose distances are shifted
//!   at random: their own values, at any distance with the same probability. The bound times the number of distances that
//!   were looked at must be below one in a million: a port is looked at after each burst, for months.

use std::collections::VecDeque;
use std::sync::Arc;

use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use crate::Settings;

/// Windows that are kept; the oldest goes.
const WINDOWS_MAX: usize = 16;
/// A window with fewer arrivals says nothing.
const ARRIVALS_MIN: u32 = 4;
/// Windows that must agree at least: with fewer it cannot be told whether there is a period.
pub const WINDOWS_MIN: usize = 4;
/// Weights of the smoothing: a triangle.
const SMOOTHING: [f64; 5] = [1.0, 2.0, 3.0, 2.0, 1.0];
/// The surroundings of a distance: so many bins each side ...
const SURROUNDINGS_BINS: usize = 20;
/// ... but for so many that belong to it.
const OWN_BINS: usize = 6;
/// How likely a resonance by chance may be: e to the minus this, one in a million.
const CHANCE: f64 = 13.82;
/// Where Chernoff's bound is looked for.
const EXPONENTS: [f64; 10] = [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0];

/// Clients come back in lock-step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resonance {
    /// From one return to the next, in milliseconds.
    pub period_ms: f64,
    /// How regular they are, from 0 to 1: how often the period is a window's most frequent distance.
    pub strength: f64,
    /// Bursts of closes (or parts of long ones) that it was seen in.
    pub windows: u32,
}

/// The arrivals of one window.
#[derive(Debug)]
struct Window {
    counts: Vec<u16>,
    arrivals: u32,
}

/// Looks for a resonance in the arrivals of one port.
pub(crate) struct Detector {
    bin_ms: u64,
    lag_min: usize,
    lag_max: usize,
    bins: usize,
    transform: Arc<dyn Fft<f64>>,
    window: Window,
    windows: VecDeque<Vec<f64>>,
}

impl std::fmt::Debug for Detector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Detector").field("windows", &self.windows.len()).finish_non_exhaustive()
    }
}

impl Detector {
    pub(crate) fn new(settings: &Settings) -> Self {
        let bin_ms = settings.resonance_bin_ms.max(1);
        let of = |ms: u64| usize::try_from(ms / bin_ms).unwrap_or(usize::MAX).clamp(1, 65_536);
        let bins = of(settings.window_ms);
        let lag_max = of(settings.period_max_ms).min(bins);
        let margin = SURROUNDINGS_BINS + SMOOTHING.len();
        // Room enough that no distance wraps around.
        let size = (bins + lag_max + margin).next_power_of_two();
        Self {
            bin_ms,
            lag_min: of(settings.period_min_ms),
            lag_max,
            bins,
            transform: FftPlanner::new().plan_fft_forward(size),
            window: Window { counts: vec![0; bins], arrivals: 0 },
            windows: VecDeque::with_capacity(WINDOWS_MAX),
        }
    }

    /// An arrival, so many milliseconds after the window's beginning.
    pub(crate) fn arrival(&mut self, offset_ms: u64) {
        let place = usize::try_from(offset_ms / self.bin_ms).unwrap_or(usize::MAX);
        if let Some(count) = self.window.counts.get_mut(place) {
            *count = count.saturating_add(1);
            self.window.arrivals += 1;
        }
    }

    /// The window is over. Without `whole`, something in it is not known, and it says nothing.
    pub(crate) fn end_window(&mut self, whole: bool) {
        if whole && self.window.arrivals >= ARRIVALS_MIN {
            let distances = self.distances();
            let largest = distances.iter().copied().fold(0.0, f64::max);
            if largest > 0.0 {
                if self.windows.len() == WINDOWS_MAX {
                    self.windows.pop_front();
                }
                self.windows.push_back(distances.into_iter().map(|value| value / largest).collect());
            }
        }
        self.window.counts.fill(0);
        self.window.arrivals = 0;
    }

    /// How frequent each distance from `lag_min` to `lag_max` is in the window, above its surroundings.
    fn distances(&self) -> Vec<f64> {
        let size = self.transform.len();
        let mut series: Vec<Complex<f64>> = self
            .window
            .counts
            .iter()
            .map(|count| Complex::new(f64::from(*count), 0.0))
            .chain(std::iter::repeat(Complex::new(0.0, 0.0)))
            .take(size)
            .collect();
        self.transform.process(&mut series);
        // The power of a real series is even, so a second forward transform is the inverse one, up to a factor.
        for value in &mut series {
            *value = Complex::new(value.norm_sqr(), 0.0);
        }
        self.transform.process(&mut series);
        let raw = |lag: isize| {
            let place = lag.unsigned_abs();
            series.get(place).map_or(0.0, |value| value.re.max(0.0))
        };
        let half = SMOOTHING.len() / 2;
        let smooth: Vec<f64> = (0..=self.lag_max + SURROUNDINGS_BINS)
            .map(|lag| {
                SMOOTHING
                    .iter()
                    .enumerate()
                    .map(|(place, weight)| weight * raw(signed(lag) + signed(place) - signed(half)))
                    .sum()
            })
            .collect();
        let mean = smooth.iter().sum::<f64>() / as_f64(smooth.len().max(1));
        (self.lag_min..=self.lag_max)
            .map(|lag| {
                // The same on both sides, so that a slope counts for nothing; and not up to the distance of each arrival to
                // itself.
                let reach = SURROUNDINGS_BINS.min(lag.saturating_sub(SMOOTHING.len() / 2 + 1));
                let around =
                    (lag.saturating_sub(reach)..=lag + reach).filter(|other| other.abs_diff(lag) > OWN_BINS);
                let (sum, count) = around
                    .filter_map(|other| smooth.get(other))
                    .fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
                let usual = sum / f64::from(count.max(1));
                // Where much is usual, much is chance: in standard deviations of a Poisson count, so that a crowd's short
                // distances are not more often the most frequent ones than its long ones.
                (smooth.get(lag).copied().unwrap_or(0.0) - usual)
                    / (usual + mean).max(f64::MIN_POSITIVE).sqrt()
            })
            .collect()
    }

    /// Windows that say something, at most the latest [`WINDOWS_MAX`].
    pub(crate) fn windows(&self) -> u32 {
        u32::try_from(self.windows.len()).unwrap_or(u32::MAX)
    }

    /// The period that the windows agree on, if they do.
    pub(crate) fn resonance(&self) -> Option<Resonance> {
        if self.windows.len() < WINDOWS_MIN || self.bins == 0 {
            return None;
        }
        let places = self.lag_max + 1 - self.lag_min;
        let mut agreed = vec![0.0_f64; places];
        for window in &self.windows {
            for (sum, value) in agreed.iter_mut().zip(window) {
                *sum += value;
            }
        }
        let (place, most) =
            agreed.iter().copied().enumerate().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
        let looked_at = as_f64(places);
        if self.exponent(most) < CHANCE + looked_at.ln() {
            return None;
        }
        // The peak lies between bins: a parabola through its surroundings.
        let at = |place: Option<usize>| place.and_then(|place| agreed.get(place)).copied().unwrap_or(0.0);
        let (before, after) = (at(place.checked_sub(1)), at(place.checked_add(1)));
        let curvature = before - 2.0 * most + after;
        let shift = if curvature < 0.0 { (0.5 * (before - after) / curvature).clamp(-0.5, 0.5) } else { 0.0 };
        let windows = self.windows.len();
        Some(Resonance {
            period_ms: (as_f64(self.lag_min + place) + shift)
                * as_f64(usize::try_from(self.bin_ms).unwrap_or(1)),
            strength: (most / as_f64(windows)).clamp(0.0, 1.0),
            windows: u32::try_from(windows).unwrap_or(u32::MAX),
        })
    }

    /// Chernoff's bound on the probability that windows shifted at random agree so much at a given distance, as the exponent
    /// of e.
    fn exponent(&self, agreed: f64) -> f64 {
        EXPONENTS
            .iter()
            .map(|exponent| {
                let of_windows: f64 = self
                    .windows
                    .iter()
                    .map(|window| {
                        let sum: f64 = window.iter().map(|value| (exponent * value).exp()).sum();
                        (sum / as_f64(window.len().max(1))).ln()
                    })
                    .sum();
                exponent * agreed - of_windows
            })
            .fold(0.0, f64::max)
    }
}

#[expect(clippy::cast_precision_loss, reason = "some hundred bins")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

fn signed(place: usize) -> isize {
    isize::try_from(place).unwrap_or(isize::MAX)
}
