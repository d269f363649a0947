//! What ackbeat costs: the connections beside it, the machine, and itself. `cargo xtask bench` builds and runs this.
//!
//! Every quotient is from one run in which segments with and without ackbeat take turns, and is shown with its spread.
//! Needs root, a kernel with network namespaces and BPF statistics, iproute2 and nftables.
#![expect(clippy::print_stdout, reason = "a program for people: its output is its purpose")]

mod kernel;
mod measure;
mod report;
mod sidecar;
mod statistics;
mod traffic;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};

use measure::{Bench, CrowdEffort, Effort};
use report::result::{Figure, Outcome};
use report::{guard, markdown};
use traffic::Scene;
use traffic::crowd::{self, ClientsArguments, HostArguments, Ticks};

/// File of the committed result, beside its page.
const RESULT_FILE: &str = "result.json";
/// The page.
const PAGE: &str = "README.md";

#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Measures, and shows and keeps the result.
    Run(RunArguments),
    /// Puts a kept result into the repository: its file, its page, and the README's block.
    Publish(PublishArguments),
    /// The host's ends of a crowd.
    #[command(hide = true)]
    CrowdHost(HostArguments),
    /// The clients' ends of a crowd.
    #[command(hide = true)]
    CrowdClients(ClientsArguments),
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Throughput, set-up and echo, with and without.
    Traffic,
    /// What the wire parser costs a packet.
    KernelPrograms,
    /// More sidecars on the machine.
    Several,
    /// Processor time and memory beside idle connections.
    Idle,
}

