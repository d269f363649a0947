//! The arena: plays the scenarios with real sockets and lets every detector judge what was recorded.
#![expect(clippy::print_stdout, reason = "a program for people: its output is its purpose")]

use std::path::PathBuf;

use ackbeat_tests::arena::{rows, stage};
use ackbeat_tests::tools;
use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

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
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Play { row, variant, seed, quick, out } => {
            let row = rows::row(row).with_context(|| format!("there is no row {row}"))?;
            let variant = match variant {
                Some(name) => {
                    row.variant(&name).with_context(|| format!("row {} has no variant {name}", row.number))?
                }
                None => row.variants.first().context("a row has a variant")?,
            };
            let played = stage::play(row, variant, seed, quick, &tools::ackbeat()?, &out)?;
            println!("{} subjects, recording {}", played.truth.subjects.len(), played.recording.display());
            Ok(())
        }
    }
}
