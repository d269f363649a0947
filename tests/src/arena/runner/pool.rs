//! Plays stages as processes of their own, as many at once as the machine bears.
//!
//! A process for each stage, because a stage's threads change their network namespace, and because one that crashes must
//! not take the others with it.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::interruption::Interruption;
use super::progress::Progress;
use super::{Job, RunOptions, folder, machine};
use crate::arena::cannot_run;
use crate::arena::report::{Build, NotRun};
use crate::namespace;

/// How often children are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Stages start at least this far apart: each loads kernel programs, which keeps a processor busy for a second.
const START_INTERVAL: Duration = Duration::from_millis(700);
/// A stage is tried so often.
const TRIES: u32 = 2;
/// A stage may take so many times as long as it should, and this on top.
const PATIENCE_FACTOR: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(120);
/// Lines of a stage's output that are told when it failed.
const LAST_WORDS: usize = 3;

/// How a set's stages ended.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    /// Folders of the stages that are complete now, in the order of their scenarios.
    pub folders: Vec<PathBuf>,
    /// Stages that were complete before.
    pub kept: usize,
    /// Scenarios that this machine cannot play.
    pub not_run: Vec<NotRun>,
    /// Stages that failed as often as they were tried.
    pub failed: Vec<NotRun>,
    /// The run was asked to stop before all were played.
    pub was_interrupted: bool,
}

struct Waiting {
    job: Job,
    tries: u32,
}

struct Running {
    job: Job,
    tries: u32,
    folder: PathBuf,
    child: Child,
    started: Instant,
}

impl Running {
    fn deadline(&self) -> Duration {
        Duration::from_secs(u64::from(self.job.row.about_s)) * PATIENCE_FACTOR + PATIENCE
    }
}

struct Pool<'a> {
    options: &'a RunOptions,
    /// As it was when the run began: the working tree may go on during it.
    build: Build,
    waiting: VecDeque<Waiting>,
    running: Vec<Running>,
    progress: Progress,
    ended: Ended,
    /// Stages by scenario and variant that cannot be played here, and why.
    impossible: BTreeMap<(u8, &'static str), String>,
    last_start: Option<Instant>,
}

/// Plays all jobs that are not complete, and waits for their end.
///
/// # Errors
/// If the set's folder cannot be written, or no process can be started.
pub fn play_all(jobs: &[Job], options: &RunOptions) -> Result<Ended> {
    let interruption = Interruption::watch()?;
    let mut pool = Pool {
        options,
        build: machine::this_build(),
        waiting: VecDeque::new(),
        running: Vec::new(),
        progress: Progress::new(0),
        ended: Ended::default(),
        impossible: BTreeMap::new(),
        last_start: None,
    };
    for job in jobs {
        let folder = folder::of(&options.out, job);
        if !options.is_fresh && folder::is_complete(&folder, job, options.is_quick) {
            pool.ended.folders.push(folder);
        } else {
            pool.waiting.push_back(Waiting { job: *job, tries: 0 });
        }
    }
    pool.ended.kept = pool.ended.folders.len();
    pool.progress = Progress::new(pool.waiting.len());
    pool.progress.line(&format!(
        "{} stages to play, {} are complete already, in {}",
        pool.waiting.len(),
        pool.ended.kept,
        options.out.display()
    ));
    let result = pool.run(&interruption);
    pool.stop();
    pool.progress.finish();
    result?;
    pool.ended.folders.sort();
    Ok(pool.ended)
}

