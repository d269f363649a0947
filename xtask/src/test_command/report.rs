//! What the ranks did, as a table that ends with one plain line.

use std::time::Duration;

/// What one rank did.
pub(crate) struct RankReport {
    rank: &'static str,
    passed: usize,
    failures: Vec<String>,
    not_run: Vec<String>,
    unsteady: Vec<String>,
    time: Duration,
}

impl RankReport {
    /// Nothing happened yet.
    pub(crate) fn new(rank: &'static str) -> Self {
        Self {
            rank,
            passed: 0,
            failures: Vec::new(),
            not_run: Vec::new(),
            unsteady: Vec::new(),
            time: Duration::ZERO,
        }
    }

    /// That many tests passed.
    pub(crate) fn passed(&mut self, count: usize) {
        self.passed += count;
    }

    /// A test, or a step without which tests could not run, failed.
    pub(crate) fn failed(&mut self, name: String) {
        self.failures.push(name);
    }

    /// The rank, or a named part of it, could not run on this machine.
    pub(crate) fn could_not_run(&mut self, why: String) {
        self.not_run.push(why);
    }

    /// A test failed beside others and passed alone. It counts as passed, and is named.
    pub(crate) fn unsteady(&mut self, name: String) {
        self.unsteady.push(name);
    }

    /// How long the rank took, its preparation included.
    pub(crate) fn took(&mut self, time: Duration) {
        self.time = time;
    }
}

/// All ranks of one run.
pub(crate) struct Report {
    require_all: bool,
    ranks: Vec<RankReport>,
}

impl Report {
    /// With `require_all`, what could not run counts as failed.
    pub(crate) fn new(require_all: bool) -> Self {
        Self { require_all, ranks: Vec::new() }
    }

    /// Adds a finished rank. One that ran no test although nothing kept it from running has failed.
    pub(crate) fn add(&mut self, mut rank: RankReport) {
        if rank.passed == 0 && rank.failures.is_empty() && rank.not_run.is_empty() {
            rank.failed("the rank ran no test at all".to_owned());
        }
        self.ranks.push(rank);
    }

    /// Failed tests, and with `require_all` what could not run.
    pub(crate) fn failed(&self) -> usize {
        self.ranks.iter().map(|rank| self.failed_in(rank)).sum()
    }

    fn failed_in(&self, rank: &RankReport) -> usize {
        rank.failures.len() + if self.require_all { rank.not_run.len() } else { 0 }
    }

    fn passed(&self) -> usize {
        self.ranks.iter().map(|rank| rank.passed).sum()
    }

    /// The table, the names, and the closing line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let width = self.ranks.iter().map(|rank| rank.rank.len()).max().unwrap_or(0).max(4);
        let mut lines = vec![String::new(), format!("{:<width$}  passed  failed     time", "rank")];
        for rank in &self.ranks {
            let note = if rank.not_run.is_empty() { "" } else { "  not everything could run" };
            let (failed, seconds) = (self.failed_in(rank), rank.time.as_secs_f64());
            lines.push(format!(
                "{:<width$}  {:>6}  {failed:>6}  {seconds:>5.1} s{note}",
                rank.rank, rank.passed
            ));
        }
        self.list("could not run", |rank| &rank.not_run, &mut lines);
        self.list("passed at the second try only", |rank| &rank.unsteady, &mut lines);
        self.list("failed", |rank| &rank.failures, &mut lines);
        lines.push(String::new());
        lines.push(format!("{} passed, {} failed", self.passed(), self.failed()));
        lines
    }

    fn list(&self, title: &str, of: impl Fn(&RankReport) -> &Vec<String>, lines: &mut Vec<String>) {
        if self.ranks.iter().all(|rank| of(rank).is_empty()) {
            return;
        }
        lines.push(String::new());
        lines.push(format!("{title}:"));
        for rank in &self.ranks {
            lines.extend(
                of(rank).iter().map(|entry| format!("  {}: {}", rank.rank, entry.replace('\n', "\n    "))),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(require_all: bool) -> Report {
        let mut pure = RankReport::new("pure");
        pure.passed(41);
        pure.took(Duration::from_millis(12_340));
        let mut in_process = RankReport::new("in-process");
        in_process.passed(7);
        in_process.failed("ackbeat: config::tests::unknown_keys".to_owned());
        in_process.took(Duration::from_secs(100));
        let mut namespaces = RankReport::new("namespaces");
        namespaces.could_not_run("not root; run `sudo cargo xtask test namespaces`".to_owned());
        let mut report = Report::new(require_all);
        for rank in [pure, in_process, namespaces] {
            report.add(rank);
        }
        report
    }

    #[test]
    fn the_table_names_what_failed_and_what_could_not_run() {
        let expected = "
rank        passed  failed     time
pure            41       0   12.3 s
in-process       7       1  100.0 s
namespaces       0       0    0.0 s  not everything could run

could not run:
  namespaces: not root; run `sudo cargo xtask test namespaces`

failed:
  in-process: ackbeat: config::tests::unknown_keys

48 passed, 1 failed";
        assert_eq!(sample(false).lines().join("\n"), expected);
        assert_eq!(sample(false).failed(), 1);
    }

    #[test]
    fn where_every_rank_must_run_one_that_could_not_has_failed() {
        let report = sample(true);
        assert_eq!(report.failed(), 2);
        assert_eq!(report.lines().last().map(String::as_str), Some("48 passed, 2 failed"));
    }

    #[test]
    fn a_rank_without_tests_has_failed() {
        let mut report = Report::new(false);
        report.add(RankReport::new("namespaces"));
        assert_eq!(report.failed(), 1);
        assert!(report.lines().contains(&"  namespaces: the rank ran no test at all".to_owned()));
    }
}
