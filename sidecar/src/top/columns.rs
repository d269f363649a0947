//! The table's columns: what each shows, and which stay when there is little room.

use ackbeat_liveness::{PingLocation, Verdict};

use super::history::Histories;
use super::query::{Sort, SortKey};
use super::text::{UNKNOWN, age, bytes, harmless, head, interval, known, padded, round_trip, tail, width};
use crate::api::types::Connection;

/// Between two columns.
const GAP: usize = 1;
/// A mark before each row tells which one is chosen.
pub(super) const MARK: usize = 1;
/// Columns of the peer's address, from least to most.
const PEER: (usize, usize) = (15, 47);
/// Columns of the path, from least to most.
const PATH: (usize, usize) = (8, 60);
/// Columns of the sparkline, from least to most.
const SPARKLINE: (usize, usize) = (8, 32);

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Verdict,
    Peer,
    Path,
    PingAge,
    PongAge,
    Ping,
    Interval,
    Missed,
    SendQueue,
    Sparkline,
    PingBytesAhead,
    RoundTrip,
    Age,
}

/// In the order in which they stand.
const ORDER: [Kind; 13] = [
    Kind::Verdict,
    Kind::Peer,
    Kind::PingAge,
    Kind::PongAge,
    Kind::Missed,
    Kind::Ping,
    Kind::SendQueue,
    Kind::Sparkline,
    Kind::PingBytesAhead,
    Kind::RoundTrip,
    Kind::Age,
    Kind::Interval,
    Kind::Path,
];

/// In the order in which they get room.
const PRIORITY: [Kind; 13] = [
    Kind::Verdict,
    Kind::Peer,
    Kind::PongAge,
    Kind::SendQueue,
    Kind::Sparkline,
    Kind::PingBytesAhead,
    Kind::RoundTrip,
    Kind::PingAge,
    Kind::Missed,
    Kind::Path,
    Kind::Age,
    Kind::Ping,
    Kind::Interval,
];

impl Kind {
    const fn title(self) -> &'static str {
        match self {
            Self::Verdict => "VERDICT",
            Self::Peer => "PEER",
            Self::Path => "PATH",
            Self::PingAge => "PING",
            Self::PongAge => "PONG",
            Self::Ping => "PING IS",
            Self::Interval => "EVERY",
            Self::Missed => "MISS",
            Self::SendQueue => "QUEUE",
            Self::Sparkline => "",
            Self::PingBytesAhead => "BEFORE",
            Self::RoundTrip => "RTT",
            Self::Age => "AGE",
        }
    }

    /// Columns that it must have.
    const fn least(self) -> usize {
        match self {
            // A verdict and the mark of a justified kill.
            Self::Verdict => 12,
            Self::Peer => PEER.0,
            Self::Path => PATH.0,
            Self::Ping => 9,
            Self::Missed => 4,
            Self::Sparkline => SPARKLINE.0,
            // With room for the mark of the order beside the title.
            Self::SendQueue
            | Self::PingAge
            | Self::PongAge
            | Self::RoundTrip
            | Self::Age
            | Self::Interval => 6,
            Self::PingBytesAhead => 7,
        }
    }

    const fn sort_key(self) -> Option<SortKey> {
        match self {
            Self::Verdict => Some(SortKey::Verdict),
            Self::PongAge => Some(SortKey::PongAge),
            Self::SendQueue => Some(SortKey::SendQueue),
            Self::PingBytesAhead => Some(SortKey::PingBytesAhead),
            Self::RoundTrip => Some(SortKey::RoundTrip),
            Self::Age => Some(SortKey::Age),
            Self::Peer
            | Self::Path
            | Self::PingAge
            | Self::Ping
            | Self::Interval
            | Self::Missed
            | Self::Sparkline => None,
        }
    }

    /// Numbers stand to the right.
    const fn is_number(self) -> bool {
        !matches!(self, Self::Verdict | Self::Peer | Self::Path | Self::Ping | Self::Sparkline)
    }

    /// The title, with the mark of the order.
    fn head(self, sort: Sort) -> String {
        let mark = match self.sort_key() {
            Some(key) if key == sort.key => {
                if sort.descending {
                    "▼"
                } else {
                    "▲"
                }
            }
            _ => "",
        };
        format!("{}{mark}", self.title())
    }

    /// What it shows of a connection.
    fn value(self, connection: &Connection) -> String {
        let heartbeat = &connection.heartbeat;
        match self {
            Self::Verdict => verdict(connection),
            Self::Peer => harmless(&connection.peer),
            Self::Path => connection.path.as_deref().map_or_else(|| UNKNOWN.to_owned(), harmless),
            Self::PingAge => known(heartbeat.last_ping_age_ms, age),
            Self::PongAge => known(heartbeat.last_pong_age_ms, age),
            Self::Ping => match heartbeat.ping_location {
                PingLocation::Unknown => UNKNOWN.to_owned(),
                location => words(location.as_str()),
            },
            Self::Interval => known(heartbeat.interval_ms, interval),
            Self::Missed => known(heartbeat.missed, |missed| missed.to_string()),
            Self::SendQueue => known(connection.tcp.send_queue_bytes, |count| bytes(count.into())),
            Self::Sparkline => String::new(),
            Self::PingBytesAhead => known(heartbeat.ping_bytes_ahead, bytes),
            Self::RoundTrip => known(connection.tcp.srtt_us, round_trip),
            Self::Age => age(connection.age_ms),
        }
    }
}