impl Pool<'_> {
    fn run(&mut self, interruption: &Interruption) -> Result<()> {
        while !(self.waiting.is_empty() && self.running.is_empty()) {
            if interruption.was_asked() {
                self.ended.was_interrupted = true;
                self.progress.line("stopping; the same command goes on from here");
                return Ok(());
            }
            self.reap()?;
            self.start_next()?;
            let names: Vec<String> = self.running.iter().map(|running| name(&running.job)).collect();
            let left_s = self.left_s();
            self.progress.status(&names.join(", "), left_s);
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Starts the longest waiting stage that fits beside those that run.
    fn start_next(&mut self) -> Result<()> {
        if self.running.len() >= self.options.jobs
            || self.last_start.is_some_and(|at| at.elapsed() < START_INTERVAL)
        {
            return Ok(());
        }
        let weight: u32 = self.running.iter().map(|running| running.job.row.weight).sum();
        let room = self.options.capacity.saturating_sub(weight);
        // What is heavier than the machine runs alone.
        let fits = |waiting: &Waiting| waiting.job.row.weight <= room || self.running.is_empty();
        let Some(place) = self.waiting.iter().position(fits) else { return Ok(()) };
        let Some(waiting) = self.waiting.remove(place) else { return Ok(()) };
        let folder = folder::of(&self.options.out, &waiting.job);
        folder::empty(&folder)?;
        let child = start(self.options, &waiting.job, &folder)?;
        self.last_start = Some(Instant::now());
        self.running.push(Running {
            job: waiting.job,
            tries: waiting.tries + 1,
            folder,
            child,
            started: Instant::now(),
        });
        Ok(())
    }

    /// Takes note of stages that ended.
    fn reap(&mut self) -> Result<()> {
        let mut still = Vec::new();
        for mut running in std::mem::take(&mut self.running) {
            let status = running.child.try_wait().context("waiting for a stage failed")?;
            match status {
                Some(status) => self.ended(&running, status)?,
                None if running.started.elapsed() > running.deadline() => {
                    end(&mut running.child);
                    self.failed(&running, format!("did not end within {:?}", running.deadline()));
                }
                None => still.push(running),
            }
        }
        still.append(&mut self.running);
        self.running = still;
        Ok(())
    }

    fn ended(&mut self, running: &Running, status: ExitStatus) -> Result<()> {
        let seconds = running.started.elapsed().as_secs_f64();
        if status.success() {
            folder::mark_complete(&running.folder, &self.build, self.options.is_quick, seconds)?;
            if folder::is_complete(&running.folder, &running.job, self.options.is_quick) {
                self.progress.ended(false, &format!("{}: {seconds:.0} s", name(&running.job)));
                self.ended.folders.push(running.folder.clone());
            } else {
                self.failed(running, "it left no complete recording and truth of this version".to_owned());
            }
            return Ok(());
        }
        let last_words = last_words(&folder::log(&running.folder));
        if status.code() == Some(i32::from(cannot_run::EXIT_CODE)) {
            self.impossible(running, &last_words);
        } else {
            self.failed(running, format!("{status}: {last_words}"));
        }
        Ok(())
    }

    fn failed(&mut self, running: &Running, reason: String) {
        // What its processes and namespaces were.
        namespace::remove_leftovers();
        let name = name(&running.job);
        if running.tries < TRIES {
            self.progress.line(&format!("{name} failed, it is played once more: {reason}"));
            self.waiting.push_front(Waiting { job: running.job, tries: running.tries });
            return;
        }
        self.progress.ended(true, &format!("{name} FAILED: {reason}"));
        self.ended.failed.push(not_run(&running.job, 1, reason));
    }

    /// No other seed can do what this one could not.
    fn impossible(&mut self, running: &Running, reason: &str) {
        let key = (running.job.row.number, running.job.variant.name);
        let is_same = |job: &Job| (job.row.number, job.variant.name) == key;
        let before = self.waiting.len();
        self.waiting.retain(|waiting| !is_same(&waiting.job));
        let stages = before - self.waiting.len() + 1;
        for _ in 0..stages {
            self.progress.ended(false, &format!("{}: not run: {reason}", name(&running.job)));
        }
        if self.impossible.insert(key, reason.to_owned()).is_none() {
            self.ended.not_run.push(not_run(&running.job, stages as u64, reason.to_owned()));
        }
    }

    /// About how long the rest takes.
    fn left_s(&self) -> f64 {
        let running = self.running.iter().map(|running| {
            let left = f64::from(running.job.row.about_s) - running.started.elapsed().as_secs_f64();
            (left.max(1.0), running.job.row.weight)
        });
        let waiting =
            self.waiting.iter().map(|waiting| (f64::from(waiting.job.row.about_s), waiting.job.row.weight));
        let all: Vec<(f64, u32)> = running.chain(waiting).collect();
        let work: f64 = all.iter().map(|(seconds, weight)| seconds * f64::from(*weight)).sum();
        let seats: f64 = all.iter().map(|(seconds, _)| seconds).sum();
        let longest = all.iter().map(|(seconds, _)| *seconds).fold(0.0, f64::max);
        #[expect(clippy::cast_precision_loss, reason = "jobs are few")]
        let jobs = self.options.jobs.max(1) as f64;
        (work / f64::from(self.options.capacity.max(1))).max(seats / jobs).max(longest)
    }

    /// Ends what still runs; its folders stay incomplete and are played anew.
    fn stop(&mut self) {
        if self.running.is_empty() {
            return;
        }
        for running in &mut self.running {
            end(&mut running.child);
        }
        self.running.clear();
        namespace::remove_leftovers();
    }
}

fn name(job: &Job) -> String {
    let variant =
        if job.variant.name.is_empty() { String::new() } else { format!(" ({})", job.variant.name) };
    format!("row {}{variant} seed {}", job.row.number, job.seed)
}

fn not_run(job: &Job, seeds: u64, reason: String) -> NotRun {
    NotRun { row: job.row.number, variant: job.variant.name.to_owned(), seeds, reason }
}

fn start(options: &RunOptions, job: &Job, folder: &Path) -> Result<Child> {
    let log = folder::log(folder);
    let file = File::create(&log).with_context(|| format!("making {} failed", log.display()))?;
    let mut command = Command::new(&options.program);
    command
        .arg("play")
        .args(["--row", &job.row.number.to_string(), "--seed", &job.seed.to_string()])
        .args(["--variant", job.variant.name])
        .arg("--out")
        .arg(folder)
        .env("ACKBEAT_BIN", &options.ackbeat)
        .stdin(Stdio::null())
        .stdout(file.try_clone().context("sharing a log failed")?)
        .stderr(file)
        // Ctrl-C at the terminal is for the runner, which ends the stages itself.
        .process_group(0);
    if options.is_quick {
        command.arg("--quick");
    }
    command.spawn().with_context(|| format!("starting {} failed", options.program.display()))
}

fn end(child: &mut Child) {
    // Both fail only if it is gone already.
    let _ = child.kill();
    let _ = child.wait();
}

/// What a stage said of its failure, in one line: its error with the causes if it came to one, else the end of its output.
fn last_words(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    last_words_of(&String::from_utf8_lossy(&text))
}

fn last_words_of(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let error = lines.iter().rposition(|line| line.starts_with("Error: "));
    let from = error.unwrap_or_else(|| lines.len().saturating_sub(LAST_WORDS));
    let words = lines.get(from..).unwrap_or_default();
    // Where a backtrace is asked for, it stands after the causes and says less.
    let words: Vec<&str> = words.iter().copied().take_while(|line| *line != "Stack backtrace:").collect();
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_without_its_backtrace() {
        let log = "row 30 seed 1\nError: waiting\n\nCaused by:\n    no socket\n\nStack backtrace:\n   0: a\n   1: b\n   2: c\n";
        assert_eq!(last_words_of(log), "Error: waiting; Caused by:; no socket");
    }

    #[test]
    fn without_an_error_the_end_is_told() {
        assert_eq!(last_words_of("a\nb\n\nc\nd\n"), "b; c; d");
        assert_eq!(last_words_of(""), "");
    }
}
