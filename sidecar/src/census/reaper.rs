//! Destroys a socket that the engine wants destroyed, after one more look at it.
//!
//! Three gates, in this order: the mode now (the kill switch), the socket as it is now, found by addresses *and* cookie,
//! and the mode once more. Between the last look and the destroy a byte may still arrive: that much cannot be excluded.

use std::io;
use std::sync::Arc;

use ackbeat_liveness::TcpState;
use ackbeat_liveness::leak::{ReapMode, ReapWanted};
use opentelemetry_sdk::trace::SdkTracer;
use tracing::{debug, info, warn};

use super::control::{ReapControl, ReapOutcome};
use crate::driver::clock::{Clock as _, MonotonicClock};
use crate::source::Mode;
use crate::source::sock_diag::Netlink;
use crate::telemetry::leaks::{self, Reaped};
use crate::telemetry::wall_clock::WallClock;

/// Destroys sockets, if the mode says so.
pub struct Reaper {
    control: Arc<ReapControl>,
    tracer: SdkTracer,
    mode: Mode,
    was_denied: bool,
}

impl Reaper {
    /// One that obeys `control` and leaves its spans with `tracer`.
    #[must_use]
    pub fn new(control: Arc<ReapControl>, tracer: SdkTracer, mode: Mode) -> Self {
        Self { control, tracer, mode, was_denied: false }
    }

    /// Destroys the socket, or tells why not.
    pub(super) fn reap(&mut self, netlink: &mut Netlink, wanted: &ReapWanted) {
        let (outcome, idle_ms) = self.decide(netlink, wanted);
        self.control.count(outcome);
        let reaped = Reaped { wanted, outcome, idle_ms, mode: self.mode };
        let context = leaks::emit_reap(&self.tracer, &reaped, MonotonicClock.now(), &WallClock::now());
        let (trace_id, span_id) = (context.trace_id(), context.span_id());
        macro_rules! line {
            ($level:ident, $message:literal) => {
                $level!(
                    target: "ackbeat::leak",
                    outcome = outcome.as_str(),
                    peer_address = %wanted.endpoints.peer_address.to_canonical(),
                    peer_port = wanted.endpoints.peer_port,
                    local_port = wanted.endpoints.local_port,
                    quota = wanted.quota,
                    count = wanted.count,
                    age_ms = wanted.age_ms,
                    idle_ms,
                    %trace_id,
                    %span_id,
                    $message
                )
            };
        }
        match outcome {
            ReapOutcome::Destroyed => {
                line!(info, "an idle connection of a full quota was destroyed");
            }
            ReapOutcome::DryRun => {
                line!(info, "dry run: an idle connection of a full quota would have been destroyed");
            }
            _ => line!(debug, "a connection of a full quota was not destroyed"),
        }
    }

    /// What became of it, and for how long it had carried nothing at the last look.
    fn decide(&mut self, netlink: &mut Netlink, wanted: &ReapWanted) -> (ReapOutcome, Option<u64>) {
        let mode = self.control.mode().min(wanted.mode);
        if mode == ReapMode::Off {
            return (ReapOutcome::SwitchedOff, None);
        }
        let row = match netlink.find(wanted.connection, &wanted.endpoints) {
            Ok(Some(row)) => row,
            Ok(None) => return (ReapOutcome::Gone, None),
            Err(error) => {
                warn!(target: "ackbeat::leak", "looking at a connection again failed: {error}");
                return (ReapOutcome::Failed, None);
            }
        };
        let at = MonotonicClock.now();
        let socket = row.census_socket(at, false, None);
        let idle_ms = socket.idle_since().map(|since| at.ms_since(since));
        if row.state != TcpState::Established
            || !socket.is_empty()
            || idle_ms.is_none_or(|idle_ms| idle_ms < wanted.min_idle_ms)
        {
            return (ReapOutcome::Refused, idle_ms);
        }
        if mode == ReapMode::DryRun {
            return (ReapOutcome::DryRun, idle_ms);
        }
        if self.control.mode() != ReapMode::On {
            return (ReapOutcome::SwitchedOff, idle_ms);
        }
        (self.destroy(netlink, wanted), idle_ms)
    }

    fn destroy(&mut self, netlink: &mut Netlink, wanted: &ReapWanted) -> ReapOutcome {
        match netlink.destroy(wanted.connection, &wanted.endpoints) {
            Ok(()) => ReapOutcome::Destroyed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => ReapOutcome::Gone,
            Err(error) => {
                if !std::mem::replace(&mut self.was_denied, true) {
                    warn!(
                        target: "ackbeat::leak",
                        %error,
                        "leaks.reap is on, but the kernel destroys no socket for this process: it needs CAP_NET_ADMIN, and a \
                         kernel with CONFIG_INET_DIAG_DESTROY; what would be destroyed is counted as failed"
                    );
                }
                ReapOutcome::Failed
            }
        }
    }
}