/// What a part runs.
type Measure = fn(&Bench<'_>) -> Result<Vec<Figure>>;

#[derive(Debug, clap::Args)]
struct RunArguments {
    /// The sidecar to measure: a release build.
    #[arg(long)]
    ackbeat: PathBuf,
    /// Where the result is kept.
    #[arg(long)]
    out: PathBuf,
    /// A short run, which fails if something costs ten times what was published.
    #[arg(long)]
    quick: bool,
    /// Only these parts.
    #[arg(long, value_delimiter = ',')]
    parts: Vec<Part>,
    /// Only this idle crowd, as `COUNT:SECONDS:TICKS` (`10000:30:spread`); may be given more than once.
    #[arg(long, value_parser = crowd_of, value_name = "CROWD")]
    crowd: Vec<CrowdEffort>,
    /// The published result that a short run is held against.
    #[arg(long, default_value = "tests/overhead/result.json")]
    published: PathBuf,
}

#[derive(Debug, clap::Args)]
struct PublishArguments {
    /// The kept result; more than one where it was measured in pieces.
    #[arg(long = "in", required = true)]
    input: Vec<PathBuf>,
    /// Folder of the committed result; its README.md has a block `<!-- overhead -->`.
    #[arg(long, default_value = "tests/overhead")]
    out: PathBuf,
    /// Another file with such a block, for the figures that have a goal.
    #[arg(long)]
    readme: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().verb {
        Verb::Run(arguments) => run(&arguments),
        Verb::Publish(arguments) => publish(&arguments).map(|()| ExitCode::SUCCESS),
        Verb::CrowdHost(arguments) => crowd::host(&arguments).map(|()| ExitCode::SUCCESS),
        Verb::CrowdClients(arguments) => crowd::clients(&arguments).map(|()| ExitCode::SUCCESS),
    }
}

fn run(arguments: &RunArguments) -> Result<ExitCode> {
    let typed = std::env::var("ACKBEAT_BENCH_COMMAND").unwrap_or_else(|_| "overhead run".to_owned());
    let mut outcome = Outcome::here(typed);
    let began = Instant::now();
    let say = |text: &str| println!("{:7.1} s  {text}", began.elapsed().as_secs_f64());
    let mut effort = if arguments.quick { quick() } else { full() };
    if !arguments.crowd.is_empty() {
        effort.crowds.clone_from(&arguments.crowd);
    }
    let scene = Scene::create()?;
    let bench = Bench { scene: &scene, ackbeat: &arguments.ackbeat, effort: &effort, say: &say };
    let measures: [(Part, Measure); 4] = [
        (Part::Traffic, measure::traffic::measure),
        (Part::KernelPrograms, measure::kernel_programs::measure),
        (Part::Several, measure::several::measure),
        (Part::Idle, measure::idle::measure),
    ];
    for (part, measure) in measures {
        if arguments.parts.is_empty() || arguments.parts.contains(&part) {
            outcome.figures.extend(measure(&bench).with_context(|| format!("measuring {part:?} failed"))?);
            // What was measured is kept, whatever comes of the rest.
            outcome.write(&arguments.out)?;
        }
    }
    println!("\n{}", markdown::full(&outcome));
    if arguments.quick { compare(&outcome, &arguments.published) } else { Ok(ExitCode::SUCCESS) }
}

fn compare(outcome: &Outcome, published: &Path) -> Result<ExitCode> {
    if !published.exists() {
        println!(
            "nothing is published in {}: this run shows only that everything can be measured",
            published.display()
        );
        return Ok(ExitCode::SUCCESS);
    }
    let published = Outcome::read(published)?;
    let compared = guard::compared(outcome, &published);
    if compared == 0 {
        bail!("nothing of this run was published: there is nothing to hold it against");
    }
    let regressions = guard::regressions(outcome, &published);
    for regression in &regressions {
        println!("costs more than ten times what was published: {regression}");
    }
    println!("{compared} figures compared with those of {}, {} too high", published.date, regressions.len());
    Ok(if regressions.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn publish(arguments: &PublishArguments) -> Result<()> {
    let pieces = arguments.input.iter().map(|path| Outcome::read(path)).collect::<Result<Vec<_>>>()?;
    let outcome = Outcome::joined(pieces)?;
    outcome.write(&arguments.out.join(RESULT_FILE))?;
    let page = arguments.out.join(PAGE);
    markdown::write_block(&page, &markdown::full(&outcome))?;
    if let Some(readme) = &arguments.readme {
        markdown::write_block(readme, &markdown::short(&outcome, &page.display().to_string()))?;
    }
    println!("published {} figures to {}", outcome.figures.len(), arguments.out.display());
    Ok(())
}

/// Reads `COUNT:SECONDS:TICKS`.
fn crowd_of(text: &str) -> Result<CrowdEffort> {
    let mut parts = text.split(':');
    let (Some(count), Some(seconds), Some(ticks), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        bail!("a crowd is COUNT:SECONDS:TICKS, as 10000:30:spread");
    };
    let ticks = Ticks::from_str(ticks, false).map_err(|error| anyhow::anyhow!("{ticks}: {error}"))?;
    Ok(full_crowd(
        count.parse().context("the count is no number")?,
        seconds.parse().context("the seconds are no number")?,
        ticks,
    ))
}

fn full_crowd(count: usize, seconds: u64, ticks: Ticks) -> CrowdEffort {
    CrowdEffort {
        count,
        interval: Duration::from_secs(seconds),
        ticks,
        warm_up: Duration::from_secs(seconds * 2 + 6),
        window: Duration::from_secs(seconds.max(10)),
        windows: if seconds > 10 { 3 } else { 5 },
    }
}

fn full() -> Effort {
    let mut crowds = Vec::new();
    for count in [100, 1_000, 10_000] {
        for seconds in [2, 30] {
            crowds.push(full_crowd(count, seconds, Ticks::Together));
        }
    }
    crowds.extend([full_crowd(10_000, 2, Ticks::Spread), full_crowd(10_000, 30, Ticks::Spread)]);
    Effort {
        pairs: 15,
        segment: Duration::from_secs(2),
        program_rounds: 5,
        several_pairs: 7,
        several: 4,
        crowds,
    }
}

fn quick() -> Effort {
    let crowd = |count| CrowdEffort {
        count,
        interval: Duration::from_secs(2),
        ticks: Ticks::Together,
        warm_up: Duration::from_secs(5),
        window: Duration::from_secs(4),
        windows: 2,
    };
    Effort {
        pairs: 3,
        segment: Duration::from_millis(600),
        program_rounds: 2,
        several_pairs: 2,
        several: 2,
        crowds: vec![crowd(100), crowd(1_000)],
    }
}
