//! The short set of the arena: every requirement that it can show holds, and its numbers are complete.

use std::path::Path;
use std::process::Command;

use ackbeat_tests::arena::report::ArenaResult;
use ackbeat_tests::arena::{ROWS, judge};
use ackbeat_tests::tools;
use anyhow::{Context, Result, ensure};

/// The assertions themselves are in `arena::report::requirements`; the program's exit code is their sum.
#[test]
fn a_short_set_holds_what_it_must() -> Result<()> {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("arena-quick");
    let status = Command::new(tools::own_program("arena")?)
        .args(["run", "--quick", "--fresh", "--out"])
        .arg(&out)
        .env("ACKBEAT_BIN", tools::ackbeat()?)
        .status()
        .context("starting the arena failed")?;
    let result = ArenaResult::read(&out.join("result.json"))?;
    for row in ROWS.iter().filter(|row| row.quick.is_some()) {
        let was_judged = result
            .cells
            .iter()
            .any(|cell| cell.row == row.number && cell.contestant == judge::DEFAULT_POLICY && cell.runs > 0);
        ensure!(was_judged, "row {} was not judged: {:?} {:?}", row.number, result.not_run, result.failed);
    }
    ensure!(!result.requirements.is_empty(), "nothing was required");
    let violated: Vec<_> = result.requirements.iter().filter(|checked| !checked.holds()).collect();
    ensure!(status.success() && violated.is_empty(), "{status}: {violated:#?}");
    Ok(())
}
