//! `arena corpus`: small recordings for the tests.
#![expect(clippy::print_stdout, reason = "a program for people: its output is its purpose")]

use std::path::PathBuf;
use std::process::ExitCode;

use ackbeat_tests::arena::corpus;
use anyhow::Result;
use clap::Args;

/// Options of `arena corpus`.
#[derive(Debug, Args)]
pub(crate) struct CorpusArguments {
    /// Folder of a set that was played.
    #[arg(long = "in")]
    input: PathBuf,
    /// Folder of the corpus.
    #[arg(long, default_value = "tests/arena/corpus")]
    out: PathBuf,
    /// A recording that is larger is left out, in bytes.
    #[arg(long, default_value_t = 220_000)]
    max_bytes: u64,
}

/// Chooses one subject of each scenario and variant and keeps what was recorded of it.
///
/// # Errors
/// If a file cannot be read or written.
pub(crate) fn choose(arguments: &CorpusArguments) -> Result<ExitCode> {
    let kept = corpus::choose(&arguments.input, &arguments.out, arguments.max_bytes)?;
    for line in &kept.lines {
        println!("{line}");
    }
    println!("{} recordings, {} bytes in {}", kept.recordings, kept.bytes, arguments.out.display());
    Ok(ExitCode::SUCCESS)
}
