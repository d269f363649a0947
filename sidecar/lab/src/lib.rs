//! A network in a box, for experiments and tests: real kernels' TCP, real WebSockets, and a path that loses packets.
//!
//! | module | what |
//! |---|---|
//! | [`namespace`] | network namespaces, made under unique names and removed on drop |
//! | [`network`] | a host, a router and a client in a row; the router can cut a path |
//! | [`relay`] | the router's packets take a way through this process: delay, loss, cuts |
//! | [`host`] | a WebSocket host with a heartbeat |
//! | [`crowd`] | many clients on one thread that come back when their connection is over |
//! | [`journal`] | a list that one side appends to and the other side waits on |
//! | [`clock`] | the clock that all of them share |
//! | [`command`] | programs that are run to their end: iproute2, nftables |
//!
//! It needs root, `/dev/net/tun`, iproute2, nftables and util-linux (`chrt`). Everything that was made is removed when its
//! value is dropped.

pub mod clock;
pub mod command;
pub mod crowd;
pub mod error;
pub mod host;
pub mod journal;
pub mod namespace;
pub mod network;
pub mod relay;

pub use error::LabError;
