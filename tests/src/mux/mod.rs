//! A host that multiplexes its sessions over one WebSocket per client, with a watchdog that counts missed Pongs.
//!
//! The watchdog is the one that kills healthy clients: every interval, for each open socket, it closes the socket
//! without a Close frame if two Pings are unanswered, else it raises the counter and queues a Ping *behind the data*.
//! Nothing looks at the backlog.

mod serve;
mod stream;

use std::net::{IpAddr, SocketAddr};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::journal::Journal;
use crate::namespace::{Namespace, spawn_thread};
use crate::process::Process;

/// Path that clients upgrade at.
pub const MUX_PATH: &str = "/api/remote.mux";
/// The watchdog's interval.
pub const WATCHDOG_INTERVAL: Duration = Duration::from_millis(2_000);
/// Unanswered Pings at which the watchdog closes.
pub const MISSED_MAX: u32 = 2;
/// Name of the thread that serves, and so of the task that closes.
pub const HOST_COMMAND: &str = "mux-host";

/// Twelve sessions' snapshots in kilobytes, as they were measured …
const MEASURED_SNAPSHOTS_KB: [u64; 12] =
    [1420, 1120, 420, 1150, 1220, 1000, 1770, 1680, 1280, 2270, 1660, 1300];
/// … and the bytes that one killed connection had been given: the sizes are scaled to it.
pub const BURST_BYTES: u64 = 27_840_800;

/// Sizes of the twelve snapshots that a client gets when it follows every session: [`BURST_BYTES`] in all.
#[must_use]
pub fn snapshot_sizes() -> [usize; 12] {
    let measured: u64 = MEASURED_SNAPSHOTS_KB.iter().sum();
    let mut sizes = MEASURED_SNAPSHOTS_KB.map(|size| size * BURST_BYTES / measured);
    let scaled: u64 = sizes.iter().sum();
    sizes[11] += BURST_BYTES - scaled;
    sizes.map(|size| usize::try_from(size).unwrap_or(usize::MAX))
}

/// What a client may ask the host for, as JSON text messages. Any other message is a session's own data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// Every session's snapshot, now.
    Follow,
    /// This many bytes in one message.
    Bytes {
        /// How many.
        bytes: usize,
    },
    /// This many bytes in one message every `period_ms` milliseconds from now on, whether the client reads or not.
    Steady {
        /// Payload of each message.
        bytes: usize,
        /// From one message to the next, in milliseconds; the first comes at once.
        period_ms: u64,
    },
    /// That the host closes politely.
    Leave {
        /// Status code of the Close frame (RFC 6455 section 7.4).
        code: u16,
        /// Its reason.
        reason: String,
    },
}

/// How a host behaves.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// Address to listen on; the port is chosen by the kernel.
    pub address: IpAddr,
    /// The watchdog's interval.
    pub interval: Duration,
    /// Size of each accepted socket's send buffer in bytes; the kernel's own choice if `None`.
    pub send_buffer_bytes: Option<u32>,
    /// Blocks the event loop for a time, right after the Pings of a tick were written, and makes up for the ticks
    /// that it missed before it reads again.
    pub block: Option<Block>,
    /// Whether the watchdog closes. Without it, it goes on sending Pings and says what it would have counted: whoever
    /// judges such a host's connections sees all that follows.
    pub kills: bool,
    /// What it does when a peer has finished writing.
    pub peer_fin: PeerFin,
}

/// What a host does when a peer's FIN came without a Close frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerFin {
    /// It closes, too.
    #[default]
    Close,
    /// It goes on writing, Pings and data, as RFC 9293 section 3.6 allows: the peer has only half-closed.
    WriteOn,
    /// It forgets the connection: it writes nothing more and never closes. The socket stays in `CLOSE_WAIT`.
    Forget,
}

/// A time in which a host's event loop does nothing but its own work.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// The tick after which it begins; the first is 1.
    pub after_tick: u32,
    /// How long.
    pub duration: Duration,
}

