//! `arena run` and `arena judge`: a set of stages, played and judged, or judged only.
#![expect(clippy::print_stdout, reason = "a program for people: its output is its purpose")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ackbeat::comparison::Contestant;
use ackbeat_tests::arena::judge::JudgedStage;
use ackbeat_tests::arena::report::{ArenaResult, Extent, markdown, requirements, result};
use ackbeat_tests::arena::runner::{self, Ended, Job, RunOptions, Seeds, machine};
use ackbeat_tests::tools;
use anyhow::{Context, Result, bail};
use clap::Args;

use crate::drawings;

/// Result for machines.
pub(crate) const RESULT_FILE: &str = "result.json";
/// Every outcome of every run, a line each.
const OUTCOMES_FILE: &str = "outcomes.jsonl";
/// Result for people.
pub(crate) const PAGE_FILE: &str = "result.md";
/// Every contestant.
const ALL_CONTESTANTS: &str = "all";
/// Every scenario.
const ALL_ROWS: &str = "1-34";
/// Weight that a processor bears: rows of weight 4 keep a core busy.
const WEIGHT_PER_CPU: usize = 4;

/// Options of `arena run`.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Scenarios: numbers and ranges.
    #[arg(long, default_value = ALL_ROWS)]
    rows: String,
    /// Stages of each scenario and variant: a number, or `auto` for as many as make 30 runs (10 where a run costs over
    /// half a minute) [default: auto; 1 with --quick].
    #[arg(long)]
    seeds: Option<Seeds>,
    /// Stages at once [default: as many as the machine bears].
    #[arg(long)]
    jobs: Option<usize>,
    /// Folder of the set; what is complete in it is not played again.
    #[arg(long)]
    out: PathBuf,
    /// A short set: one variant of the scenarios that are marked for it, without the time that slow detectors need.
    #[arg(long)]
    quick: bool,
    /// Plays everything anew.
    #[arg(long)]
    fresh: bool,
    /// Who judges: `all`, or a list (`ackbeat,ws-2,phi:threshold=12`).
    #[arg(long, default_value = ALL_CONTESTANTS)]
    contestants: String,
}

/// Options of `arena judge`.
#[derive(Debug, Args)]
pub(crate) struct JudgeArguments {
    /// Folder of a set that was played.
    #[arg(long = "in")]
    input: PathBuf,
    /// Who judges: `all`, or a list (`ackbeat,ws-2,phi:threshold=12`).
    #[arg(long, default_value = ALL_CONTESTANTS)]
    contestants: String,
    /// The set is part of a full one: what it does not show is told, and is no violation [default: as the run that played it
    /// said; a full set if it said nothing].
    #[arg(long)]
    part: bool,
}

/// Plays a set, judges it, and writes and prints what came out.
///
/// # Errors
/// If the set cannot be played or judged; a scenario that failed and a requirement that does not hold make the exit code.
pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode> {
    let contestants = Contestant::list(&arguments.contestants)?;
    let rows = runner::rows_of(&arguments.rows)?;
    let auto = if arguments.quick { Seeds::Count(1) } else { Seeds::Auto };
    let jobs = runner::plan(&rows, arguments.seeds.unwrap_or(auto), arguments.quick);
    if jobs.is_empty() {
        bail!("no scenario of {} is in a short set", arguments.rows);
    }
    let capacity = machine::cpus() * WEIGHT_PER_CPU;
    std::fs::create_dir_all(&arguments.out)
        .with_context(|| format!("making {} failed", arguments.out.display()))?;
    let _playing = runner::lock(&arguments.out)?;
    // A run that does not come to its end must not leave the result of an earlier one to be taken for its own.
    let before = arguments.out.join(RESULT_FILE);
    if before.exists() {
        std::fs::remove_file(&before).with_context(|| format!("removing {} failed", before.display()))?;
    }
    let options = RunOptions {
        program: std::env::current_exe().context("finding the running program failed")?,
        ackbeat: tools::ackbeat()?,
        out: arguments.out.clone(),
        jobs: arguments.jobs.unwrap_or(capacity).max(1),
        capacity: u32::try_from(capacity).unwrap_or(u32::MAX),
        is_quick: arguments.quick,
        is_fresh: arguments.fresh,
    };
    let ended = runner::play_all(&jobs, &options)?;
    if ended.was_interrupted {
        println!("stopped; {} of {} stages are complete", ended.folders.len(), jobs.len());
        return Ok(ExitCode::from(130));
    }
    let folders = ended.folders.clone();
    let extent = if is_full(arguments, &jobs)? { Extent::Full } else { Extent::Part };
    evaluate(&arguments.out, &folders, &contestants, ended, extent)
}

