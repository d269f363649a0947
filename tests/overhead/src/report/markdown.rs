//! The result as a table, and the block of a page that holds it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::result::{Figure, Goal, Outcome, Unit};
use crate::statistics::Spread;

/// Name of the block that is written: `<!-- overhead -->` to `<!-- /overhead -->`.
const BLOCK: &str = "overhead";

/// Every figure, with its spread.
pub(crate) fn full(outcome: &Outcome) -> String {
    let mut text = String::from(
        "| what | median | 95 % interval | min to max | values | goal | |\n|---|--:|--:|--:|--:|--:|---|\n",
    );
    for figure in &outcome.figures {
        let Spread { low, high, min, max, count, .. } = figure.spread;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {count} | {} | {} |",
            figure.title,
            value(figure.unit, figure.spread.median),
            range(figure.unit, low, high),
            range(figure.unit, min, max),
            goal(figure),
            verdict(figure),
        );
    }
    text.push_str(&format!("\n{}\n", origin(outcome)));
    text
}

/// The figures that have a goal.
pub(crate) fn short(outcome: &Outcome, page: &str) -> String {
    let mut text = String::from("| what | median | 95 % interval | goal | |\n|---|--:|--:|--:|---|\n");
    for figure in outcome.figures.iter().filter(|figure| figure.goal.is_some()) {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} |",
            figure.title,
            value(figure.unit, figure.spread.median),
            range(figure.unit, figure.spread.low, figure.spread.high),
            goal(figure),
            verdict(figure),
        );
    }
    text.push_str(&format!("\n{} [All figures, and how each is measured]({page}).\n", origin(outcome)));
    text
}

/// Machine, date and command.
fn origin(outcome: &Outcome) -> String {
    let machine = &outcome.machine;
    format!(
        "{}, {} processors, Linux {}, {}, ackbeat {}, `{}`.",
        outcome.date, machine.cpus, machine.kernel, machine.architecture, outcome.build, outcome.command
    )
}

fn verdict(figure: &Figure) -> &'static str {
    match figure.is_met() {
        Some(true) => "met",
        Some(false) => "**missed**",
        None => "",
    }
}

fn goal(figure: &Figure) -> String {
    match figure.goal {
        Some(Goal::AtLeast(least)) => format!("≥ {}", value(figure.unit, least)),
        Some(Goal::AtMost(most)) => format!("≤ {}", value(figure.unit, most)),
        Some(Goal::Within { low, high }) => format!("noise: {}", range(figure.unit, low, high)),
        None => String::new(),
    }
}

fn range(unit: Unit, low: f64, high: f64) -> String {
    format!("{} to {}", value(unit, low), value(unit, high))
}

fn value(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Ratio => format!("{value:.3}"),
        Unit::Nanoseconds => format!("{value:.0} ns"),
        Unit::PercentOfProcessor => format!("{value:.2} %"),
        Unit::Bytes => format!("{:.1} MB", value / 1e6),
        Unit::Count => format!("{value:.0}"),
    }
}

/// Writes the block of a page.
///
/// # Errors
/// The page cannot be read or written, or has no such block.
pub(crate) fn write_block(page: &Path, content: &str) -> Result<()> {
    let old = fs::read_to_string(page).with_context(|| format!("reading {} failed", page.display()))?;
    let Some(new) = with_block(&old, content) else {
        bail!("{} has no block between <!-- {BLOCK} --> and <!-- /{BLOCK} -->", page.display());
    };
    fs::write(page, new).with_context(|| format!("writing {} failed", page.display()))
}

fn with_block(text: &str, content: &str) -> Option<String> {
    let (begin, end) = (format!("<!-- {BLOCK} -->"), format!("<!-- /{BLOCK} -->"));
    let (before, rest) = text.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{}\n{end}{after}", content.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_replaced_and_the_rest_stays() {
        let text = "# Title\n<!-- overhead -->\nold\n<!-- /overhead -->\nrest\n";
        let new = with_block(text, "new\n").expect("the block");
        assert_eq!(new, "# Title\n<!-- overhead -->\nnew\n<!-- /overhead -->\nrest\n");
        assert_eq!(with_block("no block", "new"), None);
    }

    #[test]
    fn figures_are_shown_with_unit_goal_and_verdict() {
        let mut outcome = Outcome::here("cargo xtask bench".to_owned());
        let figure = |id, unit, value| Figure::of(id, id, unit, &[value]).expect("a value");
        outcome.figures = vec![
            figure("throughput", Unit::Ratio, 0.9954).goal(Goal::AtLeast(0.99)),
            figure("memory", Unit::Bytes, 21_500_000.0).goal(Goal::AtMost(20e6)),
            figure("echo", Unit::Ratio, 1.01).goal(Goal::Within { low: 0.95, high: 1.06 }),
            figure("time", Unit::PercentOfProcessor, 1.236),
        ];
        let full = full(&outcome);
        assert!(
            full.contains("| throughput | 0.995 | 0.995 to 0.995 | 0.995 to 0.995 | 1 | ≥ 0.990 | met |")
        );
        assert!(full.contains(
            "| memory | 21.5 MB | 21.5 MB to 21.5 MB | 21.5 MB to 21.5 MB | 1 | ≤ 20.0 MB | **missed** |"
        ));
        assert!(full.contains("| noise: 0.950 to 1.060 | met |") && full.contains("| time | 1.24 % |"));
        let short = short(&outcome, "page.md");
        assert!(short.contains("throughput") && !short.contains("time |") && short.contains("(page.md)"));
    }
}
