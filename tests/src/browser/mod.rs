//! A page in Chromium as the peer: a real browser's network stack in front of a main thread that can be kept busy.

mod clock;
mod server;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command as Program;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use self::clock::PageClock;
use self::server::Server;
use crate::journal::Journal;
use crate::mux::{Ask, Host, HostAction, HostEvent, MUX_PATH};
use crate::namespace::Namespace;
use crate::process::Process;

/// Debian's browser.
const PROGRAM: &str = "chromium";
/// The page must be there within this time.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// The page's WebSocket must be open within this time.
const OPEN_DEADLINE: Duration = Duration::from_secs(30);

/// What the page can be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Open a WebSocket.
    Connect {
        /// Where to.
        url: String,
    },
    /// Send a text message.
    Send {
        /// Its payload.
        text: String,
    },
    /// Keep the main thread busy at once.
    Block {
        /// How long, in milliseconds.
        block_ms: u64,
    },
    /// Keep the main thread busy when the next message is there, once.
    BlockAtNextMessage {
        /// How long, in milliseconds.
        block_ms: u64,
    },
    /// Close the WebSocket.
    Close {
        /// Status code: 1000, or 3000 to 4999.
        code: u16,
        /// Reason.
        reason: String,
    },
}

/// Something that the page's script saw. Pings and Pongs are not among it: no script sees them.
#[derive(Clone, Debug, PartialEq)]
pub struct PageEvent {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`, as well as the page's clock is known: a little late, never early.
    pub at_ns: u64,
    /// What.
    pub what: Seen,
}

/// What the page's script saw.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// The page runs, and told what its clock reads.
    Clock,
    /// A command was obeyed.
    Obeyed {
        /// Its name.
        command: String,
    },
    /// The WebSocket is open.
    Opened,
    /// A message was there.
    Message {
        /// Its size.
        bytes: u64,
        /// Sizes of all messages so far.
        bytes_received: u64,
    },
    /// The main thread was busy.
    Blocked {
        /// From when, in nanoseconds of `CLOCK_MONOTONIC`.
        from_ns: u64,
        /// Until when.
        to_ns: u64,
    },
    /// The WebSocket is closed.
    Closed {
        /// Its code; 1006 if no Close frame came (RFC 6455 section 7.4.1).
        code: u16,
        /// Whether there was a closing handshake.
        was_clean: bool,
    },
}

/// An event as the page tells it.
#[derive(Deserialize)]
struct Told {
    at_ms: f64,
    #[serde(flatten)]
    what: ToldWhat,
}

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum ToldWhat {
    Clock,
    Obeyed { command: String },
    Opened,
    Message { bytes: u64, bytes_received: u64 },
    Blocked { from_ms: f64, to_ms: f64 },
    Closed { code: u16, was_clean: bool },
}

impl Told {
    fn on(self, clock: &PageClock) -> PageEvent {
        let what = match self.what {
            ToldWhat::Clock => Seen::Clock,
            ToldWhat::Obeyed { command } => Seen::Obeyed { command },
            ToldWhat::Opened => Seen::Opened,
            ToldWhat::Message { bytes, bytes_received } => Seen::Message { bytes, bytes_received },
            ToldWhat::Blocked { from_ms, to_ms } => {
                Seen::Blocked { from_ns: clock.monotonic_ns(from_ms), to_ns: clock.monotonic_ns(to_ms) }
            }
            ToldWhat::Closed { code, was_clean } => Seen::Closed { code, was_clean },
        };
        PageEvent { at_ns: clock.monotonic_ns(self.at_ms), what }
    }
}

/// A page in Chromium with a WebSocket to a mux host. Dropping it kills the browser.
pub struct Browser {
    port: u16,
    process: Process,
    /// The browser's own folder; removed with it.
    profile: PathBuf,
    commands: mpsc::UnboundedSender<Command>,
    _server: Server,
    /// What the page saw.
    pub events: Journal<PageEvent>,
}

/// The reason why a browser cannot be started on this machine, if there is one.
#[must_use]
pub fn cannot_run() -> Option<String> {
    match Program::new(PROGRAM).arg("--version").output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("`{PROGRAM} --version` failed with {}", output.status)),
        Err(error) => {
            Some(format!("{PROGRAM} cannot be started ({error}): install Debian's package chromium"))
        }
    }
}

fn profile() -> Result<PathBuf> {
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("ackbeat-browser-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&path).with_context(|| format!("making {} failed", path.display()))?;
    Ok(path)
}

fn program(profile: &std::path::Path, url: &str) -> Program {
    let mut program = Program::new(PROGRAM);
    program.args([
        "--headless",
        // Its sandbox needs namespaces of its own, and the tests run as root.
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        // A busy page is what is wanted; nobody is to end it.
        "--disable-hang-monitor",
    ]);
    program.arg(format!("--user-data-dir={}", profile.display())).arg(url);
    // A group of its own, so that all its processes can be ended together.
    program.process_group(0);
    program
}

fn opened_ports(events: &[HostEvent]) -> impl Iterator<Item = u16> {
    events.iter().filter(|event| event.what == HostAction::Opened).map(|event| event.peer_port)
}

impl Browser {
    /// Starts Chromium in `namespace` (or in this process's own) and lets a page open a WebSocket to `host`. No other
    /// client may connect to it meanwhile.
    ///
    /// # Errors
    /// If Chromium is not installed, or the WebSocket is not open within a deadline; the message has what it said.
    pub fn connect(namespace: Option<&Namespace>, host: &Host) -> Result<Self> {
        let events: Journal<PageEvent> = Journal::default();
        let (commands, for_page) = mpsc::unbounded_channel();
        let server = Server::start(namespace, events.clone(), for_page)?;
        let profile = profile()?;
        let started =
            Process::spawn(PROGRAM, namespace, program(&profile, &format!("http://{}/", server.address())));
        let process = match started {
            Ok(process) => process,
            Err(error) => {
                // It may hold files of the browser's; they are of no use to anybody.
                let _ = std::fs::remove_dir_all(&profile);
                return Err(error).context("is Debian's package chromium installed?");
            }
        };
        let mut browser = Self { port: 0, process, profile, commands, _server: server, events };
        let runs = browser.wait_for("page", START_DEADLINE, |seen| *seen == Seen::Clock);
        runs.with_context(|| browser.process.last_words())?;
        let before: Vec<u16> = host.events.read(|events| opened_ports(events).collect());
        browser.command(Command::Connect { url: format!("ws://{}{MUX_PATH}", host.address()) });
        let opened = browser.wait_for("WebSocket", OPEN_DEADLINE, |seen| *seen == Seen::Opened);
        opened.with_context(|| browser.process.last_words())?;
        // The page may learn that it is open before the host has written it down.
        browser.port =
            host.events.wait_for("the browser's connection at the host", OPEN_DEADLINE, |events| {
                opened_ports(events).find(|port| !before.contains(port))
            })?;
        Ok(browser)
    }

    /// Its WebSocket's own port: the peer port of the host's side.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Tells the page something; it obeys when its main thread is free.
    pub fn command(&self, command: Command) {
        // A server that has ended has no page.
        let _ = self.commands.send(command);
    }

    /// Asks the host for something.
    pub fn ask(&self, ask: &Ask) {
        if let Ok(text) = serde_json::to_string(ask) {
            self.command(Command::Send { text });
        }
    }

    /// Waits until the page saw what `pick` looks for.
    ///
    /// # Errors
    /// Names `what` if it did not come within `deadline`.
    pub fn wait_for(
        &self,
        what: &str,
        deadline: Duration,
        pick: impl Fn(&Seen) -> bool,
    ) -> Result<PageEvent> {
        Ok(self.events.wait_for(&format!("the browser's {what}"), deadline, |events| {
            events.iter().find(|event| pick(&event.what)).cloned()
        })?)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Whoever is gone already needs no signal.
        if let Ok(pid) = i32::try_from(self.process.pid()) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = self.process.wait(Duration::from_secs(10));
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
