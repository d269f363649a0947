//! Evidence from the eBPF programs.
//!
//! | file | what |
//! |---|---|
//! | `object` | the programs as the build embedded them |
//! | `kernel_types` | where the running kernel keeps what they read |
//! | `loader` | loads and attaches each program by itself |
//! | `selftest` | proves with two loopback connections that every hook sees something |
//! | `neighbor` | leaves out the self-tests of other ackbeats |
//! | `interfaces` | attaches the wire parser to every interface |
//! | `reader` | [`EbpfSource`]: the ring buffer and the sampler |
//! | `convert`, `upgrade`, `clock` | records to the engine's words |
//! | `debug_log` | what the programs say of themselves, for debugging |
//! | `probe` | what this kernel and these privileges allow, for `ackbeat check` |
//! | `error` | why something failed, and the fix |

pub mod clock;
pub mod convert;
pub mod debug_log;
pub mod error;
pub mod interfaces;
pub mod kernel_types;
mod loader;
mod neighbor;
pub mod object;
mod probe;
mod reader;
mod selftest;
mod upgrade;

pub use error::{LoadError, MissingKind, MissingSignal, Step};
pub use loader::EbpfOptions;
pub use probe::{Outcome, Probe, probe};
pub use reader::EbpfSource;
pub use selftest::SelfTest;
