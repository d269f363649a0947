//! The table of connections.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::super::columns::{Column, Kind, fitting};
use super::super::history::Histories;
use super::super::palette::Palette;
use super::super::state::{Link, State};
use super::super::text::harmless;
use crate::api::types::Connection;

/// Draws the page that holds the chosen row. Pages change whole: over a slow link that costs less than scrolling.
pub(super) fn draw(state: &mut State, palette: Palette, area: Rect, frame: &mut Frame<'_>) {
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    state.page = height;
    if state.rows.is_empty() {
        let nothing = Paragraph::new(nothing(state)).wrap(Wrap { trim: true });
        return frame.render_widget(nothing, area);
    }
    let first = state.chosen / height * height;
    let rows = state.rows.get(first..).unwrap_or_default();
    let rows = rows.get(..height.min(rows.len())).unwrap_or_default();
    let columns = fitting(usize::from(area.width), &state.rows);
    let heads: Vec<String> = columns.iter().map(|column| column.head(state.query.sort)).collect();
    let mut head = format!(" {}", heads.join(" "));
    head.push_str(&" ".repeat(usize::from(area.width).saturating_sub(super::width(&head))));
    let mut lines = vec![Line::styled(head, palette.reversed())];
    for (index, connection) in rows.iter().enumerate() {
        lines.push(row(connection, first + index == state.chosen, &columns, &state.histories, palette));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn row(
    connection: &Connection,
    is_chosen: bool,
    columns: &[Column],
    histories: &Histories,
    palette: Palette,
) -> Line<'static> {
    let mut spans = vec![Span::raw(if is_chosen { ">" } else { " " })];
    for (index, column) in columns.iter().enumerate() {
        if index > 0 {
            spans.push(Span::raw(" "));
        }
        let cell = column.cell(connection, histories);
        spans.push(match column.kind {
            Kind::Verdict => {
                Span::styled(cell, palette.verdict(connection.verdict, connection.kill_justified))
            }
            Kind::Sparkline => Span::styled(cell, palette.sparkline()),
            _ => Span::raw(cell),
        });
    }
    let line = Line::from(spans);
    if is_chosen { line.patch_style(palette.title()) } else { line }
}

/// Why there is no row.
fn nothing(state: &State) -> String {
    if state.answered_at.is_none() {
        return match &state.link {
            Link::Away { reason, .. } => away(&state.address, reason),
            Link::Connecting | Link::Live => "Waiting for the first answer.".to_owned(),
        };
    }
    if state.total == 0 {
        return "No connection is watched. One is shown as soon as it is established.".to_owned();
    }
    "No connection passes the filter: 0 shows every verdict, / then Ctrl-U and Enter every text.".to_owned()
}

/// What to do about an API that is away.
fn away(address: &str, reason: &str) -> String {
    format!(
        "The API at {} does not answer: {}. Is `ackbeat run` running in this network namespace, and does its setting \
         api.listen (or api.socket) name this address? If it listens elsewhere, say so with --api. Trying again.",
        harmless(address),
        harmless(reason)
    )
}
