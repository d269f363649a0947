//! The ackbeat sidecar: sources of evidence, the engine's driver, and the emitters.
//!
//! One straight path: [`source`] (kernel records, wire frames, samples) → [`driver`] → [`ackbeat_liveness`] (pure) →
//! [`telemetry`] (spans, logs) and [`metrics`]. See the README's map of the folders.

pub mod api;
pub mod census;
pub mod check;
pub mod cli;
pub mod commands;
pub mod comparison;
pub mod config;
pub mod connections;
pub mod driver;
pub mod heartbeat;
pub mod heartbeat_probe;
pub mod inject;
pub mod kubernetes;
pub mod listening;
mod memory;
pub mod metrics;
pub mod probe;
pub mod recording;
pub mod reload;
pub mod sandbox;
pub mod source;
pub mod storm_lab;
pub mod telemetry;
pub mod top;
pub mod webhook;
