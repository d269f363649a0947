//! The API on the pod's loopback: verdicts for whoever asks before it kills.

pub mod types;
