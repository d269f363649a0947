//! The arena's result as a file for machines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::checked::{Checked, Extent};
use crate::arena::judge::statistics::{Durations, Rate};
use crate::arena::judge::{JudgedStage, KillKind, Outcome};

/// Version of the file's format.
pub const FORMAT: u32 = 1;
/// The scenarios whose peers are gone without a word: over these a contestant's detection time is summed up.
pub const GONE_ROWS: [u8; 5] = [20, 21, 22, 24, 25];
/// Of each scenario, variant and contestant so many runs count for the sums over all scenarios, those with the lowest
/// seeds: a scenario with many peers must not outvote the others.
pub const RUNS_THAT_COUNT: usize = 30;

/// Everything that came out of a set of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArenaResult {
    /// [`FORMAT`].
    pub arena_result: u32,
    /// How much it was asked to play.
    #[serde(default)]
    pub extent: Extent,
    /// The day, UTC, as `2026-01-31`.
    pub date: String,
    /// Where it ran.
    pub machine: Machine,
    /// What was judged.
    pub build: Build,
    /// The builds that recorded: a set goes on where an earlier run stopped, and is judged again by later ones.
    #[serde(default)]
    pub recorded_by: Vec<String>,
    /// The command that made it.
    pub command: String,
    /// Sums over all scenarios, one for each contestant.
    pub contestants: Vec<Standing>,
    /// One for each scenario, variant and contestant.
    pub cells: Vec<Cell>,
    /// What must be true, and whether it is.
    pub requirements: Vec<Checked>,
    /// Scenarios that were not run, and why.
    pub not_run: Vec<NotRun>,
    /// Stages that failed twice, and why.
    pub failed: Vec<NotRun>,
    /// Figures that the rows measured themselves, by `row variant name`: one value for each stage.
    pub figures: BTreeMap<String, Vec<f64>>,
}

/// The machine of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processors that the runner may use.
    pub cpus: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The architecture.
    pub architecture: String,
}

/// Which ackbeat was judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Its version.
    pub version: String,
    /// The commit it was built from, if that is known.
    pub commit: Option<String>,
}

/// A scenario that was not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotRun {
    /// Its number.
    pub row: u8,
    /// Its variant.
    pub variant: String,
    /// Seeds that were asked for.
    pub seeds: u64,
    /// Why not.
    pub reason: String,
}

/// A contestant over all scenarios.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// Its name.
    pub contestant: String,
    /// False kills over the runs whose peer was there from beginning to end.
    pub false_kills: Rate,
    /// Scenarios (with their variants) in which it killed falsely.
    pub false_kills_in: Vec<String>,
    /// From the moment the peer was gone to the kill, over [`GONE_ROWS`].
    pub detection: Option<Durations>,
    /// From the moment the peer was gone to the verdict `unreachable`; for policies.
    pub unreachable: Option<Durations>,
    /// Runs that it could not judge.
    pub not_judged: u64,
}

/// One contestant in one scenario and variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Number of the scenario.
    pub row: u8,
    /// Its variant.
    pub variant: String,
    /// The contestant.
    pub contestant: String,
    /// Seeds of the stages.
    pub seeds: Vec<u64>,
    /// Runs that it judged.
    pub runs: u64,
    /// Runs that it could not judge.
    pub not_judged: u64,
    /// Why it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_judged_reason: Option<String>,
    /// Kills of any kind.
    pub kills: u64,
    /// Kills of a peer that was there.
    pub false_kills: Rate,
    /// Kills of a peer whose application hung.
    pub kills_of_hung: u64,
    /// Kills of a peer that was gone.
    pub right_kills: u64,
    /// Kills of a leaked connection.
    pub kills_of_leaked: u64,
    /// Since the subject began, its first kill, of any kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub killed_after: Option<Durations>,
    /// From gone to the kill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detection: Option<Durations>,
    /// From the first segment that stays unanswered to the kill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detection_from_unanswered: Option<Durations>,
    /// From gone to `unreachable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<Durations>,
    /// From the first segment that stays unanswered to `unreachable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable_from_unanswered: Option<Durations>,
    /// How long each verdict was shown in a run in which it was shown.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub verdicts: BTreeMap<String, Durations>,
    /// Runs with a verdict that the scenario does not allow, by verdict.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outside: BTreeMap<String, u64>,
    /// Runs in which a wanted verdict was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted_seen: Option<Rate>,
    /// How long a peer that was alive was called gone, over the runs in which it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mistakes: Option<Durations>,
}

