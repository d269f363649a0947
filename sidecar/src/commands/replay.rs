//! `ackbeat replay`

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write as _};
use std::net::SocketAddr;
use std::path::Path;

use ackbeat_liveness::{
    Assessment, CloseRecord, ConnectionId, Output, Policy, Postmortem, Rung, Timestamp, Verdict,
    VerdictChange,
};

use ackbeat_storms::{Storm, StormEvent};

use super::{CommandError, written};
use crate::cli::ReplayArguments;
use crate::comparison::table::{self, aligned};
use crate::comparison::{Comparison, Contestant, Options, compare_with, policy_name};
use crate::config::{PolicyName, ThresholdsLayer};
use crate::recording::replay::Summary;
use crate::recording::{Header, Reader};

/// Replays a recording and prints what the engine decides, and what others would have done.
///
/// # Errors
/// [`CommandError::Recording`] names the line that makes no sense; others name the argument.
pub fn execute(arguments: &ReplayArguments) -> Result<(), CommandError> {
    let mut reader = Reader::open_segments(&arguments.files)?;
    let header = reader.header().clone();
    let policy = policy(arguments, &header)?;
    let contestants = contestants(arguments, policy)?;

    let mut out = Printer::new(header.began_at);
    out.line(&title(arguments, &header, &contestants));
    let printer = RefCell::new(&mut out);
    let options = Options {
        // The tables number connections as they were opened.
        draw: &mut |opened| {
            printer.borrow_mut().number(opened.connection);
            false
        },
        // The first contestant is the policy that was asked for.
        decided: &mut |contestant, output| {
            if contestant == 0 {
                printer.borrow_mut().decided(output);
            }
        },
    };
    let (comparison, _) = compare_with(&mut reader, &[], &contestants, options)?;
    out.table();
    out.storms(&comparison.storms.events);
    if !arguments.compare.is_empty() {
        out.text(&format!("\n{}", table::render(&comparison)));
    }
    out.summary(&comparison.summary, &header);
    let drawn = match &arguments.plot {
        None => Ok(()),
        Some(path) => plot(path, arguments, &contestants, &comparison).map(|peer| {
            out.line(&format!("{} shows the connection of {peer}", path.display()));
        }),
    };
    // What was found is shown even if it cannot be drawn.
    written(out.finish())?;
    drawn
}

/// The thresholds that are asked for: those of the recording unless others are named.
fn policy(arguments: &ReplayArguments, header: &Header) -> Result<Policy, CommandError> {
    let base = arguments.policy.map_or_else(|| header.thresholds.clone(), PolicyName::policy);
    let set = ThresholdsLayer::from_assignments(arguments.set.iter().map(String::as_str))?;
    Ok(set.applied_to(base))
}

/// The policy that is replayed, and whoever is named beside it.
fn contestants(arguments: &ReplayArguments, policy: Policy) -> Result<Vec<Contestant>, CommandError> {
    let mut contestants = vec![Contestant::Policy { name: policy_name(&policy), policy }];
    for list in &arguments.compare {
        for contestant in Contestant::list(list)? {
            // Who is named twice, or is the policy itself, takes part once.
            if !contestants.iter().any(|known| known.name() == contestant.name()) {
                contestants.push(contestant);
            }
        }
    }
    Ok(contestants)
}

fn title(arguments: &ReplayArguments, header: &Header, contestants: &[Contestant]) -> String {
    let replayed = match arguments.policy {
        None if arguments.set.is_empty() => header.policy.clone(),
        Some(name) if arguments.set.is_empty() => name.as_str().to_owned(),
        _ => contestants.first().map_or_else(String::new, Contestant::name),
    };
    format!(
        "recorded by ackbeat {} in mode {} under policy {}; replayed under policy {replayed}",
        header.version, header.mode, header.policy
    )
}

/// Draws one connection. A second pass: only the first one shows which connections there are.
fn plot(
    path: &Path,
    arguments: &ReplayArguments,
    contestants: &[Contestant],
    comparison: &Comparison,
) -> Result<SocketAddr, CommandError> {
    let chosen = choose(arguments.connection.as_deref(), comparison)?;
    let mut reader = Reader::open_segments(&arguments.files)?;
    let options = Options { draw: &mut |opened| opened.connection == chosen, decided: &mut |_, _| {} };
    let (_, timelines) = compare_with(&mut reader, &[], contestants, options)?;
    let timeline = timelines.first().ok_or_else(|| CommandError::Connection {
        wanted: arguments.connection.clone().unwrap_or_default(),
        problem: "the recording changed while it was read".to_owned(),
    })?;
    std::fs::write(path, timeline.svg()?)
        .map_err(|cause| CommandError::Plot { path: path.to_path_buf(), cause })?;
    Ok(timeline.compared.peer())
}

