//! Who closed, how and why.

use alloc::boxed::Box;
use alloc::string::String;

use crate::deployment::announces_restart;
use crate::heartbeat::Missed;
use crate::postmortem::Watch;
use crate::{
    Assessed, CloseFrames, CloseInitiator, CloseKind, CloseMethod, Direction, Frame, HeartbeatProfile,
    Process, Seq, Snapshot, TcpState, Timestamp, Verdict,
};

/// How long a decision waits for a record that may arrive a moment later: `tcp_disconnect()` and `__tcp_close()`
/// enter CLOSE first and send the RST after it (net/ipv4/tcp.c), and so does a RST that refuses late payload.
pub(crate) const HOLD_MS: u64 = 200;

/// Linux errno values (include/uapi/asm-generic/errno.h).
const EPIPE: u32 = 32;
const ECONNABORTED: u32 = 103;
const ECONNRESET: u32 = 104;

/// Intervals without a heartbeat of an asking peer, and without anything else from it, after which a close is a kill.
const PEER_MISSED_MIN: u32 = 2;

/// What a transition of an open connection means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The connection goes on.
    Nothing,
    /// The host will not write any more, but still reads: `shutdown(SHUT_WR)`.
    HostHalfClosed,
    /// The host closed.
    HostClosed,
    /// The peer's FIN came; the host may go on writing.
    PeerFinished,
    /// The host answered the peer's FIN with its own.
    HostAnswered,
    /// The peer answered the host's half-close with its FIN, before acknowledging ours.
    BothFinished,
    /// The socket is gone.
    Gone,
}

/// Reads a state, entered or seen, of a connection that was open; `is_half_closed` says that the host had
/// half-closed it before.
pub(crate) fn step(state: TcpState, shutdown: Option<u8>, is_half_closed: bool) -> Step {
    const SEND_SHUTDOWN: u8 = 2;
    match state {
        TcpState::FinWait1 | TcpState::FinWait2 => match (shutdown, is_half_closed) {
            (Some(SEND_SHUTDOWN), false) => Step::HostHalfClosed,
            // The FIN of a half-close was acknowledged, or nothing says that the host went further.
            (Some(SEND_SHUTDOWN) | None, true) => Step::Nothing,
            _ => Step::HostClosed,
        },
        TcpState::Closing if is_half_closed => Step::BothFinished,
        TcpState::Closing => Step::HostClosed,
        TcpState::CloseWait => Step::PeerFinished,
        TcpState::LastAck => Step::HostAnswered,
        TcpState::TimeWait | TcpState::Close => Step::Gone,
        TcpState::Established | TcpState::SynSent | TcpState::SynRecv | TcpState::Listen => Step::Nothing,
    }
}

/// Why a socket went to CLOSE at once, as its error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketError {
    /// None, or not known.
    None,
    /// The peer's RST (`tcp_reset()`).
    PeerReset,
    /// Destroyed from outside (`tcp_abort()`, `ss --kill`).
    Destroyed,
    /// The kernel gave up: `ETIMEDOUT`, or an ICMP error that outlived the retransmissions (`tcp_write_err()`).
    KernelGaveUp,
}

impl SocketError {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        match snapshot.socket_error {
            None | Some(0) => Self::None,
            Some(ECONNRESET | EPIPE) => Self::PeerReset,
            Some(ECONNABORTED) => Self::Destroyed,
            Some(_) => Self::KernelGaveUp,
        }
    }
}

/// What closed the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    HostFin,
    /// `seen` is false where the RST's own record is missing.
    HostReset {
        seen: bool,
    },
    PeerFin,
    PeerReset,
    KernelGaveUp {
        reset_sent: bool,
    },
    /// The kernel reset it for want of memory (`tcp_out_of_resources()`).
    KernelReset,
    Destroyed,
    /// The close was not seen; the state says at most whose FIN came first.
    Unseen(CloseInitiator),
}

impl Cause {
    pub(crate) fn initiator(self) -> CloseInitiator {
        match self {
            // Whoever destroyed it did it on this side.
            Self::HostFin | Self::HostReset { .. } | Self::Destroyed => CloseInitiator::Host,
            Self::PeerFin | Self::PeerReset => CloseInitiator::Peer,
            Self::KernelGaveUp { .. } | Self::KernelReset => CloseInitiator::Kernel,
            Self::Unseen(initiator) => initiator,
        }
    }

