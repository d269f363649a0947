//! Waiting for conditions.

use std::time::{Duration, Instant};

pub use ackbeat_lab::journal::Journal;
use anyhow::{Result, bail};

/// Asks again and again, until `condition` holds.
///
/// # Errors
/// Names `what` if it did not hold within `deadline`, or what `condition` failed with.
pub fn wait_until(what: &str, deadline: Duration, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let until = Instant::now() + deadline;
    loop {
        if condition()? {
            return Ok(());
        }
        if Instant::now() >= until {
            bail!("{what} did not hold within {deadline:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
