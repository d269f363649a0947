//! The ranks, from least to most privilege, and what each runs.
//!
//! A test lives in the lowest rank that can run it. The test targets of the package `ackbeat-tests` declare theirs in
//! `[package.metadata.ranks]` of `tests/Cargo.toml`.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use super::report::RankReport;
use super::{TestOptions, bpf_ways, cargo_test, cluster, helm, lanes, tools, vm};
use crate::build_command::{self, CompilerOptions, OBJECT_VARIABLE};
use crate::packages::Installer;
use crate::workspace::{Package, Workspace};
use crate::{console, process};

/// Targets of the rank `namespaces` that need something which the others run without: a browser, Prometheus, and an OTLP
/// receiver that is compiled first.
const BROWSER_TARGET: &str = "browser";
const DASHBOARDS_TARGET: &str = "dashboards";
const OTLP_TARGET: &str = "otlp";
/// The target of the rank `in-process` that runs other languages' tests; the others run without them.
const CLIENTS_TARGET: &str = "clients";
/// The target of the rank `in-process` that has the metrics read by Prometheus and by an OTLP receiver.
const METRICS_TARGET: &str = "metrics";
/// The package whose test targets have ranks.
const TESTS_PACKAGE: &str = "ackbeat-tests";
/// The API's client in Rust.
const CLIENT_PACKAGE: &str = "ackbeat-client";
/// Made-up inputs for everything that reads what others wrote; its tests are a short run.
const FUZZING_PACKAGE: &str = "ackbeat-fuzzing";
/// The benchmark; its own tests need no root.
const OVERHEAD_PACKAGE: &str = "ackbeat-overhead";
/// The Helm charts by the real Helm.
const CHARTS_PACKAGE: &str = "ackbeat-chart-tests";
/// Networks made of namespaces, for the tests and for `ackbeat storm-lab`.
const LAB_PACKAGE: &str = "ackbeat-lab";
/// Packages without IO.
const PURE_PACKAGES: [&str; 6] = [
    "ackbeat-abi",
    "ackbeat-wire",
    "ackbeat-liveness",
    "ackbeat-detectors",
    "ackbeat-injection",
    "ackbeat-storms",
];
/// Packages that the other ranks name one by one.
const OTHER_PACKAGES: [&str; 9] = [
    "ackbeat",
    CLIENT_PACKAGE,
    LAB_PACKAGE,
    "ackbeat-ebpf",
    TESTS_PACKAGE,
    CHARTS_PACKAGE,
    FUZZING_PACKAGE,
    OVERHEAD_PACKAGE,
    "xtask",
];

/// How much a group of tests needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Rank {
    /// No IO: the kernel contract and the engine, which must also compile without an operating system.
    Pure,
    /// Loopback sockets and files, any user.
    InProcess,
    /// Both ways to an eBPF compiler make an object.
    Toolchains,
    /// Root: network namespaces and kernel programs.
    Namespaces,
    /// Other kernels, booted under QEMU. Only where it is asked for: minutes for each kernel.
    Vm,
    /// Root: a Kubernetes of one node, whose programs are built first. Only where it is asked for.
    Cluster,
}

impl Rank {
    /// In the order in which they run.
    pub(crate) const ALL: [Self; 6] =
        [Self::Pure, Self::InProcess, Self::Toolchains, Self::Namespaces, Self::Vm, Self::Cluster];
    /// Those that run where none is asked for.
    pub(crate) const USUAL: [Self; 4] = [Self::Pure, Self::InProcess, Self::Toolchains, Self::Namespaces];

