//! The lines above the table: the sidecar, its connections, what was closed and lost, what is shown.

use std::time::Duration;

use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use super::super::columns::words;
use super::super::palette::Palette;
use super::super::state::{Link, State, VERDICTS};
use super::super::text::{age, grouped, harmless};
use super::line;
use crate::api::types::Status;

/// Screens below this height go without the line of closes and losses.
const HEIGHT_FOR_CLOSES: u16 = 12;

/// The lines, from the first; a short header is the first alone.
pub(super) fn lines(
    state: &State,
    palette: Palette,
    now: Duration,
    area: Rect,
    is_short: bool,
) -> Vec<Line<'static>> {
    let columns = usize::from(area.width);
    let plain = Style::new();
    let mut lines = vec![first(state, palette, now, columns)];
    if is_short {
        return lines;
    }
    if let Some(status) = &state.status {
        let mut parts = Vec::new();
        for (index, verdict) in VERDICTS.iter().copied().enumerate() {
            let count = status.connections.get(verdict.as_str()).copied().unwrap_or_default();
            let is_chosen = state.query.verdicts.contains(&verdict);
            if count == 0 && !is_chosen {
                continue;
            }
            let gap = if parts.is_empty() { "" } else { "  " };
            let (open, close) = if is_chosen { ("[", "]") } else { ("", "") };
            parts.push((gap.to_owned(), plain));
            parts.push((format!("{open}{} ", index + 1), palette.faint()));
            parts.push((
                format!("{verdict} {}{close}", grouped(count as u64)),
                palette.verdict(verdict, false),
            ));
        }
        if parts.is_empty() {
            parts.push(("no connections".to_owned(), plain));
        }
        lines.push(line(parts, columns));
        if area.height >= HEIGHT_FOR_CLOSES {
            let killed = status.closed.false_kills > 0;
            lines.push(line(
                [
                    (closes(status), if killed { palette.alarm() } else { plain }),
                    ("  ".to_owned(), plain),
                    (losses(status), plain),
                ],
                columns,
            ));
        }
    }
    lines.push(line(shown(state, palette), columns));
    lines
}

/// The sidecar, or why it does not answer.
fn first(state: &State, palette: Palette, now: Duration, columns: usize) -> Line<'static> {
    let name = ("ackbeat top  ".to_owned(), palette.title());
    let address = harmless(&state.address);
    let plain = Style::new();
    let mut parts = vec![name];
    match &state.link {
        Link::Connecting => parts.push((format!("{address}  connecting"), plain)),
        Link::Away { since, reason } => {
            let away = age(u64::try_from(now.saturating_sub(*since).as_millis()).unwrap_or(u64::MAX));
            parts.push((format!("AWAY {away}, retrying: {}", harmless(reason)), palette.alarm()));
            parts.push((format!("  {address}"), plain));
        }
        Link::Live => {
            let live = if state.is_paused { "PAUSED" } else { "live" };
            parts.push((live.to_owned(), palette.title()));
            if let Some(status) = &state.status {
                parts.push((format!("  {}", summary(status)), plain));
            }
            if let Some(reason) = &state.events_away {
                parts.push((format!("  no events: {}", harmless(reason)), palette.alarm()));
            }
            parts.push((format!("  {address}"), palette.faint()));
        }
    }
    line(parts, columns)
}

/// Mode, policy and age of the sidecar.
pub(crate) fn summary(status: &Status) -> String {
    let Status { mode, policy, uptime_ms, .. } = status;
    let ready = if status.ready { "" } else { "  not ready" };
    format!("mode {}  policy {}  up {}{ready}", harmless(mode), harmless(policy), age(*uptime_ms))
}

/// Connections by verdict, in words.
pub(crate) fn verdicts(status: &Status) -> String {
    let counts: Vec<String> = VERDICTS
        .iter()
        .filter_map(|verdict| Some((verdict, *status.connections.get(verdict.as_str())?)))
        .filter(|(_, count)| *count > 0)
        .map(|(verdict, count)| format!("{verdict} {}", grouped(count as u64)))
        .collect();
    if counts.is_empty() { "no connections".to_owned() } else { counts.join("  ") }
}

/// What ended, and how much of it the host should not have done.
pub(crate) fn closes(status: &Status) -> String {
    let closed = status.closed;
    format!(
        "closed {}: {} by host, {} heartbeat kills, {} false",
        grouped(closed.total),
        grouped(closed.by_host),
        grouped(closed.heartbeat_kills),
        grouped(closed.false_kills)
    )
}

/// What was lost; nothing else is named.
pub(crate) fn losses(status: &Status) -> String {
    let lost = status.lost;
    let named = [
        (lost.kernel_records, "kernel records"),
        (lost.wire_losses, "wire"),
        (lost.spans, "spans"),
        (lost.events, "events"),
        (lost.heartbeats, "heartbeats"),
    ];
    let lost: Vec<String> = named
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", grouped(*count)))
        .collect();
    if lost.is_empty() { "lost: nothing".to_owned() } else { format!("lost: {}", lost.join(", ")) }
}

/// Which connections are shown, in which order.
fn shown(state: &State, palette: Palette) -> Vec<(String, Style)> {
    let plain = Style::new();
    let mut parts = Vec::new();
    if state.answered_at.is_some() {
        let (rows, received) = (state.rows.len(), state.received);
        let mut text = format!("showing {} of {}", grouped(rows as u64), grouped(state.total as u64));
        if state.query.text.is_local() && state.matched > received {
            text = format!("{text}, searched {}", grouped(received as u64));
        }
        parts.push((format!("{text}, "), plain));
    }
    let sort = state.query.sort;
    parts.push((sort.key.order(sort.descending).to_owned(), plain));
    if !state.query.verdicts.is_empty() {
        let verdicts: Vec<&str> = state.query.verdicts.iter().map(|verdict| verdict.as_str()).collect();
        parts.push((format!("  verdict: {}", words(&verdicts.join(", "))), palette.title()));
    }
    if !state.query.text.0.is_empty() {
        parts.push((format!("  filter: {}", harmless(&state.query.text.0)), palette.title()));
    }
    if state.events_missed > 0 {
        parts.push((format!("  {} events missed", grouped(state.events_missed)), palette.alarm()));
    }
    parts
}
