//! The keys and the columns, explained.

use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::palette::Palette;

/// Key, and what it does.
const KEYS: [(&str, &str); 10] = [
    ("j k ↓ ↑ PgDn PgUp", "choose a row; g and G: the first and the last"),
    ("Enter", "detail of the chosen connection; Esc leaves it"),
    ("/", "filter: part of a row, a peer IP or IP:PORT, /path, :port"),
    ("1 to 7", "only these verdicts, by the numbers in the second line"),
    ("0", "every verdict"),
    ("< >", "sort by the column to the left or right"),
    ("V P S B R A", "sort by VERDICT, PONG, QUEUE, BEFORE, RTT, AGE"),
    ("r", "reverse the order"),
    ("p", "pause and go on"),
    ("q Esc Ctrl-C", "quit"),
];

/// Column, and what it shows.
const COLUMNS: [(&str, &str); 8] = [
    ("VERDICT", "what the evidence adds up to; ! marks a justified kill"),
    ("PING, PONG", "ages of the last Ping and the last Pong"),
    ("MISS", "Pings since that Pong, as the host counts"),
    ("PING IS", "where the oldest unanswered Ping is"),
    ("QUEUE", "bytes not acknowledged, now and before (K = 1024)"),
    ("BEFORE", "bytes that the Ping waits behind"),
    ("EVERY", "learned interval of the heartbeat"),
    ("-", "not known"),
];

/// The lines. What does not fit is cut from below: the keys come first.
pub(super) fn lines(area: Rect, palette: Palette) -> Vec<Line<'static>> {
    KEYS.iter()
        .chain(&COLUMNS)
        .take(usize::from(area.height))
        .map(|(name, meaning)| {
            Line::from(vec![Span::styled(format!("{name:<18} "), palette.title()), Span::raw(*meaning)])
        })
        .collect()
}
