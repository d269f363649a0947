//! What the kernel programs say of themselves while somebody debugs them (aya-log), as `tracing` events.
//!
//! Off unless the filter lets the target [`TARGET`] through at level debug (`RUST_LOG=ackbeat::kernel_programs=debug`).
//! The level is a constant of the object then, so that the verifier removes the statements where it is off: they cost
//! nothing, not even an instruction.

use aya::Ebpf;
use aya_log::{EbpfLogger, Level};

use super::error::LoadError;

/// Target of the events.
pub const TARGET: &str = "ackbeat::kernel_programs";

/// The level that the object is loaded with, a number of [`Level`]; 0 is off.
pub(super) fn level() -> u8 {
    if tracing::enabled!(target: TARGET, tracing::Level::DEBUG) { Level::Debug as u8 } else { 0 }
}

/// Hands lines of the kernel programs on.
struct ToTracing;

impl log::Log for ToTracing {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        tracing::debug!(target: TARGET, line = record.line(), "{}", record.args());
    }

    fn flush(&self) {}
}

/// Lines of the kernel programs, if they were asked for.
pub(super) struct DebugLog(Option<EbpfLogger<ToTracing>>);

impl DebugLog {
    /// Starts reading, before the first program is loaded: the map must outlive them.
    pub(super) fn start(ebpf: &mut Ebpf) -> Result<Self, LoadError> {
        if level() == 0 {
            return Ok(Self(None));
        }
        EbpfLogger::init_with_logger(ebpf, ToTracing)
            .map(|logger| Self(Some(logger)))
            .map_err(|error| LoadError::preparation("reading the kernel programs' log", &error))
    }

    /// Hands on what was said since the last call.
    pub(super) fn flush(&mut self) {
        if let Some(logger) = &mut self.0 {
            logger.flush();
        }
    }
}
