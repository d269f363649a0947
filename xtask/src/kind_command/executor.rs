//! Runs a plan: each step within its deadline, what it read and printed kept in files, and what a cluster tells about itself
//! when a step has failed.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::plan::{Condition, Expect, Invocation, Plan, Step, logs_of};
use crate::packages::last_lines;
use crate::{console, process};

/// How long a program that only tells something may take: a question, a log.
const QUESTION_DEADLINE: Duration = Duration::from_secs(60);
/// Between two looks at whether a program has ended.
const LOOK: Duration = Duration::from_millis(20);
/// How many lines of what a program printed an error repeats.
const LINES_REPEATED: usize = 5;

/// How programs are started, and where it is written down.
#[derive(Debug, Clone)]
pub(super) struct Executor {
    /// Where programs are looked for, in the form of `PATH`.
    pub(super) path: OsString,
    /// What they are started in.
    pub(super) root: PathBuf,
    /// `steps` and `failure` lie below it.
    pub(super) folder: PathBuf,
    /// Between two times of asking.
    pub(super) pause: Duration,
}

/// How one start of a program went.
pub(super) struct Attempt {
    /// `None`: it did not end in time, and was ended.
    pub(super) status: Option<ExitStatus>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Attempt {
    pub(super) fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// The end of what it printed, errors first.
    fn said(&self) -> String {
        let errors = last_lines(&self.stderr, LINES_REPEATED);
        if errors.is_empty() { last_lines(&self.stdout, LINES_REPEATED) } else { errors }
    }
}

/// Whether a step was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Its condition said so.
    LeftOut,
}

/// A step that failed. Everything that a user needs next is in its text.
#[derive(Debug)]
pub(super) struct StepFailure {
    number: usize,
    steps: usize,
    title: String,
    command: String,
    reason: Reason,
    /// Where the cluster's logs are, if they were asked for.
    collected: Option<PathBuf>,
}

#[derive(Debug)]
enum Reason {
    /// A program could not be started, or what it reads or prints could not be written down.
    Io(io::Error),
    Ended {
        status: ExitStatus,
        said: String,
    },
    Deadline {
        after: Duration,
        said: String,
    },
}

impl fmt::Display for StepFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "step {} of {} failed: {}: ", self.number, self.steps, self.title)?;
        let said = match &self.reason {
            Reason::Io(error) => {
                write!(formatter, "{error}")?;
                ""
            }
            Reason::Ended { status, said } => {
                write!(formatter, "{status}")?;
                said
            }
            Reason::Deadline { after, said } => {
                write!(formatter, "not done after {} s", after.as_secs_f32())?;
                said
            }
        };
        if !said.is_empty() {
            write!(formatter, ": {said}")?;
        }
        write!(formatter, "\n`{}`", self.command)?;
        if let Some(folder) = &self.collected {
            write!(
                formatter,
                "\nthe logs of all pods, the events and the descriptions are in {}",
                folder.display()
            )?;
        }
        Ok(())
    }
}

impl Error for StepFailure {}

impl Executor {
    /// Runs every step. The outcomes are in the order of the steps.
    ///
    /// # Errors
    /// The first step that fails ends it; by then what the cluster tells is written down.
    pub(super) fn run(&self, plan: &Plan) -> Result<Vec<Outcome>, Box<StepFailure>> {
        // What an earlier run has left would be taken for this one's.
        for folder in [self.steps(), self.failure()] {
            let _ = fs::remove_dir_all(folder);
        }
        let mut outcomes = Vec::new();
        for (index, step) in plan.steps.iter().enumerate() {
            let number = index + 1;
            let failed = |command: &Invocation, reason: Reason, collected: Option<PathBuf>| {
                Box::new(StepFailure {
                    number,
                    steps: plan.steps.len(),
                    title: step.title.clone(),
                    command: command.to_string(),
                    reason,
                    collected,
                })
            };
            let files = self.steps().join(format!("{number:02}-{}", file_name(&step.title)));
            let progress = |what: &str| {
                console::progress(&format!("{number:2}/{} {}{what}", plan.steps.len(), step.title));
            };
            if let Some(condition) = &step.condition {
                match self.wants(condition, &files.with_extension("condition")) {
                    Ok(true) => {}
                    Ok(false) => {
                        progress(": nothing to do");
                        outcomes.push(Outcome::LeftOut);
                        continue;
                    }
                    Err(reason) => return Err(failed(&condition.ask, reason, None)),
                }
            }
            progress("");
            if let Err(reason) = self.step(step, &files) {
                return Err(failed(&step.command, reason, self.collect(plan)));
            }
            outcomes.push(Outcome::Done);
        }
        Ok(outcomes)
    }

    /// What every step read and printed.
    fn steps(&self) -> PathBuf {
        self.folder.join("steps")
    }

    /// What the cluster tells about itself.
    fn failure(&self) -> PathBuf {
        self.folder.join("failure")
    }

    fn wants(&self, condition: &Condition, files: &Path) -> Result<bool, Reason> {
        let answer = self.attempt(&condition.ask, QUESTION_DEADLINE, files).map_err(Reason::Io)?;
        ended(&answer, QUESTION_DEADLINE)?;
        let is_there = answer.stdout.lines().any(|line| line.trim() == condition.line);
        Ok(is_there == condition.run_if_there)
    }

