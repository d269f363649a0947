//! `cargo xtask test`: every test that this machine can run, by rank, and by name what it could not run and why.

use std::env;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Args;

use crate::build_command::CompilerOptions;
use crate::console;
use crate::packages::Installer;
use crate::workspace::Workspace;

mod bpf_ways;
mod cargo_test;
mod cluster;
mod helm;
mod lanes;
mod ranks;
mod report;
pub(crate) mod tools;
mod vm;

use ranks::Rank;
use report::{RankReport, Report};

/// Options of `cargo xtask test`.
#[derive(Debug, Args)]
pub(crate) struct TestOptions {
    /// Only these ranks; all of them but `vm` by default.
    #[arg(value_enum, value_name = "RANK")]
    ranks: Vec<Rank>,
    /// A rank that could not run is a failure. Set by `CI=true` too.
    #[arg(long)]
    require_all: bool,
    /// Test targets of the rank `namespaces` at once.
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    lanes: usize,
    #[command(flatten)]
    compiler: CompilerOptions,
    #[command(flatten)]
    vm: vm::VmOptions,
}

/// Runs the ranks in order of privilege and prints the table.
///
/// # Errors
/// The workspace's own declarations are wrong (a test target without a rank). Failing tests are no error here: they
/// make the exit code.
pub(crate) fn execute(workspace: &Workspace, options: &TestOptions) -> Result<ExitCode> {
    ranks::check_declarations(workspace)?;
    let require_all = options.require_all || env::var_os("CI").is_some_and(|value| value == "true");
    let installer = Installer::new(options.compiler.no_install);
    let chosen = if options.ranks.is_empty() { Rank::USUAL.to_vec() } else { options.ranks.clone() };
    let mut report = Report::new(require_all);
    for rank in Rank::ALL.into_iter().filter(|rank| chosen.contains(rank)) {
        console::progress(&format!("rank {rank}"));
        let started = Instant::now();
        let mut of_rank = RankReport::new(rank.name());
        if let Err(error) = ranks::run(rank, workspace, options, &installer, &mut of_rank) {
            of_rank.could_not_run(format!("{error:#}"));
        }
        of_rank.took(started.elapsed());
        report.add(of_rank);
    }
    for line in report.lines() {
        console::result(&line);
    }
    Ok(if report.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
