//! What the kernel says: run-time statistics of its programs, and time and memory of processes.

pub(crate) mod bpf;
pub(crate) mod program;
pub(crate) mod usage;