    pub(crate) fn method(self) -> Option<CloseMethod> {
        match self {
            Self::HostFin | Self::PeerFin => Some(CloseMethod::Fin),
            Self::HostReset { seen: true }
            | Self::PeerReset
            | Self::KernelReset
            | Self::KernelGaveUp { reset_sent: true } => Some(CloseMethod::Rst),
            Self::Unseen(CloseInitiator::Host | CloseInitiator::Peer) => Some(CloseMethod::Fin),
            Self::HostReset { seen: false }
            | Self::Destroyed
            | Self::KernelGaveUp { reset_sent: false }
            | Self::Unseen(_) => None,
        }
    }
}

/// What was known when the host began the closing handshake. A peer that is only behind may be up to date again when the
/// handshake ends.
#[derive(Clone, Debug)]
pub(crate) struct AtCloseFrame {
    pub(crate) assessed: Assessed,
    pub(crate) missed: Option<Missed>,
}

/// A Close frame that passed.
#[derive(Clone, Debug)]
pub(crate) struct SeenClose {
    pub(crate) at: Timestamp,
    pub(crate) seq_end: Option<Seq>,
    pub(crate) code: Option<u16>,
    pub(crate) reason: Option<String>,
    /// `None` for the peer's, and where the close was known before the frame.
    at_close_frame: Option<Box<AtCloseFrame>>,
}

impl SeenClose {
    /// RFC 6455 section 7.4.1: the server met a condition that it did not expect. Watchdogs send it (`websockets` for Python,
    /// ackbeat's own clients).
    const UNEXPECTED_CONDITION: u16 = 1011;

    /// Whether it may be a watchdog's: one that says why it closes in any other way did not take the peer for dead. Watchdogs
    /// send 1011 or no code at all (engine.io).
    fn may_be_a_watchdogs(&self) -> bool {
        self.code.is_none_or(|code| code == Self::UNEXPECTED_CONDITION)
    }
}

/// The first Close frame of each direction. In boxes: nearly all connections have none.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenCloses {
    pub(crate) sent: Option<Box<SeenClose>>,
    pub(crate) received: Option<Box<SeenClose>>,
    /// Who sent the first one; of two at the same moment, the one that was told of first.
    first_by: Option<CloseInitiator>,
}

impl SeenCloses {
    /// A Close frame passed. `at_close_frame` is what is known now, where it is the host's.
    pub(crate) fn on_frame(&mut self, frame: Frame, at_close_frame: Option<AtCloseFrame>) {
        let (sender, slot, other) = match frame.direction {
            Direction::Egress => (CloseInitiator::Host, &mut self.sent, &self.received),
            Direction::Ingress => (CloseInitiator::Peer, &mut self.received, &self.sent),
        };
        if slot.is_none() {
            if other.as_ref().is_none_or(|other| frame.at < other.at) {
                self.first_by = Some(sender);
            }
            *slot = Some(Box::new(SeenClose {
                at: frame.at,
                seq_end: frame.seq_end,
                code: frame.close_code,
                reason: frame.close_reason,
                at_close_frame: at_close_frame.map(Box::new),
            }));
        }
    }

    pub(crate) fn frames(&self) -> CloseFrames {
        match (&self.sent, &self.received) {
            (None, None) => CloseFrames::None,
            (Some(_), None) => CloseFrames::Sent,
            (None, Some(_)) => CloseFrames::Received,
            (Some(_), Some(_)) => CloseFrames::Both,
        }
    }

    /// The Close frames that passed before the FIN or RST of a side at `at`. What that side sent itself always
    /// stands before its FIN, even if it left the send queue later.
    fn before(&self, side: CloseInitiator, at: Timestamp) -> Self {
        let early = |close: &SeenClose| close.at <= at;
        let sent = self.sent.as_ref().filter(|close| side == CloseInitiator::Host || early(close));
        let received = self.received.as_ref().filter(|close| side == CloseInitiator::Peer || early(close));
        let first_by = match (sent.is_some(), received.is_some()) {
            (true, true) => self.first_by,
            (true, false) => Some(CloseInitiator::Host),
            (false, true) => Some(CloseInitiator::Peer),
            (false, false) => None,
        };
        Self { sent: sent.cloned(), received: received.cloned(), first_by }
    }

    /// Whether the host has said that it goes away and will be back.
    pub(crate) fn announce_restart(&self) -> bool {
        self.sent.as_ref().is_some_and(|close| announces_restart(close.code, close.reason.as_deref()))
    }

    /// Status code and reason of the Close frame that `initiator` sent.
    pub(crate) fn of(&self, initiator: CloseInitiator) -> Option<&SeenClose> {
        match initiator {
            CloseInitiator::Host => self.sent.as_deref(),
            CloseInitiator::Peer => self.received.as_deref(),
            CloseInitiator::Kernel | CloseInitiator::Unknown => None,
        }
    }
}

