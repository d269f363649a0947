//! Who comes back, how many at once, and whether they come in lock-step.
//!
//! [`StormWatch`] stands beside the engine: it is told what the engine is told ([`Fact`]) and what the engine decides
//! ([`ackbeat_liveness::Output`]), and says when a *reconnect storm* began and ended on a listening port, when an *outage*
//! did, and at which period clients come back. No IO, no clock, no async, no unsafe: a replay decides what was decided in life.
//!
//! What the data can show, and what it cannot:
//!
//! - An **arrival** is a connection that was established (the peer dialled). An attempt that never reached the pod is not
//!   seen by anybody here: during an outage the arrivals are zero, whatever the clients do.
//! - Of connections that were found only later (older than the sidecar) the time of arrival is unknown: they are none. In mode
//!   `sock_diag` everything is found, by a pass every 500 ms; [`Settings::found`] counts those, dated by their pass.
//! - Records that were lost, and time that the sidecar slept through, are *unknown*: no storm begins in them, and no baseline
//!   learns from them.
//!
//! | module | decides |
//! |---|---|
//! | `fact` | what is worth knowing of an input |
//! | `rate` | arrivals and closes in bins of time, their baselines, and when they leave them |
//! | `resonance` | the period of lock-step retries, and whether it is more than chance |
//! | `outage` | when nothing comes from any peer of a port |
//! | `port` | one listening port through all of it |
//! | `watch` | all ports |
#![forbid(unsafe_code)]

mod fact;
mod outage;
mod port;
mod rate;
mod resonance;
mod settings;
mod watch;

pub use fact::Fact;
pub use outage::Outage;
pub use port::{CAUSES_MAX, PEERS_MAX, PortArrivals, Storm, StormBegan, StormEnd};
pub use resonance::{Resonance, WINDOWS_MIN};
pub use settings::Settings;
pub use watch::{PORTS_MAX, StormEvent, StormWatch, Totals};
