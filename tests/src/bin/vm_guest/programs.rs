//! What `ackbeat check` says: every kernel program loaded and attached by itself.

use std::process::{Command, Stdio};

use ackbeat_tests::network::Network;
use ackbeat_tests::tools;
use anyhow::{Context, Result, ensure};

/// The kernel programs that are loaded and attached one by one, as the table names them.
const PROGRAMS: [&str; 7] = [
    "retransmits",
    "send_reset",
    "receive_reset",
    "terminations",
    "lifecycle",
    "sample_tracked",
    "sample_all",
];
/// How the table's row of the programs on interfaces begins.
const WIRE: &str = "wire parser";
/// And that of the connection that every hook must see.
const SELF_TEST: &str = "self-test";

/// Runs it in a network with interfaces, and counts. What is missing is no failure here: see `degraded`.
///
/// # Errors
/// If it cannot be run, or its table does not name every program.
pub(super) fn check() -> Result<String> {
    let network = Network::create()?;
    let mut command = Command::new(tools::ackbeat()?);
    command.arg("check").stdin(Stdio::null());
    let check = network.host.run(move || command.output())?.context("starting ackbeat failed")?;
    let table = String::from_utf8_lossy(&check.stdout).into_owned();
    #[expect(clippy::print_stdout, reason = "for whoever reads the console")]
    {
        println!("{table}");
    }
    summary(&table)
}

/// `7 of 7, wire, self-test`.
fn summary(table: &str) -> Result<String> {
    let row = |name: &str| {
        let found = table
            .lines()
            .find(|line| line.split_once(' ').is_some_and(|(_, rest)| rest.trim_start().starts_with(name)));
        found.with_context(|| format!("ackbeat check says nothing of {name}: {table}"))
    };
    let mut loaded = 0;
    for program in PROGRAMS {
        loaded += usize::from(row(program)?.starts_with("ok"));
    }
    ensure!(loaded <= PROGRAMS.len(), "more than there are");
    let mut summary = format!("{loaded} of {}", PROGRAMS.len());
    for (name, word) in [(WIRE, "wire"), (SELF_TEST, "self-test")] {
        let no = if row(name)?.starts_with("ok") { "" } else { "no " };
        summary.push_str(&format!(", {no}{word}"));
    }
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_loaded_is_counted() {
        let mut table = String::new();
        for program in PROGRAMS {
            let word = if program == "lifecycle" { "missing  lifecycle   refused" } else { "" };
            if word.is_empty() {
                table.push_str(&format!("ok       {program}\n"));
            } else {
                table.push_str(&format!("{word}\n"));
            }
        }
        table.push_str("without  wire parser on the interfaces (TCX or clsact)  no bpf_loop\n");
        assert!(summary(&table).is_err());
        table
            .push_str("ok       self-test: a connection over the loopback interface is seen by every hook\n");
        assert_eq!(summary(&table).unwrap(), "6 of 7, no wire, self-test");
        assert!(summary("ok  lifecycle").is_err());
    }
}
