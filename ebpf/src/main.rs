//! The kernel programs of ackbeat.
fn main() {}
