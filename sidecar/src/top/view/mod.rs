//! The screen, from the state. Pure: the same state makes the same screen.

mod detail;
mod header;
mod help;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::palette::Palette;
use super::state::{Pane, State};
use super::text::{head, width};

pub(super) use header::{closes, losses, summary, verdicts};

/// Lines above the table.
const HEADER: u16 = 4;
/// Lines of the table beside a detail at least: its head and some rows.
const TABLE_LEAST: u16 = 8;
/// Lines of a detail beside the table.
const DETAIL: u16 = 21;

/// Draws everything.
pub(super) fn draw(state: &mut State, palette: Palette, now: Duration, frame: &mut Frame<'_>) {
    let area = frame.area();
    let beside = area.height > HEADER + TABLE_LEAST + DETAIL;
    // A pane that covers the table needs the room more than what is said about the table.
    let is_short = state.pane != Pane::Table && !beside;
    let header = header::lines(state, palette, now, area, is_short);
    let lines = u16::try_from(header.len()).unwrap_or(u16::MAX);
    let [top, body, bottom] =
        Layout::vertical([Constraint::Length(lines), Constraint::Fill(1), Constraint::Length(1)]).areas(area);
    frame.render_widget(Paragraph::new(header), top);
    match &state.pane {
        Pane::Help => frame.render_widget(Paragraph::new(help::lines(body, palette)), body),
        Pane::Table => table::draw(state, palette, body, frame),
        Pane::Detail(_) => {
            let lines = if beside { DETAIL } else { body.height };
            let [above, below] =
                Layout::vertical([Constraint::Fill(1), Constraint::Length(lines)]).areas(body);
            if beside {
                table::draw(state, palette, above, frame);
            }
            detail::draw(state, palette, below, frame);
        }
    }
    frame.render_widget(footer(state, palette, bottom), bottom);
}

/// The line of the keys, or of the filter while it is typed.
fn footer(state: &State, palette: Palette, area: Rect) -> Line<'static> {
    let columns = usize::from(area.width);
    if state.typing.is_some() {
        // Its end is where one types.
        let text = super::text::tail(&super::text::harmless(&state.query.text.0), columns.saturating_sub(9));
        return Line::from(vec![
            Span::styled("filter: ", palette.title()),
            Span::raw(text),
            Span::styled(" ", palette.reversed()),
        ]);
    }
    let keys: &[&str] = match state.pane {
        Pane::Help => &["any key back", "q quit"],
        Pane::Detail(_) => {
            &["Esc back", "j/k other connection", "PgUp/PgDn scroll", "p pause", "? help", "q quit"]
        }
        Pane::Table => &[
            "? help",
            "q quit",
            "Enter detail",
            "/ filter",
            "< > sort",
            "p pause",
            "1-7 verdict",
            "r reverse",
            "j/k move",
        ],
    };
    let mut text = String::new();
    for key in keys {
        let gap = if text.is_empty() { "" } else { "  " };
        if width(&text) + gap.len() + width(key) > columns {
            break;
        }
        text.push_str(gap);
        text.push_str(key);
    }
    Line::styled(text, palette.faint())
}

/// One line of parts; what does not fit is cut.
fn line(parts: impl IntoIterator<Item = (String, Style)>, columns: usize) -> Line<'static> {
    let mut left = columns;
    let mut spans = Vec::new();
    for (text, style) in parts {
        let text = head(&text, left);
        left -= width(&text);
        spans.push(Span::styled(text, style));
    }
    Line::from(spans)
}
