//! What the tests print.

use std::fmt::Write as _;

use ackbeat::comparison::Outcome;
use anyhow::{Result, ensure};

/// One peer.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Library and version, or the socket option.
    pub(crate) library: String,
    /// The stand-in.
    pub(crate) stand_in: String,
    /// What was done to the peer.
    pub(crate) scenario: &'static str,
    /// When the real one killed, in milliseconds after the scenario began.
    pub(crate) real_ms: Option<i64>,
    /// When the stand-in would have.
    pub(crate) stand_in_ms: Option<i64>,
    /// Why the stand-in could not judge.
    pub(crate) not_judged: Option<String>,
    /// The stand-in was given what the host said.
    pub(crate) had_reports: bool,
    /// How far they may be apart.
    pub(crate) tick_ms: i64,
    /// Whether the real one is known to kill here; `None` where that depends on how busy the machine is, and both need
    /// only do the same.
    pub(crate) kills: Option<bool>,
}

/// Milliseconds from one moment to another, in nanoseconds.
pub(crate) fn since_ms(began_ns: u64, at_ns: u64) -> i64 {
    let ms = |ns: u64| i64::try_from(ns / 1_000_000).unwrap_or(i64::MAX);
    ms(at_ns) - ms(began_ns)
}

impl Row {
    /// The row with what the stand-in said.
    #[must_use]
    pub(crate) fn judged(mut self, outcome: &Outcome, began_ns: u64) -> Self {
        self.stand_in_ms = outcome.kill.as_ref().map(|kill| since_ms(began_ns, kill.at.as_ns()));
        self.not_judged.clone_from(&outcome.not_judged);
        self
    }

    fn difference_ms(&self) -> Option<i64> {
        Some(self.stand_in_ms? - self.real_ms?)
    }

    /// What is wrong with it, if anything is.
    fn fault(&self) -> Option<String> {
        let Self { library, scenario, real_ms, stand_in_ms, tick_ms, kills, .. } = self;
        let what = if let Some(why) = &self.not_judged {
            format!("the stand-in did not judge: {why}")
        } else if let Some(kills) = kills.filter(|kills| *kills != real_ms.is_some()) {
            format!("the real one is known to kill: {kills}")
        } else if real_ms.is_some() != stand_in_ms.is_some() {
            "one killed".to_owned()
        } else if self.difference_ms().is_some_and(|difference| difference.abs() > *tick_ms) {
            format!("more than {tick_ms} ms apart")
        } else {
            return None;
        };
        Some(format!("{library}, {scenario}: {what} (real {real_ms:?} ms, stand-in {stand_in_ms:?} ms)"))
    }
}

fn milliseconds(value: Option<i64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| value.to_string())
}

/// The table, in Markdown.
fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| real | stand-in | scenario | real kill, ms | stand-in's, ms | difference, ms |\n\
         |---|---|---|---:|---:|---:|\n",
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | `{}`{} | {} | {} | {} | {} |",
            row.library,
            row.stand_in,
            if row.had_reports { " †" } else { "" },
            row.scenario,
            milliseconds(row.real_ms),
            milliseconds(row.stand_in_ms),
            milliseconds(row.difference_ms()),
        );
    }
    text
}

/// Prints the table and fails if a row is not as it must be.
///
/// # Errors
/// Names every row that is not.
#[expect(clippy::print_stdout, reason = "the table is for people, and shown with --nocapture only")]
pub(crate) fn check(title: &str, rows: &[Row]) -> Result<()> {
    println!("{title}\n\n{}", markdown(rows));
    let faults: Vec<String> = rows.iter().filter_map(Row::fault).collect();
    ensure!(faults.is_empty(), "{title}: {} of {} rows:\n{}", faults.len(), rows.len(), faults.join("\n"));
    Ok(())
}