    /// As typed on the command line and written in `tests/Cargo.toml`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::InProcess => "in-process",
            Self::Toolchains => "toolchains",
            Self::Namespaces => "namespaces",
            Self::Vm => "vm",
            Self::Cluster => "cluster",
        }
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Checks that every package is tested by a rank, that every test target of the tests' package has exactly one rank, and every rank real targets.
///
/// # Errors
/// A package or a target is missing, a target is named twice, a rank is unknown. The message names it.
pub(crate) fn check_declarations(workspace: &Workspace) -> Result<()> {
    for package in &workspace.packages {
        let name = package.name.as_str();
        if !PURE_PACKAGES.contains(&name) && !OTHER_PACKAGES.contains(&name) {
            bail!(
                "no rank runs the tests of the package `{name}`: add it to xtask/src/test_command/ranks.rs"
            );
        }
    }
    let package = workspace.package(TESTS_PACKAGE)?;
    let ranks: Vec<(&str, Vec<&str>)> = package.ranks().into_iter().collect();
    check_ranks(&ranks, &package.targets_of("test"))
}

fn check_ranks(ranks: &[(&str, Vec<&str>)], targets: &[&str]) -> Result<()> {
    let table = "[package.metadata.ranks] of tests/Cargo.toml";
    for (rank, names) in ranks {
        if !Rank::ALL.iter().any(|known| known.name() == *rank) {
            bail!("{table} names the rank `{rank}`, which does not exist");
        }
        for name in names {
            if !targets.contains(name) {
                bail!("{table} names the test target `{name}`, which does not exist");
            }
        }
    }
    for target in targets {
        match ranks.iter().filter(|(_, names)| names.contains(target)).count() {
            1 => {}
            0 => bail!("the test target `{target}` has no rank: add it to {table}"),
            _ => bail!("the test target `{target}` has more than one rank in {table}"),
        }
    }
    Ok(())
}

/// Prepares and runs one rank.
///
/// # Errors
/// Something that the rank needs is missing: the rest of the rank could not run.
pub(crate) fn run(
    rank: Rank,
    workspace: &Workspace,
    options: &TestOptions,
    installer: &Installer,
    report: &mut RankReport,
) -> Result<()> {
    let compiler = &options.compiler;
    match rank {
        Rank::Pure => pure(workspace, compiler, installer, report),
        Rank::InProcess => in_process(workspace, compiler, installer, report),
        Rank::Toolchains => bpf_ways::run(workspace, compiler, installer, report),
        Rank::Namespaces => namespaces(workspace, options, installer, report),
        Rank::Vm => vm::run(workspace, compiler, &options.vm, installer, report),
        Rank::Cluster => {
            let tests = workspace.package(TESTS_PACKAGE)?;
            cluster::run(workspace, options, &targets_of(tests, rank), installer, report)
        }
    }
}

fn pure(
    workspace: &Workspace,
    options: &CompilerOptions,
    installer: &Installer,
    report: &mut RankReport,
) -> Result<()> {
    for package in PURE_PACKAGES {
        let mut command = cargo_test(workspace, package);
        command.arg("--all-features");
        cargo_test::run(&mut command, package, report)?;
    }
    without_operating_system(workspace, options, installer, report)
}

/// That the engine needs no operating system is a fact of the build, not a promise.
fn without_operating_system(
    workspace: &Workspace,
    options: &CompilerOptions,
    installer: &Installer,
    report: &mut RankReport,
) -> Result<()> {
    const TARGET: &str = "x86_64-unknown-none";
    let package = "ackbeat-liveness";
    let mut command = if has_target(TARGET) {
        let mut command = process::command(process::cargo());
        command.args(["check", "--target", TARGET]);
        command
    } else {
        let compiler = build_command::bpf_compiler(workspace, options, installer).with_context(|| {
            format!("{package} without an operating system: run `rustup target add {TARGET}`, or install a BPF compiler")
        })?;
        let cache = workspace.target.join("ebpf").join(compiler.cache_name());
        let mut command = compiler.cargo("check", "core,alloc", None);
        command.arg("--target-dir").arg(cache);
        command
    };
    command.current_dir(&workspace.root).args(["--package", package, "--all-features"]);
    console::progress(&process::command_line(&command));
    match process::run(&mut command, "compiling for a target without an operating system") {
        Ok(()) => report.passed(1),
        Err(error) => report.failed(format!("{package}: {error:#}")),
    }
    Ok(())
}