/// All outcomes of the stages.
pub fn outcomes(stages: &[JudgedStage]) -> impl Iterator<Item = &Outcome> {
    stages.iter().flat_map(|stage| &stage.outcomes)
}

/// Names of the contestants in the order in which they were judged.
#[must_use]
pub fn contestants(stages: &[JudgedStage]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for outcome in outcomes(stages) {
        if !names.contains(&outcome.contestant) {
            names.push(outcome.contestant.clone());
        }
    }
    names
}

/// Sums up each scenario, variant and contestant.
#[must_use]
pub fn cells(stages: &[JudgedStage]) -> Vec<Cell> {
    let order = contestants(stages);
    let mut groups: BTreeMap<(u8, &str, usize), Vec<&Outcome>> = BTreeMap::new();
    for outcome in outcomes(stages) {
        let place = order.iter().position(|name| *name == outcome.contestant).unwrap_or(order.len());
        groups.entry((outcome.row, &outcome.variant, place)).or_default().push(outcome);
    }
    groups.values().filter_map(|of_cell| cell(of_cell)).collect()
}

fn cell(of_cell: &[&Outcome]) -> Option<Cell> {
    let first = of_cell.first()?;
    let judged: Vec<&Outcome> = of_cell.iter().copied().filter(|outcome| outcome.is_judged()).collect();
    let kills = |kind: KillKind| {
        judged.iter().filter(|outcome| outcome.kill.as_ref().is_some_and(|kill| kill.kind == kind)).count()
            as u64
    };
    let gone: Vec<&Outcome> =
        judged.iter().copied().filter(|outcome| outcome.was_gone && !outcome.is_false_kill()).collect();
    let has_verdicts = judged.iter().any(|outcome| !outcome.verdicts.is_empty());
    let mut verdicts: BTreeMap<String, Vec<Option<f64>>> = BTreeMap::new();
    let mut outside: BTreeMap<String, u64> = BTreeMap::new();
    for outcome in &judged {
        let mut shown: BTreeMap<&str, f64> = BTreeMap::new();
        for verdict in &outcome.verdicts {
            *shown.entry(&verdict.verdict).or_default() += verdict.for_ms;
        }
        for (verdict, for_ms) in shown {
            verdicts.entry(verdict.to_owned()).or_default().push(Some(for_ms));
        }
        for verdict in &outcome.outside {
            *outside.entry(verdict.clone()).or_default() += 1;
        }
    }
    let wanted: Vec<bool> = judged.iter().filter_map(|outcome| outcome.wanted_seen).collect();
    let some = |values: Vec<Option<f64>>| Durations::of(&values).filter(|sum| sum.count > 0);
    let mistakes =
        judged.iter().filter(|outcome| outcome.mistake_ms > 0.0).map(|outcome| Some(outcome.mistake_ms));
    Some(Cell {
        row: first.row,
        variant: first.variant.clone(),
        contestant: first.contestant.clone(),
        seeds: of_cell.iter().map(|outcome| outcome.seed).collect::<BTreeSet<_>>().into_iter().collect(),
        runs: judged.len() as u64,
        not_judged: (of_cell.len() - judged.len()) as u64,
        not_judged_reason: of_cell.iter().find_map(|outcome| outcome.not_judged.clone()),
        kills: judged.iter().filter(|outcome| outcome.kill.is_some()).count() as u64,
        false_kills: Rate::of(kills(KillKind::False), judged.len() as u64),
        kills_of_hung: kills(KillKind::OfHung),
        right_kills: kills(KillKind::Right),
        kills_of_leaked: kills(KillKind::OfLeaked),
        killed_after: some(
            judged.iter().filter_map(|outcome| Some(Some(outcome.kill.as_ref()?.after_ms))).collect(),
        ),
        detection: some(kill_detections(&gone)),
        detection_from_unanswered: some(
            gone.iter()
                .map(|outcome| outcome.kill_detection.and_then(|seen| seen.from_unanswered_ms))
                .collect(),
        ),
        unreachable: has_verdicts.then(|| some(unreachable_detections(&gone))).flatten(),
        unreachable_from_unanswered: has_verdicts
            .then(|| {
                let seen = gone.iter().map(|outcome| outcome.unreachable_detection);
                some(seen.map(|seen| seen.and_then(|seen| seen.from_unanswered_ms)).collect())
            })
            .flatten(),
        verdicts: verdicts
            .into_iter()
            .filter_map(|(verdict, values)| Some((verdict, Durations::of(&values)?)))
            .collect(),
        outside,
        wanted_seen: (!wanted.is_empty())
            .then(|| Rate::of(wanted.iter().filter(|seen| **seen).count() as u64, wanted.len() as u64)),
        mistakes: Durations::of(&mistakes.collect::<Vec<_>>()),
    })
}