    fn step(&self, step: &Step, files: &Path) -> Result<(), Reason> {
        let begun = Instant::now();
        loop {
            let for_this = match step.expect {
                Expect::Success => step.deadline,
                // The deadline says whether it is asked again; what was asked may be answered. A question that hangs is
                // asked again, too.
                Expect::Output | Expect::Span(_) => QUESTION_DEADLINE,
            };
            let attempt = self.attempt(&step.command, for_this, files).map_err(Reason::Io)?;
            let not_yet = match &step.expect {
                Expect::Success => return ended(&attempt, step.deadline),
                _ if !attempt.is_success() => Some(attempt.said()),
                Expect::Output => {
                    attempt.stdout.trim().is_empty().then(|| "it still prints nothing".to_owned())
                }
                Expect::Span(wanted) => wanted.find(&attempt.stdout).err(),
            };
            let Some(said) = not_yet else { return Ok(()) };
            if begun.elapsed() + self.pause >= step.deadline {
                return Err(Reason::Deadline { after: step.deadline, said });
            }
            thread::sleep(self.pause);
        }
    }

    /// Starts a program and waits for its end. What it reads and prints goes through files: whatever it leaves running
    /// cannot hold this up, and everything can be read afterwards.
    pub(super) fn attempt(
        &self,
        invocation: &Invocation,
        deadline: Duration,
        files: &Path,
    ) -> io::Result<Attempt> {
        if let Some(folder) = files.parent() {
            fs::create_dir_all(folder)?;
        }
        let with = |suffix: &str| PathBuf::from(format!("{}.{suffix}", files.display()));
        let program = process::find_in(&self.path, invocation.program).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("{} is not in PATH", invocation.program))
        })?;
        let mut command = process::command(program);
        command.args(&invocation.arguments).envs(&invocation.environment).env("PATH", &self.path);
        command.current_dir(&self.root);
        let stdin = match invocation.stdin {
            None => Stdio::null(),
            Some(text) => {
                fs::write(with("stdin"), text)?;
                File::open(with("stdin"))?.into()
            }
        };
        let (stdout, stderr) = (with("stdout"), with("stderr"));
        command.stdin(stdin).stdout(File::create(&stdout)?).stderr(File::create(&stderr)?);
        let status = wait(command.spawn()?, deadline)?;
        let read = |file: &Path| fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(Attempt { status, stdout: read(&stdout)?, stderr: read(&stderr)? })
    }

    /// Writes down what the cluster tells, as far as it answers. What cannot be had is named in the folder.
    fn collect(&self, plan: &Plan) -> Option<PathBuf> {
        let list_pods = plan.list_pods.as_ref()?;
        let folder = self.failure();
        console::progress("it failed: collecting the logs of all pods, the events and the descriptions");
        let mut without: Vec<String> = Vec::new();
        let mut keep = |file: &Path, invocation: &Invocation| {
            // Beside the steps: here are only answers.
            let files = self.steps().join("collect").join(file_name(&file.display().to_string()));
            let why = match self.attempt(invocation, QUESTION_DEADLINE, &files) {
                Ok(answer) if answer.is_success() => {
                    let path = folder.join(file);
                    let written = path
                        .parent()
                        .map_or(Ok(()), fs::create_dir_all)
                        .and_then(|()| fs::write(&path, &answer.stdout));
                    match written {
                        Ok(()) => return Some(answer.stdout),
                        Err(error) => error.to_string(),
                    }
                }
                Ok(answer) if answer.status.is_none() => "no answer in time".to_owned(),
                Ok(answer) => answer.said(),
                Err(error) => error.to_string(),
            };
            without.push(format!("{}: `{invocation}`: {why}\n", file.display()));
            None
        };
        for diagnostic in &plan.diagnostics {
            keep(Path::new(diagnostic.file), &diagnostic.command);
        }
        let pods = keep(Path::new("list-of-pods.txt"), list_pods).unwrap_or_default();
        for (namespace, pod) in pods.lines().filter_map(|line| line.trim().split_once(' ')) {
            keep(
                &Path::new("logs").join(namespace).join(format!("{pod}.txt")),
                &logs_of(list_pods, namespace, pod),
            );
        }
        if !without.is_empty() {
            let note = folder.join("could-not-be-had.txt");
            let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&note, without.concat()));
            if let Err(error) = written {
                console::progress(&format!("{}: {error}\n{}", note.display(), without.concat()));
            }
        }
        Some(folder)
    }
}

fn ended(attempt: &Attempt, deadline: Duration) -> Result<(), Reason> {
    match attempt.status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(Reason::Ended { status, said: attempt.said() }),
        None => Err(Reason::Deadline { after: deadline, said: attempt.said() }),
    }
}

/// The status, or `None` for a child that had to be ended.
fn wait(mut child: Child, deadline: Duration) -> io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK);
    }
}

/// A title as the name of a file.
fn file_name(title: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    title.chars().filter(|c| *c != '\'').map(plain).collect()
}
