//! `ackbeat`: the sidecar's binary.

use std::io::{self, Write as _};
use std::process::ExitCode;

use ackbeat::cli::{Command, CommandLine};
use ackbeat::commands::{self, CommandError};
use clap::Parser as _;

fn main() -> ExitCode {
    let result = match CommandLine::parse().command {
        Command::Run(arguments) => commands::run::execute(&arguments).map(|()| 0),
        Command::Top(arguments) => commands::top::execute(&arguments).map(|()| 0),
        Command::Check => commands::check::execute(),
        Command::Probe(arguments) => commands::probe::execute(&arguments),
        Command::StormLab(arguments) => commands::storm_lab::execute(&arguments).map(|()| 0),
        Command::Inject(arguments) => commands::inject::execute(&arguments).map(|()| 0),
        Command::Uninject(arguments) => commands::inject::execute_uninject(&arguments).map(|()| 0),
        Command::Webhook(arguments) => commands::webhook::execute(&arguments).map(|()| 0),
        Command::Ready(arguments) => commands::ready::execute(&arguments).map(|()| 0),
        Command::Replay(arguments) => commands::replay::execute(&arguments).map(|()| 0),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Standard error may be gone; the exit code still tells. An explanation is a table and starts a line.
            let start = if matches!(error, CommandError::Missing(_)) { "cannot start\n\n" } else { "" };
            let _ = writeln!(io::stderr().lock(), "ackbeat: {start}{}", error.to_string().trim_end());
            ExitCode::from(error.exit_code())
        }
    }
}
