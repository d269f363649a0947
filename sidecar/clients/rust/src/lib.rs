//! Ask before you kill: a heartbeat for WebSocket servers on tokio that closes only what the ackbeat sidecar calls gone.
//!
//! A server that counts missed Pongs kills clients that are only behind: a Ping that waits behind its own data cannot be
//! answered. [`Heartbeat`] says when to send a Ping and when to close; about a connection whose Pong is late it asks the
//! [`Sidecar`] (`GET /v1/verdict`) first. Where the sidecar cannot be asked, three intervals without a Pong decide.
//!
//! The WebSocket stays in the server's hands. The example `echo_server` has the whole loop for tokio-tungstenite:
//!
//! ```text
//! cargo run --package ackbeat-client --example echo_server -- 127.0.0.1:8080
//! ```

mod heartbeat;
mod sidecar;

pub use heartbeat::{CloseFrame, Decider, Heartbeat, HeartbeatOptions, Next};
pub use sidecar::{AddressError, NoAnswer, Sidecar, Verdict};
