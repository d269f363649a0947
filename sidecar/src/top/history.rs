//! What happened lately: send queues over time, and the last events. Both are bounded.

use std::collections::{HashMap, VecDeque};

use crate::api::types::{Connection, Event};

/// Readings of one connection that are kept.
pub(super) const READINGS_MAX: usize = 120;
/// Connections whose readings are kept: those that were shown last.
const CONNECTIONS_MAX: usize = 4_096;
/// Events that are kept, of all connections.
pub(super) const EVENTS_MAX: usize = 4_096;

/// Heights of a sparkline, from nothing to the largest value in sight.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Send queues of the connections that were shown, one reading for each answer.
#[derive(Debug, Default)]
pub(super) struct Histories {
    of: HashMap<u64, History>,
    answers: u64,
}

#[derive(Debug, Default)]
struct History {
    /// `None` where nothing was known.
    bytes: VecDeque<Option<u32>>,
    /// The answer that it was last in.
    seen_in: u64,
}

impl Histories {
    /// Takes the readings of one answer.
    pub(super) fn take<'a>(&mut self, connections: impl Iterator<Item = &'a Connection>) {
        self.answers += 1;
        for connection in connections {
            let history = self.of.entry(connection.connection).or_default();
            // Named twice in one answer: among the rows, and because its detail is shown.
            if history.seen_in == self.answers {
                continue;
            }
            // Where it was not shown in between, nothing was read.
            let gap =
                usize::try_from((self.answers - history.seen_in).saturating_sub(1)).unwrap_or(usize::MAX);
            if !history.bytes.is_empty() {
                history.bytes.extend(std::iter::repeat_n(None, gap.min(READINGS_MAX)));
            }
            history.seen_in = self.answers;
            history.bytes.push_back(connection.tcp.send_queue_bytes);
            let surplus = history.bytes.len().saturating_sub(READINGS_MAX);
            history.bytes.drain(..surplus);
        }
        if self.of.len() > CONNECTIONS_MAX {
            // Half at a time: sorting at every answer would cost more than it keeps.
            let mut seen: Vec<u64> = self.of.values().map(|history| history.seen_in).collect();
            seen.sort_unstable_by(|a, b| b.cmp(a));
            let oldest = seen.get(CONNECTIONS_MAX / 2).copied().unwrap_or_default();
            let newest = self.answers;
            self.of.retain(|_, history| history.seen_in > oldest || history.seen_in == newest);
        }
    }

    /// The last readings of a connection as bars, the newest to the right, scaled to the largest of them. A blank is a
    /// reading that is not there.
    pub(super) fn sparkline(&self, connection: u64, columns: usize) -> String {
        let bytes = self.of.get(&connection).map(|history| &history.bytes);
        let last: Vec<Option<u32>> =
            bytes.into_iter().flat_map(|bytes| bytes.iter().rev().take(columns)).copied().collect();
        let largest = last.iter().flatten().copied().max().unwrap_or_default();
        let bars = last.iter().rev().map(|value| value.map_or(' ', |value| bar(value, largest)));
        " ".repeat(columns.saturating_sub(last.len())).chars().chain(bars).collect()
    }

    #[cfg(test)]
    fn connections(&self) -> usize {
        self.of.len()
    }
}

/// The bar of a value. Only 0 has the lowest: a queue that is not empty is never shown as one that is.
fn bar(value: u32, largest: u32) -> char {
    let steps = BARS.len() as u64 - 1;
    let height = (u64::from(value) * steps).div_ceil(u64::from(largest.max(1)));
    usize::try_from(height).ok().and_then(|height| BARS.get(height)).copied().unwrap_or('█')
}

/// The last events of all connections.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    events: VecDeque<Event>,
    left_out: bool,
}

impl EventLog {
    /// Keeps an event; the oldest goes where there is no room.
    pub(super) fn take(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.left_out = true;
        }
        self.events.push_back(event);
    }

    /// Events of a connection, the newest first.
    pub(super) fn of(&self, wanted: u64) -> impl Iterator<Item = &Event> {
        self.events.iter().rev().filter(move |event| match event {
            Event::VerdictChanged { connection, .. } => *connection == wanted,
            Event::Closed(closed) => closed.connection == wanted,
            Event::Lagged { .. } => false,
        })
    }

    /// Whether older events had to go.
    pub(super) const fn left_out(&self) -> bool {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn reading(connection: u64, bytes: Option<u32>) -> Connection {
        let mut reading = samples::alive(0);
        reading.connection = connection;
        reading.tcp.send_queue_bytes = bytes;
        reading
    }

    #[test]
    fn a_sparkline_grows_to_the_left_and_shows_what_is_missing_as_a_gap() {
        let mut histories = Histories::default();
        for bytes in [Some(0), Some(1), None, Some(500), Some(1_000)] {
            histories.take([reading(1, bytes)].iter());
        }
        assert_eq!(histories.sparkline(1, 7), "  ▁▂ ▅█");
        assert_eq!(histories.sparkline(1, 2), "▅█");
        assert_eq!(histories.sparkline(2, 3), "   ");
        // Two answers without it.
        histories.take([].iter());
        histories.take([].iter());
        histories.take([reading(1, Some(0)), reading(1, Some(7))].iter());
        assert_eq!(histories.sparkline(1, 4), "█  ▁");
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_shown_stays() {
        let mut histories = Histories::default();
        for round in 0..40 {
            let rows: Vec<Connection> = (0..200).map(|row| reading(1 + row + round * 200, Some(1))).collect();
            histories.take(rows.iter().chain([&reading(0, Some(1))]));
            assert!(histories.connections() <= CONNECTIONS_MAX);
        }
        let line = histories.sparkline(0, READINGS_MAX);
        assert_eq!(line.chars().filter(|bar| *bar == '█').count(), 40);
        for _ in 0..READINGS_MAX * 2 {
            histories.take([reading(0, Some(1))].iter());
        }
        assert_eq!(histories.of.get(&0).map(|history| history.bytes.len()), Some(READINGS_MAX));

        let mut log = EventLog::default();
        for _ in 0..=EVENTS_MAX {
            log.take(samples::changed());
        }
        log.take(samples::closed());
        assert!(log.left_out());
        assert_eq!(log.of(samples::congested().connection).count(), EVENTS_MAX);
        assert_eq!(log.of(samples::congested().connection).next(), Some(&samples::closed()));
        assert_eq!(log.of(1).count(), 0);
    }
}
