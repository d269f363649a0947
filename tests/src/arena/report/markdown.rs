//! Tables for people, and the blocks of files that they are written into.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::checked;
use super::result::{ArenaResult, Cell, GONE_ROWS, Standing};
use crate::arena::judge::statistics::{Durations, Rate};
use crate::arena::judge::{DEFAULT_POLICY, FAST_POLICY};
use crate::arena::rows;

/// The table for the README: who does what, and how it did.
#[must_use]
pub fn overview(result: &ArenaResult) -> String {
    let mut text = String::from(
        "| detector | what it does | kills of living peers (95 %) | gone peer killed after, p50 (p99) | kills the living in |\n\
         |---|---|--:|--:|---|\n",
    );
    for standing in &result.contestants {
        let after = standing.detection.as_ref().map_or_else(dash, |sum| match (sum.p50_ms, sum.p99_ms) {
            (Some(_), Some(_)) => format!("{} ({})", seconds(sum.p50_ms, sum), seconds(sum.p99_ms, sum)),
            (Some(_), None) => {
                format!("{}; {} of {} not", seconds(sum.p50_ms, sum), sum.never, sum.count + sum.never)
            }
            _ => "not in the run's time".to_owned(),
        });
        let lost =
            if standing.false_kills_in.is_empty() { dash() } else { row_ranges(&standing.false_kills_in) };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {after} | {lost} |",
            bold_if_ours(&standing.contestant),
            what_it_does(standing),
            rate(&standing.false_kills),
        );
    }
    text
}

/// A detector's rule and parameters; of a policy, when it knows.
fn what_it_does(standing: &Standing) -> String {
    if let Ok(spec) = standing.contestant.parse::<ackbeat_detectors::Spec>() {
        return spec.describe();
    }
    let known = standing.unreachable.as_ref().map_or_else(String::new, |known| {
        format!(
            "; says `unreachable` after {} (p99 {})",
            seconds(known.p50_ms, known),
            seconds(known.p99_ms, known)
        )
    });
    let policy = if standing.contestant == FAST_POLICY { "fast" } else { "default" };
    format!("ackbeat's `kill_justified` under the policy `{policy}`{known}")
}

/// Numbers of scenarios without their variants: `2–9, 14, 17–19`.
fn row_ranges(labels: &[String]) -> String {
    let rows: std::collections::BTreeSet<u32> =
        labels.iter().filter_map(|label| label.split(' ').next()?.parse().ok()).collect();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for row in rows {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == row => *last = row,
            _ => ranges.push((row, row)),
        }
    }
    let words = ranges.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}–{last}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The sums of a set: a contestant a line.
#[must_use]
pub fn compact(result: &ArenaResult) -> String {
    let mut text = String::from(
        "| detector | false kills of living peers | false-kill rate (95 %) | gone peer killed after, p50 | p99 | note |\n\
         |---|--:|--:|--:|--:|---|\n",
    );
    for standing in &result.contestants {
        let _ = writeln!(
            text,
            "| {} | {} of {} | {} | {} | {} | {} |",
            bold_if_ours(&standing.contestant),
            standing.false_kills.count,
            standing.false_kills.runs,
            rate(&standing.false_kills),
            standing.detection.as_ref().map_or_else(dash, |sum| seconds(sum.p50_ms, sum)),
            standing.detection.as_ref().map_or_else(dash, |sum| seconds(sum.p99_ms, sum)),
            note(standing),
        );
    }
    text
}

fn bold_if_ours(name: &str) -> String {
    if name == DEFAULT_POLICY || name == FAST_POLICY { format!("**`{name}`**") } else { format!("`{name}`") }
}

fn dash() -> String {
    "–".to_owned()
}

/// A rate and its bounds: `0 % (< 0.9 %)`, `31 % (25–38 %)`.
fn rate(rate: &Rate) -> String {
    let Some(share) = rate.share() else { return dash() };
    let percent = |share: f64| {
        let percent = share * 100.0;
        if percent >= 10.0 || percent == 0.0 { format!("{percent:.0}") } else { format!("{percent:.1}") }
    };
    if rate.count == 0 {
        format!("0 % (< {} %)", percent(rate.upper_95))
    } else {
        format!("{} % ({}–{} %)", percent(share), percent(rate.lower_95), percent(rate.upper_95))
    }
}