/// The verdict as a word; `!` marks one that justifies a kill that is still to be made.
pub(super) fn verdict(connection: &Connection) -> String {
    let is_justified = connection.kill_justified && connection.verdict != Verdict::Closed;
    format!("{}{}", connection.verdict, if is_justified { "!" } else { "" })
}

/// A word of the API as text.
pub(super) fn words(word: &str) -> String {
    word.replace('_', " ")
}

/// A column with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) kind: Kind,
    columns: usize,
}

impl Column {
    /// Its title.
    pub(super) fn head(self, sort: Sort) -> String {
        padded(&self.kind.head(sort), self.columns, self.kind.is_number())
    }

    /// Its cell of a row.
    pub(super) fn cell(self, connection: &Connection, histories: &Histories) -> String {
        let value = match self.kind {
            Kind::Sparkline => histories.sparkline(connection.connection, self.columns),
            // The end of an address is its port; the start of a path is what tells services apart.
            Kind::Peer => tail(&self.kind.value(connection), self.columns),
            kind => head(&kind.value(connection), self.columns),
        };
        padded(&value, self.columns, self.kind.is_number())
    }
}

/// The columns that fit, as wide as their rows need.
pub(super) fn fitting(columns: usize, rows: &[Connection]) -> Vec<Column> {
    let mut chosen: Vec<Kind> = Vec::new();
    let mut left = columns.saturating_sub(MARK);
    for kind in PRIORITY {
        let needed = kind.least() + if chosen.is_empty() { 0 } else { GAP };
        if needed > left {
            break;
        }
        left -= needed;
        chosen.push(kind);
    }
    let mut placed: Vec<Column> = ORDER
        .into_iter()
        .filter(|kind| chosen.contains(kind))
        .map(|kind| Column { kind, columns: kind.least() })
        .collect();
    // What is left goes to the address until it is whole, then to the path, then to the past.
    for (kind, most) in [(Kind::Peer, PEER.1), (Kind::Path, PATH.1), (Kind::Sparkline, SPARKLINE.1)] {
        if let Some(column) = placed.iter_mut().find(|column| column.kind == kind) {
            let needed = match kind {
                Kind::Sparkline => most,
                _ => rows.iter().map(|row| width(&kind.value(row))).max().unwrap_or_default().min(most),
            };
            let more = needed.saturating_sub(column.columns).min(left);
            column.columns += more;
            left -= more;
        }
    }
    placed
}

/// Every column but the sparkline, as wide as its rows need, as text: the table of `--once`.
pub(super) fn plain(rows: &[Connection], sort: Sort) -> String {
    let kinds: Vec<Kind> = ORDER.into_iter().filter(|kind| *kind != Kind::Sparkline).collect();
    let heads: Vec<String> = kinds.iter().map(|kind| kind.head(sort)).collect();
    let cells = rows.iter().map(|row| kinds.iter().map(|kind| kind.value(row)).collect::<Vec<_>>());
    let lines: Vec<Vec<String>> = std::iter::once(heads).chain(cells).collect();
    let widths: Vec<usize> = (0..kinds.len())
        .map(|index| lines.iter().filter_map(|line| line.get(index)).map(|cell| width(cell)).max())
        .map(Option::unwrap_or_default)
        .collect();
    let mut text = String::new();
    for line in &lines {
        let mut row = String::new();
        for ((kind, columns), cell) in kinds.iter().zip(&widths).zip(line) {
            row.push_str(&padded(cell, *columns, kind.is_number()));
            row.push_str("  ");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}
