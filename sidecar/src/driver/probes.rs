//! The driver's part in own window probes: what was asked for is sent once the source has nothing more to say.

use ackbeat_liveness::{ProbeWanted, Timestamp};

use crate::probe::Prober;

/// Probes that wait for the end of a turn at most.
const WANTED_MAX: usize = 1_024;
/// Numbers that were read longer ago than this may no longer be those of the socket, in milliseconds.
const STALE_MS: u64 = 250;

/// What became of the own window probes that the engine asked for. Together they are
/// [`EngineCounters::probes_wanted`](ackbeat_liveness::EngineCounters::probes_wanted), once the turn is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounters {
    /// Handed to the kernel.
    pub sent: u64,
    /// Refused by the kernel.
    pub failed: u64,
    /// Not sent, because this process came too late to it.
    pub stale: u64,
    /// Not sent, because there is no raw socket, or no room in the queue.
    pub dropped: u64,
}

/// Probes that are wanted, and who sends them.
#[derive(Default)]
pub(super) struct Probes {
    pub(super) prober: Option<Box<dyn Prober>>,
    pub(super) counters: ProbeCounters,
    wanted: Vec<ProbeWanted>,
}

impl Probes {
    pub(super) fn want(&mut self, wanted: ProbeWanted) {
        if self.prober.is_none() || self.wanted.len() >= WANTED_MAX {
            self.counters.dropped += 1;
        } else {
            self.wanted.push(wanted);
        }
    }

    /// The next one to send.
    pub(super) fn next(&mut self) -> Option<ProbeWanted> {
        self.wanted.pop()
    }

    /// Sends one at `now`. Returns whether it left.
    pub(super) fn send(&mut self, wanted: &ProbeWanted, now: Timestamp) -> bool {
        if now.ms_since(wanted.at) > STALE_MS {
            self.counters.stale += 1;
            return false;
        }
        match self.prober.as_mut().map(|prober| prober.send(wanted)) {
            Some(Ok(())) => {
                self.counters.sent += 1;
                return true;
            }
            Some(Err(error)) => {
                self.counters.failed += 1;
                tracing::debug!(target: "ackbeat::probe", connection = wanted.connection.0, %error, "not sent");
            }
            None => self.counters.dropped += 1,
        }
        false
    }
}
