//! The post-mortem: what the socket still shows after the host closed it.
//!
//! After the host's FIN the kernel keeps the socket (FIN_WAIT1 …) and keeps sending what is queued. What comes back
//! says whether the peer was there when it was given up.

use crate::evidence::{drained_between, is_newer, payload_between, window_limits};
use crate::{Policy, Postmortem, Snapshot, TcpState, Timestamp};

/// Watches one socket after the host closed it.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    /// The socket at the close.
    base: Snapshot,
    /// Its latest reading.
    latest: Snapshot,
    app_progress: bool,
    answered: bool,
    /// Something was sent again after the close.
    retransmitted: bool,
    /// The socket was looked at after the close.
    looked: bool,
    /// The kernel gave up on it.
    gave_up: bool,
    pub(crate) deadline: Timestamp,
    /// The last moment to which the deadline may be put off.
    limit: Timestamp,
}

impl Watch {
    pub(crate) fn new(base: Snapshot, at: Timestamp, policy: &Policy) -> Self {
        let retransmitting = base.retransmits.is_some_and(|count| count > 0);
        Self {
            latest: base.clone(),
            base,
            app_progress: false,
            answered: false,
            // An unanswered retransmission before the close asks on after it.
            retransmitted: retransmitting,
            looked: false,
            gave_up: false,
            deadline: at.plus_ms(policy.postmortem_window_ms),
            limit: at.plus_ms(policy.postmortem_window_ms.saturating_mul(2)),
        }
    }

    /// A reading of the socket after the close.
    pub(crate) fn on_snapshot(&mut self, snapshot: &Snapshot) {
        if snapshot.at < self.latest.at {
            return;
        }
        self.looked = true;
        if drained_between(&self.latest, snapshot)
            || (window_limits(&self.base) == Some(true) && drained_between(&self.base, snapshot))
            || payload_between(&self.base, snapshot) > 0
            || is_newer(self.base.last_inbound_at, snapshot.last_inbound_at)
        {
            self.app_progress = true;
        }
        if matches!((self.base.snd_una, snapshot.snd_una), (Some(before), Some(after)) if after.after(before))
            || is_newer(self.base.last_ack_at, snapshot.last_ack_at)
        {
            self.answered = true;
        }
        if matches!((self.base.total_retransmits, snapshot.total_retransmits), (Some(before), Some(after)) if after > before)
            || snapshot.retransmits.is_some_and(|count| count > 0)
            || snapshot.probes_out.is_some_and(|count| count > 1)
        {
            self.retransmitted = true;
        }
        self.latest = snapshot.clone();
    }

    /// The socket entered a state after the close.
    pub(crate) fn on_state(&mut self, state: TcpState) {
        if matches!(state, TcpState::FinWait2 | TcpState::Closing | TcpState::TimeWait) {
            self.answered = true;
        }
    }

    /// Payload of the peer came after the close: seen on the wire, or refused with a RST by an orphaned socket
    /// (`tcp_rcv_state_process()` in net/ipv4/tcp_input.c, `TCPABORTONDATA`).
    pub(crate) fn on_payload(&mut self) {
        self.app_progress = true;
    }

    /// The peer reset the connection after the close: its kernel is there.
    pub(crate) fn on_peer_reset(&mut self) {
        self.answered = true;
    }

    /// The kernel gave up on the orphan (`tcp_write_err()` in net/ipv4/tcp_timer.c).
    pub(crate) fn on_kernel_error(&mut self) {
        self.gave_up = true;
    }

    /// Nothing better can be learned any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.app_progress
    }

    /// The deadline was reached: `true` if the watch is over, `false` if it was put off because nothing was asked
    /// again yet (a FIN behind a closed window is not even sent).
    pub(crate) fn on_deadline(&mut self, now: Timestamp) -> bool {
        if now >= self.limit || self.answered || self.app_progress || self.retransmitted {
            return true;
        }
        self.deadline = self.limit;
        false
    }

    /// A late tick: look for a whole window again.
    pub(crate) fn reopen(&mut self, now: Timestamp, policy: &Policy) {
        self.deadline = self.deadline.max(now.plus_ms(policy.postmortem_window_ms));
        self.limit = self.limit.max(self.deadline);
    }

    /// What was seen. `is_complete` is false where the watch was cut short.
    pub(crate) fn result(&self, is_complete: bool) -> Postmortem {
        if self.app_progress {
            Postmortem::AppProgress
        } else if self.answered {
            Postmortem::Answered
        } else if self.gave_up || (is_complete && self.looked && self.retransmitted) {
            Postmortem::NoAnswer
        } else {
            Postmortem::Unresolved
        }
    }
}