/// Whether the compiler in use has a `core` for this target.
fn has_target(target: &str) -> bool {
    let mut rustc = process::command("rustc");
    rustc.args(["--print", "sysroot"]);
    process::capture(&mut rustc, "asking rustc").is_ok_and(|answer| {
        Path::new(answer.stdout.trim()).join("lib/rustlib").join(target).join("lib").is_dir()
    })
}

fn in_process(
    workspace: &Workspace,
    options: &CompilerOptions,
    installer: &Installer,
    report: &mut RankReport,
) -> Result<()> {
    // The sidecar builds without its kernel programs too, so the lack of a compiler for them does not stop this rank.
    let object = build_command::ebpf_object(workspace, options, installer);
    if let Err(error) = &object {
        report.could_not_run(format!("the sidecar with its kernel programs embedded: {error:#}"));
    }
    let tests = workspace.package(TESTS_PACKAGE)?;
    let mut commands: Vec<(String, Command)> = Vec::new();
    for part in ["--all-targets", "--doc"] {
        let mut command = cargo_test(workspace, "ackbeat");
        command.arg(part);
        commands.push((format!("ackbeat {part}"), command));
    }
    for package in [CLIENT_PACKAGE, LAB_PACKAGE, FUZZING_PACKAGE, OVERHEAD_PACKAGE] {
        commands.push((package.to_owned(), cargo_test(workspace, package)));
    }
    let mut xtask = cargo_test(workspace, "xtask");
    xtask.arg("--bins");
    commands.push(("xtask".to_owned(), xtask));
    for (kind, part) in [("lib", "--lib"), ("bin", "--bins")] {
        if !tests.targets_of(kind).is_empty() {
            let mut command = cargo_test(workspace, TESTS_PACKAGE);
            command.args(["--all-features", part]);
            commands.push((format!("{TESTS_PACKAGE} {part}"), command));
        }
    }
    for target in targets_of(tests, Rank::InProcess) {
        let mut command = cargo_test(workspace, TESTS_PACKAGE);
        command.args(["--all-features", "--test", target]);
        if let Err(error) = tools_of(target, workspace, installer) {
            report.could_not_run(format!("{target}: {error:#}"));
            continue;
        }
        command.env("ACKBEAT_TEST_TOOLS", workspace.test_tools_folder());
        commands.push((target.to_owned(), command));
    }
    match helm::helm(workspace, installer) {
        Ok(()) => {
            let mut charts = cargo_test(workspace, CHARTS_PACKAGE);
            charts.env("ACKBEAT_TEST_TOOLS", workspace.test_tools_folder());
            commands.push((CHARTS_PACKAGE.to_owned(), charts));
        }
        Err(error) => report.could_not_run(format!("{CHARTS_PACKAGE}: {error:#}")),
    }
    for (label, mut command) in commands {
        if let Ok(object) = &object {
            command.env(OBJECT_VARIABLE, object);
        }
        cargo_test::run(&mut command, &label, report)?;
    }
    Ok(())
}

/// Gets what one target of the rank `in-process` talks to; the others run without it.
fn tools_of(target: &str, workspace: &Workspace, installer: &Installer) -> Result<()> {
    match target {
        CLIENTS_TARGET => {
            tools::node(workspace, installer)?;
            tools::python(workspace, installer)
        }
        METRICS_TARGET => {
            tools::prometheus(installer)?;
            tools::python(workspace, installer)
        }
        _ => Ok(()),
    }
}

