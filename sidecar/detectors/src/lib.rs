//! The liveness detectors that people use today, as pure state machines: no IO, no clock, no async, no unsafe.
//!
//! All of them judge the same facts: what the kernel and the wire said ([`ackbeat_liveness::Input`]), and, where a host
//! told of it, what only the host itself could know ([`Report`]). A detector judges one connection. It never acts: it
//! says when it *would* kill, once.
#![forbid(unsafe_code)]

use ackbeat_liveness::{ConnectionId, Input, Timestamp};

/// One fact about the connection that a detector judges, with its own time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fact<'a> {
    /// What the kernel or the wire said.
    Input(&'a Input),
    /// What the host itself said.
    Report(&'a Report),
}

impl Fact<'_> {
    /// When it was seen.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        match self {
            Self::Input(input) => input.at(),
            Self::Report(report) => report.at,
        }
    }
}

/// What a host knows about one of its connections and neither the kernel nor the wire shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The connection.
    pub connection: ConnectionId,
    /// When.
    pub at: Timestamp,
    /// What.
    pub what: Reported,
}

/// What a host reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reported {
    /// The timer of its heartbeat fired for this connection, and it is about to send a Ping. Reports of a host whose
    /// event loop was blocked come as late as its timer did.
    Tick {
        /// Bytes that wait in the host's own memory and that the kernel has not taken (`bufferedAmount`).
        buffered_bytes: u64,
    },
    /// The host read a Pong.
    Pong,
}

/// A detector's decision to kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    /// When.
    pub at: Timestamp,
    /// Why, in the detector's own terms: `2 Pings unanswered`.
    pub reason: String,
}

/// A detector of one connection.
///
/// Whoever drives it hands it the facts of its connection in the order of their time, calls
/// [`on_timeout`](Self::on_timeout) whenever [`poll_timeout`](Self::poll_timeout) is due before the next fact, and stops
/// at the first [`Kill`].
pub trait Detector: core::fmt::Debug {
    /// Something was seen. Facts of other connections are not handed over.
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill>;

    /// When it wants to be called; `None` while it waits for nothing but facts.
    fn poll_timeout(&self) -> Option<Timestamp>;

    /// This much time has passed.
    fn on_timeout(&mut self, now: Timestamp) -> Option<Kill>;
}
