//! `arena policy`: what each value of a threshold would have done to every recording of a set.
#![expect(clippy::print_stdout, reason = "a program for people: its output is its purpose")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ackbeat::comparison::Contestant;
use ackbeat_liveness::Policy;
use ackbeat_tests::arena::judge::statistics::{Durations, Rate};
use ackbeat_tests::arena::judge::{DEFAULT_POLICY, FAST_POLICY, JudgedStage, KillKind, Outcome};
use ackbeat_tests::arena::report::{Standing, result};
use ackbeat_tests::arena::truth::Truth;
use ackbeat_tests::arena::{plot, rows, runner, stage};
use anyhow::{Context, Result, bail};
use clap::Args;

use crate::drawings;

/// Scenarios whose kill times are the horizontal axis of the ROC.
const ROC_GONE_ROWS: std::ops::RangeInclusive<u8> = 20..=22;
/// The scenario of the outages.
const OUTAGE_ROW: u8 = 17;

/// Options of `arena policy`.
#[derive(Debug, Args)]
pub(crate) struct PolicyArguments {
    /// Folder of a set that was played.
    #[arg(long = "in")]
    input: PathBuf,
    /// The threshold, by its name in the configuration.
    #[arg(long, default_value = "unreachable_after_ms")]
    threshold: String,
    /// Its values, in milliseconds [default: 30 values from 500 to 15000].
    #[arg(long, value_delimiter = ',')]
    values: Vec<u64>,
    /// The policy that has every other threshold.
    #[arg(long, default_value = DEFAULT_POLICY, value_parser = [DEFAULT_POLICY, FAST_POLICY])]
    base: String,
}

/// Values that are swept where none are given.
fn default_values() -> Vec<u64> {
    let fine = (1..=14).map(|step| step * 500);
    fine.chain((15..=30).map(|step| step * 500)).collect()
}

/// Prints a line for each value.
///
/// # Errors
/// If the threshold does not exist, or a recording cannot be judged.
pub(crate) fn sweep(arguments: &PolicyArguments) -> Result<ExitCode> {
    let mut values = if arguments.values.is_empty() { default_values() } else { arguments.values.clone() };
    values.sort_unstable();
    values.dedup();
    let contestants = contestants(&arguments.base, &arguments.threshold, &values)?;
    let folders = runner::stage_folders(&arguments.input)?;
    let stages = runner::judge_all(&folders, &contestants)?;
    println!(
        "| {} | false kills of living peers | in | gone peer killed after, p50 | p99 | hung application killed after, p50 | longest unreachable while alive |",
        arguments.threshold
    );
    println!("|--:|--:|---|--:|--:|--:|--:|");
    for (value, standing) in values.iter().zip(result::standings(&stages)) {
        println!("{}", line(*value, &standing, &stages));
    }
    Ok(ExitCode::SUCCESS)
}

fn contestants(base: &str, threshold: &str, values: &[u64]) -> Result<Vec<Contestant>> {
    let base = if base == FAST_POLICY { Policy::fast_policy() } else { Policy::default_policy() };
    values
        .iter()
        .map(|value| {
            let mut fields = serde_json::to_value(&base).context("a policy is no JSON")?;
            let Some(field) = fields.get_mut(threshold) else {
                bail!("there is no threshold {threshold}");
            };
            *field = (*value).into();
            let policy =
                serde_json::from_value(fields).with_context(|| format!("{threshold} cannot be {value}"))?;
            Ok(Contestant::Policy { name: format!("{threshold}={value}"), policy })
        })
        .collect()
}

