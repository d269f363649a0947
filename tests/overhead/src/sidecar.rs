//! The sidecar as it is shipped: a process in the host's namespace.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ackbeat_lab::journal::Journal;
use ackbeat_lab::namespace::Namespace;
use anyhow::{Context, Result, bail};

/// It must watch within this time: it loads and attaches its programs.
const READY_DEADLINE: Duration = Duration::from_secs(60);
/// A port that nobody listens on here.
const UNUSED_PORT: &str = "1";
/// Lines of its log that are shown if it ends.
const LAST_LINES: usize = 20;

/// What it watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Every listening port: the default.
    EveryPort,
    /// A port without traffic: every packet belongs to a port that is not watched.
    AnotherPort,
}

/// A running `ackbeat run`. Dropping it kills it.
pub(crate) struct Sidecar(Child);

impl Sidecar {
    /// Starts it in `namespace` with the default settings and waits until it watches. Its spans are written, to nowhere:
    /// what it takes to make and to print them is part of its cost.
    ///
    /// # Errors
    /// It cannot be started or does not get ready; the message has what it said.
    pub(crate) fn start(program: &Path, namespace: &Namespace, watch: Watch) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("run");
        if watch == Watch::AnotherPort {
            command.args(["--ports", UNUSED_PORT]);
        }
        for (name, _) in std::env::vars_os() {
            if ["OTEL_", "ACKBEAT_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command.env("OTEL_TRACES_EXPORTER", "console");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = namespace
            .run(move || command.spawn())?
            .with_context(|| format!("starting {} failed", program.display()))?;
        let mut sidecar = Self(child);
        let log = sidecar.0.stderr.take().context("the sidecar has no standard error")?;
        let lines: Journal<String> = Journal::default();
        let journal = lines.clone();
        // Reads to the end: a sidecar whose log nobody reads would lose lines, and count them.
        std::thread::Builder::new()
            .name("sidecar-log".to_owned())
            .spawn(move || {
                for line in BufReader::new(log).lines().map_while(std::io::Result::ok) {
                    journal.push(line);
                }
            })
            .context("starting a thread failed")?;
        let ready = lines.wait_for("the sidecar's word that it is ready", READY_DEADLINE, |lines| {
            lines.iter().any(|line| line.contains("ready") && line.contains("connections")).then_some(())
        });
        if let Err(error) = ready {
            let last = lines.read(|lines| lines[lines.len().saturating_sub(LAST_LINES)..].join("\n"));
            bail!("{error}; its log ends with:\n{last}");
        }
        Ok(sidecar)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Fails if it has ended by itself: then what was measured was not what was meant.
    ///
    /// # Errors
    /// It has.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.0.try_wait().context("asking for the sidecar failed")? {
            None => Ok(()),
            Some(status) => bail!("the sidecar ended with {status} while it was measured"),
        }
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
