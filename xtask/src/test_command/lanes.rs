//! Test targets of root, several at a time: most of what they do is wait for kernel timers and for each other's heartbeats.
//!
//! A target runs its own tests one after another. Its output is shown when it has ended, so that no two mix; which test
//! passed or failed is told as it happens. A test that failed is tried once more when nothing else runs. If it passes then,
//! the report names it as unsteady, and more than [`UNSTEADY_LIMIT`] of them are a failure all the same: a machine that is
//! shared may be late once, not all the time.

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Result;

use super::cargo_test::{self, Ran};
use super::report::RankReport;
use crate::console;

/// Tests of one rank that may pass at the second try only.
const UNSTEADY_LIMIT: usize = 3;

/// Runs all `targets`, `count` at a time in their order, then once more what failed.
///
/// # Errors
/// Cargo could not be started, or its output could not be read.
pub(crate) fn run(
    targets: &[&str],
    count: usize,
    command_of: impl Fn(&str) -> Command + Sync,
    report: &mut RankReport,
) -> Result<()> {
    let waiting = Mutex::new(targets.iter());
    let ended = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..count.clamp(1, targets.len().max(1)) {
            scope.spawn(|| {
                while let Some(target) = next(&waiting) {
                    let ran = one(target, &mut command_of(target));
                    lock(&ended).push((*target, ran));
                }
            });
        }
    });
    let mut failed = Vec::new();
    for (target, ran) in ended.into_inner().unwrap_or_else(PoisonError::into_inner) {
        let mut ran = ran?;
        let names = ran.summary.take_failed_names();
        // The failures are why it did not end well; what is left is counted as it is.
        ran.summary.add_to(report, target, ran.ended_well || !names.is_empty());
        failed.extend(names.into_iter().map(|name| (target, name)));
    }
    again(&failed, command_of, report)
}

fn again(
    failed: &[(&str, String)],
    command_of: impl Fn(&str) -> Command,
    report: &mut RankReport,
) -> Result<()> {
    let may_be_unsteady = failed.len() <= UNSTEADY_LIMIT;
    for (target, name) in failed {
        let label = format!("{target}: {name}");
        if !may_be_unsteady {
            report.failed(label);
            continue;
        }
        console::progress(&format!("{label} failed; once more, alone"));
        let mut command = command_of(target);
        command.args(["--exact", name]);
        let ran = cargo_test::watch(&mut command, target, console::result)?;
        if ran.ended_well && ran.summary.has_only_passed() {
            report.passed(1);
            report.unsteady(label);
        } else {
            report.failed(label);
        }
    }
    Ok(())
}

/// Runs one target and shows its output at its end.
fn one(target: &str, command: &mut Command) -> Result<Ran> {
    let mut lines = Vec::new();
    let ran = cargo_test::watch(command, target, |line| {
        if line.starts_with("test ") {
            console::progress(&format!("{target}: {line}"));
        }
        lines.push(line.to_owned());
    });
    console::result(&format!("{target}:\n{}", lines.join("\n")));
    ran
}

fn next<'a>(waiting: &Mutex<impl Iterator<Item = &'a &'a str>>) -> Option<&'a &'a str> {
    lock(waiting).next()
}

/// A lane that panicked leaves nothing half done behind: the list is only ever taken from or added to.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_command::report::Report;

    /// Stands for `cargo test`: a shell script with the target, then what is appended, as its arguments.
    fn script(text: &'static str) -> impl Fn(&str) -> Command + Sync {
        move |target| {
            let mut command = Command::new("sh");
            command.args(["-c", text, target]);
            command
        }
    }

    fn report_of(targets: &[&str], text: &'static str) -> (usize, Vec<String>) {
        let mut of_rank = RankReport::new("namespaces");
        run(targets, 2, script(text), &mut of_rank).expect("sh runs");
        let mut report = Report::new(true);
        report.add(of_rank);
        (report.failed(), report.lines())
    }

    #[test]
    fn all_targets_are_counted() {
        let (failed, lines) = report_of(
            &["a", "b", "c"],
            "echo \"test $0 ... ok\"; echo 'test result: ok. 1 passed; 0 failed; 0 ignored'",
        );
        assert_eq!(failed, 0);
        assert_eq!(lines.last().map(String::as_str), Some("3 passed, 0 failed"));
    }

    #[test]
    fn a_test_that_passes_alone_is_named_as_unsteady() {
        let (failed, lines) = report_of(
            &["story"],
            r#"if [ "$1" = --exact ]; then echo "test $2 ... ok"; echo 'test result: ok. 1 passed; 0 failed; 0 ignored'
            else echo 'test slow ... FAILED'; echo 'test result: FAILED. 4 passed; 1 failed; 0 ignored'; exit 101; fi"#,
        );
        assert_eq!(failed, 0, "{lines:?}");
        assert!(lines.contains(&"  namespaces: story: slow".to_owned()), "{lines:?}");
        assert_eq!(lines.last().map(String::as_str), Some("5 passed, 0 failed"));
    }

    #[test]
    fn a_test_that_fails_twice_has_failed() {
        let (failed, lines) = report_of(
            &["story"],
            "echo 'test broken ... FAILED'; echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'; exit 101",
        );
        assert_eq!(failed, 1);
        assert_eq!(lines.last().map(String::as_str), Some("0 passed, 1 failed"));
    }

    #[test]
    fn a_second_try_that_runs_nothing_is_no_pass() {
        let (failed, _) = report_of(
            &["story"],
            r#"if [ "$1" = --exact ]; then echo 'test result: ok. 0 passed; 0 failed; 0 ignored'
            else echo 'test lost ... FAILED'; echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored'; exit 101; fi"#,
        );
        assert_eq!(failed, 1);
    }

    #[test]
    fn many_failures_are_not_a_slow_machine() {
        let (failed, lines) = report_of(
            &["a", "b", "c", "d"],
            r#"if [ "$1" = --exact ]; then echo "test $2 ... ok"; echo 'test result: ok. 1 passed; 0 failed; 0 ignored'
            else echo 'test slow ... FAILED'; echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'; exit 101; fi"#,
        );
        assert_eq!(failed, 4, "{lines:?}");
    }

    #[test]
    fn a_target_that_crashed_has_failed() {
        let (failed, lines) = report_of(&["crash"], "exit 134");
        assert_eq!(failed, 1, "{lines:?}");
        // Its second try would pass, but what comes after the crash would never run.
        let (failed, lines) = report_of(
            &["crash"],
            r#"if [ "$1" = --exact ]; then echo "test $2 ... ok"; echo 'test result: ok. 1 passed; 0 failed; 0 ignored'
            else echo 'test first ... FAILED'; exit 134; fi"#,
        );
        assert_eq!(failed, 1, "{lines:?}");
    }
}
