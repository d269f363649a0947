//! `cargo test`, with what it prints both shown and understood.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::report::RankReport;
use crate::{console, process};

/// Runs one `cargo test` command, shows its output and adds what it did to the report.
///
/// # Errors
/// Cargo could not be started, or its output could not be read.
pub(crate) fn run(command: &mut Command, label: &str, report: &mut RankReport) -> Result<()> {
    let ran = watch(command, label, console::result)?;
    ran.summary.add_to(report, label, ran.ended_well);
    Ok(())
}

/// How one `cargo test` command ended.
pub(crate) struct Ran {
    /// What its lines said.
    pub(crate) summary: Summary,
    /// Whether it ended with code 0.
    pub(crate) ended_well: bool,
}

/// Runs one `cargo test` command and hands each line of its output to `show`.
///
/// # Errors
/// Cargo could not be started, or its output could not be read.
pub(crate) fn watch(command: &mut Command, label: &str, mut show: impl FnMut(&str)) -> Result<Ran> {
    console::progress(&process::command_line(command));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{label}: could not start `{}`", process::command_line(command)))?;
    let output = child.stdout.take().with_context(|| format!("{label}: no output to read"))?;
    let mut summary = Summary::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.with_context(|| format!("{label}: reading the output"))?;
        let line = String::from_utf8_lossy(&line);
        show(&line);
        summary.read(&line);
    }
    let status = child.wait().with_context(|| format!("{label}: waiting for the end"))?;
    Ok(Ran { summary, ended_well: status.success() })
}

/// What libtest's lines say, over all test programs of one command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    passed: usize,
    failed: usize,
    failed_names: Vec<String>,
    ignored_names: Vec<String>,
    /// The names under `failures:`, while that list is read.
    listed: Option<Vec<String>>,
}

impl Summary {
    /// Reads one line as libtest writes it without a terminal: `test NAME ... ok`, `test result: ok. 1 passed; …`, and the
    /// names that stand indented under `failures:`. What a test prints itself can tear its own line apart; the list is whole.
    fn read(&mut self, line: &str) {
        if line == "failures:" {
            self.listed = Some(Vec::new());
            return;
        }
        if line.starts_with("---- ") {
            // The first list of that name is of outputs, not of names.
            self.listed = None;
        }
        if let (Some(listed), Some(name)) = (&mut self.listed, line.strip_prefix("    ")) {
            listed.push(name.to_owned());
            return;
        }
        let Some(rest) = line.strip_prefix("test ") else { return };
        if let Some(counts) = rest.strip_prefix("result: ") {
            self.passed += count_before(counts, " passed");
            self.failed += count_before(counts, " failed");
            for name in self.listed.take().unwrap_or_default() {
                if !self.failed_names.contains(&name) {
                    self.failed_names.push(name);
                }
            }
            return;
        }
        let Some((name, result)) = rest.rsplit_once(" ... ") else { return };
        if result.starts_with("FAILED") {
            self.failed_names.push(name.to_owned());
        } else if result.starts_with("ignored") {
            self.ignored_names.push(name.to_owned());
        }
    }

    /// Takes out the names of failed tests, so that somebody else may report them. Of a test program that crashed there is
    /// nothing to take: what it did not come to would be forgotten.
    pub(crate) fn take_failed_names(&mut self) -> Vec<String> {
        if self.failed == 0 {
            return Vec::new();
        }
        self.failed -= self.failed_names.len().min(self.failed);
        std::mem::take(&mut self.failed_names)
    }

    /// Whether a test ran and all of them passed.
    pub(crate) fn has_only_passed(&self) -> bool {
        self.passed > 0 && self.failed == 0 && self.failed_names.is_empty()
    }

    /// Adds the counts and the names to the report.
    pub(crate) fn add_to(&self, report: &mut RankReport, label: &str, ended_well: bool) {
        report.passed(self.passed);
        for name in &self.failed_names {
            report.failed(format!("{label}: {name}"));
        }
        // What a test prints itself can hide its own line from us; the count is still there.
        for _ in self.failed_names.len()..self.failed {
            report.failed(format!("{label}: a test whose name got lost in its output"));
        }
        for name in &self.ignored_names {
            report.could_not_run(format!("{label}: {name} is marked #[ignore]"));
        }
        if !ended_well && self.failed == 0 && self.failed_names.is_empty() {
            report.failed(format!("{label}: did not compile, or a test program crashed"));
        }
    }
}

/// The number that stands before `word` in `ok. 12 passed; 0 failed; …`.
fn count_before(counts: &str, word: &str) -> usize {
    let before = counts.split(word).next().filter(|before| before.len() < counts.len());
    before.and_then(|before| before.rsplit(' ').next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_command::report::Report;

    const OUTPUT: &str = "
running 3 tests
test time::tests::wraps ... ok
test policy::tests::odd name with spaces ... FAILED
test slow ... ignored, needs an hour

failures:

---- policy::tests::odd name with spaces stdout ----
    not a name

failures:
    policy::tests::odd name with spaces

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s

running 2 tests
test src/lib.rs - (line 3) ... ok
test src/lib.rs - Name::of (line 9) - compile ... ok

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.30s
";

    fn read(output: &str) -> Summary {
        let mut summary = Summary::default();
        output.lines().for_each(|line| summary.read(line));
        summary
    }

    #[test]
    fn counts_are_added_over_all_test_programs() {
        let expected = Summary {
            passed: 3,
            failed: 1,
            failed_names: vec!["policy::tests::odd name with spaces".to_owned()],
            ignored_names: vec!["slow".to_owned()],
            listed: None,
        };
        assert_eq!(read(OUTPUT), expected);
    }

    #[test]
    fn a_name_torn_apart_is_found_in_the_list() {
        let mut summary = read(
            "test a ... some output\nFAILED\n\nfailures:\n\n---- a stdout ----\nError: no\n\n\nfailures:\n    a\n\n\
             test result: FAILED. 0 passed; 1 failed; 0 ignored\n",
        );
        assert_eq!(summary.take_failed_names(), ["a"]);
        assert_eq!(summary.failed, 0);
    }

    #[test]
    fn a_failure_whose_name_is_lost_still_counts() {
        let summary =
            read("test a ... some output\nFAILED\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\n");
        let mut report = RankReport::new("pure");
        summary.add_to(&mut report, "ackbeat-abi", false);
        let mut all = Report::new(false);
        all.add(report);
        assert_eq!(all.failed(), 1);
    }

    #[test]
    fn code_that_does_not_compile_is_a_failure() {
        let mut report = RankReport::new("pure");
        read("").add_to(&mut report, "ackbeat-abi", false);
        let mut all = Report::new(false);
        all.add(report);
        assert!(
            all.lines()
                .contains(&"  pure: ackbeat-abi: did not compile, or a test program crashed".to_owned()),
            "{:?}",
            all.lines()
        );
    }

    #[test]
    fn the_whole_way_from_a_child_process_to_the_report() {
        let mut report = RankReport::new("pure");
        let mut command = Command::new("printf");
        command.arg("test a ... ok\\ntest result: ok. 1 passed; 0 failed; 0 ignored\\n");
        run(&mut command, "sample", &mut report).expect("printf runs");
        let mut all = Report::new(true);
        all.add(report);
        assert_eq!(all.lines().last().map(String::as_str), Some("1 passed, 0 failed"));
    }
}
