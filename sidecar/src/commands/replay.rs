//! `ackbeat replay`

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write as _};

use ackbeat_liveness::{
    Assessment, CloseRecord, ConnectionId, Output, Postmortem, Rung, Timestamp, Verdict, VerdictChange,
};

use super::{CommandError, written};
use crate::cli::ReplayArguments;
use crate::config::PolicyName;
use crate::recording::Reader;
use crate::recording::replay::{Summary, replay};

/// Replays a recording and prints what the engine decides.
///
/// # Errors
/// [`CommandError::Recording`] names the line that makes no sense.
pub fn execute(arguments: &ReplayArguments) -> Result<(), CommandError> {
    let mut reader = Reader::open(&arguments.file)?;
    let header = reader.header().clone();
    let policy = arguments.policy.map_or_else(|| header.thresholds.clone(), PolicyName::policy);
    let policy_name = arguments.policy.map_or(header.policy.as_str(), |name| name.as_str());

    let mut out = Printer::new(header.began_at);
    out.line(&format!(
        "recorded by ackbeat {} in mode {} under policy {}; replayed under policy {policy_name}",
        header.version, header.mode, header.policy
    ));
    let summary = replay(&mut reader, policy, |output| out.decided(output))?;
    out.table();
    out.summary(&summary);
    written(out.finish())
}

/// Prints decisions as they come and keeps one row for each connection.
struct Printer {
    out: BufWriter<io::Stdout>,
    result: io::Result<()>,
    began_at: Timestamp,
    rows: Vec<[String; COLUMNS.len()]>,
    /// Connections are numbered in the order in which they are first heard of: cookies are long.
    numbers: HashMap<ConnectionId, usize>,
}

/// What changed, in words.
fn changed(from: Verdict, to: Verdict, rung: Rung, kill_justified: bool) -> String {
    match (from == to, kill_justified) {
        (false, false) => format!("{from} -> {to}  ({rung})"),
        (false, true) => format!("{from} -> {to}  ({rung}), a kill is justified"),
        (true, true) => format!("{to}  ({rung}), a kill is justified from now on"),
        (true, false) => format!("{to}  ({rung}), a kill is justified no longer"),
    }
}

const COLUMNS: [&str; 9] =
    ["#", "peer", "local", "closed by", "kind", "verdict", "rung", "post-mortem", "assessment"];

impl Printer {
    fn new(began_at: Timestamp) -> Self {
        Self {
            out: BufWriter::new(io::stdout()),
            result: Ok(()),
            began_at,
            rows: Vec::new(),
            numbers: HashMap::new(),
        }
    }

    fn line(&mut self, text: &str) {
        if self.result.is_ok() {
            self.result = writeln!(self.out, "{text}");
        }
    }

    fn number(&mut self, connection: ConnectionId) -> usize {
        let next = self.numbers.len() + 1;
        *self.numbers.entry(connection).or_insert(next)
    }

    fn decided(&mut self, output: &Output) {
        match output {
            Output::VerdictChanged(VerdictChange { connection, at, from, to, rung, kill_justified }) => {
                let number = self.number(*connection);
                let time = self.time(*at);
                let what = changed(*from, *to, *rung, *kill_justified);
                self.line(&format!("{time}  #{number}  {what}"));
            }
            Output::Closing { connection, at, initiator } => {
                let number = self.number(*connection);
                let time = self.time(*at);
                self.line(&format!("{time}  #{number}  closed by {initiator}"));
            }
            Output::Closed(record) => self.closed(record),
        }
    }

    fn closed(&mut self, record: &CloseRecord) {
        let number = self.number(record.connection);
        let word = |word: Option<&'static str>| word.unwrap_or("-").to_owned();
        let endpoints = &record.endpoints;
        self.rows.push([
            number.to_string(),
            format!("{}:{}", endpoints.peer_address.to_canonical(), endpoints.peer_port),
            endpoints.local_port.to_string(),
            if record.still_open { "still open".to_owned() } else { record.initiator.to_string() },
            record.kind.to_string(),
            record.assessed.verdict.to_string(),
            record.assessed.rung.to_string(),
            word(record.postmortem.map(Postmortem::as_str)),
            word(record.assessment.map(Assessment::as_str)),
        ]);
    }

    fn time(&self, at: Timestamp) -> String {
        let ms = at.ms_since(self.began_at);
        format!("{:>7}.{:03} s", ms / 1_000, ms % 1_000)
    }

    fn table(&mut self) {
        let mut rows = std::mem::take(&mut self.rows);
        rows.insert(0, COLUMNS.map(str::to_owned));
        let mut widths = [0; COLUMNS.len()];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        self.line("");
        for row in &rows {
            let mut text = String::new();
            for (width, cell) in widths.iter().zip(row) {
                // Writing to a string cannot fail.
                let _ = write!(text, "{cell:width$}  ");
            }
            self.line(text.trim_end());
        }
    }

    fn summary(&mut self, summary: &Summary) {
        self.line("");
        self.line(&format!("{} inputs replayed", summary.inputs));
        if summary.missing > 0 {
            self.line(&format!("{} lines are missing from the recording", summary.missing));
        }
        if summary.is_cut_off {
            self.line("the last line of the recording was cut off and left out");
        }
    }

    fn finish(mut self) -> io::Result<()> {
        self.result?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_that_becomes_justified_under_the_same_verdict_is_no_change_of_verdict() {
        let line = |to, kill_justified| changed(Verdict::Unreachable, to, Rung::None, kill_justified);
        assert_eq!(line(Verdict::Unreachable, true), "unreachable  (none), a kill is justified from now on");
        assert_eq!(line(Verdict::Unreachable, false), "unreachable  (none), a kill is justified no longer");
        assert_eq!(line(Verdict::Unknown, false), "unreachable -> unknown  (none)");
        assert_eq!(line(Verdict::Silent, true), "unreachable -> silent  (none), a kill is justified");
    }
}