/// Milliseconds as seconds; what never happened says so.
fn seconds(ms: Option<f64>, of: &Durations) -> String {
    match ms {
        Some(ms) => format!("{:.1} s", ms / 1_000.0),
        None if of.count == 0 => "never".to_owned(),
        None => "not in the run's time".to_owned(),
    }
}

/// What a reader should know about a contestant: where it loses, and when a policy *knows*.
fn note(standing: &Standing) -> String {
    let mut notes = Vec::new();
    if let Some(known) = &standing.unreachable {
        notes.push(format!(
            "says `unreachable` after {} (p99 {})",
            seconds(known.p50_ms, known),
            seconds(known.p99_ms, known)
        ));
    }
    if !standing.false_kills_in.is_empty() {
        notes.push(format!("kills the living in {}", scenarios(&standing.false_kills_in)));
    }
    if let Some(never) = standing.detection.as_ref().map(|sum| sum.never).filter(|never| *never > 0) {
        notes.push(format!("{never} gone peers not killed in the run's time"));
    }
    if standing.not_judged > 0 {
        notes.push(format!("{} runs not judged", standing.not_judged));
    }
    notes.join("; ")
}

/// `2, 3, 17 (3.5 s, 5 s)`.
fn scenarios(labels: &[String]) -> String {
    let mut of_row: Vec<(&str, Vec<&str>)> = Vec::new();
    for label in labels {
        let (row, variant) = label
            .split_once(" (")
            .map_or((label.as_str(), None), |(row, rest)| (row, rest.strip_suffix(')')));
        match of_row.last_mut() {
            Some((last, variants)) if *last == row => variants.extend(variant),
            _ => of_row.push((row, variant.into_iter().collect())),
        }
    }
    let parts = of_row.into_iter().map(|(row, variants)| {
        if variants.is_empty() { row.to_owned() } else { format!("{row} ({})", variants.join(", ")) }
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// The page of a set of runs: where and how it was made, the sums, every scenario, and what must be true.
#[must_use]
pub fn full(result: &ArenaResult) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} on {} processors, Linux {} ({}), judged by ackbeat {}{}, by `{}`; recorded by builds of {}.\n",
        result.date,
        result.machine.cpus,
        result.machine.kernel,
        result.machine.architecture,
        result.build.version,
        result.build.commit.as_ref().map(|commit| format!(" ({commit})")).unwrap_or_default(),
        result.command,
        result.recorded_by.join("; "),
    );
    let gone = GONE_ROWS.map(|row| row.to_string()).join(", ");
    let _ = writeln!(
        text,
        "A *run* is one connection. *False kill*: the first kill came while the peer was there, or behind an outage that \
         healed. Killing times are from the moment the peer was gone (scenarios {gone}); a scenario counts with at most \
         30 runs. Rates have their 95 % interval (Clopper-Pearson), and where nothing happened its upper bound.\n"
    );
    text.push_str(&compact(result));
    text.push_str("\n### Each scenario\n\n");
    text.push_str(&matrix(result));
    text.push_str("\n### ackbeat's verdicts\n\n");
    text.push_str(&verdicts(result));
    text.push_str("\n### What must be true\n\n");
    for checked in &result.requirements {
        let seen = checked.seen.as_ref().map(|seen| format!(": {seen}")).unwrap_or_default();
        let mark = match (checked.holds(), checked.is_shown()) {
            (false, _) => "**VIOLATED**",
            (true, true) => "holds",
            (true, false) => "not shown",
        };
        let _ = writeln!(text, "- {mark} ({} runs): {}{seen}", checked.runs, checked.statement);
        for violation in &checked.violations {
            let _ = writeln!(text, "  - {violation}");
        }
    }
    let lacking = lacking(result);
    if !lacking.is_empty() || !result.not_run.is_empty() || !result.failed.is_empty() {
        text.push_str("\n### Not run\n\n");
        if !lacking.is_empty() {
            let _ = writeln!(text, "- this set lacks {}", lacking.join(", "));
        }
        for (what, list) in [("not run", &result.not_run), ("failed", &result.failed)] {
            for not_run in list {
                let _ = writeln!(
                    text,
                    "- {} ({} stages {what}): {}",
                    scenario(not_run.row, &not_run.variant),
                    not_run.seeds,
                    not_run.reason
                );
            }
        }
    }
    if !result.figures.is_empty() {
        text.push_str("\n### Figures that the scenarios measured themselves\n\n| figure | stages | median | highest |\n|---|--:|--:|--:|\n");
        for (name, values) in &result.figures {
            let values: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
            if let Some(sum) = Durations::of(&values) {
                let figure = |value: Option<f64>| value.map_or_else(dash, |value| format!("{value:.1}"));
                let _ = writeln!(
                    text,
                    "| {name} | {} | {} | {} |",
                    sum.count,
                    figure(sum.p50_ms),
                    figure(sum.max_ms)
                );
            }
        }
    }
    text
}

