//! Which facts a recording has, which a detector needs, and why one does not judge.

use core::fmt;

/// Which kinds of facts are to be had about a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Heartbeat frames on the wire ([`Input::Frame`](ackbeat_liveness::Input::Frame)).
    pub frames: bool,
    /// What the host reported ([`Report`](crate::Report)).
    pub reports: bool,
    /// Readings of the kernel's accounting ([`Input::Sample`](ackbeat_liveness::Input::Sample)).
    pub samples: bool,
}

impl Evidence {
    /// All of it.
    pub const ALL: Self = Self { frames: true, reports: true, samples: true };
}

/// What a detector needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Pings and Pongs: as frames on the wire, or as the host reported them.
    Heartbeat,
    /// What only the host can report.
    Reports,
    /// Readings of the kernel's accounting.
    Samples,
}

impl Need {
    /// Whether it is met.
    #[must_use]
    pub const fn is_met(self, evidence: Evidence) -> bool {
        match self {
            Self::Heartbeat => evidence.frames || evidence.reports,
            Self::Reports => evidence.reports,
            Self::Samples => evidence.samples,
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Heartbeat => "wire frames or application reports",
            Self::Reports => "application reports",
            Self::Samples => "kernel samples",
        })
    }
}

/// Why a detector does not judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotJudged {
    /// The recording lacks a kind of fact altogether.
    #[error("the recording has no {0}")]
    Missing(Need),
    /// The wire parser lost its place; it judges again once the place is found.
    #[error("the wire parser lost its place, so a Pong may have passed unseen")]
    FramesLost,
    /// No Ping of the host was seen yet, so nothing tells whether one would be answered.
    #[error("no Ping of the host was seen")]
    NoPing,
    /// Its wait begins once everything before its Ping was handed to the kernel, and only the host knows when that was.
    #[error(
        "bytes were queued, and without application reports nothing tells whether the host held more of them itself"
    )]
    BacklogUnknown,
    /// The socket was idle for longer than the peer has to answer keepalive probes, and the host's kernel sent none.
    #[error(
        "the socket was idle and its kernel sent no keepalive probe, so nothing tells whether one would be answered"
    )]
    NotProbed,
    /// Nothing was recorded of the connection for so long that its time was not played to the end: a stray date.
    #[error("nothing was recorded of the connection for too long")]
    NothingSeen,
}
