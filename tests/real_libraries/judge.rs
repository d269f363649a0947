//! Stand-ins and a recording.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;

use ackbeat::comparison::{Comparison, Contestant, Outcome, PeerReport, compare};
use ackbeat::recording::Reader;
use ackbeat_detectors::{Reported, Spec};
use ackbeat_liveness::Timestamp;
use ackbeat_tests::mux::{HostAction, HostEvent};
use anyhow::{Context, Result, ensure};

/// What the host of the peers at `address` printed of its ticks and Pongs, as the stand-ins take it.
pub(crate) fn reports(address: std::net::IpAddr, events: &[HostEvent]) -> Vec<PeerReport> {
    let reported = events.iter().filter_map(|event| {
        let what = match event.what {
            HostAction::Ping { buffered_bytes, .. } => Reported::Tick { buffered_bytes },
            HostAction::Pong => Reported::Pong,
            _ => return None,
        };
        let peer = SocketAddr::new(address, event.peer_port);
        Some(PeerReport { peer, at: Timestamp::from_ns(event.at_ns), what })
    });
    reported.collect()
}

/// What the stand-ins made of every connection of a recording.
pub(crate) struct Judgements {
    comparison: Comparison,
    by_peer: HashMap<SocketAddr, usize>,
}

impl Judgements {
    /// Lets them judge.
    ///
    /// # Errors
    /// If the recording cannot be read, lacks lines, or belongs to another host than the reports.
    pub(crate) fn of(recording: &Path, reports: &[PeerReport], stand_ins: &[Spec]) -> Result<Self> {
        let mut reader = Reader::open(recording)?;
        let contestants: Vec<Contestant> = stand_ins.iter().cloned().map(Contestant::Detector).collect();
        let comparison = compare(&mut reader, reports, &contestants)?;
        let missing = comparison.summary.missing;
        ensure!(missing == 0, "the recording lacks {missing} lines");
        let by_peer =
            comparison.connections.iter().enumerate().map(|(index, found)| (found.peer(), index)).collect();
        Ok(Self { comparison, by_peer })
    }

    /// What one of them made of the connection with `peer`.
    ///
    /// # Errors
    /// If there is no such connection or stand-in.
    pub(crate) fn outcome(&self, stand_in: &Spec, peer: SocketAddr) -> Result<&Outcome> {
        let connection = self.by_peer.get(&peer).and_then(|index| self.comparison.connections.get(*index));
        let connection =
            connection.with_context(|| format!("the recording has no connection with {peer}"))?;
        let name = Contestant::Detector(stand_in.clone()).name();
        let outcome = connection.outcomes.iter().find(|outcome| outcome.name == name);
        outcome.with_context(|| format!("{name} did not judge"))
    }
}
