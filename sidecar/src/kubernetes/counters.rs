//! What became of what was said to Kubernetes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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

/// What a peer is to Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// A pod.
    Pod,
    /// A Service.
    Service,
}

impl PeerKind {
    /// Every value.
    pub const ALL: [Self; 2] = [Self::Pod, Self::Service];

    /// The stable word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Service => "service",
        }
    }
}

/// Totals since the start, and how many addresses have a name now.
#[derive(Debug, Default)]
pub struct KubernetesCounters {
    events: [AtomicU64; EventOutcome::ALL.len()],
    has_events: AtomicBool,
    known: [AtomicU64; PeerKind::ALL.len()],
    left_out: AtomicU64,
    has_peers: AtomicBool,
}

impl KubernetesCounters {
    pub(super) fn event(&self, outcome: EventOutcome) {
        if let Some(count) = self.events.get(outcome as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn events_are_on(&self) {
        self.has_events.store(true, Ordering::Relaxed);
    }

    pub(super) fn peers_are_on(&self) {
        self.has_peers.store(true, Ordering::Relaxed);
    }

    pub(super) fn known_are(&self, kind: PeerKind, addresses: usize) {
        if let Some(known) = self.known.get(kind as usize) {
            known.store(addresses as u64, Ordering::Relaxed);
        }
    }

    pub(super) fn left_out(&self, addresses: u64) {
        self.left_out.fetch_add(addresses, Ordering::Relaxed);
    }

    /// Events, in the order of [`EventOutcome::ALL`]; `None` where none are published.
    #[must_use]
    pub fn events(&self) -> Option<[(EventOutcome, u64); EventOutcome::ALL.len()]> {
        self.has_events.load(Ordering::Relaxed).then(|| {
            EventOutcome::ALL.map(|outcome| {
                let count =
                    self.events.get(outcome as usize).map_or(0, |count| count.load(Ordering::Relaxed));
                (outcome, count)
            })
        })
    }

    /// Addresses that have a name, in the order of [`PeerKind::ALL`]; `None` where nobody asks for names.
    #[must_use]
    pub fn peers(&self) -> Option<[(PeerKind, u64); PeerKind::ALL.len()]> {
        self.has_peers.load(Ordering::Relaxed).then(|| {
            PeerKind::ALL.map(|kind| {
                let count = self.known.get(kind as usize).map_or(0, |count| count.load(Ordering::Relaxed));
                (kind, count)
            })
        })
    }

    /// Times that an address found no room; `None` where nobody asks for names.
    #[must_use]
    pub fn peers_left_out(&self) -> Option<u64> {
        self.has_peers.load(Ordering::Relaxed).then(|| self.left_out.load(Ordering::Relaxed))
    }

    /// With everything on.
    #[cfg(test)]
    pub(crate) fn everything() -> Self {
        let counters = Self::default();
        counters.events_are_on();
        counters.peers_are_on();
        counters
    }
}
