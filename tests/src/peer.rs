//! A client as a process of its own, which can be stopped and killed like any process.
//!
//! It wraps [`Client`](crate::client::Client): options as one JSON argument, commands as JSON lines on its standard
//! input, and what it sees as JSON lines on its standard output. It ends with its standard input or its connection.

use std::io::Write;
use std::process::{ChildStdin, Command as Program};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::client::{ClientEvent, ClientOptions, Command, Seen};
use crate::journal::{Journal, wait_until};
use crate::mux::Ask;
use crate::namespace::Namespace;
use crate::process::Process;
use crate::tools;

/// The client in the process must have its WebSocket within this time; it gives up earlier itself.
const OPEN_DEADLINE: Duration = Duration::from_secs(40);
/// A signal must have stopped or continued a process within this time.
const SIGNAL_DEADLINE: Duration = Duration::from_secs(10);

/// A line of the process's standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The WebSocket is open.
    Connected {
        /// The client's own port.
        port: u16,
    },
    /// Something that the client saw.
    Event(ClientEvent),
}

/// A client in a process of its own. Dropping it kills the process, stopped or not.
pub struct Peer {
    port: u16,
    process: Process,
    stdin: Mutex<ChildStdin>,
    /// What the client saw.
    pub events: Journal<ClientEvent>,
}

impl Peer {
    /// Starts the process in `namespace` (or in this process's own) and waits until its WebSocket is open.
    ///
    /// # Errors
    /// If the program is not built, or the WebSocket is not open within a deadline; the message has what it said.
    pub fn connect(namespace: Option<&Namespace>, options: &ClientOptions) -> Result<Self> {
        let mut program = Program::new(tools::own_program("peer")?);
        program.arg(serde_json::to_string(options).context("writing the options as JSON failed")?);
        // What it says when it gives up is quoted below: the reason, not the stack.
        program.env("RUST_BACKTRACE", "0");
        let events: Journal<ClientEvent> = Journal::default();
        let (journal, (connected, port)) = (events.clone(), std::sync::mpsc::channel());
        let on_line = move |line: &str| match serde_json::from_str(line) {
            Ok(Line::Event(event)) => journal.push(event),
            // Whoever connects waits for exactly this.
            Ok(Line::Connected { port }) => drop(connected.send(port)),
            // Not ours; `stdout` has it.
            Err(_) => {}
        };
        let (mut process, stdin) = Process::spawn_talking("peer", namespace, program, on_line)?;
        let Ok(port) = port.recv_timeout(OPEN_DEADLINE) else {
            // It has given up, or will not: its last words are complete with its end.
            let _ = process.wait(SIGNAL_DEADLINE);
            bail!("the peer did not open its WebSocket; {}", process.last_words());
        };
        Ok(Self { port, process, stdin: Mutex::new(stdin), events })
    }

    /// Its own port: the peer port of the host's side.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Tells the client something. A stopped process obeys when it goes on.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn command(&self, command: &Command) -> Result<()> {
        let mut line = serde_json::to_string(command).context("writing a command as JSON failed")?;
        line.push('\n');
        let mut stdin = self.stdin.lock().unwrap_or_else(PoisonError::into_inner);
        stdin.write_all(line.as_bytes()).context("telling the peer something failed")
    }

    /// Asks the host for something.
    ///
    /// # Errors
    /// As [`Peer::command`].
    pub fn ask(&self, ask: &Ask) -> Result<()> {
        let text = serde_json::to_string(ask).context("writing an ask as JSON failed")?;
        self.command(&Command::Send { text })
    }

    /// Stops the whole process (`SIGSTOP`) and waits until the kernel says so. Its kernel goes on acknowledging.
    ///
    /// # Errors
    /// If the process has ended, or does not stop in time.
    pub fn stop(&mut self) -> Result<()> {
        self.process.signal(Signal::SIGSTOP)?;
        self.wait_for_state("stopped", |state| state == 'T')
    }

    /// Lets a stopped process go on (`SIGCONT`).
    ///
    /// # Errors
    /// If the process has ended, or does not go on in time.
    pub fn go_on(&mut self) -> Result<()> {
        self.process.signal(Signal::SIGCONT)?;
        self.wait_for_state("going on", |state| state != 'T')
    }

    /// Kills the process (`SIGKILL`) and waits until it is gone: its kernel closes the socket with FIN, or with RST if
    /// something lay unread.
    ///
    /// # Errors
    /// If the process has ended already, or does not end in time.
    pub fn kill(&mut self) -> Result<()> {
        self.process.signal(Signal::SIGKILL)?;
        self.process.wait(SIGNAL_DEADLINE).map(drop)
    }

    /// Waits until the state of all its threads (third field of `/proc/<pid>/task/<tid>/stat`) is as wanted.
    fn wait_for_state(&self, what: &str, wanted: impl Fn(char) -> bool) -> Result<()> {
        let tasks = format!("/proc/{}/task", self.pid());
        wait_until(&format!("the peer's {what}"), SIGNAL_DEADLINE, || {
            let tasks = std::fs::read_dir(&tasks).context("reading the peer's threads failed")?;
            Ok(tasks.flatten().all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                // The name may hold anything; it ends at the last parenthesis. A thread that is gone is in no state.
                stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next()).is_none_or(&wanted)
            }))
        })
    }

    /// Waits until it saw what `pick` looks for.
    ///
    /// # Errors
    /// Names `what` if it did not come within `deadline`.
    pub fn wait_for(
        &self,
        what: &str,
        deadline: Duration,
        pick: impl Fn(&Seen) -> bool,
    ) -> Result<ClientEvent> {
        Ok(self.events.wait_for(&format!("the peer's {what} (port {})", self.port), deadline, |events| {
            events.iter().find(|event| pick(&event.what)).cloned()
        })?)
    }

    /// Waits until its stream is over.
    ///
    /// # Errors
    /// If it is not within `deadline`.
    pub fn wait_for_end(&self, deadline: Duration) -> Result<ClientEvent> {
        self.wait_for("end", deadline, |seen| matches!(seen, Seen::Ended { .. }))
    }
}
