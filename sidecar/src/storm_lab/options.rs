//! The experiment's times.

use std::path::PathBuf;
use std::time::Duration;

/// The experiment. All times are uncompressed.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Clients of each fleet.
    pub clients: u32,
    /// How long it is played.
    pub duration: Duration,
    /// From the beginning of one outage to the next one's.
    pub every: Duration,
    /// How long an outage is.
    pub outage: Duration,
    /// Probability that a packet is lost, each way.
    pub loss: f64,
    /// Everything but TCP's own timers runs so many times as fast.
    pub compression: u32,
    /// Decides everything random.
    pub seed: u64,
    /// Where the recordings stay; nowhere if `None`.
    pub keep: Option<PathBuf>,
}

/// The fixed interval between attempts.
pub const FIXED_RETRY: Duration = Duration::from_secs(3);
/// The first bound of the full-jitter back-off, and its last.
pub const JITTER_BASE: Duration = Duration::from_secs(1);
/// The last bound of the back-off.
pub const JITTER_CAP: Duration = Duration::from_secs(30);
/// After so many failures in a row a client with back-off gives up.
pub const JITTER_ATTEMPTS_MAX: u32 = 8;
/// The host's heartbeat.
pub const INTERVAL: Duration = Duration::from_secs(2);
/// The host closes at the tick that finds so many Pings unanswered.
pub const MISSED_MAX: u32 = 3;
/// A client that read nothing for so long takes its connection for dead.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// An attempt is given up after this time: before TCP's own first retransmission of a SYN (1 s, RFC 6298), so that what comes
/// back is the client's retry, and not the kernel's.
pub const ATTEMPT_DEADLINE: Duration = Duration::from_millis(800);
/// Before the first outage: everybody connects, and what is usual is learned.
pub const BEFORE: Duration = Duration::from_secs(25);
/// Round-trip time of the path. It is not compressed.
pub const ROUND_TRIP: Duration = Duration::from_millis(10);

impl Options {
    /// A time of the experiment as it is played.
    #[must_use]
    pub fn played(&self, time: Duration) -> Duration {
        time / self.compression.max(1)
    }
}
