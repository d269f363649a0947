//! `cargo xtask fuzz`: see the crate's documentation.
#![expect(clippy::print_stdout, reason = "the tally is what the command is for")]
#![expect(clippy::print_stderr, reason = "so are its failures")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ackbeat_fuzzing::{Failure, TARGETS, Tally, Target, run_case, run_for};
use anyhow::{Context as _, Result, bail};
use clap::Parser;

/// Runs made-up inputs through the engine, the detectors and every decoder.
#[derive(Debug, Parser)]
struct Arguments {
    /// Seconds for all targets together.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only this target; may be given more than once.
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// Another seed makes other cases.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs the bytes of one file, which a failure has left, through the one target that is named.
    #[arg(long, value_name = "FILE", requires = "target")]
    replay: Option<PathBuf>,
    /// Where the bytes of failures are written.
    #[arg(long, value_name = "FOLDER", default_value = "target/fuzz-failures")]
    failures: PathBuf,
}

fn main() -> ExitCode {
    match execute(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(arguments: &Arguments) -> Result<bool> {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    if let Some(unknown) = arguments.target.iter().find(|name| !names.contains(&name.as_str())) {
        let all: Vec<String> =
            TARGETS.iter().map(|target| format!("  {:<16} {}", target.name, target.about)).collect();
        bail!("no target `{unknown}`; there are\n{}", all.join("\n"));
    }
    let is_chosen = |target: &&Target| {
        arguments.target.is_empty() || arguments.target.iter().any(|name| name == target.name)
    };
    let chosen: Vec<&Target> = TARGETS.iter().filter(is_chosen).collect();
    if let Some(path) = &arguments.replay {
        let [target] = chosen.as_slice() else { bail!("--replay needs exactly one --target") };
        let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let result = run_case(target, &bytes);
        match &result {
            Ok(_) => println!("{}: nothing is wrong with {}", target.name, path.display()),
            Err(message) => println!("{}: {message}", target.name),
        }
        return Ok(result.is_ok());
    }

    let share = Duration::from_secs(arguments.seconds) / u32::try_from(chosen.len().max(1)).unwrap_or(1);
    println!("seed {}, {} s for each of {} targets", arguments.seed, share.as_secs(), chosen.len());
    println!(
        "{:<16} {:>12} {:>10} {:>10} {:>12} {:>14}",
        "target", "cases", "seconds", "cases/s", "MB", "memory at most"
    );
    let (mut cases, mut spent, mut is_well) = (0, Duration::ZERO, true);
    for target in chosen {
        let (name, seed) = (target.name, arguments.seed);
        let stuck = move |case| {
            eprintln!("{name}: case {case} of seed {seed} has no end");
            std::process::exit(1);
        };
        match run_for(target, seed, share, stuck) {
            Ok(tally) => {
                row(name, &tally);
                cases += tally.cases;
                spent += tally.spent;
            }
            Err(failure) => {
                is_well = false;
                let path = keep(&arguments.failures, name, &failure)?;
                println!("{name:<16} FAILED at case {} of seed {seed}: {}", failure.case, failure.message);
                println!("  its bytes are in {}; run it again with", path.display());
                println!("  cargo xtask fuzz --target {name} --replay {}", path.display());
            }
        }
    }
    println!("{cases} cases in {:.1} s", spent.as_secs_f64());
    Ok(is_well)
}

#[expect(clippy::cast_precision_loss, reason = "rates for people")]
fn row(name: &str, tally: &Tally) {
    let seconds = tally.spent.as_secs_f64();
    println!(
        "{name:<16} {:>12} {seconds:>10.1} {:>10.0} {:>12.1} {:>12} B",
        tally.cases,
        tally.cases as f64 / seconds.max(1e-9),
        tally.bytes as f64 / 1e6,
        tally.memory_max_bytes,
    );
}

fn keep(folder: &Path, name: &str, failure: &Failure) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let path = folder.join(format!("{name}-{}-{}.bin", failure.seed, failure.case));
    fs::write(&path, &failure.bytes).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}
