//! The liveness engine of ackbeat: **is the peer gone, or is it only behind?**
//!
//! Evidence goes in as [`Input`]s that carry their own time; verdict changes and close records come out as
//! [`Output`]s. There is no clock, no IO, no async and no unsafe code in here, and the crate needs `core` and
//! `alloc` only: the sidecar, the arena, replays and fuzzers all run this same engine.
//!
//! The four calls, in the style of a sans-IO protocol:
//!
//! | call | meaning |
//! |---|---|
//! | [`Engine::handle_input`] | something was seen |
//! | [`Engine::handle_timeout`] | this much time has passed |
//! | [`Engine::poll_timeout`] | when the engine wants to be called next |
//! | [`Engine::poll`] | what the engine has decided |
//!
//! and one question for the driver: [`Engine::next_sample_at`], when a pass of the sampler is worth its cost.
//!
//! An event costs well below a microsecond and allocates nothing once a connection's memory has grown to its bounds
//! (16 Pings, 8 Pongs, 64 verdict changes). A connection with a heartbeat takes 2.9 kB, its share of all tables included;
//! one whose memory is full, with the largest Pings, 7.4 kB. `cargo bench -p ackbeat-liveness` and the test target
//! `allocations` measure it: the bounds there are 2 kB and 8 kB.
//!
//! Inside, from facts to decisions:
//!
//! | module | decides |
//! |---|---|
//! | `evidence` | which rungs of the ladder were seen, and when |
//! | `loss` | whether the path loses segments by chance |
//! | `heartbeat` | which Pings are unanswered, where they are, how many the host has missed |
//! | `peer_heartbeat` | where the peer asks: how often it does, and whether it is late |
//! | `schedule` | when the Pings of a port are due: interval, phase, tolerance, and whether anybody answers |
//! | `probing` | when a peer behind a closed window is worth a question of our own, and what its silence proves |
//! | `middle_hop` | whether Pongs lag as those from behind a proxy do |
//! | `verdict` | what that adds up to now |
//! | `termination` | who was told to stop |
//! | `closing` | who closed, how and why |
//! | `postmortem` | what the socket showed afterwards |
//! | `assessment` | what to think of the close |
//! | `reconnects` | which new connection is the return of a peer whose last one ended |
//! | `connection` | one connection through all of it |
//! | [`leak`] | which sockets have no use any more |
//! | `agenda` | whose deadline is next |
//! | `engine` | all connections, their clocks, and what they want from the driver |
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod agenda;
mod assessment;
mod closing;
mod connection;
mod deployment;
mod engine;
mod evidence;
mod heartbeat;
mod input;
pub mod leak;
mod loss;
mod middle_hop;
mod output;
mod peer_heartbeat;
mod policy;
mod postmortem;
mod probing;
mod reconnects;
mod schedule;
mod sequence;
mod termination;
mod time;
mod verdict;

pub use deployment::{Deployment, FINAL_CODES_DEFAULT, PeerIsProxy};
pub use engine::{CONNECTION_LIMIT_DEFAULT, ConnectionInfo, Engine, EngineCounters, EvidenceDates};
pub use input::*;
pub use output::*;
pub use policy::*;
pub use probing::{INTERVAL_MIN_MS, WindowProbes};
pub use reconnects::RECONNECT_WITHIN_MS;
pub use sequence::Seq;
pub use time::Timestamp;
