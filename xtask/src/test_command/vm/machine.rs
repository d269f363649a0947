//! QEMU, with a deadline. The guest's console and its results come over two serial ports, so they never mix.
//!
//! The same program runs on the kernel of this machine where there is no image of it to boot.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use super::debian::Tools;
use super::kernels::Kernel;
use crate::process;

/// Longest that one kernel may take, on a machine that does much else: alone it needs a fraction of it.
const DEADLINE: Duration = Duration::from_secs(540);
const PAUSE: Duration = Duration::from_millis(200);
/// A guest on KVM says its first word within this time: it boots in two or three seconds.
const FIRST_WORD: Duration = Duration::from_secs(20);
/// Tells the guest's program where its results go; see its `results`.
const RESULTS_VARIABLE: &str = "ACKBEAT_GUEST_RESULTS";
/// Lines of the console that a failure shows.
const LAST_LINES: usize = 40;

/// How QEMU runs the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Accelerator {
    /// KVM where a guest boots on it, else translated.
    Auto,
    /// Translated: slow, and works everywhere.
    Tcg,
    /// By the processor, through `/dev/kvm`.
    Kvm,
}

impl Accelerator {
    const fn argument(self) -> &'static str {
        match self {
            Self::Auto | Self::Tcg => "tcg,thread=multi",
            Self::Kvm => "kvm",
        }
    }

    /// QEMU's `max` model of a processor is what the accelerator can do at most.
    const fn processor(self) -> &'static str {
        match self {
            Self::Auto | Self::Tcg => "max",
            Self::Kvm => "host",
        }
    }

    /// Whether KVM is to be tried, although it may not work.
    pub(super) fn tries_kvm(self) -> bool {
        self == Self::Auto && File::options().read(true).write(true).open("/dev/kvm").is_ok()
    }
}

/// A guest that is ready to be started.
pub(super) struct Machine {
    initramfs: PathBuf,
    console: PathBuf,
    results: PathBuf,
}

/// How a guest ended.
pub(super) struct Ended {
    /// What it said on the port for results.
    pub(super) results: String,
    /// The end of its console.
    pub(super) last_lines: String,
    /// Where the whole console is.
    pub(super) console: PathBuf,
    /// It was ended because it took too long.
    pub(super) timed_out: bool,
}

impl Machine {
    /// Writes the archive.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(super) fn prepare(folder: &Path, release: &str, archive: &[u8]) -> Result<Self> {
        let folder = folder.join(release);
        fs::create_dir_all(&folder)
            .with_context(|| format!("could not make the folder {}", folder.display()))?;
        let initramfs = folder.join("initramfs.cpio");
        fs::write(&initramfs, archive).with_context(|| format!("could not write {}", initramfs.display()))?;
        let (console, results) = (folder.join("console.log"), folder.join("results.jsonl"));
        Ok(Self { initramfs, console, results })
    }

    /// Boots the kernel on KVM. Where a machine is virtual itself KVM can often be opened, and a guest hangs on it or QEMU
    /// gives up; then there is nothing.
    ///
    /// # Errors
    /// QEMU cannot be started.
    pub(super) fn try_kvm(&self, kernel: &Kernel, tools: &Tools) -> Result<Option<Ended>> {
        let ended = self.start(kernel, tools, Accelerator::Kvm, Some(FIRST_WORD))?;
        Ok(Some(ended).filter(|ended| !ended.results.is_empty()))
    }

    /// Boots the kernel and waits until the guest has ended.
    ///
    /// # Errors
    /// QEMU cannot be started.
    pub(super) fn run(&self, kernel: &Kernel, tools: &Tools, accelerator: Accelerator) -> Result<Ended> {
        self.start(kernel, tools, accelerator, None)
    }

    fn start(
        &self,
        kernel: &Kernel,
        tools: &Tools,
        accelerator: Accelerator,
        first_word: Option<Duration>,
    ) -> Result<Ended> {
        let mut command = tools.qemu();
        command
            .args(["-accel", accelerator.argument(), "-cpu", accelerator.processor()])
            .args(["-m", "1024", "-smp", "2", "-nodefaults", "-display", "none", "-no-reboot"])
            .arg("-serial")
            .arg(format!("file:{}", self.console.display()))
            .arg("-serial")
            .arg(format!("file:{}", self.results.display()))
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(&self.initramfs)
            // A kernel that panics restarts at once, which ends QEMU. Without mitigations translated code is faster.
            .args(["-append", "console=ttyS0 panic=-1 loglevel=5 mitigations=off"]);
        // QEMU itself says little; it belongs to the console.
        let said = self.console.with_extension("qemu");
        let log = File::create(&said).with_context(|| format!("could not write {}", said.display()))?;
        command.stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
        let timed_out = wait(&mut command, first_word.map(|within| (self.results.as_path(), within)))?;
        Ok(ended(&self.console, &self.results, &text(&said), timed_out))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The archive is large and made anew each time; a leftover costs only room.
        let _ = fs::remove_file(&self.initramfs);
    }
}

