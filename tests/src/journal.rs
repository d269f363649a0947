//! Waiting for conditions.

use std::time::{Duration, Instant};

pub use ackbeat_lab::journal::Journal;
use anyhow::{Result, bail};

/// Asks again and again, until `condition` holds.
///
/// # Errors
/// Names `what` if it did not hold within `deadline`, or what `condition` failed with.
pub fn wait_until(what: &str, deadline: Duration, condition: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_every(Duration::from_millis(10), what, deadline, condition)
}

/// As [`wait_until`], with `pause` between two questions: for those that a program has to be started for.
///
/// # Errors
/// As [`wait_until`].
pub fn wait_every(
    pause: Duration,
    what: &str,
    deadline: Duration,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let until = Instant::now() + deadline;
    loop {
        if condition()? {
            return Ok(());
        }
        if Instant::now() >= until {
            bail!("{what} did not hold within {deadline:?}");
        }
        std::thread::sleep(pause);
    }
}
