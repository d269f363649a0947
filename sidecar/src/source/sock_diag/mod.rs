//! Evidence without eBPF: netlink `inet_diag` dumps of the pod's sockets (`sock_diag(7)`, Linux 3.3).
//!
//! No capability is needed. What is lost is named by [`MISSING_SIGNALS`]; everything that remains is what the kernel's
//! accounting says at each pass. States are compared between passes: a socket that was established and is now in
//! `FIN_WAIT1` was closed by this side, one in `CLOSE_WAIT` by the peer.

mod dates;
mod netlink;
mod rows;
mod tcp_info;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ackbeat_liveness::{ConnectionId, Input, Opened, Role, Snapshot, TcpState, Timestamp, Transition};

use super::{Mode, Ports, Source, SourceCounters, SourceError};
use crate::driver::clock::{Clock, MonotonicClock};
use crate::listening::Standings;
use dates::Dates;
pub(crate) use netlink::Netlink;
pub use netlink::read_dump_part;
pub use rows::Row;

/// What this source cannot see.
pub const MISSING_SIGNALS: &[(&str, &str)] = &[
    ("heartbeats", "Ping, Pong and Close frames are not seen: heartbeat and ping_location are unknown"),
    ("closing process", "who closed, and whether it was exiting, is not told"),
    ("resets", "a reset and its direction are not seen: the socket is gone at the next pass"),
    ("sequence numbers", "only their differences: what is queued, unsent, unread, acknowledged"),
    ("openings", "a connection is found by a pass after it opened: its start and its lifetime are unknown"),
    (
        "terminations",
        "whether a host was told to stop is not seen, nor a code that says so: only the sidecar's own SIGTERM tells of a restart",
    ),
    ("reconnects", "upgrade requests are not seen: nobody is known when it comes back"),
    ("short connections", "what opens and closes between two passes is not seen"),
    (
        "memory queued",
        "sk_wmem_queued, the pending and the soft error, and the time of the first retransmission",
    ),
];

/// How often new connections are looked for.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(1);
/// Sockets that one pass looks at, at most.
const ROWS_MAX: usize = 262_144;

/// What is kept of a connection from one pass to the next.
#[derive(Clone, Copy)]
struct Tracked {
    state: TcpState,
    dates: Dates,
}

/// The source.
pub struct SockDiagSource {
    netlink: Netlink,
    ports: Ports,
    listening: Arc<Standings>,
    tracked: HashMap<ConnectionId, Tracked>,
    counters: SourceCounters,
    due: tokio::time::Interval,
    is_due: bool,
}

impl SockDiagSource {
    /// Opens the netlink socket. It needs a tokio runtime around the call.
    ///
    /// # Errors
    /// [`SourceError`] if this kernel or a seccomp profile refuses it.
    pub fn open(ports: Ports) -> Result<Self, SourceError> {
        let mut due = tokio::time::interval(DISCOVERY_INTERVAL);
        // A pause must not be made up for by passes in a row.
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        Ok(Self {
            netlink: Netlink::open()?,
            ports,
            listening: Arc::default(),
            tracked: HashMap::new(),
            counters: SourceCounters::default(),
            due,
            is_due: false,
        })
    }

    /// The same without the ports that ackbeat itself listens on: theirs are nobody's connections.
    #[must_use]
    pub fn without(mut self, listening: Arc<Standings>) -> Self {
        self.listening = listening;
        self
    }

    /// One pass over every socket of the namespace.
    fn pass(&mut self, inputs: &mut Vec<Input>) -> Result<(), SourceError> {
        let began_at = MonotonicClock.now();
        let rows = self.netlink.dump(ROWS_MAX)?;
        let at = MonotonicClock.now();
        self.apply(&rows, began_at, at, inputs);
        self.counters.sampler_passes += 1;
        Ok(())
    }

