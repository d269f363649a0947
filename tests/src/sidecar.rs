//! The sidecar as a process, and what it prints.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::namespace::Namespace;
use crate::process::Process;
use crate::spans::{self, Span};
use crate::tools;

/// The sidecar must watch within this time, unless a test says otherwise: it loads and attaches its programs.
const READY_DEADLINE: Duration = Duration::from_secs(60);

/// How the sidecar is started.
#[derive(Clone, Debug, Default)]
pub struct SidecarOptions {
    /// Ports to watch; every listening port if empty.
    pub ports: Vec<u16>,
    /// More arguments of `ackbeat run`.
    pub arguments: Vec<OsString>,
    /// More environment.
    pub environment: Vec<(String, String)>,
    /// Capabilities that it is not to have, as setpriv(1) names them (`net_admin`).
    pub without_capabilities: Vec<String>,
    /// It must watch within this time, where the machine is much slower than usual.
    pub ready_within: Option<Duration>,
}

impl SidecarOptions {
    /// Watches `port` only.
    #[must_use]
    pub fn port(port: u16) -> Self {
        Self { ports: vec![port], ..Self::default() }
    }

    /// Adds an argument with its value.
    #[must_use]
    pub fn argument(mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) -> Self {
        self.arguments.push(name.into());
        self.arguments.push(value.as_ref().to_owned());
        self
    }

    /// Takes a capability from it, as setpriv(1) names it (`net_admin`).
    #[must_use]
    pub fn without_capability(mut self, name: &str) -> Self {
        self.without_capabilities.push(name.to_owned());
        self
    }

    /// Lets it take longer than usual until it watches.
    #[must_use]
    pub fn ready_within(mut self, deadline: Duration) -> Self {
        self.ready_within = Some(deadline);
        self
    }

    /// Adds a variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }
}

/// A running `ackbeat run`. Dropping it kills it.
pub struct Sidecar {
    process: Process,
}

/// The sidecar's environment holds nothing that the test did not put there.
fn command(ackbeat: &Path, verb: &str, without_capabilities: &[String]) -> Command {
    let mut command = if without_capabilities.is_empty() {
        Command::new(ackbeat)
    } else {
        // It becomes the sidecar (package util-linux). A program that root starts has what the bounding set allows.
        let dropped: Vec<String> = without_capabilities.iter().map(|name| format!("-{name}")).collect();
        let dropped = dropped.join(",");
        let mut command = Command::new("setpriv");
        command.arg(format!("--bounding-set={dropped}")).arg(format!("--inh-caps={dropped}")).arg(ackbeat);
        command
    };
    command.arg(verb);
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("OTEL_")
            || (name_text.starts_with("ACKBEAT_") && name_text != "ACKBEAT_EBPF_OBJECT")
        {
            command.env_remove(&name);
        }
    }
    command
}

impl Sidecar {
    /// Starts the built `ackbeat` in `namespace` and waits until it watches.
    ///
    /// # Errors
    /// If it is not built or does not get ready; the message has what it said.
    pub fn start(namespace: &Namespace, options: &SidecarOptions) -> Result<Self> {
        Self::start_program(&tools::ackbeat()?, namespace, options)
    }

    /// The same with a given program.
    ///
    /// # Errors
    /// As [`Sidecar::start`].
    pub fn start_program(ackbeat: &Path, namespace: &Namespace, options: &SidecarOptions) -> Result<Self> {
        let mut command = command(ackbeat, "run", &options.without_capabilities);
        if !options.ports.is_empty() {
            let ports: Vec<String> = options.ports.iter().map(u16::to_string).collect();
            command.arg("--ports").arg(ports.join(","));
        }
        command.args(&options.arguments);
        command.env("OTEL_TRACES_EXPORTER", "console");
        command.envs(options.environment.iter().map(|(name, value)| (name, value)));
        let mut process = Process::spawn("ackbeat", Some(namespace), command)?;
        let deadline = options.ready_within.unwrap_or(READY_DEADLINE);
        let ready = process.stderr.wait_for("the sidecar's word that it is ready", deadline, |lines| {
            // Not "address already in use".
            lines.iter().any(|line| line.contains("ready") && line.contains("connections")).then_some(true)
        });
        // A sidecar that ended says why on its standard error.
        if let Err(error) = ready {
            let status = process.try_wait()?;
            return Err(error).with_context(|| format!("{} (exit: {status:?})", process.last_words()));
        }
        Ok(Self { process })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The spans that it has printed so far.
    ///
    /// # Errors
    /// If a line of its standard output is no span.
    pub fn spans(&self) -> Result<Vec<Span>> {
        self.process.stdout.read(|lines| lines.iter().map(|line| Span::parse(line)).collect())
    }

    /// Lines of its log so far.
    #[must_use]
    pub fn log(&self) -> Vec<String> {
        self.process.stderr.all()
    }

    /// Waits until `pick` finds what it looks for among the spans.
    ///
    /// # Errors
    /// Names `what` if it did not come within `deadline`, and what the sidecar said last; or if a line is no span.
    pub fn wait_for<R>(
        &self,
        what: &str,
        deadline: Duration,
        mut pick: impl FnMut(&[Span]) -> Option<R>,
    ) -> Result<R> {
        let mut parsed: Vec<Span> = Vec::new();
        let found = self.process.stdout.wait_for(what, deadline, |lines| {
            for line in lines.get(parsed.len()..).unwrap_or_default() {
                match Span::parse(line) {
                    Ok(span) => parsed.push(span),
                    Err(error) => return Some(Err(error)),
                }
            }
            pick(&parsed).map(Ok)
        });
        found.with_context(|| self.process.last_words())?
    }

    /// Waits for the span of the host's close of the connection with this peer port.
    ///
    /// # Errors
    /// As [`Sidecar::wait_for`].
    pub fn wait_for_host_close(&self, peer_port: u16, deadline: Duration) -> Result<Span> {
        self.wait_for(&format!("the span of the host's close of port {peer_port}"), deadline, |spans| {
            spans::host_close(spans, peer_port).cloned()
        })
    }

    /// Waits for the span of the connection with this peer port.
    ///
    /// # Errors
    /// As [`Sidecar::wait_for`].
    pub fn wait_for_connection(&self, peer_port: u16, deadline: Duration) -> Result<Span> {
        self.wait_for(&format!("the span of the connection of port {peer_port}"), deadline, |spans| {
            spans::connection(spans, peer_port).cloned()
        })
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If it has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Sends `SIGTERM`, waits for its end and returns every span that it printed.
    ///
    /// # Errors
    /// If it does not exit with 0 in time, or a line of its standard output is no span.
    pub fn stop(self) -> Result<Vec<Span>> {
        Ok(self.stop_with_log()?.0)
    }

    /// The same, and every line that it logged.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub fn stop_with_log(mut self) -> Result<(Vec<Span>, Vec<String>)> {
        let status = self.process.terminate()?;
        if !status.success() {
            bail!("the sidecar ended with {status}: {}", self.process.last_words());
        }
        Ok((self.spans()?, self.log()))
    }

    /// Kills it with `SIGKILL` and returns the spans that it had printed.
    ///
    /// # Errors
    /// If it has ended already, or a line of its standard output is no span.
    pub fn kill(mut self) -> Result<Vec<Span>> {
        self.process.signal(Signal::SIGKILL)?;
        self.process.wait(Duration::from_secs(10))?;
        self.spans()
    }
}
