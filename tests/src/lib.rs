//! What the tests and the demo of ackbeat are made of: network namespaces, hosts, clients, the sidecar as a process,
//! and the spans that it prints.
//!
//! Everything waits for conditions with a deadline ([`journal::Journal::wait_for`]); everything that was made is
//! removed when its value is dropped, on a panic too.

pub mod api;
pub mod arena;
pub mod browser;
pub mod client;
pub mod cluster;
pub mod expectations;
pub mod http_get;
pub mod journal;
pub mod libraries;
pub mod metrics_page;
pub mod middle;
pub mod mux;
pub mod node;
pub mod otelite;
pub mod otlp_receiver;
pub mod pair;
pub mod peer;
pub mod process;
pub mod prometheus;
pub mod sidecar;
pub mod socket_statistics;
pub mod sockets;
pub mod spans;
pub mod story;
pub mod story_spans;
pub mod terminal;
pub mod tools;

pub use ackbeat_lab::{clock, crowd, namespace, network, relay};