/// Runs the guest's program on the kernel of this machine.
///
/// # Errors
/// The folder cannot be written, or the program cannot be started.
pub(super) fn run_here(guest: &Path, ackbeat: &Path, folder: &Path, release: &str) -> Result<Ended> {
    let folder = folder.join(release);
    fs::create_dir_all(&folder).with_context(|| format!("could not make the folder {}", folder.display()))?;
    let (console, results) = (folder.join("console.log"), folder.join("results.jsonl"));
    let create =
        |path: &Path| File::create(path).with_context(|| format!("could not write {}", path.display()));
    create(&results)?;
    let log = create(&console)?;
    let mut command = process::command(guest);
    command
        .env("ACKBEAT_BIN", ackbeat)
        .env("ACKBEAT_TEST_ECHO", "1")
        .env("RUST_BACKTRACE", "1")
        .env(RESULTS_VARIABLE, &results)
        .stdin(Stdio::null())
        .stderr(log.try_clone()?)
        .stdout(log);
    let timed_out = wait(&mut command, None)?;
    Ok(ended(&console, &results, "", timed_out))
}

/// Waits for the end of a program in a process group of its own, and ends the group after its time. `first_word` is a file
/// that must not be empty after a while.
fn wait(command: &mut Command, first_word: Option<(&Path, Duration)>) -> Result<bool> {
    let line = process::command_line(command);
    let mut child = command.process_group(0).spawn().with_context(|| format!("could not start `{line}`"))?;
    let started = Instant::now();
    loop {
        if child.try_wait().with_context(|| format!("waiting for `{line}`"))?.is_some() {
            return Ok(false);
        }
        let is_silent = first_word.is_some_and(|(file, within)| {
            started.elapsed() > within && !fs::metadata(file).is_ok_and(|found| found.len() > 0)
        });
        if is_silent || started.elapsed() > DEADLINE {
            end(&mut child);
            child.wait().with_context(|| format!("waiting for `{line}`"))?;
            return Ok(true);
        }
        sleep(PAUSE);
    }
}

/// Ends a program and what it has started.
fn end(child: &mut Child) {
    let mut kill = process::command("kill");
    kill.args(["-KILL", "--"]).arg(format!("-{}", child.id()));
    // It may have ended meanwhile, and where there is no such program the child alone is ended.
    let _ = process::capture(&mut kill, "ending a program");
    let _ = child.kill();
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn ended(console: &Path, results: &Path, said: &str, timed_out: bool) -> Ended {
    Ended {
        results: text(results),
        last_lines: last_lines(&(text(console) + said)),
        console: console.to_owned(),
        timed_out,
    }
}

fn last_lines(console: &str) -> String {
    let lines: Vec<&str> = console.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}
