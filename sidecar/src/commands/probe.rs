//! `ackbeat probe`

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use super::{CommandError, runtime, written};
use crate::cli::ProbeArguments;
use crate::heartbeat_probe::{self, Options, Progress, Report, Trust, WireResult};

/// Exit code where the host did not kill.
const EXIT_SURVIVED: u8 = 1;

/// Probes the host and prints what it did. Returns the exit code: 0 if it killed.
///
/// # Errors
/// [`CommandError::Probe`] if there is nothing to report: no connection, no handshake, no WebSocket.
/// [`CommandError::ProbeUsage`] if the arguments do not fit each other.
pub fn execute(arguments: &ProbeArguments) -> Result<u8, CommandError> {
    let options = options(arguments)?;
    // Somebody who waits for minutes wants to know for what; a script does not.
    let is_watched = io::stderr().is_terminal();
    let mut watch = |progress: Progress| {
        if is_watched {
            let _ = writeln!(io::stderr().lock(), "ackbeat: {progress}");
        }
    };
    let report = runtime()?.block_on(heartbeat_probe::run(&options, &mut watch))?;
    if let Some(warning) = warning(&report) {
        let _ = writeln!(io::stderr().lock(), "ackbeat: {warning}");
    }
    let mut text = if arguments.json {
        serde_json::to_string(&report).map_err(|error| CommandError::System {
            step: "writing the report as JSON",
            cause: error.into(),
        })?
    } else {
        report.line.to_string()
    };
    text.push('\n');
    written(io::stdout().lock().write_all(text.as_bytes()))?;
    Ok(if report.line.result.is_kill() { 0 } else { EXIT_SURVIVED })
}

fn options(arguments: &ProbeArguments) -> Result<Options, CommandError> {
    let target = arguments
        .url
        .clone()
        .with_headers(arguments.header.iter().cloned())
        .with_cookies(&arguments.cookie)
        .map_err(|error| CommandError::ProbeUsage { argument: "--cookie", problem: error.to_string() })?;
    let trust = match &arguments.ca {
        _ if arguments.insecure => Trust::Anything,
        Some(path) => Trust::File(path.clone()),
        None => Trust::System,
    };
    if trust != Trust::System && !target.is_secure() {
        let argument = if arguments.insecure { "--insecure" } else { "--ca" };
        let problem = "only a wss:// URL has a certificate".to_owned();
        return Err(CommandError::ProbeUsage { argument, problem });
    }
    Ok(Options {
        target,
        trust,
        profile: arguments.profile.into(),
        ask: arguments.ask,
        mute_after: arguments.mute_after,
        interval_hint: arguments.interval_hint.map(Duration::from_millis),
        timeout: arguments.timeout.map(Duration::from_millis),
        slow_read: arguments.slow_read,
        send: arguments.send.clone(),
    })
}

/// Why a result may mean nothing, and what to do.
fn warning(report: &Report) -> Option<String> {
    let line = &report.line;
    match line.result {
        WireResult::NeverMuted => Some(format!(
            "nothing was measured: {} heartbeats came before --timeout; raise it, or lower --mute-after",
            line.pings
        )),
        WireResult::ClosedBeforeMute => Some(format!(
            "nothing was measured: the host closed after {} ms although everything was answered",
            report.open_ms
        )),
        WireResult::SurvivedSlowReader if line.slow_read.is_some_and(|slow| slow.behind_ms == 0) => Some(
            "nothing was measured: the host never sent faster than it was read; name what makes it send with --send, or \
             read slower"
                .to_owned(),
        ),
        WireResult::SurvivedMuted if line.pings == 0 => {
            Some("no heartbeat came: is the profile right, and --interval-hint long enough?".to_owned())
        }
        _ => None,
    }
}