fn line(value: u64, standing: &Standing, stages: &[JudgedStage]) -> String {
    let of_value: Vec<&Outcome> =
        result::outcomes(stages).filter(|outcome| outcome.contestant == standing.contestant).collect();
    let hung: Vec<Option<f64>> = of_value
        .iter()
        .filter_map(|outcome| outcome.kill.as_ref())
        .filter(|kill| kill.kind == KillKind::OfHung)
        .map(|kill| Some(kill.after_ms))
        .collect();
    let mistake_ms = of_value.iter().map(|outcome| outcome.mistake_ms).fold(0.0, f64::max);
    let seconds = |ms: Option<f64>| ms.map_or_else(|| "–".to_owned(), |ms| format!("{:.1} s", ms / 1_000.0));
    format!(
        "| {value} | {} of {} | {} | {} | {} | {} | {} |",
        standing.false_kills.count,
        standing.false_kills.runs,
        standing.false_kills_in.join(", "),
        seconds(standing.detection.and_then(|sum| sum.p50_ms)),
        seconds(standing.detection.and_then(|sum| sum.p99_ms)),
        seconds(Durations::of(&hung).and_then(|sum| sum.p50_ms)),
        seconds(Some(mistake_ms)),
    )
}

/// Draws the ROC of `unreachable_after_ms` over the outages of row 17, if the set has them and peers that are gone.
///
/// # Errors
/// If a recording cannot be judged or the plot cannot be drawn.
pub(crate) fn draw_roc(input: &Path, out: &Path) -> Result<bool> {
    let is_of_use = |folder: &PathBuf| {
        Truth::read(&folder.join(stage::TRUTH_FILE))
            .is_ok_and(|truth| truth.row == OUTAGE_ROW || ROC_GONE_ROWS.contains(&truth.row))
    };
    let folders: Vec<PathBuf> = runner::stage_folders(input)?.into_iter().filter(is_of_use).collect();
    let values = default_values();
    let threshold = "unreachable_after_ms";
    let mut everybody = contestants(DEFAULT_POLICY, threshold, &values)?;
    for (name, policy) in [("default", Policy::default_policy()), ("fast", Policy::fast_policy())] {
        everybody.push(Contestant::Policy { name: name.to_owned(), policy });
    }
    let stages = runner::judge_all(&folders, &everybody)?;
    let outcomes: Vec<&Outcome> = result::outcomes(&stages).collect();
    let killed_after = |contestant: &str| {
        let gone: Vec<Option<f64>> = outcomes
            .iter()
            .filter(|outcome| outcome.contestant == contestant && ROC_GONE_ROWS.contains(&outcome.row))
            .filter(|outcome| outcome.was_gone)
            .map(|outcome| outcome.kill_detection.map(|seen| seen.from_gone_ms))
            .collect();
        Durations::of(&gone)?.p50_ms.map(|ms| ms / 1_000.0)
    };
    let Some(row) = rows::row(OUTAGE_ROW) else { return Ok(false) };
    let mut lines = Vec::new();
    let mut most_runs = 0;
    for variant in row.variants {
        let share = |contestant: &str| {
            let of_variant = outcomes.iter().filter(|outcome| {
                outcome.row == OUTAGE_ROW
                    && outcome.variant == variant.name
                    && outcome.contestant == contestant
            });
            let (killed, runs) = of_variant.fold((0, 0), |(killed, runs), outcome| {
                (killed + u64::from(outcome.is_false_kill()), runs + 1)
            });
            Rate::of(killed, runs)
        };
        let points: Vec<(f64, f64)> = values
            .iter()
            .filter_map(|value| {
                let name = format!("{threshold}={value}");
                let rate = share(&name);
                most_runs = most_runs.max(rate.runs);
                Some((killed_after(&name)?, rate.share()? * 100.0))
            })
            .collect();
        if !points.is_empty() {
            lines.push(plot::RocLine { name: format!("outage of {}", variant.name), points });
        }
    }
    if lines.is_empty() {
        return Ok(false);
    }
    let marks = ["default", "fast"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), killed_after(name)?)))
        .collect();
    let subtitle = format!(
        "row 17, {most_runs} runs for each length of outage; unreachable_after_ms swept from {} to {} ms, everything else as in `default`",
        values.first().copied().unwrap_or_default(),
        values.iter().max().copied().unwrap_or_default()
    );
    let drawn = plot::roc(&plot::Roc { lines, marks, subtitle })?;
    drawings::write(&out.join(drawings::ROC_FILE), &drawn)?;
    Ok(true)
}
