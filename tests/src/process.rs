//! Child processes whose output is captured line by line, and which never outlive their value.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::journal::{Journal, wait_until};
use crate::namespace::Namespace;

pub use ackbeat_lab::command::run;

/// Signals that were asked for while a process ran must end it within this time.
const EXIT_DEADLINE: Duration = Duration::from_secs(20);

/// A child process. Dropping it kills it.
pub struct Process {
    label: String,
    child: Child,
    ended: Option<ExitStatus>,
    readers: Vec<std::thread::JoinHandle<()>>,
    /// Lines of its standard output.
    pub stdout: Journal<String>,
    /// Lines of its standard error.
    pub stderr: Journal<String>,
}

/// Prints what children say as they say it (`ACKBEAT_TEST_ECHO=1`).
fn echo() -> bool {
    static ECHO: AtomicBool = AtomicBool::new(false);
    static ASKED: std::sync::Once = std::sync::Once::new();
    ASKED.call_once(|| ECHO.store(std::env::var_os("ACKBEAT_TEST_ECHO").is_some(), Ordering::Relaxed));
    ECHO.load(Ordering::Relaxed)
}

fn capture(
    stream: impl Read + Send + 'static,
    label: String,
    journal: Journal<String>,
    mut on_line: impl FnMut(&str) + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name("capture".into()).spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
            if echo() {
                #[expect(clippy::print_stderr, reason = "asked for by ACKBEAT_TEST_ECHO")]
                {
                    eprintln!("[{label}] {text}");
                }
            }
            on_line(&text);
            journal.push(text);
            line.clear();
        }
    })
}

impl Process {
    /// Starts `command` in `namespace` (or in this process's own), with its output captured and nothing to read.
    ///
    /// # Errors
    /// If the namespace cannot be entered or the program cannot be started.
    pub fn spawn(label: &str, namespace: Option<&Namespace>, mut command: Command) -> Result<Self> {
        command.stdin(Stdio::null());
        Ok(Self::spawn_with(label, namespace, command, |_line| {})?.0)
    }

    /// The same with a pipe as its standard input, and with `on_line` told each line of its standard output as it
    /// comes, before [`Process::stdout`] has it.
    ///
    /// # Errors
    /// As [`Process::spawn`].
    pub fn spawn_talking(
        label: &str,
        namespace: Option<&Namespace>,
        mut command: Command,
        on_line: impl FnMut(&str) + Send + 'static,
    ) -> Result<(Self, ChildStdin)> {
        command.stdin(Stdio::piped());
        let (process, stdin) = Self::spawn_with(label, namespace, command, on_line)?;
        Ok((process, stdin.with_context(|| format!("{label} has no standard input"))?))
    }

    fn spawn_with(
        label: &str,
        namespace: Option<&Namespace>,
        mut command: Command,
        on_line: impl FnMut(&str) + Send + 'static,
    ) -> Result<(Self, Option<ChildStdin>)> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = command.get_program().to_string_lossy().into_owned();
        // A child lives in the namespace of the thread that started it.
        let spawned = Namespace::run_in(namespace, move || command.spawn())?;
        let mut child = spawned.with_context(|| format!("starting {label} ({program}) failed"))?;
        let stdin = child.stdin.take();
        let mut process = Self {
            label: label.to_owned(),
            ended: None,
            readers: Vec::new(),
            stdout: Journal::default(),
            stderr: Journal::default(),
            child: {
                let pipes = (child.stdout.take(), child.stderr.take());
                let (Some(stdout), Some(stderr)) = pipes else { bail!("{label} has no pipes") };
                // The pipes are parked here until the process is wrapped, so that an error below kills it.
                child.stdout = Some(stdout);
                child.stderr = Some(stderr);
                child
            },
        };
        if let Some(stdout) = process.child.stdout.take() {
            process.readers.push(capture(stdout, label.to_owned(), process.stdout.clone(), on_line)?);
        }
        if let Some(stderr) = process.child.stderr.take() {
            process.readers.push(capture(stderr, label.to_owned(), process.stderr.clone(), |_line| {})?);
        }
        Ok((process, stdin))
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If it has ended already, or the kernel refuses.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.ended.is_some() {
            bail!("{} has ended already", self.label);
        }
        let pid = i32::try_from(self.pid()).context("a process id is positive")?;
        kill(Pid::from_raw(pid), signal).with_context(|| format!("sending {signal} to {} failed", self.label))
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// If the kernel cannot say.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended =
                self.child.try_wait().with_context(|| format!("waiting for {} failed", self.label))?;
        }
        Ok(self.ended)
    }

    /// Waits for its end and for the last line of its output.
    ///
    /// # Errors
    /// If it did not end within `deadline`; the message has the end of its standard error.
    pub fn wait(&mut self, deadline: Duration) -> Result<ExitStatus> {
        let label = self.label.clone();
        let waited = wait_until(&format!("the end of {label}"), deadline, || Ok(self.try_wait()?.is_some()));
        waited.with_context(|| self.last_words())?;
        for reader in self.readers.drain(..) {
            if reader.join().is_err() {
                bail!("the thread that reads {label}'s output panicked");
            }
        }
        self.ended.with_context(|| format!("{label} has no exit status"))
    }

    /// Sends `SIGTERM` and waits for its end.
    ///
    /// # Errors
    /// As [`Process::wait`].
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        if self.try_wait()?.is_none() {
            self.signal(Signal::SIGTERM)?;
        }
        self.wait(EXIT_DEADLINE)
    }

    /// The end of its standard error, for messages.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.stderr.read(|lines| {
            let from = lines.len().saturating_sub(30);
            format!("{} said last:\n{}", self.label, lines.get(from..).unwrap_or_default().join("\n"))
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // Both fail only if it is gone already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
