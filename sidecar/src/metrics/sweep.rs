//! The pass over the engine's connections, about once a second, in the driver's own task.
//!
//! It must be cheap: for each connection one count, and for each socket that was read since the last pass up to three
//! readings into histograms. With 10,000 connections that is about 1 ms where every socket was read, and 0.25 ms where none
//! was. `cargo bench -p ackbeat --bench metrics` measures it, the lock of the connections included.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ackbeat_liveness::{ConnectionInfo, Snapshot, Timestamp, Verdict};

use super::Metrics;

/// Connections under each verdict, as of the last pass.
#[derive(Debug, Default)]
pub(super) struct Standing {
    is_known: AtomicBool,
    by_verdict: [AtomicU64; Verdict::ALL.len()],
}

impl Standing {
    /// How many stand under each verdict; `None` before the first pass.
    pub(super) fn counts(&self) -> Option<impl Iterator<Item = (Verdict, u64)>> {
        self.is_known.load(Ordering::Acquire).then(|| {
            Verdict::ALL
                .iter()
                .zip(&self.by_verdict)
                .map(|(verdict, count)| (*verdict, count.load(Ordering::Relaxed)))
        })
    }

    fn set(&self, counts: [u64; Verdict::ALL.len()]) {
        for (held, count) in self.by_verdict.iter().zip(counts) {
            held.store(count, Ordering::Relaxed);
        }
        self.is_known.store(true, Ordering::Release);
    }
}

/// Makes the passes.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The latest reading that a pass has seen.
    seen_until: Timestamp,
}

impl Sweep {
    /// One pass; `each` shows every connection.
    pub(super) fn pass(&mut self, metrics: &Metrics, each: impl FnOnce(&mut dyn FnMut(&ConnectionInfo<'_>))) {
        let mut counts = [0_u64; Verdict::ALL.len()];
        let (seen_until, mut latest) = (self.seen_until, self.seen_until);
        each(&mut |connection| {
            let place = Verdict::ALL.iter().position(|verdict| *verdict == connection.verdict);
            if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
                *count += 1;
            }
            if let Some(snapshot) = connection.snapshot.filter(|snapshot| snapshot.at > seen_until) {
                latest = latest.max(snapshot.at);
                record(snapshot, metrics);
            }
        });
        self.seen_until = latest;
        metrics.standing().set(counts);
    }
}

/// A signal that is unavailable is no reading.
fn record(snapshot: &Snapshot, metrics: &Metrics) {
    let sockets = metrics.sockets();
    if let Some(queued) = snapshot.send_queue_bytes {
        sockets.send_queue.record(u64::from(queued), &[]);
        if let Some(unsent) = snapshot.unsent_bytes {
            sockets.unacked.record(u64::from(queued.saturating_sub(unsent)), &[]);
        }
    }
    if let Some(srtt_us) = snapshot.srtt_us.filter(|srtt_us| *srtt_us > 0) {
        sockets.rtt.record(f64::from(srtt_us) / 1e6, &[]);
    }
}
