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
    /// A Pong is in time for this long after its Ping was acknowledged.
    pub pong_budget_ms: u64,
    /// `unreachable` needs this many unanswered retransmission timeouts of the oldest outstanding segment …
    pub unreachable_retransmits: u8,
    /// … and nothing from the peer for at least this long while data was outstanding.
    pub unreachable_floor_ms: u64,
    /// `unreachable` justifies a kill once nothing came for this long.
    pub unreachable_after_ms: u64,
    /// On a path where three retransmission timeouts healed within the last minute, `unreachable` and `silent` justify a
    /// kill after this at the earliest.
    pub lossy_after_ms: u64,
    /// `silent` justifies a kill once the oldest answered-by-nothing Ping was acknowledged this long ago.
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
    /// For hosts that prefer to keep a connection: never kills through an outage of 5 s.
    #[must_use]
    pub const fn default_policy() -> Self {
        Self {
            // The longest gap between ACKs of a peer that reads 5 kB/s was 1.3 s.
            fresh_ms: 2_000,
            // A stopped process's kernel acknowledges within 58 ms; what its application owes has seconds.
            pong_budget_ms: 5_000,
            // RFC 9293 section 3.8.6.1 forbids reading one unanswered probe as death. On a LAN the third timeout of
            // the oldest segment is over after 1.7 s, at 200 ms of round-trip time after 3.3 s.
            unreachable_retransmits: 3,
            unreachable_floor_ms: 1_000,
            // After an outage of 5 s the first ACK comes with the next retransmission, at 6.7 s.
            unreachable_after_ms: 10_000,
            // At 20 % loss each way 15 s without an answer were seen by chance alone: six timeouts, each twice as long
            // as the one before.
            lossy_after_ms: 60_000,
            // Four Pong budgets.
            silent_after_ms: 20_000,
            // A browser that is busy with 28 MB reads nothing for 7 s and is well again.
            stalled_after_ms: 60_000,
            // A trickle of a byte every 10 s stays below this, a reader of 5 kB/s is far above.
            min_progress_bytes: 1_024,
            progress_window_ms: 30_000,
            // Six retransmissions of a LAN: whoever is there answers one of them.
            postmortem_window_ms: 10_000,
            // Just below the smallest retransmission timeout (`TCP_RTO_MIN`, 200 ms).
            sample_interval_ms: 200,
            late_tick_ms: 1_000,
        }
    }

    /// For hosts that prefer to know first: accepts that an outage of some seconds ends a connection.
    #[must_use]
    pub const fn fast_policy() -> Self {
        Self {
            pong_budget_ms: 3_000,
            unreachable_after_ms: 3_000,
            lossy_after_ms: 15_000,
            silent_after_ms: 8_000,
            stalled_after_ms: 20_000,
            progress_window_ms: 15_000,
            ..Self::default_policy()
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::default_policy()
    }
}
