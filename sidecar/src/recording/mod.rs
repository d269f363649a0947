//! Recordings: what the engine was told, one JSON object a line.
//!
//! ```text
//! {"ackbeat_recording":1,"version":"0.1.0","mode":"ebpf","policy":"default","thresholds":{…},"ticks":true,"began_at":…,"began_unix_ns":…}
//! {"input":"opened",…}
//! {"tick":{"due":…,"at":…}}
//! {"gap":3}
//! {"rules":{"at":…,"policy":"fast","thresholds":{…},"leaks":{…},"deployment":{…}}}
//! {"shut_down":…}
//! ```
//!
//! No payload is in it. What a Ping or Pong carried is written as its length and a hash under a random key that is
//! nowhere kept, because a Pong's place is found by equality alone; reasons of Close frames stay.
//!
//! A recording that has grown to its bound goes on in a new segment, and the one before is kept as `FILE.1`. A segment
//! can be replayed by itself: it begins with its own header and, as `{"carried":{"input":"opened",…}}`, with the
//! connections that were open then, found at that moment, each with the last reading of its socket (which is older than the
//! segment). What else they had shown before is lost to it: when they opened, Pings that were outstanding, the schedule
//! learned for their port, and closes whose post-mortem was still running.
//! Nothing is lost to a replay of both segments, oldest first, which leaves the carried lines out.
//!
//! A census of all sockets (`{"input":"census",…}`) holds what changed since the one before: sockets that stay idle or stay
//! busy cost nothing. Every sixtieth is whole (some 350 bytes for each of at most 16,384 sockets), so that a segment that is
//! replayed by itself knows all of them after ten minutes at the latest.
//!
//! A `tick` is a call of `handle_timeout`: when it was due and when it came, so that a pause of the sidecar is the same
//! pause in the replay. A `gap` says how many lines are missing there.
//! `rules` are what the configuration said when it was read anew. A replay under the recorded thresholds follows them; one under
//! others keeps its own.
//!
//! A recording without ticks (made by a test, say) is replayed as if the engine had always been called on time. All times are nanoseconds of the recorded
//! machine's monotonic clock, but `began_unix_ns`.

mod carried;
mod payload;
mod reader;
mod recorder;
pub mod replay;

use ackbeat_liveness::leak::LeakSettings;
use ackbeat_liveness::{Deployment, Input, Policy, Timestamp};
use serde::{Deserialize, Serialize};

use crate::reload::Rules;
pub use reader::{ReadError, Reader};
pub use recorder::{RecordError, Recorder};

/// Version of the format.
pub const FORMAT: u32 = 1;

/// First line of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub ackbeat_recording: u32,
    /// Version of ackbeat.
    pub version: String,
    /// How evidence was gathered (`ackbeat.mode`).
    pub mode: String,
    /// Name of the policy.
    pub policy: String,
    /// The thresholds in force.
    pub thresholds: Policy,
    /// The thresholds for leaks in force.
    #[serde(default)]
    pub leaks: LeakSettings,
    /// What whoever deploys said. Recordings made before it was there were judged by its defaults.
    #[serde(default)]
    pub deployment: Deployment,
    /// Whether every call of `handle_timeout` is in it, as a `tick`.
    #[serde(default)]
    pub ticks: bool,
    /// When it began, in nanoseconds of the monotonic clock.
    pub began_at: Timestamp,
    /// When it began, in nanoseconds since 1970.
    pub began_unix_ns: u64,
    /// Which part of a longer recording it is; `None` where it is the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<Segment>,
}

/// A part of a recording that is not its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// `began_unix_ns` of the first segment.
    pub run_began_unix_ns: u64,
    /// Which one: 1 is the second.
    pub number: u64,
    /// Connections that were open at its start and for which its start had no room.
    pub left_out: u64,
}

/// Any other line.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// The engine was told this.
    Input(Box<Input>),
    /// The engine was told that time had passed.
    Tick(Tick),
    /// This many lines are missing here.
    Gap(u64),
    /// The sidecar stopped.
    ShutDown(Timestamp),
    /// Other rules are in force from here on.
    Rules(Box<Rules>),
}

/// A call of `handle_timeout`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    /// When it was due.
    pub due: Timestamp,
    /// When it came.
    pub at: Timestamp,
}

/// The lines that are no inputs, as they are written.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mark {
    Tick(Tick),
    Gap(u64),
    ShutDown(Timestamp),
    Rules(Box<Rules>),
}

/// A connection that was open at the start of a segment.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Carried<T> {
    carried: T,
}

#[cfg(test)]
mod tests;