/// How a half-close of the host ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfCloseEnd {
    /// The host read on until the peer's FIN.
    InOrder,
    /// The peer answered with a RST.
    PeerReset,
}

/// A close as it was when it happened, before anybody knew what followed.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) at: Timestamp,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) process: Option<Process>,
    pub(crate) assessed: Assessed,
    pub(crate) missed: Option<Missed>,
    pub(crate) last_proof_of_life_at: Timestamp,
    pub(crate) closes: SeenCloses,
    pub(crate) is_websocket: bool,
    /// Close frames and Pings would have been seen.
    pub(crate) is_sight_complete: bool,
    /// How it went on where the host only half-closed.
    pub(crate) half_close: Option<HalfCloseEnd>,
    /// What the port's watchdog was seen to tolerate.
    pub(crate) tolerance: Option<u32>,
    /// A RST of the host's own went out shortly before.
    pub(crate) reset_sent: bool,
    /// The process that closed had been told to stop.
    pub(crate) is_stopping: bool,
}

impl Draft {
    /// Who closed first. Who began the closing handshake (RFC 6455 section 7.1.2) did, whichever FIN followed it.
    pub(crate) fn initiator(&self, cause: Cause) -> CloseInitiator {
        let side = cause.initiator();
        match cause {
            Cause::HostFin | Cause::HostReset { .. } | Cause::PeerFin => {
                self.closes.before(side, self.at).first_by.unwrap_or(side)
            }
            _ => side,
        }
    }

    /// What kind of close it was.
    pub(crate) fn kind(&self, cause: Cause) -> CloseKind {
        if self.is_planned(cause) {
            return CloseKind::PlannedRestart;
        }
        if self.is_announced_kill(cause) {
            return CloseKind::HeartbeatKill;
        }
        let closes = self.closes.before(cause.initiator(), self.at);
        match cause {
            Cause::KernelGaveUp { .. } => CloseKind::KernelTimeout,
            Cause::KernelReset | Cause::Destroyed => CloseKind::Other,
            Cause::Unseen(_) if closes.frames() != CloseFrames::None => CloseKind::Graceful,
            Cause::Unseen(_) => CloseKind::Other,
            Cause::PeerReset if closes.frames() == CloseFrames::Both => CloseKind::Graceful,
            Cause::PeerReset => CloseKind::Abort,
            Cause::PeerFin if closes.frames() != CloseFrames::None => CloseKind::Graceful,
            Cause::PeerFin if !self.is_sight_complete => CloseKind::Other,
            Cause::PeerFin if self.is_websocket => CloseKind::Abort,
            Cause::PeerFin => CloseKind::Graceful,
            Cause::HostFin | Cause::HostReset { .. } => self.kind_of_host_close(cause, &closes),
        }
    }

    /// Whether the host goes away and has said so, or was told to. Whoever destroys a socket from outside does not.
    fn is_planned(&self, cause: Cause) -> bool {
        self.initiator(cause) == CloseInitiator::Host
            && cause != Cause::Destroyed
            && (self.is_stopping || self.closes.announce_restart())
    }

    /// Whether a heartbeat watchdog closed it with a Close frame: such a kill is no less one for being told.
    pub(crate) fn is_announced_kill(&self, cause: Cause) -> bool {
        if !matches!(cause, Cause::HostFin | Cause::HostReset { .. } | Cause::PeerFin)
            || self.initiator(cause) != CloseInitiator::Host
            || self.process.as_ref().is_some_and(|process| process.exiting)
        {
            return false;
        }
        let closes = self.closes.before(cause.initiator(), self.at);
        let Some(sent) = closes.sent.filter(|close| close.may_be_a_watchdogs()) else { return false };
        let missed = sent.at_close_frame.as_ref().map_or(self.missed, |known| known.missed);
        missed.is_some_and(|missed| {
            // One that is told needs less evidence than one that nobody said a word about. engine.io waits for one answer.
            let is_told =
                sent.code.is_some() || self.assessed.heartbeat.profile == Some(HeartbeatProfile::EngineIo);
            self.is_due(missed) || (is_told && missed.unheard.is_none() && missed.count >= 1)
        })
    }

    /// Takes what was known when the host began the closing handshake for what was known at the close.
    pub(crate) fn judge_at_close_frame(&mut self) {
        if let Some(known) = self.closes.sent.as_mut().and_then(|sent| sent.at_close_frame.take()) {
            let AtCloseFrame { assessed, missed } = *known;
            (self.assessed, self.missed) = (assessed, missed);
        }
    }