impl HostOptions {
    /// The watchdog as measured, on `address`.
    #[must_use]
    pub const fn new(address: IpAddr) -> Self {
        Self {
            address,
            interval: WATCHDOG_INTERVAL,
            send_buffer_bytes: None,
            block: None,
            kills: true,
            peer_fin: PeerFin::Close,
        }
    }

    /// The same host with a watchdog that closes nothing.
    #[must_use]
    pub const fn watching_only(mut self) -> Self {
        self.kills = false;
        self
    }
}

/// Something that a host did or saw, with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEvent {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Port of the client; 0 for the host itself.
    pub peer_port: u16,
    /// What.
    #[serde(flatten)]
    pub what: HostAction,
}

/// What a host did or saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum HostAction {
    /// The host listens.
    Listening {
        /// Its port.
        port: u16,
    },
    /// A WebSocket was opened.
    Opened,
    /// A Ping was queued behind the data.
    Ping {
        /// The counter after it was raised.
        missed: u32,
        /// Bytes that the host had not handed to the kernel before it.
        buffered_bytes: u64,
    },
    /// A Pong was read.
    Pong,
    /// Data was queued.
    Queued {
        /// How many bytes.
        bytes: u64,
    },
    /// The watchdog closed the socket without a Close frame.
    Killed {
        /// Unanswered Pings.
        missed: u32,
        /// Bytes that the host had not handed to the kernel.
        buffered_bytes: u64,
        /// Time since the WebSocket was opened, in milliseconds.
        lifetime_ms: u64,
        /// Pongs that were read.
        pongs: u32,
    },
    /// A Close frame was queued.
    Closing {
        /// Its status code.
        code: u16,
    },
    /// The connection is over on the host's side.
    Closed,
    /// A host that asks the sidecar got no usable answer, and decides without it.
    FellBack {
        /// Why.
        reason: String,
    },
    /// The sidecar answers again.
    Recovered,
}

enum Running {
    Thread(Option<JoinHandle<Option<()>>>, mpsc::UnboundedSender<serve::Command>),
    Child(Process),
}

/// A running mux host. Dropping it ends it and every connection that it still has.
pub struct Host {
    address: SocketAddr,
    running: Running,
    /// What it did and saw.
    pub events: Journal<HostEvent>,
}

/// A host must listen within this time.
const START_DEADLINE: Duration = Duration::from_secs(20);

fn wait_for_port(events: &Journal<HostEvent>) -> Result<u16> {
    Ok(events.wait_for("the host's listening port", START_DEADLINE, |events| {
        events.iter().find_map(|event| match event.what {
            HostAction::Listening { port } => Some(port),
            _ => None,
        })
    })?)
}

impl Host {
    /// Starts a host of our own, on a thread called [`HOST_COMMAND`] in `namespace` (or in this process's own).
    ///
    /// # Errors
    /// If the namespace cannot be entered or the address cannot be listened on.
    pub fn start(namespace: Option<&Namespace>, options: HostOptions) -> Result<Self> {
        let events = Journal::default();
        let (commands, received) = mpsc::unbounded_channel();
        let address = options.address;
        let journal = events.clone();
        let (failed, failure) = std::sync::mpsc::channel();
        let work = move || {
            if let Err(error) = serve::run(options, &journal, received) {
                // Nobody may listen any more, then nobody needs it.
                let _ = failed.send(error);
            }
        };
        let thread = spawn_thread(namespace, HOST_COMMAND, work)?;
        let port = wait_for_port(&events);
        if let Ok(error) = failure.try_recv() {
            return Err(error);
        }
        let running = Running::Thread(Some(thread), commands);
        Ok(Self { address: SocketAddr::new(address, port?), running, events })
    }

