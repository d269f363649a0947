//! `ackbeat check`

use std::io::{self, Write as _};

use super::{CommandError, EXIT_MISSING, runtime, written};
use crate::check::Findings;

/// Prints the table. Returns the exit code: 0 only if `run` would start in full.
///
/// # Errors
/// [`CommandError`] if standard output is gone or there is no runtime to try things in.
pub fn execute() -> Result<u8, CommandError> {
    let findings = runtime()?.block_on(async { Findings::gather() });
    written(io::stdout().lock().write_all(findings.explain().as_bytes()))?;
    Ok(if findings.is_full() { 0 } else { EXIT_MISSING })
}