    fn kind_of_host_close(&self, cause: Cause, closes: &SeenCloses) -> CloseKind {
        if self.was_polite(cause, closes) {
            return CloseKind::Graceful;
        }
        if self.process.as_ref().is_some_and(|process| process.exiting) {
            return CloseKind::ProcessExit;
        }
        if self.half_close == Some(HalfCloseEnd::PeerReset) {
            // The host would have read on: it killed nobody.
            return CloseKind::Other;
        }
        if self.is_heartbeat_kill() {
            return CloseKind::HeartbeatKill;
        }
        if !self.is_sight_complete {
            return CloseKind::Other;
        }
        if self.is_websocket || cause != Cause::HostFin {
            return CloseKind::Abort;
        }
        // Plain TCP. A half-close that the peer answered: everything was delivered, and read on both sides (with
        // unread bytes the last `close()` would have sent a RST).
        if self.half_close == Some(HalfCloseEnd::InOrder) {
            return CloseKind::Graceful;
        }
        // Bytes in flight to a peer that keeps up, or that is behind and gets on, are owed to nobody: the kernel delivers
        // them and then the FIN. So ends every HTTP answer that is longer than the send queue.
        let snapshot = self.snapshot.as_ref();
        match (
            snapshot.and_then(|socket| socket.send_queue_bytes),
            snapshot.and_then(|socket| socket.unread_bytes),
            self.assessed.verdict,
        ) {
            (Some(0), Some(0), _) | (Some(_), Some(0), Verdict::Alive | Verdict::Congested) => {
                CloseKind::Graceful
            }
            (Some(_), Some(0), Verdict::Unknown) | (None, _, _) | (_, None, _) => CloseKind::Other,
            (Some(_), Some(_), _) => CloseKind::Abort,
        }
    }

    /// Whether a Close frame passed. A RST can destroy one that is still on its way: it counts only once it was
    /// acknowledged.
    fn was_polite(&self, cause: Cause, closes: &SeenCloses) -> bool {
        if closes.received.is_some() {
            return true;
        }
        let Some(sent) = closes.sent.as_ref() else { return false };
        if cause == Cause::HostFin {
            return true;
        }
        let una = self.snapshot.as_ref().and_then(|socket| socket.snd_una);
        matches!((una, sent.seq_end), (Some(una), Some(end)) if una.reached(end))
    }

    /// Whether the host gave up a peer that asks, and that had said nothing for too long.
    pub(crate) fn is_peer_overdue(&self) -> bool {
        self.missed.is_some_and(|missed| missed.unheard.is_some()) && self.is_heartbeat_kill()
    }

    /// Whether a heartbeat watchdog closed it. Where the host's own frames are not followed, or Pings were inferred and
    /// no kill of this port was seen yet, only a close on the tick says so.
    fn is_heartbeat_kill(&self) -> bool {
        self.missed.is_some_and(|missed| self.is_due(missed))
    }

    /// Whether so many missed heartbeats are enough for a watchdog.
    fn is_due(&self, missed: Missed) -> bool {
        if let Some(unheard) = missed.unheard {
            // No tick of the host is known where the peer asks, so the whole of its own frames must be.
            return self.is_sight_complete && missed.count.min(unheard) >= PEER_MISSED_MIN;
        }
        let is_enough =
            missed.count >= 2 || self.tolerance.is_some_and(|tolerance| missed.count >= tolerance);
        let is_seen = self.is_sight_complete && (missed.inferred == 0 || self.tolerance.is_some());
        missed.count >= 1 && (missed.on_tick || (is_enough && is_seen))
    }
}

/// A close that was decided, while its end or its post-mortem is awaited.
#[derive(Clone, Debug)]
pub(crate) struct Closing {
    pub(crate) draft: Draft,
    pub(crate) cause: Cause,
    pub(crate) initiator: CloseInitiator,
    pub(crate) kind: CloseKind,
    /// Nobody is accused for a close that was not seen, nor where Close frames may have passed unseen. A kill on
    /// the tick of the port's watchdog is recognised without seeing the host's own frames.
    pub(crate) is_evidence_complete: bool,
    /// Only for closes that the host started.
    pub(crate) watch: Option<Watch>,
    /// When the record is due at the latest, if nothing watches.
    pub(crate) deadline: Timestamp,
    /// The socket is gone; the record waits for a last word until then.
    pub(crate) held_until: Option<Timestamp>,
}