/// Whether a set leaves out nothing: neither scenarios, nor time, nor runs, nor contestants.
fn is_full(arguments: &RunArguments, jobs: &[Job]) -> Result<bool> {
    let whole = runner::plan(&runner::rows_of(ALL_ROWS)?, Seeds::Auto, false);
    let has = |wanted: &Job| {
        jobs.iter().any(|job| {
            (job.row.number, job.variant.name, job.seed)
                == (wanted.row.number, wanted.variant.name, wanted.seed)
        })
    };
    Ok(!arguments.quick && arguments.contestants == ALL_CONTESTANTS && whole.iter().all(has))
}

/// Judges a set that was played.
///
/// # Errors
/// As [`run`].
pub(crate) fn judge(arguments: &JudgeArguments) -> Result<ExitCode> {
    let contestants = Contestant::list(&arguments.contestants)?;
    let folders = runner::stage_folders(&arguments.input)?;
    if folders.is_empty() {
        bail!("{} holds no stage that was played to its end", arguments.input.display());
    }
    // What was not run was told by the run that played.
    let before = ArenaResult::read(&arguments.input.join(RESULT_FILE)).ok();
    let said = before.as_ref().map(|before| before.extent).unwrap_or_default();
    let extent = if arguments.part { Extent::Part } else { said };
    let ended = Ended {
        not_run: before.as_ref().map(|before| before.not_run.clone()).unwrap_or_default(),
        failed: before.map(|before| before.failed).unwrap_or_default(),
        ..Ended::default()
    };
    evaluate(&arguments.input, &folders, &contestants, ended, extent)
}

fn evaluate(
    out: &Path,
    folders: &[PathBuf],
    contestants: &[Contestant],
    ended: Ended,
    extent: Extent,
) -> Result<ExitCode> {
    let stages = runner::judge_all(folders, contestants)?;
    write_outcomes(&out.join(OUTCOMES_FILE), &stages)?;
    let result = ArenaResult {
        arena_result: result::FORMAT,
        extent,
        date: machine::today(),
        machine: machine::this_machine(),
        build: machine::this_build(),
        recorded_by: runner::recorded_by(folders)?,
        command: command(),
        contestants: result::standings(&stages),
        cells: result::cells(&stages),
        requirements: requirements::check(&stages, extent),
        not_run: ended.not_run,
        failed: ended.failed,
        figures: result::figures(&stages),
    };
    result.write(&out.join(RESULT_FILE))?;
    let page = out.join(PAGE_FILE);
    std::fs::write(&page, markdown::full(&result))
        .with_context(|| format!("writing {} failed", page.display()))?;
    drawings::pareto(&result, out)?;
    println!("{}", markdown::compact(&result));
    Ok(told(&result, out))
}

/// Prints what must be true, what was not run, and the last line.
fn told(result: &ArenaResult, out: &Path) -> ExitCode {
    for not_run in &result.not_run {
        println!("not run: row {} {}: {}", not_run.row, not_run.variant, not_run.reason);
    }
    for failed in &result.failed {
        println!("FAILED: row {} {}: {}", failed.row, failed.variant, failed.reason);
    }
    for checked in &result.requirements {
        let seen = checked.seen.as_ref().map(|seen| format!(" ({seen})")).unwrap_or_default();
        if checked.holds() && !checked.is_shown() {
            println!("not shown by this set: {} (it lacks {})", checked.statement, checked.lacks.join(", "));
        } else if checked.holds() {
            println!("holds in {} runs: {}{seen}", checked.runs, checked.statement);
        } else {
            println!("VIOLATED: {}{seen}", checked.statement);
            for violation in &checked.violations {
                println!("  {violation}");
            }
        }
    }
    let lacking = markdown::lacking(result);
    if !lacking.is_empty() {
        println!("this set lacks {}", lacking.join(", "));
    }
    let violated = result.requirements.iter().filter(|checked| !checked.holds()).count();
    let not_shown =
        result.requirements.iter().filter(|checked| checked.holds() && !checked.is_shown()).count();
    println!(
        "{} of {} requirements hold, {not_shown} are not shown, {} stages failed, {} scenarios were not run; {}",
        result.requirements.len() - violated - not_shown,
        result.requirements.len(),
        result.failed.len(),
        result.not_run.len(),
        out.join(PAGE_FILE).display()
    );
    if violated == 0 && result.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn write_outcomes(path: &Path, stages: &[JudgedStage]) -> Result<()> {
    let file = std::fs::File::create(path).with_context(|| format!("making {} failed", path.display()))?;
    let mut writer = std::io::BufWriter::new(file);
    for outcome in result::outcomes(stages) {
        serde_json::to_writer(&mut writer, outcome).context("an outcome is no JSON")?;
        writer.write_all(b"\n").with_context(|| format!("writing {} failed", path.display()))?;
    }
    writer.flush().with_context(|| format!("writing {} failed", path.display()))
}

/// The command as a reader can repeat it: `ACKBEAT_ARENA_COMMAND` where a wrapper says what it was called as.
fn command() -> String {
    std::env::var("ACKBEAT_ARENA_COMMAND").unwrap_or_else(|_| {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        format!("arena {}", arguments.join(" "))
    })
}
