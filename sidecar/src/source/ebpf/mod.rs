//! Evidence from the eBPF programs.
