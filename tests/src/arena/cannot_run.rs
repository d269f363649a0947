//! A scenario that this machine cannot play.

use std::fmt;

/// What this machine lacks. A row returns it instead of playing; it is counted as not run, with this reason, and never
/// as passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CannotRun(pub String);

impl fmt::Display for CannotRun {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cannot run here: {}", self.0)
    }
}

impl std::error::Error for CannotRun {}

/// The exit code of a stage that cannot be played on this machine.
pub const EXIT_CODE: u8 = 3;
