//! `phi`: the phi-accrual failure detector over the arrivals of Pongs.

use std::collections::VecDeque;

use ackbeat_liveness::{Input, Timestamp};

use crate::host_heartbeat::{Beat, HostHeartbeat};
use crate::rule::{Rule, send_queue_bytes, snapshot};
use crate::{Fact, Kill, NotJudged};

/// Kills once phi, the negative decimal logarithm of the probability that the next Pong still comes, reaches `threshold`.
///
/// N. Hayashibara, X. Défago, R. Yared, T. Katayama: *The φ Accrual Failure Detector* (SRDS 2004), in the form of Akka
/// (`akka.remote.PhiAccrualFailureDetector`): the times between arrivals are taken to be normally distributed, with the mean and
/// the standard deviation of the last `window` of them; the deviation is at least `min_std_ms`; the distribution function is
/// approximated by a logistic one; before the first arrival the mean is `first_ms` and the deviation a quarter of it.
/// Akka's defaults are a threshold of 8, a window of 1000, 100 ms; its `acceptable-heartbeat-pause`, which it adds to the
/// mean, is 0 here.
///
/// Pongs come only if Pings go out. Where phi crosses the threshold while no Ping is unanswered and nothing is queued, the host
/// is the one that is late: the time begins anew with its next Ping (the pause still counts among the times between arrivals).
#[derive(Debug)]
pub(crate) struct Phi {
    settings: PhiSettings,
    heartbeat: HostHeartbeat,
    queued_bytes: Option<u32>,
    between_ms: VecDeque<u64>,
    last_pong_at: Option<Timestamp>,
    /// Since when the next Pong is waited for.
    since: Option<Timestamp>,
    /// Phi reaches the threshold then.
    crosses_at: Option<Timestamp>,
}

/// Parameters of [`Phi`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhiSettings {
    pub(crate) threshold: u64,
    pub(crate) window: u64,
    pub(crate) min_std_ms: u64,
    pub(crate) first_ms: u64,
}

impl Phi {
    pub(crate) fn new(is_reported: bool, settings: PhiSettings) -> Self {
        Self {
            settings,
            heartbeat: HostHeartbeat::new(is_reported),
            queued_bytes: None,
            between_ms: VecDeque::new(),
            last_pong_at: None,
            since: None,
            crosses_at: None,
        }
    }

    fn arrived(&mut self, at: Timestamp) {
        if let Some(last_at) = self.last_pong_at.replace(at) {
            if usize::try_from(self.settings.window).is_ok_and(|window| self.between_ms.len() >= window) {
                self.between_ms.pop_front();
            }
            self.between_ms.push_back(at.ms_since(last_at));
        }
        self.start(at);
    }

    fn start(&mut self, at: Timestamp) {
        self.since = Some(at);
        let (mean_ms, std_ms) = self.distribution();
        self.crosses_at = Some(at.plus_ms(crossing_ms(mean_ms, std_ms, to_f64(self.settings.threshold))));
    }

    fn forget(&mut self) {
        self.last_pong_at = None;
        self.since = None;
        self.crosses_at = None;
    }

    fn distribution(&self) -> (f64, f64) {
        let first_ms = to_f64(self.settings.first_ms);
        if self.between_ms.is_empty() {
            return (first_ms, (first_ms / 4.0).max(to_f64(self.settings.min_std_ms)));
        }
        let count = self.between_ms.iter().fold(0.0, |count, _| count + 1.0);
        let mean = self.between_ms.iter().map(|ms| to_f64(*ms)).sum::<f64>() / count;
        let variance = self.between_ms.iter().map(|ms| (to_f64(*ms) - mean).powi(2)).sum::<f64>() / count;
        (mean, variance.sqrt().max(to_f64(self.settings.min_std_ms)))
    }

    /// The peer owes something.
    fn is_owed(&self) -> bool {
        !self.heartbeat.is_lost()
            && (self.heartbeat.is_outstanding()
                || (!self.heartbeat.is_reported() && self.queued_bytes.is_some_and(|bytes| bytes > 0)))
    }

    fn verdict(&self, now: Timestamp) -> Option<Kill> {
        let at = self.poll_timeout().filter(|at| now >= *at)?;
        let threshold = self.settings.threshold;
        let elapsed_ms = at.ms_since(self.since?);
        Some(Kill { at, reason: format!("phi reached {threshold} after {elapsed_ms} ms without a Pong") })
    }
}

impl Rule for Phi {
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill> {
        let at = fact.at();
        if let Some(snapshot) = snapshot(fact) {
            self.queued_bytes = send_queue_bytes(snapshot);
        }
        if matches!(fact, Fact::Input(Input::Upgrade(_))) {
            self.forget();
        }
        match self.heartbeat.on_fact(fact) {
            Some(Beat::Pong { .. }) => self.arrived(at),
            Some(Beat::Ping { .. }) if self.crosses_at.is_none_or(|crosses_at| at >= crosses_at) => {
                self.start(at);
            }
            Some(Beat::Forgotten) => self.forget(),
            _ => {}
        }
        self.verdict(at)
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.crosses_at.filter(|_| self.is_owed())
    }

    fn on_timeout(&mut self, now: Timestamp) -> Option<Kill> {
        self.verdict(now)
    }

    fn on_end(&mut self, _: &Fact<'_>, _: bool) -> Option<Kill> {
        None
    }

    fn not_judged(&self) -> Option<NotJudged> {
        if self.heartbeat.is_lost() {
            Some(NotJudged::FramesLost)
        } else if self.heartbeat.last_ping_at.is_none() {
            Some(NotJudged::NoPing)
        } else {
            None
        }
    }
}

/// Milliseconds after the last arrival at which phi reaches the threshold.
fn crossing_ms(mean_ms: f64, std_ms: f64, threshold: f64) -> u64 {
    // Phi grows with the elapsed time, so the whole milliseconds can be searched by halving.
    let mut low = 0_u64;
    let mut high = 1_u64 << 40;
    while low < high {
        let middle = low + (high - low) / 2;
        if phi(to_f64(middle), mean_ms, std_ms) >= threshold {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Phi after so many milliseconds without an arrival.
fn phi(elapsed_ms: f64, mean_ms: f64, std_ms: f64) -> f64 {
    let y = (elapsed_ms - mean_ms) / std_ms;
    let e = (-y * (1.5976 + 0.070_566 * y * y)).exp();
    if y > 0.0 { -(e / (1.0 + e)).log10() } else { -(1.0 - 1.0 / (1.0 + e)).log10() }
}

/// Milliseconds and thresholds are far below 2^52.
#[expect(clippy::cast_precision_loss, reason = "the numbers are far below 2^52")]
const fn to_f64(number: u64) -> f64 {
    number as f64
}
