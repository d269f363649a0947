//! A census of every TCP socket of the pod, taken every few seconds on a thread of its own, in either mode.
//!
//! What changed goes to the engine as one input ([`ackbeat_liveness::leak`] judges it); sockets that the engine wants
//! destroyed come back here ([`reaper`]). The thread may wait for the driver, the driver never for the thread.
//!
//! No capability is needed to look. Who owns a socket is told by `/proc` where that is allowed ([`owners`]).

pub mod control;
pub mod owners;
pub mod reaper;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use ackbeat_liveness::leak::{Changes, ReapWanted};
use ackbeat_liveness::{Input, TcpState};
use tokio::sync::mpsc;
use tracing::{info, warn};

use crate::driver::clock::{Clock as _, MonotonicClock};
use crate::listening::Standings;
use crate::metrics::Metrics;
use crate::source::SourceError;
use crate::source::sock_diag::{Netlink, Row};
use owners::Owners;
use reaper::Reaper;

/// Sockets that one census reads at most, those that are not told of among them.
const ROWS_MAX: usize = 65_536;
/// Sockets to be destroyed that wait at most.
const REAPS_MAX: usize = 32;

/// A census could not be begun.
#[derive(Debug, thiserror::Error)]
#[error("no leaks are looked for: {step} failed: {cause}")]
pub struct CensusError {
    /// The step that failed, as a noun phrase.
    pub step: &'static str,
    /// Why, and what to do about it.
    pub cause: String,
}

/// Takes censuses.
pub struct CensusTaker {
    netlink: Netlink,
    interval: Duration,
    listening: Arc<Standings>,
    to_engine: mpsc::Sender<Vec<Input>>,
    changes: Changes,
    owners: Owners,
    metrics: Metrics,
    reaper: Reaper,
    was_told: bool,
    has_failed: bool,
}

impl CensusTaker {
    /// Begins to take censuses, each `interval`, and to hand them to `to_engine`. What `listening` tells of is ackbeat
    /// itself. The thread ends when the sender that this gives, for sockets to be destroyed, is dropped.
    ///
    /// # Errors
    /// [`CensusError`] if this kernel or a seccomp profile refuses the netlink socket, or there is no thread.
    pub fn start(
        interval: Duration,
        listening: Arc<Standings>,
        to_engine: mpsc::Sender<Vec<Input>>,
        metrics: Metrics,
        reaper: Reaper,
    ) -> Result<SyncSender<ReapWanted>, CensusError> {
        let netlink = Netlink::open().map_err(|SourceError { step, cause }| CensusError { step, cause })?;
        let taker = Self {
            netlink,
            interval,
            listening,
            to_engine,
            changes: Changes::default(),
            owners: Owners::default(),
            metrics,
            reaper,
            was_told: false,
            has_failed: false,
        };
        let (wanted, to_reap) = sync_channel(REAPS_MAX);
        std::thread::Builder::new()
            .name("ackbeat-census".to_owned())
            .spawn(move || taker.run(&to_reap))
            .map_err(|error| CensusError { step: "starting its thread", cause: error.to_string() })?;
        Ok(wanted)
    }

    fn run(mut self, to_reap: &Receiver<ReapWanted>) {
        let mut due = Instant::now();
        loop {
            match to_reap.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(wanted) => self.reaper.reap(&mut self.netlink, &wanted),
                Err(RecvTimeoutError::Timeout) => {
                    if !self.take() {
                        return;
                    }
                    // A pause must not be made up for by censuses in a row.
                    due = Instant::now() + self.interval;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Takes a census; `false` once nobody wants one any more.
    fn take(&mut self) -> bool {
        let rows = match self.netlink.dump(ROWS_MAX) {
            Ok(rows) => rows,
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    warn!(target: "ackbeat::leak", "no census: {error}");
                }
                // The rest of an answer that broke off must not be taken for the next one.
                if let Ok(netlink) = Netlink::open() {
                    self.netlink = netlink;
                }
                return !self.to_engine.is_closed();
            }
        };
        let at = MonotonicClock.now();
        self.has_failed = false;
        let mut by_state = [0_u64; TcpState::ALL.len()];
        for row in &rows {
            if let Some(count) = by_state.get_mut(row.state as usize) {
                *count += 1;
            }
        }
        self.metrics.sockets_are(by_state);
        let listening: HashSet<u16> = rows
            .iter()
            .filter(|row| row.state == TcpState::Listen)
            .map(|row| row.endpoints.local_port)
            .collect();
        self.owners.look();
        let own = std::process::id();
        let (mut unowned, mut total) = (0_usize, 0_usize);
        let mut of_pids = Vec::new();
        let sockets: Vec<_> = rows
            .iter()
            .filter(|row| is_told(row) && !self.listening.is_own(&row.endpoints))
            .filter_map(|row| {
                let pid = self.owners.of(row.inode);
                if pid == Some(own) {
                    return None;
                }
                total += 1;
                unowned += usize::from(pid.is_none() && row.inode != 0);
                of_pids.extend(pid);
                Some(row.census_socket(at, listening.contains(&row.endpoints.local_port), pid))
            })
            .collect();
        if total > 0 && !std::mem::replace(&mut self.was_told, true) && unowned > 0 {
            info!(
                target: "ackbeat::leak",
                unowned,
                total,
                "the owners of some sockets are unknown: /proc shows only processes of this container that this user may \
                 look at; share the PID namespace (shareProcessNamespace: true) and run as the same user, or with CAP_SYS_PTRACE"
            );
        }
        let census = self.changes.census(at, sockets, self.owners.processes(of_pids));
        self.to_engine.blocking_send(vec![Input::Census(Box::new(census))]).is_ok()
    }
}

/// A listener is no connection, and what is not open yet, or over, cannot leak.
fn is_told(row: &Row) -> bool {
    row.cookie.0 != 0
        && !matches!(
            row.state,
            TcpState::Listen | TcpState::SynSent | TcpState::SynRecv | TcpState::TimeWait | TcpState::Close
        )
}
