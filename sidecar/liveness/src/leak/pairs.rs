//! Which dialled socket served a connection whose peer has left.
//!
//! A proxy passes a request on as soon as it has it, and the answer as soon as that comes. So the last payload that came in
//! on the one socket and the last that went out on the other have nearly the same time, and the kernel keeps both times
//! for as long as the sockets live. Nothing else tells which belongs to which: it stays a likelihood.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use super::output::Certainty;
use crate::{CloseInitiator, CloseRecord, ConnectionId, Role, Timestamp};

/// A proxy passes payload on within this, in nanoseconds.
const PASSED_ON_NS: u64 = 500_000_000;
/// The kernel's times are ticks of 1 to 10 ms, and are told as ages in milliseconds.
const TICK_NS: u64 = 20_000_000;
/// Closed connections that are remembered.
const CLOSES_MAX: usize = 1_024;
/// For how long they are, in milliseconds.
const REMEMBERED_MS: u64 = 900_000;

/// A connection that its peer closed.
#[derive(Clone, Copy, Debug)]
struct Closed {
    closed_at: Timestamp,
    last_send_at: Option<Timestamp>,
    pid: Option<u32>,
    /// Where its peer had dialled it.
    local: (IpAddr, u16),
}

/// What a dialled socket is compared by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialled {
    pub(super) last_send_at: Timestamp,
    pub(super) last_inbound_at: Option<Timestamp>,
    pub(super) pid: Option<u32>,
    /// Where it was dialled to.
    pub(super) remote: (IpAddr, u16),
}

/// The connection that a dialled socket served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    pub(super) downstream: ConnectionId,
    pub(super) closed_at: Timestamp,
    pub(super) certainty: Certainty,
}

/// Connections that their peers closed, by the time of the last payload that came in.
#[derive(Debug, Default)]
pub(super) struct Closes {
    closed: BTreeMap<(Timestamp, ConnectionId), Closed>,
    pub(super) left_out: u64,
}

impl Closes {
    /// A connection is over. `pid` is its owner, where a census showed it.
    pub(super) fn on_closed(&mut self, record: &CloseRecord, pid: Option<u32>) {
        if record.role != Role::Server || record.initiator != CloseInitiator::Peer || record.still_open {
            return;
        }
        let Some((snapshot, last_inbound_at)) =
            record.snapshot.as_ref().and_then(|snapshot| Some((snapshot, snapshot.last_inbound_at?)))
        else {
            return;
        };
        if self.closed.len() >= CLOSES_MAX && self.closed.pop_first().is_some() {
            self.left_out += 1;
        }
        let closed = Closed {
            closed_at: record.closed_at,
            last_send_at: snapshot.last_send_at,
            pid,
            local: (record.endpoints.local_address.to_canonical(), record.endpoints.local_port),
        };
        self.closed.insert((last_inbound_at, record.connection), closed);
    }

    /// Forgets what is too old to be compared with anything.
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.closed.retain(|_, closed| now.ms_since(closed.closed_at) <= REMEMBERED_MS);
    }

    /// The connection that this idle socket served, which is then no longer there for another one.
    pub(super) fn served_by(&mut self, dialled: &Dialled) -> Option<Served> {
        let from = Timestamp::from_ns(dialled.last_send_at.as_ns().saturating_sub(PASSED_ON_NS));
        let to = dialled.last_send_at.plus_ns(TICK_NS);
        let fitting = || {
            self.closed.range((from, ConnectionId(0))..=(to, ConnectionId(u64::MAX))).filter(|(_, closed)| {
                let is_one_process =
                    closed.pid.zip(dialled.pid).is_none_or(|(downstream, upstream)| downstream == upstream);
                // Two clients within the pod: nobody serves a connection by dialling the same port again.
                is_one_process && closed.local != dialled.remote
            })
        };
        let distance =
            |(at, _): &(Timestamp, ConnectionId)| at.as_ns().abs_diff(dialled.last_send_at.as_ns());
        let (key, closed) = fitting()
            // What answered at the same time too, before what only asked then.
            .min_by_key(|(key, closed)| (!has_answered_with(closed, dialled), distance(key)))
            .map(|(key, closed)| (*key, *closed))?;
        let is_alone = fitting().filter(|(_, other)| has_answered_with(other, dialled)).count() <= 1;
        let is_one_process = closed.pid.is_some() && closed.pid == dialled.pid;
        let is_likely = is_alone && is_one_process && has_answered_with(&closed, dialled);
        self.closed.remove(&key);
        Some(Served {
            downstream: key.1,
            closed_at: closed.closed_at,
            certainty: if is_likely { Certainty::Likely } else { Certainty::Possible },
        })
    }
}

/// Whether the last answer passed through both at the same time.
fn has_answered_with(closed: &Closed, dialled: &Dialled) -> bool {
    closed.last_send_at.zip(dialled.last_inbound_at).is_some_and(|(sent, received)| {
        received.as_ns() <= sent.as_ns().saturating_add(TICK_NS)
            && sent.as_ns() <= received.as_ns().saturating_add(PASSED_ON_NS)
    })
}
