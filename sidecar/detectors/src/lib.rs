//! The liveness detectors that people use today, as pure state machines: no IO, no clock, no async, no unsafe.
//!
//! All of them judge the same facts: what the kernel and the wire said ([`ackbeat_liveness::Input`]), and, where a host
//! told of it, what only the host itself could know ([`Report`]). A detector judges one connection. It never acts: it
//! says when it *would* kill, once.
//!
//! [`Spec`] names a detector with its parameters (`ws-2:interval_ms=30000`), says what it needs and starts it.
//!
//! # A Ping that was never sent
//!
//! A detector is not the host: the Pings that it would have sent are not in the recording, those of the host are. A
//! Ping of its own is mapped onto what was recorded like this (module `own_pings`):
//!
//! - it goes out when it is due, if a Ping of the host was then unanswered or bytes were queued: TCP delivers in order,
//!   so a Ping written at that moment would have been behind them;
//! - otherwise it goes out with the next Ping of the host. A host whose event loop is blocked sends none, so the
//!   detector's timer is as late as it would have been in that host;
//! - it is answered when a Pong comes for a Ping that the host sent at that time or later.
//!
//! So a host that pings more rarely than the detector would can make a detector later than in life, never earlier.
//!
//! Where the host reported its ticks and Pongs, these are the Pings and Pongs. Otherwise those on the wire are.
//!
//! # What bytes came in, and when
//!
//! The kernel's `lrcvtime` ([`last_inbound_at`](ackbeat_liveness::Snapshot::last_inbound_at)) says when the last byte came;
//! readings that show it are taken every 200 ms, and only while something is outstanding. A decision that rests on
//! silence therefore waits for the first reading after its time, and the [`Kill`] carries the time at which the
//! detector would have acted.
#![forbid(unsafe_code)]

mod aiohttp;
mod any_inbound;
mod engine_io;
mod evidence;
mod host_heartbeat;
mod idle_probe;
mod inbound;
mod keepalive;
mod missed_pings;
mod own_pings;
mod phi;
mod python_websockets;
mod rule;
mod spec;
mod user_timeout;
mod window;

use ackbeat_liveness::{ConnectionId, Input, Timestamp};

pub use evidence::{Evidence, Need, NotJudged};
pub use spec::{Parameter, Spec, SpecError};

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
    /// When it would have acted. May lie a little before the fact that proved it: what the kernel had received by then is
    /// known with its next reading.
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

    /// Why it cannot decide at present; `None` while it judges. Its silence then says nothing about the peer.
    fn not_judged(&self) -> Option<NotJudged>;
}
