//! What the person at the terminal sees: a line for each stage that ended, and how long the rest will take.
#![expect(clippy::print_stderr, reason = "progress belongs on the terminal, beside what the program prints")]

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Without a terminal the state is told this often.
const STATUS_INTERVAL: Duration = Duration::from_secs(30);

/// Progress on standard error.
pub(super) struct Progress {
    is_terminal: bool,
    started: Instant,
    told_at: Instant,
    total: usize,
    done: usize,
    failed: usize,
}

impl Progress {
    /// For so many stages.
    #[must_use]
    pub(super) fn new(total: usize) -> Self {
        let now = Instant::now();
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            started: now,
            told_at: now,
            total,
            done: 0,
            failed: 0,
        }
    }

    /// A stage ended for good.
    pub(super) fn ended(&mut self, is_failure: bool, line: &str) {
        self.done += 1;
        self.failed += usize::from(is_failure);
        self.line(&format!("[{}/{}] {line}", self.done, self.total));
    }

    /// Says something above the state.
    pub(super) fn line(&self, line: &str) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
        eprintln!("arena: {line}");
    }

    /// Tells the state, if it is time to.
    pub(super) fn status(&mut self, running: &str, left_s: f64) {
        let now = Instant::now();
        if !self.is_terminal && now.duration_since(self.told_at) < STATUS_INTERVAL {
            return;
        }
        self.told_at = now;
        let failed = if self.failed > 0 { format!(", {} failed", self.failed) } else { String::new() };
        let state = format!(
            "{} of {} stages{failed}; {} gone, about {} left; playing {running}",
            self.done,
            self.total,
            minutes(self.started.elapsed().as_secs_f64()),
            minutes(left_s)
        );
        if self.is_terminal {
            let shown: String = state.chars().take(150).collect();
            eprint!("\r\x1b[K{shown}");
            // A terminal that is gone must not end the run.
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("arena: {state}");
        }
    }

    /// Ends the state's line.
    pub(super) fn finish(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
            let _ = std::io::stderr().flush();
        }
    }
}

/// `3:07`.
#[must_use]
pub(super) fn minutes(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole seconds of a run")]
    let seconds = seconds.max(0.0).round() as u64;
    if seconds >= 3_600 {
        format!("{}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
    } else {
        format!("{}:{:02}", seconds / 60, seconds % 60)
    }
}