fn namespaces(
    workspace: &Workspace,
    options: &TestOptions,
    installer: &Installer,
    report: &mut RankReport,
) -> Result<()> {
    if !process::is_root() {
        bail!("not root; run `{}`", process::as_root("test namespaces"));
    }
    installer.program("ip", "iproute2", "makes the network namespaces of the tests")?;
    installer.program("ss", "iproute2", "tells the kernel's numbers that ours are compared with")?;
    installer.program("nft", "nftables", "drops packets in the tests")?;
    installer.program("tmux", "tmux", "is the terminal in which the live view is tried")?;
    tools::node(workspace, installer)?;
    tools::python(workspace, installer)?;
    let object = build_command::ebpf_object(workspace, &options.compiler, installer)?;
    build_command::sidecar(workspace, &object, false)?;
    let tests = workspace.package(TESTS_PACKAGE)?;
    let needs = [
        (BROWSER_TARGET, tools::browser(installer)),
        (DASHBOARDS_TARGET, tools::prometheus(installer)),
        (OTLP_TARGET, tools::otelite(workspace, installer)),
    ];
    let mut targets = targets_of(tests, Rank::Namespaces);
    targets.retain(|target| match needs.iter().find(|(name, _)| name == target) {
        Some((_, Err(error))) => {
            report.could_not_run(format!("{target}: {error:#}"));
            false
        }
        _ => true,
    });
    let command_of = |target: &str| {
        let mut command = cargo_test(workspace, TESTS_PACKAGE);
        command
            .args(["--all-features", "--test", target, "--", "--test-threads=1"])
            .env(OBJECT_VARIABLE, &object)
            .env("ACKBEAT_BIN", workspace.program("ackbeat", false))
            .env("ACKBEAT_TEST_TOOLS", workspace.test_tools_folder());
        command
    };
    // Compiled before, so that no lane waits for the other's compiler with its test half done.
    let mut build = cargo_test(workspace, TESTS_PACKAGE);
    build.args(["--all-features", "--no-run"]).env(OBJECT_VARIABLE, &object);
    for target in &targets {
        build.args(["--test", target]);
    }
    console::progress(&process::command_line(&build));
    process::run(&mut build, "compiling the tests of the rank `namespaces`")?;
    lanes::run(&targets, options.lanes, command_of, report)
}

fn targets_of(package: &Package, rank: Rank) -> Vec<&str> {
    package.ranks().remove(rank.name()).unwrap_or_default()
}

fn cargo_test(workspace: &Workspace, package: &str) -> Command {
    let mut command = process::command(process::cargo());
    command.current_dir(&workspace.root).args(["test", "--no-fail-fast", "--package", package]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for rank in Rank::ALL {
            let typed = rank.to_possible_value().map(|value| value.get_name().to_owned());
            assert_eq!(typed.as_deref(), Some(rank.name()));
        }
    }

    #[test]
    fn a_target_without_a_rank_is_refused() {
        let ranks = [("in-process", vec!["in_process"]), ("namespaces", vec!["story_a"])];
        assert!(check_ranks(&ranks, &["in_process", "story_a"]).is_ok());
        let refusal = |ranks: &[(&str, Vec<&str>)], targets: &[&str]| {
            check_ranks(ranks, targets).expect_err("refused").to_string()
        };
        let table = "[package.metadata.ranks] of tests/Cargo.toml";
        assert_eq!(
            refusal(&ranks, &["in_process", "story_a", "otlp"]),
            format!("the test target `otlp` has no rank: add it to {table}")
        );
        assert_eq!(
            refusal(&ranks, &["in_process"]),
            format!("{table} names the test target `story_a`, which does not exist")
        );
        assert_eq!(
            refusal(&[("moon", vec![])], &[]),
            format!("{table} names the rank `moon`, which does not exist")
        );
        let twice = [("in-process", vec!["otlp"]), ("namespaces", vec!["otlp"])];
        assert_eq!(
            refusal(&twice, &["otlp"]),
            format!("the test target `otlp` has more than one rank in {table}")
        );
    }
}
