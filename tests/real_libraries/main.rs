//! Rank `namespaces`: a stand-in detector kills when the library that it stands for kills, and when the kernel does whose
//! timers it stands for.
//!
//! Real hosts, each with a library's own heartbeat, and real sockets with `TCP_USER_TIMEOUT` or `SO_KEEPALIVE`, face peers
//! that are well, gone, behind or silent, while `ackbeat run --record` records beside them. The stand-in judges the
//! recording. Where what it needs is in the recording, it is given nothing else. engine.io's packets are not, nor what waits in
//! a host's own memory, nor when a host was late to send a Ping behind a burst: there it is given what the host printed of
//! its ticks and Pongs.
//!
//! `cargo test … -- --nocapture` shows the tables; README.md has a copy.

mod judge;
mod kernel;
mod libraries;
mod table;
