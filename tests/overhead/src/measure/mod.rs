//! The measurements, each of which gives its figures.

pub(crate) mod idle;
pub(crate) mod kernel_programs;
pub(crate) mod several;
pub(crate) mod traffic;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::traffic::Scene;

/// How long and how often everything is measured.
#[derive(Clone, Debug)]
pub(crate) struct Effort {
    /// Pairs of segments with and without ackbeat.
    pub(crate) pairs: usize,
    /// Length of one measurement in a segment.
    pub(crate) segment: Duration,
    /// How often the kernel programs are measured.
    pub(crate) program_rounds: usize,
    /// Pairs with and without more sidecars.
    pub(crate) several_pairs: usize,
    /// How many more sidecars.
    pub(crate) several: usize,
    /// Idle crowds.
    pub(crate) crowds: Vec<CrowdEffort>,
}

/// How an idle crowd is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CrowdEffort {
    /// Connections.
    pub(crate) count: usize,
    /// From one Ping to the next.
    pub(crate) interval: Duration,
    /// When Pings are due.
    pub(crate) ticks: crate::traffic::crowd::Ticks,
    /// Time before it is measured: the heartbeat's schedule is known by then.
    pub(crate) warm_up: Duration,
    /// Length of one measurement.
    pub(crate) window: Duration,
    /// How many of those, each followed by polls.
    pub(crate) windows: usize,
}

/// Where and with what everything is measured.
pub(crate) struct Bench<'a> {
    /// Namespaces and a listener.
    pub(crate) scene: &'a Scene,
    /// The sidecar's program.
    pub(crate) ackbeat: &'a Path,
    /// How thoroughly.
    pub(crate) effort: &'a Effort,
    /// Says how far it is.
    pub(crate) say: &'a dyn Fn(&str),
}

/// Runs `segment` with and without something in turns: without, with, with, without, …, so that what changes slowly in the
/// machine falls on both alike. `segment` is told whether it is one with.
///
/// # Errors
/// As `segment`.
fn in_turns<T>(pairs: usize, mut segment: impl FnMut(bool) -> Result<T>) -> Result<(Vec<T>, Vec<T>)> {
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        for is_with in [pair % 2 == 1, pair % 2 == 0] {
            let outcome = segment(is_with)?;
            if is_with { with.push(outcome) } else { without.push(outcome) }
        }
    }
    Ok((without, with))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_alternate_in_their_order() {
        let mut order = String::new();
        let (without, with) = in_turns(3, |is_with| {
            order.push(if is_with { 'B' } else { 'A' });
            Ok(order.len())
        })
        .expect("nothing fails");
        assert_eq!((order.as_str(), without, with), ("ABBAAB", vec![1, 4, 5], vec![2, 3, 6]));
    }
}
