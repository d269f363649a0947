//! When a verdict is reached, and when it justifies a kill.

/// Thresholds of the engine. All times in milliseconds of monotonic time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields, default)
)]
pub struct Policy {
    /// Evidence that is at most this old is fresh.
    pub fresh_ms: u64,
    /// A Pong is in time for this long after its Ping was acknowledged; where the peer asks, its next heartbeat for this long
    /// after two intervals without anything from it.
    pub pong_budget_ms: u64,
    /// `unreachable` needs this many unanswered retransmission timeouts of the oldest outstanding segment (one or
    /// two more where something was lost in the minute before, until the time for a kill has passed) …
    pub unreachable_retransmits: u8,
    /// … and nothing from the peer for at least this long while data was outstanding.
    pub unreachable_floor_ms: u64,
    /// `unreachable` justifies a kill once nothing came for this long.
    pub unreachable_after_ms: u64,
    /// On a path that healed within the last minute from three retransmission timeouts, in two spells at least, or that lost a
    /// segment in ten on and on without a queue, `unreachable` and `silent` justify a kill after this at the earliest.
    pub lossy_after_ms: u64,
    /// `silent` justifies a kill once the oldest answered-by-nothing Ping was acknowledged this long ago, or once a peer that
    /// asks itself has been called silent for this long.
    pub silent_after_ms: u64,
    /// `stalled` justifies a kill once the peer's application has shown no progress for this long.
    pub stalled_after_ms: u64,
    /// Progress below this many bytes …
    pub min_progress_bytes: u64,
    /// … in this window does not hold a connection: a peer that trickles may be killed by policy.
    pub progress_window_ms: u64,
    /// How long after a host-initiated close the socket is watched.
    pub postmortem_window_ms: u64,
    /// While something is outstanding, a pass of the sampler at most this far apart.
    pub sample_interval_ms: u64,
    /// A call of the engine that comes this much after its deadline was late: it opens new windows, expires none.
    pub late_tick_ms: u64,
}

impl Policy {
    /// For hosts that prefer to keep a connection: never kills through an outage of 5 s. Chosen by measurement; the reason for
    /// each number stands beside it in the reference of the settings.
    #[must_use]
    pub const fn default_policy() -> Self {
        Self {
            fresh_ms: 2_000,
            pong_budget_ms: 5_000,
            unreachable_retransmits: 3,
            unreachable_floor_ms: 1_000,
            unreachable_after_ms: 10_000,
            lossy_after_ms: 60_000,
            silent_after_ms: 20_000,
            stalled_after_ms: 60_000,
            min_progress_bytes: 1_024,
            progress_window_ms: 60_000,
            postmortem_window_ms: 10_000,
            sample_interval_ms: 200,
            late_tick_ms: 1_000,
        }
    }

    /// For hosts that prefer to know first: accepts that an outage of some seconds ends a connection.
    #[must_use]
    pub const fn fast_policy() -> Self {
        Self {
            pong_budget_ms: 3_000,
            unreachable_after_ms: 4_000,
            lossy_after_ms: 15_000,
            silent_after_ms: 8_000,
            stalled_after_ms: 30_000,
            progress_window_ms: 30_000,
            ..Self::default_policy()
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::default_policy()
    }
}
