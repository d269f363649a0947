//! The ackbeat sidecar: sources of evidence, the engine's driver, and the emitters.
//!
//! One straight path: [`source`] (kernel records, wire frames, samples) → [`ackbeat_liveness`] (pure) → emitters
//! (spans, logs). See the README's map of the folders.

pub mod source;
