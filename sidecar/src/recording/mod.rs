//! Recordings: what the engine was told, one JSON object a line.
//!
//! ```text
//! {"ackbeat_recording":1,"version":"0.1.0","mode":"ebpf","policy":"default","thresholds":{…},"ticks":true,"began_at":…,"began_unix_ns":…}
//! {"input":"opened",…}
//! {"tick":{"due":…,"at":…}}
//! {"gap":3}
//! {"shut_down":…}
//! ```
//!
//! A `tick` is a call of `handle_timeout`: when it was due and when it came, so that a pause of the sidecar is the same
//! pause in the replay. A `gap` says how many lines are missing there.
//! A recording without ticks (made by a test, say) is replayed as if the engine had always been called on time. All times are nanoseconds of the recorded
//! machine's monotonic clock, but `began_unix_ns`.

mod reader;
mod recorder;
pub mod replay;

use ackbeat_liveness::{Input, Policy, Timestamp};
use serde::{Deserialize, Serialize};

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
    /// Whether every call of `handle_timeout` is in it, as a `tick`.
    #[serde(default)]
    pub ticks: bool,
    /// When it began, in nanoseconds of the monotonic clock.
    pub began_at: Timestamp,
    /// When it began, in nanoseconds since 1970.
    pub began_unix_ns: u64,
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
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mark {
    Tick(Tick),
    Gap(u64),
    ShutDown(Timestamp),
}

#[cfg(test)]
mod tests;
