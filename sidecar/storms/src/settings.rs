//! Times and thresholds.

/// Times and thresholds of a [`StormWatch`](crate::StormWatch).
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Connections that were found by a pass count as arrivals, dated by the pass: for a source that sees no connection open
    /// (mode `sock_diag`). What exists at the start never counts.
    pub found: bool,
    /// Width of a bin of the arrival series, in milliseconds. A rate is counted over four of them.
    pub bin_ms: u64,
    /// Closes within this many milliseconds are one burst.
    pub burst_ms: u64,
    /// Closes of a burst at least.
    pub burst_closes: u32,
    /// A storm begins at most this many milliseconds after a burst of closes.
    pub after_burst_ms: u64,
    /// Arrivals in four bins at least, for a storm.
    pub storm_arrivals: u32,
    /// A storm is over when arrivals were at their baseline for so many milliseconds.
    pub calm_ms: u64,
    /// What lasts longer than this, in milliseconds, is no storm any more but the port's new baseline.
    pub storm_max_ms: u64,
    /// The baseline's time constant, in milliseconds.
    pub baseline_ms: u64,
    /// Before so many milliseconds nothing is known to be usual: there is no burst and no storm.
    pub warm_up_ms: u64,
    /// Width of a bin in which the resonance is looked for, in milliseconds.
    pub resonance_bin_ms: u64,
    /// Shortest period that is looked for, in milliseconds.
    pub period_min_ms: u64,
    /// Longest period that is looked for, in milliseconds.
    pub period_max_ms: u64,
    /// Arrivals after a burst of closes are compared with each other within this many milliseconds.
    pub window_ms: u64,
    /// Nothing came from any peer for so many milliseconds: an outage.
    pub outage_silence_ms: u64,
    /// So many retransmission timeouts in a row that a peer did not answer count as unreachable here, whatever its verdict: on
    /// a path that loses by chance the verdict takes more of them, but chance does not silence all peers at once.
    pub outage_timeouts: u8,
    /// Peers that must be unreachable at once for an outage.
    pub outage_peers: u32,
}

impl Default for Settings {
    /// Chosen for retries of seconds: a bin is an eighth of the shortest usual interval (2 s), a window holds ten periods of
    /// 3 s and four of the longest that is looked for.
    fn default() -> Self {
        Self {
            found: false,
            bin_ms: 250,
            burst_ms: 10_000,
            burst_closes: 5,
            after_burst_ms: 60_000,
            storm_arrivals: 5,
            calm_ms: 10_000,
            storm_max_ms: 600_000,
            baseline_ms: 300_000,
            warm_up_ms: 20_000,
            resonance_bin_ms: 50,
            period_min_ms: 750,
            period_max_ms: 15_000,
            window_ms: 30_000,
            outage_silence_ms: 1_000,
            outage_timeouts: 3,
            outage_peers: 3,
        }
    }
}

impl Settings {
    /// For a world in which everything but TCP's own timers runs `factor` times as fast: each time is divided by it, but for
    /// [`Settings::outage_silence_ms`], which is about those timers.
    #[must_use]
    pub fn compressed(&self, factor: u32) -> Self {
        let scaled = |ms: u64| (ms / u64::from(factor.max(1))).max(1);
        Self {
            bin_ms: scaled(self.bin_ms),
            burst_ms: scaled(self.burst_ms),
            after_burst_ms: scaled(self.after_burst_ms),
            calm_ms: scaled(self.calm_ms),
            storm_max_ms: scaled(self.storm_max_ms),
            baseline_ms: scaled(self.baseline_ms),
            warm_up_ms: scaled(self.warm_up_ms),
            resonance_bin_ms: scaled(self.resonance_bin_ms),
            period_min_ms: scaled(self.period_min_ms),
            period_max_ms: scaled(self.period_max_ms),
            window_ms: scaled(self.window_ms),
            ..self.clone()
        }
    }
}
