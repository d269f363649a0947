//! The arena: plays the scenarios with real sockets and lets every detector judge what was recorded.
#![expect(clippy::print_stdout, reason = "a program for people: its output is its purpose")]

use std::path::PathBuf;
use std::process::ExitCode;

use ackbeat_tests::arena::{CannotRun, cannot_run, rows, stage};
use ackbeat_tests::tools;
use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

mod corpus;
mod drawings;
mod policy;
mod publish;
mod run;

/// Scenarios with real sockets, and every detector's judgement of them.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Plays one scenario once and keeps its recording and its truth.
    Play {
        /// Number of the scenario.
        #[arg(long)]
        row: u8,
        /// Name of its variant [default: the first].
        #[arg(long)]
        variant: Option<String>,
        /// Seed of everything that is random in it.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Leaves out what is only there to let slow detectors decide.
        #[arg(long)]
        quick: bool,
        /// Folder for the files.
        #[arg(long)]
        out: PathBuf,
    },
    /// Plays a set of scenarios, many at once, goes on where an earlier run stopped, and judges them.
    Run(run::RunArguments),
    /// Judges a set that was played.
    Judge(run::JudgeArguments),
    /// Tells what each value of a threshold would have done to every recording of a set.
    Policy(policy::PolicyArguments),
    /// Puts a set's result into the repository.
    Publish(publish::PublishArguments),
    /// Chooses small recordings of a set for the tests.
    Corpus(corpus::CorpusArguments),
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Judge(arguments) => run::judge(&arguments),
        Command::Policy(arguments) => policy::sweep(&arguments),
        Command::Publish(arguments) => publish::publish(&arguments),
        Command::Corpus(arguments) => corpus::choose(&arguments),
        Command::Play { row, variant, seed, quick, out } => {
            // A runner that is gone waits for no stage.
            nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
                .context("asking to end with the runner failed")?;
            let row = rows::row(row).with_context(|| format!("there is no row {row}"))?;
            let variant = match variant {
                Some(name) => {
                    row.variant(&name).with_context(|| format!("row {} has no variant {name}", row.number))?
                }
                None => row.variants.first().context("a row has a variant")?,
            };
            match stage::play(row, variant, seed, quick, &tools::ackbeat()?, &out) {
                Ok(played) => {
                    println!(
                        "{} subjects, recording {}",
                        played.truth.subjects.len(),
                        played.recording.display()
                    );
                    Ok(ExitCode::SUCCESS)
                }
                Err(error) => match error.downcast_ref::<CannotRun>() {
                    Some(cannot_run) => {
                        println!("{cannot_run}");
                        Ok(ExitCode::from(cannot_run::EXIT_CODE))
                    }
                    None => Err(error),
                },
            }
        }
    }
}
