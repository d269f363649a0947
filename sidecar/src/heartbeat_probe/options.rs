//! What a probe is asked to do.

use std::path::PathBuf;
use std::time::Duration;

use ackbeat_liveness::HeartbeatProfile;

use super::Target;

/// Answers before the mute unless told otherwise. Three gaps make a median; with the two Pings that a watchdog which counts
/// to two sends in vain, that is six.
pub const MUTE_AFTER_DEFAULT: u64 = 4;
/// How far apart the host's heartbeats are taken to be until they were seen: the longest interval in wide use (the recipe of
/// the npm package `ws`, Phoenix, Spring's STOMP broker are at 30 s or below).
pub(super) const INTERVAL_HINT_DEFAULT: Duration = Duration::from_secs(30);
/// A handshake must be done within this time, whatever else was asked for.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(30);
/// Intervals that a heartbeat is waited for while they are answered.
const INTERVALS_TO_A_PING: u32 = 3;
/// Intervals that the host's close is waited for. Watchdogs in use give up after one and a half to three.
const INTERVALS_TO_THE_KILL: u32 = 6;
/// Added to both, for the way there and a busy host.
const GRACE: Duration = Duration::from_secs(1);

/// How heartbeats are recognised and answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProfileChoice {
    /// Whatever the host asks with is answered: Ping frames, text `ping`, JSON, engine.io once its first packet was
    /// seen. Where the client asks first (Phoenix, SignalR) nothing can be seen: those must be named.
    #[default]
    Auto,
    /// This one. In a text profile Ping frames are answered after the mute too, as a browser would whose page
    /// hangs: they are not what is measured.
    Only(HeartbeatProfile),
}

impl ProfileChoice {
    /// The profile that was named.
    pub(super) const fn named(self) -> Option<HeartbeatProfile> {
        match self {
            Self::Auto => None,
            Self::Only(profile) => Some(profile),
        }
    }
}

/// Which certificates `wss://` trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those that the system trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` name others).
    #[default]
    System,
    /// Those in this PEM file, and no others.
    File(PathBuf),
    /// Any certificate, of anybody, for any name: whoever is on the path can be the host.
    Anything,
}

/// What a probe is asked to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to connect to, and the request.
    pub target: Target,
    /// Which certificates are trusted.
    pub trust: Trust,
    /// How heartbeats look.
    pub profile: ProfileChoice,
    /// The probe sends the profile's heartbeat itself, every [`Options::interval_hint`], also where the host usually asks.
    pub ask: bool,
    /// Answers, or own heartbeats, before the mute.
    pub mute_after: u64,
    /// How far apart heartbeats are taken to be. Waiting times follow from it.
    pub interval_hint: Option<Duration>,
    /// The probe ends after this time at the latest, from the start of the TCP connection on.
    pub timeout: Option<Duration>,
    /// Bytes a second to read instead of falling mute.
    pub slow_read: Option<u64>,
    /// Text messages to send once the WebSocket is open.
    pub send: Vec<String>,
}

impl Options {
    /// The defaults, for one target.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            trust: Trust::System,
            profile: ProfileChoice::Auto,
            ask: false,
            mute_after: MUTE_AFTER_DEFAULT,
            interval_hint: None,
            timeout: None,
            slow_read: None,
            send: Vec::new(),
        }
    }

    /// How long the next heartbeat is waited for, if they are `interval` apart as far as is known.
    pub(super) fn ping_patience(&self, interval: Option<Duration>) -> Duration {
        self.longest_interval(interval) * INTERVALS_TO_A_PING + GRACE
    }

    /// How long the end is waited for after the mute. A short interval that was learned does not shorten it: many hosts Ping
    /// often and give up late.
    pub(super) fn kill_patience(&self, interval: Option<Duration>) -> Duration {
        self.longest_interval(interval) * INTERVALS_TO_THE_KILL + GRACE
    }

    fn longest_interval(&self, interval: Option<Duration>) -> Duration {
        self.interval_hint.unwrap_or(INTERVAL_HINT_DEFAULT).max(interval.unwrap_or_default())
    }
}