    /// What a pass tells: apart from the socket, so that it can be tested.
    fn apply(&mut self, rows: &[Row], began_at: Timestamp, at: Timestamp, inputs: &mut Vec<Input>) {
        let listening: HashSet<u16> = rows
            .iter()
            .filter(|row| row.state == TcpState::Listen)
            .map(|row| row.endpoints.local_port)
            .collect();
        let mut present = HashSet::new();
        for row in rows {
            if row.cookie == ConnectionId(0) || !is_connection(row.state) {
                continue;
            }
            let mut snapshot = row.snapshot(at);
            match self.tracked.get(&row.cookie).copied() {
                Some(Tracked { state: old_state, mut dates }) => {
                    present.insert(row.cookie);
                    dates.settle(&mut snapshot, began_at);
                    self.tracked.insert(row.cookie, Tracked { state: row.state, dates });
                    if old_state == row.state {
                        inputs.push(Input::Sample(snapshot));
                    } else {
                        // What lies between is the same socket's only way there.
                        let mut old_state = old_state;
                        if let Some(between) = passed_through(old_state, row.state) {
                            inputs
                                .push(transition(old_state, Snapshot { state: between, ..snapshot.clone() }));
                            old_state = between;
                        }
                        inputs.push(transition(old_state, snapshot));
                    }
                }
                None if self.is_watched(row, &listening) => {
                    present.insert(row.cookie);
                    let mut dates = Dates::default();
                    dates.settle(&mut snapshot, began_at);
                    self.tracked.insert(row.cookie, Tracked { state: row.state, dates });
                    inputs.push(Input::Opened(Opened {
                        connection: row.cookie,
                        at,
                        endpoints: row.endpoints,
                        role: Role::Server,
                        // It opened at some time before this pass: neither its start nor its first bytes were seen.
                        preexisting: true,
                        frames_visible: false,
                    }));
                    inputs.push(Input::Sample(snapshot));
                }
                None => {}
            }
        }
        self.tracked.retain(|cookie, _| present.contains(cookie));
        inputs.push(Input::SamplingDone { began_at, at });
    }

    /// A connection that is over is not taken up any more: nothing could be said about it.
    fn is_watched(&self, row: &Row, listening: &HashSet<u16>) -> bool {
        let port = row.endpoints.local_port;
        let watched = match &self.ports {
            Ports::Listening => listening.contains(&port),
            Ports::Listed(ports) => ports.contains(&port),
        };
        watched && !self.listening.is_own_port(port) && row.state == TcpState::Established
    }
}

/// The state that a socket must have passed through between two passes (RFC 9293 section 3.3.2): who closed first shows
/// in it, even if a pass came too late to see it.
const fn passed_through(old_state: TcpState, new_state: TcpState) -> Option<TcpState> {
    match (old_state, new_state) {
        (TcpState::Established, TcpState::FinWait2 | TcpState::Closing | TcpState::TimeWait) => {
            Some(TcpState::FinWait1)
        }
        (TcpState::Established, TcpState::LastAck) => Some(TcpState::CloseWait),
        _ => None,
    }
}

fn transition(old_state: TcpState, snapshot: Snapshot) -> Input {
    Input::Transition(Transition { old_state, new_state: snapshot.state, process: None, snapshot })
}

const fn is_connection(state: TcpState) -> bool {
    !matches!(state, TcpState::Listen | TcpState::SynSent | TcpState::SynRecv)
}

impl Source for SockDiagSource {
    fn mode(&self) -> Mode {
        Mode::SockDiag
    }

    fn announces_outstanding(&self) -> bool {
        // Its own passes find out.
        true
    }

    async fn readable(&mut self) -> Result<(), SourceError> {
        if !self.is_due {
            self.due.tick().await;
            self.is_due = true;
        }
        Ok(())
    }

    fn drain(&mut self, _limit: usize, inputs: &mut Vec<Input>) -> Result<bool, SourceError> {
        if std::mem::take(&mut self.is_due) {
            self.pass(inputs)?;
        }
        Ok(false)
    }

    fn discover(&mut self, inputs: &mut Vec<Input>) -> Result<(), SourceError> {
        self.pass(inputs)
    }

    fn sample(&mut self, inputs: &mut Vec<Input>) -> Result<(), SourceError> {
        self.pass(inputs)
    }

    fn counters(&self) -> SourceCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests;