    /// A host that runs as a process and prints its events as lines of JSON.
    ///
    /// # Errors
    /// If it does not say that it listens.
    pub fn from_process(process: Process, address: IpAddr) -> Result<Self> {
        let events: Journal<HostEvent> = Journal::default();
        let lines = process.stdout.clone();
        let journal = events.clone();
        // One reader turns lines into events; it ends with the first line that is none or after the last.
        std::thread::Builder::new()
            .name("host-events".into())
            .spawn(move || {
                let mut next = 0;
                while let Ok(line) =
                    lines.wait_for("a line", Duration::from_secs(600), |lines| lines.get(next).cloned())
                {
                    next += 1;
                    if let Ok(event) = serde_json::from_str(&line) {
                        journal.push(event);
                    }
                }
            })
            .context("starting a thread failed")?;
        let port = wait_for_port(&events).with_context(|| process.last_words())?;
        Ok(Self { address: SocketAddr::new(address, port), running: Running::Child(process), events })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Process that serves.
    #[must_use]
    pub fn pid(&self) -> u32 {
        match &self.running {
            Running::Thread(..) => std::process::id(),
            Running::Child(process) => process.pid(),
        }
    }

    /// Waits until `pick` finds an event of the client with `peer_port`.
    ///
    /// # Errors
    /// Names `what` if it did not come within `deadline`.
    pub fn wait_for(
        &self,
        what: &str,
        peer_port: u16,
        deadline: Duration,
        pick: impl Fn(&HostAction) -> bool,
    ) -> Result<HostEvent> {
        Ok(self.events.wait_for(&format!("the host's {what} for port {peer_port}"), deadline, |events| {
            events.iter().find(|event| event.peer_port == peer_port && pick(&event.what)).cloned()
        })?)
    }

    /// Waits until the host has read `count` Pongs of a client.
    ///
    /// # Errors
    /// If they did not come within `deadline`.
    pub fn wait_for_pongs(&self, peer_port: u16, count: usize, deadline: Duration) -> Result<()> {
        Ok(self.events.wait_for(&format!("{count} Pongs of port {peer_port}"), deadline, |events| {
            let pongs =
                events.iter().filter(|event| event.peer_port == peer_port && event.what == HostAction::Pong);
            (pongs.count() >= count).then_some(())
        })?)
    }

    /// Waits until the watchdog has killed a client.
    ///
    /// # Errors
    /// If it did not within `deadline`.
    pub fn wait_for_kill(&self, peer_port: u16, deadline: Duration) -> Result<HostEvent> {
        self.wait_for("kill", peer_port, deadline, |what| matches!(what, HostAction::Killed { .. }))
    }

    /// Queues `bytes` bytes in one message to every client.
    pub fn send_to_all(&self, bytes: usize) {
        if let Running::Thread(_, commands) = &self.running {
            // A host that has ended has nobody to send to.
            let _ = commands.send(serve::Command::SendToAll { bytes });
        }
    }

    /// Lets the event loop stand still for `duration`, now. It makes up for the ticks that it missed before it reads
    /// again.
    pub fn block(&self, duration: Duration) {
        if let Running::Thread(_, commands) = &self.running {
            // A host that has ended blocks nobody.
            let _ = commands.send(serve::Command::Block { duration });
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Running::Thread(thread, commands) = &mut self.running {
            // It may have ended already.
            let _ = commands.send(serve::Command::Stop);
            if let Some(thread) = thread.take() {
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_snapshots_add_up_to_the_burst() {
        let sizes = snapshot_sizes();
        assert_eq!(sizes.iter().sum::<usize>() as u64, BURST_BYTES);
        assert!(sizes.iter().all(|size| (700_000..4_000_000).contains(size)), "{sizes:?}");
    }

    #[test]
    fn events_are_lines_of_json() {
        let line = r#"{"at_ns":5,"peer_port":4711,"event":"killed","missed":2,"buffered_bytes":3,"lifetime_ms":4,"pongs":0}"#;
        let event: HostEvent = serde_json::from_str(line).unwrap();
        assert_eq!(event.what, HostAction::Killed { missed: 2, buffered_bytes: 3, lifetime_ms: 4, pongs: 0 });
        assert_eq!(serde_json::to_string(&event).unwrap(), line);
    }
}
