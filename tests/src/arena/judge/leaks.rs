//! What a recording's censuses say of leaks.

use std::path::Path;

use ackbeat::comparison::Compared;
use ackbeat::recording::{Reader, replay};
use ackbeat_liveness::Output;
use ackbeat_liveness::leak::{LeakSign, Side};
use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::arena::truth::{State, Truth};

/// What was suspected in one stage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Leaks {
    /// Every suspicion, in the order of its time.
    pub found: Vec<LeakFound>,
    /// Subjects that leaked, and when they began to, in nanoseconds of `CLOCK_MONOTONIC`.
    pub leaked: Vec<(String, u64)>,
}

/// One suspicion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeakFound {
    /// What it rests on.
    pub sign: LeakSign,
    /// Whose port it is.
    pub side: Side,
    /// When it was raised, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// The subject whose socket it is; `None` where it is about a port, or about no subject.
    pub subject: Option<String>,
    /// Established connections of the port.
    pub count: u32,
    /// Of them, idle ones.
    pub idle: u32,
}

/// Replays the censuses; `None` where the recording has none.
pub(super) fn judge(recording: &Path, truth: &Truth, connections: &[&Compared]) -> Result<Option<Leaks>> {
    // Only these rows look at leaks; the others are long, and replayed often enough.
    if !(29..=31).contains(&truth.row) {
        return Ok(None);
    }
    let mut reader = Reader::open(recording)?;
    let policy = reader.header().thresholds.clone();
    let mut found = Vec::new();
    let mut rerun = replay::Rerun::new(reader.header(), policy);
    let mut censuses = 0_u64;
    while let Some(line) = reader.next_line()? {
        if let ackbeat::recording::Line::Input(input) = &line {
            censuses += u64::from(matches!(**input, ackbeat_liveness::Input::Census(_)));
        }
        rerun.line(line, &mut |output| {
            let Output::Leak(change) = output else { return };
            if !change.suspected {
                return;
            }
            let place =
                connections.iter().position(|compared| Some(compared.connection) == change.connection);
            found.push(LeakFound {
                sign: change.sign,
                side: change.group.side,
                at_ns: change.at.as_ns(),
                subject: place
                    .and_then(|place| truth.subjects.get(place))
                    .map(|subject| subject.name.clone()),
                count: change.count,
                idle: change.idle,
            });
        });
    }
    let leaked = truth
        .subjects
        .iter()
        .filter_map(|subject| Some((subject.name.clone(), subject.first(State::Leaked)?)));
    Ok((censuses > 0).then(|| Leaks { found, leaked: leaked.collect() }))
}
