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

    /// The same, where it was told at the start that nothing can be destroyed: it is not told again.
    #[must_use]
    pub const fn denied_as_told(mut self, is_told: bool) -> Self {
        self.was_denied = is_told;
        self
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use ackbeat_liveness::leak::{GroupKey, Side};
    use ackbeat_liveness::{ConnectionId, Timestamp};
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;

    /// Both ends of a connection over loopback, and what would have its dialled end destroyed.
    fn scene(netlink: &mut Netlink) -> (TcpStream, TcpStream, ReapWanted) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        // It has carried something, and nothing of it waits.
        accepted.write_all(b"!").unwrap();
        dialled.read_exact(&mut [0]).unwrap();
        let (local, peer) = (dialled.local_addr().unwrap(), dialled.peer_addr().unwrap());
        let row = netlink
            .dump(65_536)
            .unwrap()
            .into_iter()
            .find(|row| {
                (row.endpoints.local_port, row.endpoints.peer_port) == (local.port(), peer.port())
                    && row.state == TcpState::Established
            })
            .expect("the connection is in a dump");
        let wanted = ReapWanted {
            at: Timestamp::from_ms(1),
            connection: row.cookie,
            endpoints: row.endpoints,
            group: GroupKey { side: Side::Remote, address: peer.ip(), port: peer.port() },
            quota: 1,
            count: 1,
            age_ms: 1,
            idle_ms: 0,
            min_idle_ms: 0,
            mode: ReapMode::DryRun,
        };
        (dialled, accepted, wanted)
    }

    fn reaper(mode: ReapMode) -> (Reaper, Arc<ReapControl>) {
        let control = Arc::new(ReapControl::new(mode));
        let tracer = SdkTracerProvider::builder().build().tracer("reaper");
        (Reaper::new(Arc::clone(&control), tracer, Mode::SockDiag), control)
    }

    fn count(control: &ReapControl, outcome: ReapOutcome) -> u64 {
        control.totals().into_iter().find(|(of, _)| *of == outcome).map_or(0, |(_, count)| count)
    }

    #[test]
    fn a_socket_that_is_gone_or_another_one_by_now_is_left_alone_and_counted() {
        let mut netlink = Netlink::open().unwrap();
        let (dialled, accepted, wanted) = scene(&mut netlink);
        let (mut reaper, control) = reaper(ReapMode::On);
        let wanted = ReapWanted { mode: ReapMode::On, ..wanted };
        // The same ends, and another socket: addresses are used again, cookies are not.
        reaper
            .reap(&mut netlink, &ReapWanted { connection: ConnectionId(wanted.connection.0 + 1), ..wanted });
        assert_eq!(count(&control, ReapOutcome::Gone), 1, "{:?}", control.totals());
        assert!(netlink.find(wanted.connection, &wanted.endpoints).unwrap().is_some(), "it lives");
        // The other end closes first, so that this one leaves nothing behind.
        drop(accepted);
        drop(dialled);
        let until = Instant::now() + Duration::from_secs(30);
        while netlink.find(wanted.connection, &wanted.endpoints).unwrap().is_some() {
            assert!(Instant::now() < until, "the socket does not go");
            std::thread::sleep(Duration::from_millis(10));
        }
        reaper.reap(&mut netlink, &wanted);
        assert_eq!(count(&control, ReapOutcome::Gone), 2, "{:?}", control.totals());
        assert_eq!(count(&control, ReapOutcome::Destroyed) + count(&control, ReapOutcome::Failed), 0);
    }

    #[test]
    fn what_carried_a_byte_meanwhile_or_holds_one_is_refused() {
        let mut netlink = Netlink::open().unwrap();
        let (_dialled, mut accepted, wanted) = scene(&mut netlink);
        let (mut reaper, control) = reaper(ReapMode::DryRun);
        reaper.reap(&mut netlink, &wanted);
        assert_eq!(count(&control, ReapOutcome::DryRun), 1, "{:?}", control.totals());
        reaper.reap(&mut netlink, &ReapWanted { min_idle_ms: 3_600_000, ..wanted });
        assert_eq!(count(&control, ReapOutcome::Refused), 1, "it carried something within the hour");
        accepted.write_all(b"unread").unwrap();
        reaper.reap(&mut netlink, &wanted);
        assert_eq!(count(&control, ReapOutcome::Refused), 2, "{:?}", control.totals());
        control.lower(ReapMode::Off).unwrap();
        reaper.reap(&mut netlink, &wanted);
        assert_eq!(count(&control, ReapOutcome::SwitchedOff), 1, "{:?}", control.totals());
    }
}
