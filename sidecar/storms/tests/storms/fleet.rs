//! Clients on a bad network that come back after each outage: the experiment of report C as arithmetic.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ackbeat_liveness::ConnectionId;

use crate::world::World;

/// When a client tries again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Retry {
    /// So many milliseconds after its last attempt began.
    Fixed(u64),
    /// After a random time up to 1 s, doubled with each failure in a row, up to 30 s.
    FullJitter,
}

/// The experiment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Experiment {
    pub(crate) retry: Retry,
    pub(crate) clients: u32,
    pub(crate) outages: u64,
    pub(crate) loss: f64,
    pub(crate) seed: u64,
}

/// From one outage's beginning to the next.
pub(crate) const EVERY_MS: u64 = 120_000;
const OUTAGE_MS: u64 = 10_000;
const FIRST_MS: u64 = 60_000;
/// The host asks all clients at once.
const INTERVAL_MS: u64 = 2_000;
/// A client that heard nothing for so long gives up.
const PATIENCE_MS: u64 = 5_000;
/// An attempt takes at most so long.
const ATTEMPT_MS: u64 = 800;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Attempt,
    Failed { began_ms: u64 },
    HostCloses(ConnectionId),
    GivesUp,
}

/// Plays it. Returns when it ended, in milliseconds.
pub(crate) fn play(world: &mut World, experiment: Experiment) -> u64 {
    let mut random = fastrand::Rng::with_seed(experiment.seed);
    let end_ms = FIRST_MS + experiment.outages * EVERY_MS;
    let outages: Vec<u64> = (0..experiment.outages)
        .map(|number| FIRST_MS + number * EVERY_MS + random.u64(0..INTERVAL_MS))
        .collect();
    let mut failures = vec![0_u32; experiment.clients as usize];
    let mut agenda: BinaryHeap<Reverse<(u64, u32, What)>> = BinaryHeap::new();
    for client in 0..experiment.clients {
        agenda.push(Reverse((u64::from(client) * 250, client, What::Attempt)));
    }
    while let Some(Reverse((now, client, what))) = agenda.pop() {
        if now > end_ms {
            break;
        }
        let failed = &mut failures[client as usize];
        let passes = |random: &mut fastrand::Rng| random.f64() >= experiment.loss;
        match what {
            What::Attempt => {
                let is_out = outages.iter().any(|began| (*began..began + OUTAGE_MS).contains(&now));
                // SYN and SYN-ACK; then the request, which is sent again after 200 ms, and its answer.
                let is_accepted = !is_out && passes(&mut random) && passes(&mut random);
                let is_open = is_accepted && (0..3).any(|_| passes(&mut random) && passes(&mut random));
                let connection = is_accepted.then(|| world.arrive(now + random.u64(0..5), client));
                let next = outages.iter().find(|began| **began > now);
                match (is_open, connection, next) {
                    (true, Some(connection), Some(outage)) => {
                        *failed = 0;
                        // The last tick before it, and what its retransmissions took.
                        let tick = outage / INTERVAL_MS * INTERVAL_MS;
                        let mut heard = tick + random.u64(0..3);
                        for step in 0..4 {
                            heard += if passes(&mut random) { break } else { 200 << step };
                        }
                        agenda.push(Reverse((tick + 3 * INTERVAL_MS, client, What::HostCloses(connection))));
                        agenda.push(Reverse((heard + PATIENCE_MS, client, What::GivesUp)));
                    }
                    (true, Some(_), None) => {}
                    (_, connection, _) => {
                        let failed_ms = now + ATTEMPT_MS;
                        if let Some(connection) = connection {
                            agenda.push(Reverse((failed_ms, client, What::HostCloses(connection))));
                        }
                        agenda.push(Reverse((failed_ms, client, What::Failed { began_ms: now })));
                    }
                }
            }
            What::Failed { began_ms } => {
                *failed += 1;
                let at = next_attempt(experiment.retry, began_ms, now, *failed, &mut random);
                agenda.push(Reverse((at, client, What::Attempt)));
            }
            What::GivesUp => {
                let at = next_attempt(experiment.retry, now, now, 0, &mut random);
                agenda.push(Reverse((at, client, What::Attempt)));
            }
            What::HostCloses(connection) => world.close(now, connection),
        }
    }
    world.pass(end_ms);
    end_ms
}

fn next_attempt(retry: Retry, began_ms: u64, now: u64, failures: u32, random: &mut fastrand::Rng) -> u64 {
    match retry {
        Retry::Fixed(ms) => (began_ms + ms).max(now),
        Retry::FullJitter => now + random.u64(0..=(1_000_u64 << failures.min(10)).min(30_000)),
    }
}
