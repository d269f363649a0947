//! What was true in a run, as the runner knows it.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// Version of the file's format.
pub const FORMAT: u32 = 1;

/// What was true in one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// [`FORMAT`].
    pub arena_truth: u32,
    /// Number of the scenario.
    pub row: u8,
    /// Name of the variant; empty where the row has one only.
    pub variant: String,
    /// Seed of everything that is random in it.
    pub seed: u64,
    /// When the stage was ready, in nanoseconds of `CLOCK_MONOTONIC`.
    pub began_at_ns: u64,
    /// When the last thing happened in it.
    pub ended_at_ns: u64,
    /// The peers that are judged. Each is one run.
    pub subjects: Vec<Subject>,
    /// What the host itself knew.
    pub reports: Vec<HostReport>,
    /// Figures that the row itself measured (`arrivals_per_second_peak`), by name.
    #[serde(default)]
    pub figures: std::collections::BTreeMap<String, f64>,
    /// Outages of all subjects at once: when each began and ended, in nanoseconds of `CLOCK_MONOTONIC`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<(u64, u64)>,
}

/// A peer that is judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Subject {
    /// Which one, for people.
    pub name: String,
    /// Its address and port as the host sees them.
    pub peer: SocketAddr,
    /// What it was, from when on; the first entry is the beginning.
    pub states: Vec<StateChange>,
}

/// What a subject was from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateChange {
    /// From when on, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// What.
    pub state: State,
}

/// What a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// There, and well or busy: a kill is false.
    Alive,
    /// There, behind a path that will heal: a kill is false.
    Outage,
    /// Its host is there, its application is not (stopped, hung, deaf): a kill is neither false nor due.
    Hung,
    /// Not there any more: a kill is right, and the sooner the better.
    Gone,
    /// It is gone politely and the host keeps the socket: a leak.
    Leaked,
    /// The connection is over: nothing is judged from here on.
    Ended,
}

/// What the host itself knew about one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReport {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// The connection's peer.
    pub peer: SocketAddr,
    /// What.
    #[serde(flatten)]
    pub what: HostKnowledge,
}

/// What a host knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum HostKnowledge {
    /// Its heartbeat's timer fired and it is about to send a Ping.
    Tick {
        /// Bytes that wait in its own memory.
        buffered_bytes: u64,
    },
    /// It read a Pong.
    Pong,
}

impl Subject {
    /// What it was at `at_ns`; before the beginning, what it began as.
    #[must_use]
    pub fn state_at(&self, at_ns: u64) -> Option<State> {
        let later = self.states.iter().rev().find(|change| change.at_ns <= at_ns);
        later.or_else(|| self.states.first()).map(|change| change.state)
    }

    /// When it first was `state`.
    #[must_use]
    pub fn first(&self, state: State) -> Option<u64> {
        self.states.iter().find(|change| change.state == state).map(|change| change.at_ns)
    }
}

impl Truth {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is missing, or no truth of this format.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("reading {} failed", path.display()))?;
        let truth: Self = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no truth of a run", path.display()))?;
        ensure!(
            truth.arena_truth == FORMAT,
            "{} has format {}, this arena reads format {FORMAT}",
            path.display(),
            truth.arena_truth
        );
        Ok(truth)
    }

    /// Writes it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).context("a truth is no JSON")?;
        std::fs::write(path, text).with_context(|| format!("writing {} failed", path.display()))
    }
}
