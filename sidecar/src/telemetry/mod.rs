//! What leaves the sidecar: spans ([`spans`], [`pipeline`]) and log lines ([`logs`]).
//!
//! Nothing here ever makes the driver wait. Spans go into a bounded queue that a thread of its own exports
//! ([`pipeline`]); log lines go into another ([`logs`]). What finds no room is counted.

pub mod attributes;
mod batches;
pub mod console;
pub mod environment;
pub mod leaks;
pub mod logs;
pub(crate) mod otlp;
mod outage;
pub mod own_spans;
pub mod pipeline;
mod span_queue;
pub mod spans;
pub mod storms;
pub mod wall_clock;

mod close_waits;
mod emitter;
mod end_spans;

pub use close_waits::SPANS_PER_CENSUS;
pub use emitter::Telemetry;

#[cfg(test)]
pub(crate) mod test_records;
#[cfg(test)]
mod tests;
