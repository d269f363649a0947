//! `cargo xtask`: builds, runs, tests and checks ackbeat, and installs what that needs.
//!
//! Every command works on a fresh Debian 12 machine with rustup's cargo and a C linker. A missing package is named
//! before it is installed.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod arena_command;
mod bench_command;
mod bpf_compiler;
mod bpf_linker;
mod bpf_probe;
mod build_command;
mod console;
mod demo_command;
mod fuzz_command;
mod image_command;
mod kind_command;
mod kubernetes_binaries;
mod lint_command;
mod packages;
mod process;
mod run_command;
mod static_build;
mod test_command;
mod toolchain;
mod workspace;

/// Build, run, test and check ackbeat.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct CommandLine {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Build the eBPF object and the sidecar.
    Build(build_command::BuildOptions),
    /// Build, then run `ackbeat` with the arguments after `--`.
    Run(run_command::RunOptions),
    /// Show a false kill and a justified one on real sockets (root; under a minute once built).
    Demo(demo_command::DemoOptions),
    /// Play every scenario with real sockets and let every detector judge it (root).
    Arena(arena_command::ArenaOptions),
    /// Measure what ackbeat costs, with and without it in turns (root).
    Bench(bench_command::BenchOptions),
    /// Run every test that this machine can run, and name what it could not run.
    Test(test_command::TestOptions),
    /// Run made-up inputs through the engine, the detectors and every decoder; print cases and time.
    Fuzz(fuzz_command::FuzzOptions),
    /// Write the sidecar as an OCI archive: its static program, certificates, licences, and nothing else.
    Image(image_command::ImageOptions),
    /// A cluster on this machine by kind: the image, the chart and its demo in it.
    Kind(kind_command::KindOptions),
    /// Check format, lints, licences, and the rules of this repository.
    Lint(lint_command::LintOptions),
}

fn main() -> ExitCode {
    match execute(CommandLine::parse().task) {
        Ok(code) => code,
        Err(error) => {
            console::progress(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn execute(task: Task) -> Result<ExitCode> {
    let workspace = workspace::Workspace::load()?;
    match task {
        Task::Build(options) => build_command::execute(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::Run(options) => run_command::execute(&workspace, options).map(|()| ExitCode::SUCCESS),
        Task::Demo(options) => demo_command::execute(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::Arena(options) => arena_command::execute(&workspace, &options),
        Task::Bench(options) => bench_command::execute(&workspace, &options),
        Task::Test(options) => test_command::execute(&workspace, &options),
        Task::Fuzz(options) => fuzz_command::execute(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::Image(options) => image_command::execute(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::Kind(options) => kind_command::execute(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::Lint(options) => lint_command::execute(&workspace, &options),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn arguments_of_the_sidecar_are_passed_through() {
        let parsed = CommandLine::try_parse_from(["xtask", "run", "--", "ackbeat", "run", "--ports", "8080"]);
        assert!(matches!(parsed, Ok(CommandLine { task: Task::Run(_) })));
    }
}
