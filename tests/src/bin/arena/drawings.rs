//! The plots of a result, as files.

use std::path::Path;

use ackbeat_tests::arena::judge::{DEFAULT_POLICY, FAST_POLICY};
use ackbeat_tests::arena::plot;
use ackbeat_tests::arena::report::{ArenaResult, result};
use anyhow::{Context, Result};

/// Detection time against false kills.
pub(crate) const PARETO_FILE: &str = "pareto.svg";
/// The threshold's ROC.
pub(crate) const ROC_FILE: &str = "roc-17.svg";

/// Draws the Pareto plot of a result, if it has both living and gone peers.
///
/// # Errors
/// If it cannot be drawn or written.
pub(crate) fn pareto(result: &ArenaResult, folder: &Path) -> Result<()> {
    let contenders: Vec<plot::Contender> = result
        .contestants
        .iter()
        .filter_map(|standing| {
            standing.false_kills.share()?;
            Some(plot::Contender {
                name: standing.contestant.clone(),
                false_kills: standing.false_kills,
                detection: standing.detection?,
                is_ours: [DEFAULT_POLICY, FAST_POLICY].contains(&standing.contestant.as_str()),
            })
        })
        .collect();
    if contenders.is_empty() {
        return Ok(());
    }
    let living = result.contestants.iter().map(|standing| standing.false_kills.runs).max().unwrap_or(0);
    let gone =
        result.contestants.iter().filter_map(|standing| standing.detection).map(|sum| sum.count + sum.never);
    let subtitle = format!(
        "{living} runs with a living peer, {} with one that is gone (scenarios {}); {}, Linux {}",
        gone.max().unwrap_or(0),
        result::GONE_ROWS.map(|row| row.to_string()).join(", "),
        result.date,
        result.machine.kernel
    );
    write(&folder.join(PARETO_FILE), &plot::pareto(&contenders, &subtitle)?)
}

/// Writes a drawing.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write(path: &Path, svg: &str) -> Result<()> {
    std::fs::write(path, svg).with_context(|| format!("writing {} failed", path.display()))
}
