//! What each would have done, as a table for a terminal.

use std::fmt::Write as _;

use ackbeat_liveness::{CloseKind, Timestamp};

use super::{Compared, Comparison, Outcome};

/// Columns of the table of connections.
const COLUMNS: [&str; 5] = ["#", "contestant", "would have killed", "against what happened", "why"];
/// Columns of the totals.
const TOTALS: [&str; 5] =
    ["contestant", "would have killed", "of connections", "the host did not close", "not judged"];

/// The table: one row for each connection and contestant, then one line of totals for each contestant.
#[must_use]
pub fn render(comparison: &Comparison) -> String {
    let mut text = String::from("what each would have done\n");
    for (index, compared) in comparison.connections.iter().enumerate() {
        let number = index + 1;
        let _ = write!(text, "\n#{number}  {}, {}\n", compared.peer(), end(compared, comparison.began_at));
        let rows = compared.outcomes.iter().map(|outcome| {
            [
                format!("#{number}"),
                outcome.name.clone(),
                decision(outcome, comparison.began_at),
                against(outcome, compared),
                reason(outcome),
            ]
        });
        text.push_str(&aligned(&COLUMNS.map(str::to_owned), rows));
    }
    if comparison.connections.len() > 1 {
        text.push_str("\nin sum\n");
        let rows =
            comparison.contestants.iter().enumerate().map(|(index, name)| totals(comparison, index, name));
        text.push_str(&aligned(&TOTALS.map(str::to_owned), rows));
    }
    if comparison.reports_unmatched > 0 {
        let _ = write!(text, "\n{} reports belonged to no connection\n", comparison.reports_unmatched);
    }
    text
}

/// How the connection ended in life.
fn end(compared: &Compared, began_at: Timestamp) -> String {
    match &compared.closed {
        None => "not followed: too many connections".to_owned(),
        Some(record) if record.still_open => "open at the end of the recording".to_owned(),
        Some(record) => {
            let closed = time(record.closed_at, began_at);
            let assessment = record.assessment.map_or_else(String::new, |found| format!(", {found}"));
            format!("closed by {} at {closed} ({}{assessment})", record.initiator, record.kind)
        }
    }
}

fn decision(outcome: &Outcome, began_at: Timestamp) -> String {
    match (&outcome.kill, &outcome.not_judged) {
        (Some(kill), _) => format!("at {}", time(kill.at, began_at)),
        (None, Some(_)) => "not judged".to_owned(),
        (None, None) => "no".to_owned(),
    }
}

/// Why it killed, or could not judge.
fn reason(outcome: &Outcome) -> String {
    let kill = outcome.kill.as_ref().map(|kill| &kill.reason);
    kill.or(outcome.not_judged.as_ref()).cloned().unwrap_or_default()
}

/// A decision against the connection's real end.
fn against(outcome: &Outcome, compared: &Compared) -> String {
    let Some(kill) = &outcome.kill else {
        // Nobody had to kill what ended in order.
        let is_graceful = compared.closed.as_ref().is_some_and(|record| record.kind == CloseKind::Graceful);
        return match (compared.host_closed_at().filter(|_| !is_graceful), &outcome.not_judged) {
            (Some(closed_at), None) => {
                let later = outcome.due.filter(|due| *due > closed_at).map_or_else(String::new, |due| {
                    format!("; its timer was due {} later", tenths(due.ms_since(closed_at)))
                });
                format!("not until the host closed it{later}")
            }
            _ => String::new(),
        };
    };
    let Some(record) = compared.closed.as_ref().filter(|record| !record.still_open) else {
        return "the connection lived on".to_owned();
    };
    let who = match compared.host_closed_at() {
        Some(_) => "the host did".to_owned(),
        None => format!("the end, which was by {}", record.initiator),
    };
    let (early_ms, late_ms) = (record.closed_at.ms_since(kill.at), kill.at.ms_since(record.closed_at));
    if early_ms.max(late_ms) < 100 {
        return match compared.host_closed_at() {
            Some(_) => "when the host did".to_owned(),
            None => format!("at {who}"),
        };
    }
    let (ms, word) = if early_ms > 0 { (early_ms, "before") } else { (late_ms, "after") };
    format!("{} {word} {who}", tenths(ms))
}

fn tenths(ms: u64) -> String {
    format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
}

fn totals(comparison: &Comparison, index: usize, name: &str) -> [String; 5] {
    let outcomes = || {
        comparison.connections.iter().filter_map(|compared| Some((compared, compared.outcomes.get(index)?)))
    };
    let killed = outcomes().filter(|(_, outcome)| outcome.kill.is_some());
    let kept_by_host = killed.clone().filter(|(compared, _)| compared.host_closed_at().is_none());
    let blind = outcomes().filter(|(_, outcome)| outcome.not_judged.is_some());
    [
        name.to_owned(),
        killed.count().to_string(),
        comparison.connections.len().to_string(),
        kept_by_host.count().to_string(),
        blind.count().to_string(),
    ]
}

/// A moment, counted from the start of the recording.
fn time(at: Timestamp, began_at: Timestamp) -> String {
    let ms = at.ms_since(began_at);
    format!("{}.{:03} s", ms / 1_000, ms % 1_000)
}

/// Rows under their heads, in columns.
pub(crate) fn aligned<const N: usize>(
    heads: &[String; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let rows: Vec<[String; N]> = std::iter::once(heads.clone()).chain(rows).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            // Writing to a string cannot fail.
            let _ = write!(line, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}