/// Scenarios and variants that are in no run of the set.
#[must_use]
pub fn lacking(result: &ArenaResult) -> Vec<String> {
    let has_run = |row, variant: &str| {
        result.cells.iter().any(|cell| cell.row == row && cell.variant == variant && cell.runs > 0)
    };
    checked::places(|row, variant| !has_run(row, variant))
        .into_iter()
        .map(|(row, variant)| checked::label(row, &variant))
        .collect()
}

fn scenario(row: u8, variant: &str) -> String {
    let title = rows::row(row).map_or("", |row| row.title);
    if variant.is_empty() { format!("{row} {title}") } else { format!("{row} {title}: {variant}") }
}

/// Where the short table comes from, in a sentence.
#[must_use]
pub fn origin(result: &ArenaResult, page: &str) -> String {
    let scenarios: std::collections::BTreeSet<u8> = result.cells.iter().map(|cell| cell.row).collect();
    let living = result.contestants.iter().map(|standing| standing.false_kills.runs).max().unwrap_or(0);
    format!(
        "{} scenarios with real sockets, {living} runs of peers that are there, {} on {} processors, Linux {}, `{}`. Every detector \
         judges the same recordings, where they hold the facts that it needs; the times are from the moment the peer was gone. \
         [All of it]({page}), with every scenario, what was not judged, and what each word means.\n",
        scenarios.len(),
        result.date,
        result.machine.cpus,
        result.machine.kernel,
        result.command
    )
}

/// Scenarios down, contestants across.
fn matrix(result: &ArenaResult) -> String {
    let names: Vec<&str> = result.contestants.iter().map(|standing| standing.contestant.as_str()).collect();
    let mut text = String::from(
        "A cell: **F** false kills, K right kills and their median time after the peer was gone, h kills of a hung \
         application, l of a leaked connection, · no kill, ? not judged; each of how many runs.\n\n| scenario |",
    );
    for name in &names {
        let _ = write!(text, " `{name}` |");
    }
    text.push_str("\n|---|");
    for _ in &names {
        text.push_str("---|");
    }
    text.push('\n');
    let mut lines: BTreeMap<(u8, &str), Vec<&Cell>> = BTreeMap::new();
    for cell in &result.cells {
        lines.entry((cell.row, &cell.variant)).or_default().push(cell);
    }
    for ((row, variant), cells) in lines {
        let _ = write!(text, "| {} |", scenario(row, variant));
        for name in &names {
            let found = cells.iter().find(|cell| cell.contestant == *name);
            let _ = write!(text, " {} |", found.map_or_else(dash, |cell| cell_text(cell)));
        }
        text.push('\n');
    }
    text
}

fn cell_text(cell: &Cell) -> String {
    let mut parts = Vec::new();
    if cell.false_kills.count > 0 {
        parts.push(format!("**F {}/{}**", cell.false_kills.count, cell.runs));
    }
    if cell.right_kills > 0 {
        let median = cell.detection.as_ref().and_then(|sum| sum.p50_ms);
        let median = median.map(|ms| format!(" {:.1} s", ms / 1_000.0)).unwrap_or_default();
        parts.push(format!("K {}/{}{median}", cell.right_kills, cell.runs));
    }
    for (letter, count) in [("h", cell.kills_of_hung), ("l", cell.kills_of_leaked)] {
        if count > 0 {
            parts.push(format!("{letter} {count}/{}", cell.runs));
        }
    }
    if parts.is_empty() && cell.runs > 0 {
        parts.push(format!("· /{}", cell.runs));
    }
    if cell.not_judged > 0 {
        parts.push(format!("? {}", cell.not_judged));
    }
    parts.join(" ")
}

