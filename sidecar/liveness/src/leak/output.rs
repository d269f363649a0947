//! What is told of leaks.

use alloc::vec::Vec;

use super::census::Owner;
use super::group::GroupKey;
use super::settings::ReapMode;
use crate::{ConnectionId, Endpoints, Timestamp};

/// What a suspicion rests on (`ackbeat.leak.sign`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum LeakSign {
    /// The count stands at its own maximum, or at a quota, and its sockets carry nothing.
    FlatCount,
    /// The peer has closed and the host has not.
    CloseWait,
    /// Dialled sockets outlive the connections that they served.
    Orphans,
}

impl LeakSign {
    /// Every value.
    pub const ALL: &[Self] = &[Self::FlatCount, Self::CloseWait, Self::Orphans];

    /// The stable word for it, as spans and logs show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FlatCount => "flat_count",
            Self::CloseWait => "close_wait",
            Self::Orphans => "orphans",
        }
    }
}

/// How sure it is that two sockets belong together (`ackbeat.leak.certainty`). It is never known: the proxy alone knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Certainty {
    /// Something speaks for it: the last request came and went at the same time.
    Possible,
    /// One process owns both, requests and answers passed through both at the same times, and no other socket fits.
    Likely,
}

impl Certainty {
    /// Every value.
    pub const ALL: &[Self] = &[Self::Possible, Self::Likely];

    /// The stable word for it, as spans and logs show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Possible => "possible",
            Self::Likely => "likely",
        }
    }
}

/// A connection that its peer closed, and the dialled socket that served it and lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Pair {
    /// The connection that its peer closed.
    pub downstream: ConnectionId,
    /// When its peer closed it.
    pub closed_at: Timestamp,
    /// The dialled socket.
    pub upstream: ConnectionId,
    /// How sure it is that the one served the other.
    pub certainty: Certainty,
}

/// Something is suspected, or no longer.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LeakChange {
    /// When it was decided.
    pub at: Timestamp,
    /// It is suspected; cleared otherwise.
    pub suspected: bool,
    /// What it rests on.
    pub sign: LeakSign,
    /// The port.
    pub group: GroupKey,
    /// The socket, where it is one.
    pub connection: Option<ConnectionId>,
    /// Its two ends.
    pub endpoints: Option<Endpoints>,
    /// Since when the sign has been there.
    pub since: Timestamp,
    /// Established connections of the port.
    pub count: u32,
    /// Of the last hour, how many there were at most.
    pub maximum: u32,
    /// The configured quota, where there is one.
    pub quota: Option<u32>,
    /// Of them, idle ones.
    pub idle: u32,
    /// All of the idle ones have carried no byte either way for at least this long.
    pub idle_ms: Option<u64>,
    /// Orphans of the port.
    pub orphans: u32,
    /// Some of them, at most 8.
    pub pairs: Vec<Pair>,
    /// The process that owns the sockets, where it is known and the only one.
    pub owner: Option<Owner>,
    /// The process's id, where nothing else is known of it.
    pub pid: Option<u32>,
}

/// A socket is to be destroyed, or would be ([`ReapMode::DryRun`]). Whoever does it looks at the socket again right before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ReapWanted {
    /// When it was decided.
    pub at: Timestamp,
    /// The socket's cookie.
    pub connection: ConnectionId,
    /// Its two ends.
    pub endpoints: Endpoints,
    /// The port whose quota is full.
    pub group: GroupKey,
    /// The quota.
    pub quota: u32,
    /// Established connections of the port.
    pub count: u32,
    /// It is at least this old, in milliseconds.
    pub age_ms: u64,
    /// It has carried no byte either way for this long, in milliseconds.
    pub idle_ms: u64,
    /// It must not have carried a byte for this long when it is destroyed, in milliseconds.
    pub min_idle_ms: u64,
    /// What is to be done.
    pub mode: ReapMode,
}

/// Totals, and how things stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeakCounters {
    /// Censuses that were looked at.
    pub censuses: u64,
    /// Sockets that found no room in a census, summed over all.
    pub sockets_left_out: u64,
    /// Sockets whose port found no room among the groups, summed over all censuses.
    pub groups_left_out: u64,
    /// Closed connections that were forgotten before a dialled socket was compared with them.
    pub closes_left_out: u64,
    /// Suspicions since the start, in the order of [`LeakSign::ALL`].
    pub suspected: [u64; 3],
    /// Suspicions now, in the same order.
    pub suspected_now: [u64; 3],
    /// Sockets that were asked to be destroyed, or would have been.
    pub reaps_wanted: u64,
}
