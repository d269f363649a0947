//! The configuration file, read anew while the sidecar runs.
//!
//! A file that changed (a ConfigMap that was swapped, too) or a SIGHUP makes it be read. What it says is put in force as a
//! whole, or not at all: with a mistake in it the old configuration stays, and the mistake is told. Settings that are needed
//! before there is anything to watch take effect with the next start only ([`crate::config::takes_effect_at_once`]).

mod watch;

use std::sync::atomic::{AtomicU64, Ordering};

use ackbeat_liveness::leak::LeakSettings;
use ackbeat_liveness::{Deployment, Policy, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::config::{PolicyName, Settings};

pub use watch::{RULES_MAX, Watch, watch};

/// What decisions depend on, and what can change while the sidecar runs. A recording tells of a change by these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// Since when, in nanoseconds of the monotonic clock.
    pub at: Timestamp,
    /// Name of the policy.
    pub policy: String,
    /// The thresholds.
    pub thresholds: Policy,
    /// The thresholds for leaks.
    pub leaks: LeakSettings,
    /// What whoever deploys said.
    pub deployment: Deployment,
}

impl Rules {
    /// Those of `settings`, from `at` on.
    #[must_use]
    pub fn of(settings: &Settings, at: Timestamp) -> Self {
        Self {
            at,
            policy: settings.policy_name.as_str().to_owned(),
            thresholds: settings.policy.clone(),
            leaks: settings.leaks.clone(),
            deployment: settings.deployment.clone(),
        }
    }
}

/// What became of a reading of the configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// Something in it took effect.
    Applied,
    /// It is sound, and nothing in it takes effect before the next start.
    Unchanged,
    /// There is a mistake in it: the old one stays.
    Refused,
}

impl ReloadOutcome {
    /// Every value.
    pub const ALL: [Self; 3] = [Self::Applied, Self::Unchanged, Self::Refused];

    /// The stable word for it, as metrics show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
        }
    }
}

/// The name of the policy in force, and what became of readings.
#[derive(Debug)]
pub struct ReloadState {
    policy: Mutex<PolicyName>,
    counts: [AtomicU64; ReloadOutcome::ALL.len()],
}

impl ReloadState {
    /// Nothing was read anew so far.
    #[must_use]
    pub fn new(policy: PolicyName) -> Self {
        Self { policy: Mutex::new(policy), counts: Default::default() }
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> PolicyName {
        *self.policy.lock()
    }

    /// Totals since the start, in the order of [`ReloadOutcome::ALL`].
    #[must_use]
    pub fn totals(&self) -> [(ReloadOutcome, u64); ReloadOutcome::ALL.len()] {
        ReloadOutcome::ALL.map(|outcome| {
            let count = self.counts.get(outcome as usize).map_or(0, |count| count.load(Ordering::Relaxed));
            (outcome, count)
        })
    }

    fn count(&self, outcome: ReloadOutcome) {
        if let Some(count) = self.counts.get(outcome as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