fn kill_detections(gone: &[&Outcome]) -> Vec<Option<f64>> {
    gone.iter().map(|outcome| outcome.kill_detection.map(|seen| seen.from_gone_ms)).collect()
}

fn unreachable_detections(gone: &[&Outcome]) -> Vec<Option<f64>> {
    gone.iter().map(|outcome| outcome.unreachable_detection.map(|seen| seen.from_gone_ms)).collect()
}

/// Sums up each contestant over all scenarios.
#[must_use]
pub fn standings(stages: &[JudgedStage]) -> Vec<Standing> {
    let names = contestants(stages);
    names.iter().map(|name| standing(name, stages)).collect()
}

fn standing(name: &str, stages: &[JudgedStage]) -> Standing {
    let mut of_cell: BTreeMap<(u8, &str), Vec<&Outcome>> = BTreeMap::new();
    let mut not_judged = 0;
    for outcome in outcomes(stages).filter(|outcome| outcome.contestant == name) {
        if outcome.is_judged() {
            of_cell.entry((outcome.row, &outcome.variant)).or_default().push(outcome);
        } else {
            not_judged += 1;
        }
    }
    for runs in of_cell.values_mut() {
        runs.sort_by_key(|outcome| outcome.seed);
        runs.truncate(RUNS_THAT_COUNT);
    }
    let lived = || of_cell.values().flatten().filter(|outcome| outcome.lived);
    let false_kills = lived().filter(|outcome| outcome.is_false_kill()).count() as u64;
    let gone: Vec<&Outcome> = of_cell
        .values()
        .flatten()
        .copied()
        .filter(|outcome| GONE_ROWS.contains(&outcome.row) && outcome.was_gone && !outcome.is_false_kill())
        .collect();
    let has_verdicts = gone.iter().any(|outcome| !outcome.verdicts.is_empty());
    Standing {
        contestant: name.to_owned(),
        false_kills: Rate::of(false_kills, lived().count() as u64),
        false_kills_in: of_cell
            .iter()
            .filter(|(_, runs)| runs.iter().any(|outcome| outcome.lived && outcome.is_false_kill()))
            .map(
                |((row, variant), _)| {
                    if variant.is_empty() { row.to_string() } else { format!("{row} ({variant})") }
                },
            )
            .collect(),
        detection: Durations::of(&kill_detections(&gone)),
        unreachable: has_verdicts.then(|| Durations::of(&unreachable_detections(&gone))).flatten(),
        not_judged,
    }
}

/// The rows' own figures.
#[must_use]
pub fn figures(stages: &[JudgedStage]) -> BTreeMap<String, Vec<f64>> {
    let mut figures: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for stage in stages {
        for (name, value) in &stage.figures {
            let key = format!("{} {} {name}", stage.row, stage.variant).replace("  ", " ");
            figures.entry(key).or_default().push(*value);
        }
    }
    figures
}

impl ArenaResult {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is missing, or no result of this format.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("reading {} failed", path.display()))?;
        let result: Self = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no result of the arena", path.display()))?;
        ensure!(
            result.arena_result == FORMAT,
            "{} has format {}, this arena reads format {FORMAT}",
            path.display(),
            result.arena_result
        );
        Ok(result)
    }

    /// Writes it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self).context("a result is no JSON")?;
        text.push(b'\n');
        std::fs::write(path, text).with_context(|| format!("writing {} failed", path.display()))
    }
}
