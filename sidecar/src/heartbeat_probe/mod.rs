//! Measures from outside how long a host bears a client that no longer answers its heartbeat.
//!
//! The probe connects as a client, answers heartbeats for a while and so learns their gap, and then falls mute: it goes on
//! reading at full speed and answers nothing. Or it goes on answering and reads slowly: then it is a living client that
//! is only behind, and a host that closes it kills the living.
//!
//! What the library for WebSockets would do by itself is not wanted here, so only parts of it are used: its handshake
//! and its frame headers. `tungstenite` answers each Ping within `read`, and builds each message in memory up to a
//! limit. Here [`frames`] steps over payloads (a message may have any size, memory stays the same), and [`writer`] alone
//! decides what leaves: it counts the answers, and after the last one nothing that is an answer can follow.

mod connect;
mod error;
mod frames;
mod head;
mod heartbeats;
mod options;
mod report;
mod session;
mod target;
mod tls;
mod writer;

#[cfg(test)]
mod tests;

pub use error::ProbeError;
pub use options::{MUTE_AFTER_DEFAULT, Options, ProfileChoice, Trust};
pub use report::{Close, End, Line, LineError, Report, SlowRead, Who, WireResult};
pub use target::{RequestHeader, Target, TargetError};

use std::fmt;

/// What a probe is about to do, for somebody who watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The WebSocket is open.
    Open {
        /// From the start of the TCP connection on, in milliseconds.
        after_ms: u64,
    },
    /// From here on nothing is answered.
    Muted {
        /// Answers, or own heartbeats, that were sent.
        pongs: u64,
        /// The gap between the host's heartbeats, as learned, in milliseconds.
        median_gap_ms: Option<u64>,
        /// How long the end is waited for, in milliseconds.
        patience_ms: u64,
    },
    /// The slow reading begins.
    SlowRead {
        /// How long it lasts, in milliseconds.
        patience_ms: u64,
    },
    /// The slow reading is over; what is left is read at once, to find the end that may stand behind it.
    Drain,
}

impl fmt::Display for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { after_ms } => write!(formatter, "open after {after_ms} ms"),
            Self::Muted { pongs, median_gap_ms, patience_ms } => {
                write!(formatter, "mute after {pongs} answers")?;
                if let Some(gap) = median_gap_ms {
                    write!(formatter, ", heartbeats every {gap} ms")?;
                }
                write!(formatter, "; waiting {patience_ms} ms for the end")
            }
            Self::SlowRead { patience_ms } => write!(formatter, "reading slowly for {patience_ms} ms"),
            Self::Drain => write!(formatter, "reading what is left, to find the end behind it"),
        }
    }
}

/// Probes a host and tells `watch` of each step.
///
/// # Errors
/// [`ProbeError`] if the host could not be connected to, answered the handshake with something else, or broke the
/// protocol. That the host did not kill is no error: it is the report's result.
pub async fn run(options: &Options, watch: &mut dyn FnMut(Progress)) -> Result<Report, ProbeError> {
    let opened = connect::open(options).await?;
    watch(Progress::Open { after_ms: opened.times.total_ms() });
    session::Session::new(options, opened).run(watch).await
}
