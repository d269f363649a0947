//! What became of what was said to Kubernetes.

use std::sync::atomic::{AtomicU64, Ordering};

/// What became of an Event about the own pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOutcome {
    /// The API server has it.
    Published,
    /// What it would have told found no room. The next Event of its reason has it in its number.
    Dropped,
    /// The pod's ServiceAccount has no right to.
    Refused,
    /// An attempt failed. What is worth it is tried again.
    Failed,
}

impl EventOutcome {
    /// Every value.
    pub const ALL: [Self; 4] = [Self::Published, Self::Dropped, Self::Refused, Self::Failed];

    /// The stable word for it, as metrics show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Dropped => "dropped",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// Totals since the start.
#[derive(Debug, Default)]
pub struct KubernetesCounters {
    events: [AtomicU64; EventOutcome::ALL.len()],
}

impl KubernetesCounters {
    pub(super) fn event(&self, outcome: EventOutcome) {
        if let Some(count) = self.events.get(outcome as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Events, in the order of [`EventOutcome::ALL`].
    #[must_use]
    pub fn events(&self) -> [(EventOutcome, u64); EventOutcome::ALL.len()] {
        EventOutcome::ALL.map(|outcome| {
            let count = self.events.get(outcome as usize).map_or(0, |count| count.load(Ordering::Relaxed));
            (outcome, count)
        })
    }
}
