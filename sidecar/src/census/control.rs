//! The mode of reaping as it is now, and what became of the sockets that were to be destroyed.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use ackbeat_liveness::leak::ReapMode;

/// What became of a socket that was to be destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReapOutcome {
    /// The kernel destroyed it.
    Destroyed,
    /// It would have been: a dry run.
    DryRun,
    /// It carried a byte meanwhile, or is no longer established.
    Refused,
    /// It was gone.
    Gone,
    /// Reaping was switched off meanwhile.
    SwitchedOff,
    /// The kernel refused: `CAP_NET_ADMIN` is missing, or `CONFIG_INET_DIAG_DESTROY`.
    Failed,
    /// Too many waited.
    Dropped,
}

impl ReapOutcome {
    /// Every value.
    pub const ALL: [Self; 7] = [
        Self::Destroyed,
        Self::DryRun,
        Self::Refused,
        Self::Gone,
        Self::SwitchedOff,
        Self::Failed,
        Self::Dropped,
    ];

    /// The stable word for it, as spans, metrics and logs show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Destroyed => "destroyed",
            Self::DryRun => "dry_run",
            Self::Refused => "refused",
            Self::Gone => "gone",
            Self::SwitchedOff => "switched_off",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

/// The kill switch, and totals. The mode only ever goes down.
#[derive(Debug)]
pub struct ReapControl {
    configured: ReapMode,
    mode: AtomicU8,
    counts: [AtomicU64; ReapOutcome::ALL.len()],
}

impl Default for ReapControl {
    fn default() -> Self {
        Self::new(ReapMode::Off)
    }
}

impl ReapControl {
    /// With the mode that is configured.
    #[must_use]
    pub fn new(configured: ReapMode) -> Self {
        Self { configured, mode: AtomicU8::new(configured as u8), counts: Default::default() }
    }

    /// The mode that is configured.
    #[must_use]
    pub const fn configured(&self) -> ReapMode {
        self.configured
    }

    /// The mode now.
    #[must_use]
    pub fn mode(&self) -> ReapMode {
        let now = usize::from(self.mode.load(Ordering::Acquire));
        ReapMode::ALL.get(now).copied().unwrap_or(ReapMode::Off)
    }

    /// Lowers the mode, and gives the one that was there: `to` itself where nothing changed.
    ///
    /// # Errors
    /// The mode now, if `to` is above it: it stays.
    pub fn lower(&self, to: ReapMode) -> Result<ReapMode, ReapMode> {
        let before = self.mode.fetch_min(to as u8, Ordering::AcqRel);
        let before = ReapMode::ALL.get(usize::from(before)).copied().unwrap_or(ReapMode::Off);
        if to > before { Err(before) } else { Ok(before) }
    }

    pub(crate) fn count(&self, outcome: ReapOutcome) {
        if let Some(count) = self.counts.get(outcome as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Totals since the start, in the order of [`ReapOutcome::ALL`].
    #[must_use]
    pub fn totals(&self) -> [(ReapOutcome, u64); ReapOutcome::ALL.len()] {
        ReapOutcome::ALL.map(|outcome| {
            let count = self.counts.get(outcome as usize).map_or(0, |count| count.load(Ordering::Relaxed));
            (outcome, count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_only_goes_down() {
        let control = ReapControl::new(ReapMode::On);
        assert_eq!(control.lower(ReapMode::On), Ok(ReapMode::On), "nothing changed");
        assert_eq!(control.lower(ReapMode::DryRun), Ok(ReapMode::On));
        assert_eq!(control.lower(ReapMode::On), Err(ReapMode::DryRun));
        assert_eq!(control.lower(ReapMode::Off), Ok(ReapMode::DryRun));
        assert_eq!(control.lower(ReapMode::DryRun), Err(ReapMode::Off));
        assert_eq!((control.mode(), control.configured()), (ReapMode::Off, ReapMode::On));
    }
}
