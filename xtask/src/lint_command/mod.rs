//! `cargo xtask lint`
use crate::workspace::Workspace;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
/// Options
#[derive(Debug, Args)]
pub(crate) struct LintOptions {}
/// Later
pub(crate) fn execute(_: &Workspace, _: &LintOptions) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
