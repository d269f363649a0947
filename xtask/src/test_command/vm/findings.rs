//! What the guest said, one JSON object a line, and the table of all kernels.

use std::time::Duration;

use serde::Deserialize;

use super::machine::Ended;
use crate::test_command::report::RankReport;

/// The checks, in the order in which the guest makes them; the names are those that it says.
const CHECKS: [&str; 5] = ["boots", "programs", "offsets", "story", "degraded"];
/// The table's columns.
const COLUMNS: [&str; 6] = ["boots", "programs loaded", "offsets", "story A", "degraded modes", "mode"];

/// The result of one check.
#[derive(Debug, Deserialize)]
struct Finding {
    check: String,
    /// What is shown in the table.
    summary: String,
    /// Why it failed.
    problem: Option<String>,
}

/// What the guest says at its very end.
#[derive(Debug, Deserialize)]
struct Mode {
    mode: String,
}

/// One kernel's results.
pub(super) struct Row {
    release: String,
    findings: Vec<Finding>,
    mode: String,
    ended: Ended,
    took: Duration,
}

impl Row {
    pub(super) fn new(release: &str, ended: Ended) -> Self {
        let lines = || ended.results.lines().map(str::trim);
        let findings = lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let mode = lines().find_map(|line| serde_json::from_str::<Mode>(line).ok());
        let mode = mode.map_or_else(|| "?".to_owned(), |found| found.mode);
        Self { release: release.to_owned(), findings, mode, ended, took: Duration::ZERO }
    }

    pub(super) fn took(mut self, time: Duration) -> Self {
        self.took = time;
        self
    }

    fn finding(&self, check: &str) -> Option<&Finding> {
        self.findings.iter().find(|found| found.check == check)
    }

    fn cell(&self, check: &str) -> String {
        match self.finding(check) {
            None => "no".to_owned(),
            Some(Finding { problem: Some(_), summary, .. }) if summary.is_empty() => "FAILED".to_owned(),
            Some(Finding { problem: Some(_), summary, .. }) => format!("FAILED ({summary})"),
            Some(found) => found.summary.clone(),
        }
    }

    /// Adds each check: what the guest did not come to has failed too.
    pub(super) fn add_to(&self, report: &mut RankReport) {
        let mut told = false;
        for check in CHECKS {
            match self.finding(check) {
                Some(Finding { problem: None, .. }) => report.passed(1),
                Some(Finding { problem: Some(problem), .. }) => {
                    told = true;
                    report.failed(format!("Linux {}: {check}: {problem}", self.release));
                }
                None => {
                    report.failed(format!("Linux {}: {check}: the guest did not come to it", self.release));
                }
            }
        }
        if CHECKS.iter().any(|check| self.finding(check).is_none()) || told {
            let how = if self.ended.timed_out { "took too long and was ended" } else { "ended" };
            report.failed(format!(
                "Linux {}: the guest {how}; the whole console is in {}, its end:\n{}",
                self.release,
                self.ended.console.display(),
                self.ended.last_lines
            ));
        }
    }
}

/// The table of all kernels.
pub(super) fn table(rows: &[Row]) -> Vec<String> {
    let mut cells: Vec<Vec<String>> =
        vec![["kernel"].into_iter().chain(COLUMNS).chain(["time"]).map(str::to_owned).collect()];
    for row in rows {
        let mut line = vec![row.release.clone()];
        line.extend(CHECKS.map(|check| row.cell(check)));
        line.push(row.mode.clone());
        line.push(format!("{:.0} s", row.took.as_secs_f64()));
        cells.push(line);
    }
    let columns = cells.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| cells.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max())
        .map(Option::unwrap_or_default)
        .collect();
    let mut lines = vec![String::new()];
    for line in &cells {
        let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        lines.push(padded.collect::<Vec<_>>().join("  ").trim_end().to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::test_command::report::Report;

    fn row(results: &str) -> Row {
        let ended = Ended {
            results: results.to_owned(),
            last_lines: "Kernel panic - not syncing".to_owned(),
            console: PathBuf::from("/t/console.log"),
            timed_out: false,
        };
        Row::new("6.1.0-57", ended).took(Duration::from_secs(71))
    }

    const GOOD: &str = "{\"check\":\"boots\",\"summary\":\"yes\",\"problem\":null}\r
{\"check\":\"programs\",\"summary\":\"7 of 7, wire\",\"problem\":null}\r
{\"check\":\"offsets\",\"summary\":\"6 sockets\",\"problem\":null}\r
{\"check\":\"story\",\"summary\":\"4 spans\",\"problem\":null}\r
{\"check\":\"degraded\",\"summary\":\"none\",\"problem\":null}\r
{\"mode\":\"ebpf\"}\r
";

    #[test]
    fn the_table_has_a_row_for_each_kernel() {
        let expected = "
kernel    boots  programs loaded  offsets    story A  degraded modes  mode  time
6.1.0-57  yes    7 of 7, wire     6 sockets  4 spans  none            ebpf  71 s";
        assert_eq!(table(&[row(GOOD)]).join("\n"), expected);
    }

    #[test]
    fn what_the_guest_did_not_come_to_has_failed() {
        let count = |results: &str| {
            let mut report = RankReport::new("vm");
            row(results).add_to(&mut report);
            let mut all = Report::new(false);
            all.add(report);
            (all.failed(), all.lines().join("\n"))
        };
        assert_eq!(count(GOOD).0, 0);
        let (failed, text) =
            count("{\"check\":\"boots\",\"summary\":\"yes\",\"problem\":null}\n{\"check\":\"prog");
        assert_eq!(failed, 5);
        assert!(text.contains("Kernel panic"), "{text}");
        let (failed, text) =
            count(&GOOD.replace("\"6 sockets\",\"problem\":null", "\"\",\"problem\":\"rto_ms\""));
        assert_eq!(failed, 2);
        assert!(text.contains("Linux 6.1.0-57: offsets: rto_ms"), "{text}");
    }
}
