//! Sockets that a host leaves in `CLOSE_WAIT`, told together: a host with this fault leaves them by the hundred, and a line
//! each would bury everything else.

use std::collections::BTreeMap;

use ackbeat_liveness::Timestamp;
use ackbeat_liveness::leak::{GroupKey, LeakChange, LeakSign, Owner};
use opentelemetry::trace::SpanContext;
use tracing::{info, warn};

use super::leaks;
use crate::kubernetes::Events;

/// Spans of such sockets with one census, suspected and cleared each. The others are in the line's number, in the metric and
/// in the API.
pub const SPANS_PER_CENSUS: usize = 64;

/// What one census said of such sockets, by port.
#[derive(Debug, Default)]
pub(super) struct CloseWaits {
    at: Option<Timestamp>,
    /// Spans that were made: of the suspected, and of the cleared.
    spans: [usize; 2],
    groups: BTreeMap<(GroupKey, bool), Told>,
    /// Who tells Kubernetes.
    events: Option<Events>,
}

/// Sockets of one port.
#[derive(Debug)]
struct Told {
    sockets: u32,
    spans: u32,
    /// The one that has been so for longest, and its span.
    oldest: LeakChange,
    span: Option<SpanContext>,
    /// Its owner, as long as it is everybody's.
    owner: Option<(u32, Option<Owner>)>,
}

impl CloseWaits {
    /// With somebody who tells Kubernetes, too.
    pub(super) fn new(events: Option<Events>) -> Self {
        Self { events, ..Self::default() }
    }

    /// Whether this is about one socket, and told here.
    pub(super) fn is_one(change: &LeakChange) -> bool {
        change.sign == LeakSign::CloseWait && change.connection.is_some()
    }

    /// Takes a change; what an earlier census said is told now. Gives whether a span of its own is to be made.
    pub(super) fn begin(&mut self, change: &LeakChange) -> bool {
        if self.at.replace(change.at) != Some(change.at) {
            self.tell();
            self.spans = [0; 2];
        }
        let Some(spans) = self.spans.get_mut(usize::from(change.suspected)) else { return false };
        let has_room = *spans < SPANS_PER_CENSUS;
        *spans += usize::from(has_room);
        has_room
    }

    /// Notes what was begun, with its span.
    pub(super) fn note(&mut self, change: &LeakChange, span: Option<SpanContext>) {
        let owner = change.pid.map(|pid| (pid, change.owner.clone()));
        let spans = u32::from(span.is_some());
        match self.groups.get_mut(&(change.group, change.suspected)) {
            None => {
                let told = Told { sockets: 1, spans, oldest: change.clone(), span, owner };
                self.groups.insert((change.group, change.suspected), told);
            }
            Some(told) => {
                told.sockets += 1;
                told.spans += spans;
                if told.owner.as_ref().map(|(pid, _)| *pid) != change.pid {
                    told.owner = None;
                }
                // The first with a span stays where several are of one age.
                if change.since < told.oldest.since || (told.span.is_none() && span.is_some()) {
                    (told.oldest, told.span) = (change.clone(), span);
                }
            }
        }
    }

    /// Writes a line for each port.
    pub(super) fn tell(&mut self) {
        for ((group, suspected), told) in std::mem::take(&mut self.groups) {
            let sentence = told.sentence();
            let owner = told.owner.as_ref().and_then(|(_, owner)| owner.as_ref());
            macro_rules! line {
                ($level:ident) => {
                    $level!(
                        target: "ackbeat::leak",
                        sign = LeakSign::CloseWait.as_str(),
                        side = group.side.as_str(),
                        address = %group.address,
                        port = group.port,
                        sockets = told.sockets,
                        oldest_ms = told.oldest.at.ms_since(told.oldest.since),
                        spans = told.spans,
                        // Names that processes choose may hold anything: escaped, they cannot forge a line.
                        process = owner.map(|owner| owner.command.escape_debug().to_string()),
                        pid = told.owner.as_ref().map(|(pid, _)| pid),
                        fd_count = owner.map(|owner| owner.fd_count),
                        trace_id = told.span.as_ref().map(|span| span.trace_id().to_string()),
                        span_id = told.span.as_ref().map(|span| span.span_id().to_string()),
                        "{sentence}"
                    )
                };
            }
            if suspected {
                line!(warn);
                if let Some(events) = &self.events {
                    events.leak_suspected(sentence);
                }
            } else {
                line!(info);
            }
        }
    }
}

impl Told {
    fn sentence(&self) -> String {
        if self.sockets == 1 {
            return leaks::sentence(&self.oldest);
        }
        let (port, age) = (leaks::port(&self.oldest.group), leaks::age(&self.oldest));
        let sockets = self.sockets;
        if self.oldest.suspected {
            format!(
                "{port}: the peers of {sockets} connections closed, the first {age} ago, and the host has not (CLOSE_WAIT)"
            )
        } else {
            format!(
                "{port}: {sockets} connections that the host had left in CLOSE_WAIT are gone or used again"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::leaks::tests::change;

    fn closed(port: u16, at_ms: u64, since_ms: u64, suspected: bool) -> LeakChange {
        let mut change = change(LeakSign::CloseWait);
        change.connection = Some(ackbeat_liveness::ConnectionId(since_ms));
        (change.at, change.since) = (Timestamp::from_ms(at_ms), Timestamp::from_ms(since_ms));
        change.group.port = port;
        change.suspected = suspected;
        change
    }

    fn sentences(waits: &CloseWaits) -> Vec<String> {
        waits.groups.values().map(Told::sentence).collect()
    }

    #[test]
    fn sockets_of_one_port_are_one_line_with_their_number_and_the_oldest() {
        let mut waits = CloseWaits::default();
        for (port, since_ms) in [(80, 40_000), (80, 30_000), (80, 35_000), (81, 50_000)] {
            let change = closed(port, 100_000, since_ms, true);
            assert!(CloseWaits::is_one(&change) && waits.begin(&change));
            waits.note(&change, None);
        }
        assert_eq!(
            sentences(&waits),
            [
                "remote 10.0.0.7:80: the peers of 3 connections closed, the first 70 s ago, and the host has not (CLOSE_WAIT)",
                "remote 10.0.0.7:81: the peer closed 50 s ago, and the host has not (CLOSE_WAIT)",
            ]
        );
        // The next census begins anew.
        let later = closed(80, 110_000, 60_000, false);
        assert!(waits.begin(&later));
        waits.note(&later, None);
        assert_eq!(sentences(&waits), ["remote 10.0.0.7:80: no leak is suspected any more (close_wait)"]);
    }

    #[test]
    fn a_census_has_a_bounded_number_of_spans_and_counts_all_sockets() {
        let mut waits = CloseWaits::default();
        let mut spans = [0_usize; 2];
        for number in 0..200 {
            for suspected in [true, false] {
                let change = closed(80, 100_000, number, suspected);
                spans[usize::from(suspected)] += usize::from(waits.begin(&change));
                waits.note(&change, None);
            }
        }
        assert_eq!(spans, [SPANS_PER_CENSUS; 2]);
        let counted: Vec<u32> = waits.groups.values().map(|told| told.sockets).collect();
        assert_eq!(counted, [200, 200]);
    }
}
