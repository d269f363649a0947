//! The second serial port, or a file: one JSON object a line.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::json;

/// What the other side of the port reads; see xtask's `findings`.
const PORT: &str = "/dev/ttyS1";
/// Names a file instead of the port, for a machine that runs already.
const FILE: &str = "ACKBEAT_GUEST_RESULTS";

/// Where results are said.
pub(super) struct Results {
    port: File,
}

impl Results {
    /// Opens the port or the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn open() -> Result<Self> {
        let path = std::env::var_os(FILE).map_or_else(|| PathBuf::from(PORT), PathBuf::from);
        let port = OpenOptions::new().append(true).open(&path);
        Ok(Self { port: port.with_context(|| format!("opening {} failed", path.display()))? })
    }

    /// Says what came of a check: its summary, or why it failed.
    ///
    /// # Errors
    /// If the port is gone.
    pub(super) fn say(&mut self, check: &str, outcome: Result<String>) -> Result<()> {
        let (summary, problem) = match outcome {
            Ok(summary) => (summary, None),
            Err(error) => (String::new(), Some(format!("{error:#}"))),
        };
        self.line(&json!({ "check": check, "summary": summary, "problem": problem }))
    }

    /// Says in which mode the sidecar ran.
    ///
    /// # Errors
    /// If the port is gone.
    pub(super) fn end(&mut self, mode: &str) -> Result<()> {
        self.line(&json!({ "mode": mode }))
    }

    fn line(&mut self, value: &serde_json::Value) -> Result<()> {
        // The end of this process waits until the port has sent it (`tty_port_close_start()`, drivers/tty/tty_port.c).
        writeln!(self.port, "{value}").context("writing a result failed")
    }
}