/// The connection to draw: the one that is asked for, or the first that the host closed, or else the first.
fn choose(wanted: Option<&str>, comparison: &Comparison) -> Result<ConnectionId, CommandError> {
    let connections = &comparison.connections;
    let problem =
        |problem: String| CommandError::Connection { wanted: wanted.unwrap_or("1").to_owned(), problem };
    let listed = || {
        let some = connections.iter().enumerate().take(12);
        let mut list: Vec<String> =
            some.map(|(index, known)| format!("#{} {}", index + 1, known.peer())).collect();
        if connections.len() > list.len() {
            list.push(format!("and {} more", connections.len() - list.len()));
        }
        if list.is_empty() { "the recording has no connection".to_owned() } else { list.join(", ") }
    };
    let Some(text) = wanted else {
        let first = connections.iter().find(|known| known.host_closed_at().is_some()).or(connections.first());
        return first.map(|known| known.connection).ok_or_else(|| problem(listed()));
    };
    if let Ok(number) = text.trim_start_matches('#').parse::<usize>() {
        let found = number.checked_sub(1).and_then(|index| connections.get(index));
        return found
            .map(|known| known.connection)
            .ok_or_else(|| problem(format!("there is no such number; there are: {}", listed())));
    }
    let peer = text.parse::<SocketAddr>().map_err(|_| {
        problem("this is neither a number nor ADDRESS:PORT (an IPv6 address in brackets)".to_owned())
    })?;
    let found: Vec<(usize, ConnectionId)> = connections
        .iter()
        .enumerate()
        .filter(|(_, known)| known.peer() == SocketAddr::new(peer.ip().to_canonical(), peer.port()))
        .map(|(index, known)| (index + 1, known.connection))
        .collect();
    match found.as_slice() {
        [(_, only)] => Ok(*only),
        [] => Err(problem(format!("no connection of that peer; there are: {}", listed()))),
        several => {
            let numbers: Vec<String> = several.iter().map(|(number, _)| format!("#{number}")).collect();
            Err(problem(format!("that peer had several, name one by its number: {}", numbers.join(", "))))
        }
    }
}

/// Prints decisions as they come and keeps one row for each connection.
struct Printer {
    out: BufWriter<io::Stdout>,
    result: io::Result<()>,
    began_at: Timestamp,
    rows: Vec<[String; COLUMNS.len()]>,
    /// Connections are numbered in the order in which they were opened: cookies are long.
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

/// A storm in words.
fn storm_text(storm: &Storm) -> String {
    let resonance = storm.resonance.map_or_else(String::new, |resonance| {
        format!("; they come back every {:.2} s", resonance.period_ms / 1_000.0)
    });
    format!(
        "reconnect storm on port {}: {} arrivals, {} in the worst second (usual: {:.1}), after {} closes{resonance}",
        storm.local_port, storm.arrivals, storm.peak_per_second, storm.baseline_per_second, storm.closes
    )
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
            Output::Leak(change) => {
                let time = self.time(change.at);
                self.line(&format!("{time}  {}", crate::telemetry::leaks::sentence(change)));
            }
            // A replay sends nothing, and destroys nothing.
            Output::ReapWanted(_) | Output::Answered(_) | Output::ProbeWanted(_) | Output::Reconnected(_) => {
            }
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

    fn text(&mut self, text: &str) {
        if self.result.is_ok() {
            self.result = write!(self.out, "{text}");
        }
    }

    fn table(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        let table = aligned(&COLUMNS.map(str::to_owned), rows.into_iter());
        self.text(&format!("\n{table}"));
    }

    fn storms(&mut self, events: &[StormEvent]) {
        for (place, event) in events.iter().enumerate() {
            if place == 0 {
                self.line("");
            }
            let text = match event {
                StormEvent::Ended(storm) => format!(
                    "{} to {}  {}",
                    self.time(storm.began_at).trim_start(),
                    self.time(storm.ended_at).trim_start(),
                    storm_text(storm)
                ),
                StormEvent::OutageEnded(outage) => format!(
                    "{} to {}  outage of port {}: nothing came from anybody, {} peers unreachable",
                    self.time(outage.began_at).trim_start(),
                    outage.ended_at.map_or_else(String::new, |at| self.time(at)).trim_start(),
                    outage.local_port,
                    outage.peers
                ),
                // Told at their ends.
                StormEvent::Began(_) | StormEvent::OutageBegan(_) => continue,
            };
            self.line(&text);
        }
    }

    fn summary(&mut self, summary: &Summary, header: &Header) {
        self.line("");
        self.line(&format!("{} inputs replayed", summary.inputs));
        if summary.missing > 0 {
            self.line(&format!("{} lines are missing from the recording", summary.missing));
        }
        if summary.is_cut_off {
            self.line("the last line of the recording was cut off and left out");
        }
        if let Some(segment) = header.segment {
            self.line(
                "this is a later segment of a longer recording: connections that were open at its start are shown as found \
                 then; if FILE.1 is the segment before, name both, oldest first",
            );
            if segment.left_out > 0 {
                self.line(&format!("{} connections that were open then are not in it", segment.left_out));
            }
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
