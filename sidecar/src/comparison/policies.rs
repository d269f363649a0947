//! What the engine decides about each connection under one policy.

use std::collections::HashMap;

use ackbeat_detectors::Kill;
use ackbeat_liveness::{ConnectionId, Output, Rung, Timestamp, Verdict, VerdictChange};

use super::Interval;

/// What the engine decided about one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Judgement {
    pub(super) kill: Option<Kill>,
    pub(super) unreachable_at: Option<Timestamp>,
    pub(super) verdicts: Vec<VerdictChange>,
    pub(super) justified: Vec<Interval>,
}

/// What the engine decided about all of them.
#[derive(Debug, Default)]
pub(super) struct Judgements {
    by_connection: HashMap<ConnectionId, Judgement>,
}

impl Judgements {
    pub(super) fn decided(&mut self, output: &Output) {
        if let Output::VerdictChanged(change) = output {
            self.by_connection.entry(change.connection).or_default().change(change);
        } else if let Output::Closing { connection, at, .. } = output {
            self.end(*connection, *at);
        } else if let Output::Closed(record) = output {
            self.end(record.connection, record.closed_at);
        }
    }

    pub(super) fn take(&mut self, connection: ConnectionId) -> Judgement {
        self.by_connection.remove(&connection).unwrap_or_default()
    }

    fn end(&mut self, connection: ConnectionId, at: Timestamp) {
        if let Some(judgement) = self.by_connection.get_mut(&connection) {
            judgement.end_interval(at);
        }
    }
}

impl Judgement {
    fn change(&mut self, change: &VerdictChange) {
        let at = change.at;
        if change.to == Verdict::Unreachable {
            self.unreachable_at = self.unreachable_at.or(Some(at));
        }
        let is_justified = self.justified.last().is_some_and(|interval| interval.until.is_none());
        match (is_justified, change.kill_justified) {
            (false, true) => {
                self.justified.push(Interval { from: at, until: None });
                self.kill.get_or_insert_with(|| Kill {
                    at,
                    reason: match change.rung {
                        Rung::None => change.to.to_string(),
                        rung => format!("{}, evidence {rung}", change.to),
                    },
                });
            }
            (true, false) => self.end_interval(at),
            _ => {}
        }
        self.verdicts.push(change.clone());
    }

    fn end_interval(&mut self, at: Timestamp) {
        if let Some(interval) = self.justified.last_mut() {
            interval.until.get_or_insert(at);
        }
    }
}
