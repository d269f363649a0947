//! The targets, one file each.

use fastrand::Rng;

mod comparisons;
mod detector_lists;
mod detectors;
mod engine;
mod injection;
mod inputs;
mod kernel_records;
mod recordings;
mod settings;
mod sock_diag;
mod wire_model;
mod wire_stream;

/// Something that is fed with made-up bytes.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Makes the bytes of a case.
    pub generate: fn(&mut Rng) -> Vec<u8>,
    /// Runs them and checks what must hold.
    pub run: fn(&[u8]) -> Result<(), String>,
    /// What a case with so many bytes may hold of the allocator's memory at a time, in bytes.
    pub memory_limit_bytes: fn(usize) -> u64,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    engine::TARGET,
    detectors::TARGET,
    kernel_records::TARGET,
    wire_stream::TARGET,
    wire_model::TARGET,
    recordings::TARGET,
    comparisons::TARGET,
    settings::TARGET,
    injection::TARGET,
    detector_lists::TARGET,
    sock_diag::TARGET,
];

/// Gives up with a message unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
use ensure;
