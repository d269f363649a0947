//! The demo's table: one line for each connection.

use ackbeat_tests::spans::{self, Span};

const HEADINGS: [&str; 8] =
    ["connection", "port", "who closed", "kind", "verdict", "rung", "post-mortem", "assessment"];

/// Draws the table. What a span does not say is left open.
pub(crate) fn render(names: &[(&str, u16)], collected: &[Span]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    for (name, port) in names {
        let span = spans::host_close(collected, *port).or_else(|| spans::connection(collected, *port));
        let attribute = |key: &str| span.and_then(|span| span.text(key)).unwrap_or("-").to_owned();
        rows.push([
            (*name).to_owned(),
            port.to_string(),
            attribute("ackbeat.close.initiator"),
            attribute("ackbeat.close.kind"),
            attribute("ackbeat.verdict"),
            attribute("ackbeat.verdict.evidence"),
            attribute("ackbeat.postmortem"),
            attribute("ackbeat.kill.assessment"),
        ]);
    }
    let mut widths = [0; HEADINGS.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; HEADINGS.len()]| {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    lines.insert(1, widths.map(|width| "─".repeat(width)).join("  "));
    lines.join("\n") + "\n"
}