/// What the policy `default` said, by scenario.
fn verdicts(result: &ArenaResult) -> String {
    let mut text = String::from(
        "Of the policy `default`: in each scenario the verdicts, with their median time in a run in which they were \
         given; `unreachable` after the first segment that stays unanswered; and how long a peer that was there was \
         called gone.\n\n| scenario | runs | right | verdicts | unreachable after, p50 / p99 | mistake, longest |\n\
         |---|--:|---|---|--:|--:|\n",
    );
    for cell in result.cells.iter().filter(|cell| cell.contestant == DEFAULT_POLICY) {
        let expected = rows::row(cell.row).map_or("", |row| row.expected);
        let said: Vec<String> = cell
            .verdicts
            .iter()
            .map(|(verdict, sum)| {
                let runs = if sum.count < cell.runs { format!(" in {}", sum.count) } else { String::new() };
                format!("{verdict} {}{runs}", seconds(sum.p50_ms, sum))
            })
            .collect();
        let _ = writeln!(
            text,
            "| {} | {} | {expected} | {} | {} | {} |",
            scenario(cell.row, &cell.variant),
            cell.runs,
            said.join(", "),
            cell.unreachable_from_unanswered.as_ref().map_or_else(dash, |sum| {
                format!("{} / {}", seconds(sum.p50_ms, sum), seconds(sum.p99_ms, sum))
            }),
            cell.mistakes.as_ref().map_or_else(dash, |sum| seconds(sum.max_ms, sum)),
        );
    }
    text
}

/// Replaces what lies between `<!-- NAME -->` and `<!-- /NAME -->` in a file.
///
/// # Errors
/// If the file cannot be read or written, or has no such block.
pub fn write_block(path: &Path, name: &str, content: &str) -> Result<()> {
    let old = std::fs::read_to_string(path).with_context(|| format!("reading {} failed", path.display()))?;
    let Some(new) = with_block(&old, name, content) else {
        bail!("{} has no block between <!-- {name} --> and <!-- /{name} -->", path.display());
    };
    std::fs::write(path, new).with_context(|| format!("writing {} failed", path.display()))
}

fn with_block(text: &str, name: &str, content: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {name} -->"), format!("<!-- /{name} -->"));
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{}\n{end}{after}", content.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_told_as_ranges() {
        let labels = ["2", "3", "4", "17 (5s)", "17 (3.5s)", "18 (20%)", "34 (fixed)"].map(str::to_owned);
        assert_eq!(row_ranges(&labels), "2–4, 17, 18, 34");
    }

    #[test]
    fn a_block_is_replaced_and_the_rest_stays() {
        let text = "# Title\n<!-- arena -->\nold\n<!-- /arena -->\nrest\n";
        let new = with_block(text, "arena", "new\n").expect("the block");
        assert_eq!(new, "# Title\n<!-- arena -->\nnew\n<!-- /arena -->\nrest\n");
        assert_eq!(with_block(&new, "arena", "new"), Some(new.clone()));
        assert_eq!(with_block("no block", "arena", "new"), None);
    }

    #[test]
    fn rates_never_hide_how_little_was_seen() {
        assert_eq!(rate(&Rate::of(0, 30)), "0 % (< 9.5 %)");
        assert_eq!(rate(&Rate::of(3, 10)), "30 % (6.7–65 %)");
        assert_eq!(rate(&Rate::of(0, 0)), "–");
    }

    #[test]
    fn scenarios_are_named_once() {
        let labels = ["2", "17 (3.5 s)", "17 (5 s)", "18 (20 %)"].map(str::to_owned);
        assert_eq!(scenarios(&labels), "2, 17 (3.5 s, 5 s), 18 (20 %)");
    }
}
