//! How a connection ends: from a transition to its close record.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::{Connection, Context, Phase};
use crate::assessment::assess;
use crate::closing::{Cause, Closing, Draft, HOLD_MS, HalfCloseEnd, SocketError, Step};
use crate::postmortem::Watch;
use crate::{
    CloseFrames, CloseInitiator, CloseKind, CloseRecord, EvidenceScope, Output, Postmortem, Process,
    Snapshot, TcpState, Timestamp, Verdict,
};

impl Connection {
    /// `old_state` is the state that was left, where a transition told of it.
    pub(crate) fn on_step(
        &mut self,
        step: Step,
        old_state: Option<TcpState>,
        process: Option<Process>,
        snapshot: Snapshot,
        context: &Context<'_>,
        outputs: &mut VecDeque<Output>,
    ) {
        let at = snapshot.at;
        self.observe(&snapshot, context, outputs);
        match step {
            Step::Nothing => {}
            Step::HostHalfClosed => {
                let draft = self.draft(at, Some(snapshot), process, context);
                self.half = Some(Box::new(self.closing(draft, Cause::HostFin, context)));
            }
            Step::PeerFinished => {
                self.peer_fin_seen = true;
                if self.half.is_none() {
                    let draft = self.draft(at, Some(snapshot), None, context);
                    self.half = Some(Box::new(self.closing(draft, Cause::PeerFin, context)));
                }
            }
            Step::HostClosed => {
                let draft = self.draft(at, Some(snapshot), process, context);
                self.begin(draft, Cause::HostFin, context, outputs);
            }
            Step::HostAnswered => {
                if self.half.is_none() {
                    let draft = self.draft(at, Some(snapshot), None, context);
                    self.half = Some(Box::new(self.closing(draft, Cause::PeerFin, context)));
                }
                if let Some(half) = self.half.as_mut() {
                    half.draft.is_stopping |=
                        context.terminations.is_stopping(process.as_ref(), self.opened.at, at);
                }
                self.promote(HalfCloseEnd::InOrder, at, context, outputs);
            }
            Step::BothFinished => self.promote(HalfCloseEnd::InOrder, at, context, outputs),
            Step::Gone => {
                let draft = self.draft(at, Some(snapshot), process, context);
                self.on_gone(draft, old_state, context, outputs);
            }
        }
    }

    /// The socket of an open connection went to CLOSE.
    pub(crate) fn on_gone(
        &mut self,
        draft: Draft,
        old_state: Option<TcpState>,
        context: &Context<'_>,
        outputs: &mut VecDeque<Output>,
    ) {
        let at = draft.at;
        let is_recent = |date: Option<Timestamp>| date.is_some_and(|date| at.ms_since(date) <= HOLD_MS);
        if self.peer_fin_seen && self.half.is_some() {
            // Whatever the host did then, the peer's FIN came first.
            self.promote(HalfCloseEnd::InOrder, at, context, outputs);
            self.finish(at, true, outputs);
            return;
        }
        let error = draft.snapshot.as_ref().map_or(SocketError::None, SocketError::of);
        let is_peer_reset =
            error == SocketError::PeerReset || (error == SocketError::None && is_recent(self.peer_reset_at));
        if is_peer_reset && self.is_half_closed_by_host() {
            // The host's FIN came first; the peer's RST is an answer to it.
            self.promote(HalfCloseEnd::PeerReset, at, context, outputs);
            if let Phase::Closing(closing) = &mut self.phase
                && let Some(watch) = closing.watch.as_mut()
            {
                watch.on_peer_reset();
            }
            self.finish(at, true, outputs);
            return;
        }
        let cause = match error {
            SocketError::Destroyed => Some(Cause::Destroyed),
            SocketError::KernelGaveUp => Some(Cause::KernelGaveUp { reset_sent: draft.reset_sent }),
            SocketError::PeerReset => Some(Cause::PeerReset),
            SocketError::None if is_recent(self.peer_reset_at) => Some(Cause::PeerReset),
            // The half-close was answered with the peer's FIN. From FIN_WAIT1 a socket goes to CLOSE in order only by
            // way of FIN_WAIT2 or CLOSING (`tcp_rcv_state_process()`).
            SocketError::None
                if draft.process.is_none()
                    && self.half.is_some()
                    && old_state != Some(TcpState::FinWait1) =>
            {
                self.promote(HalfCloseEnd::InOrder, at, context, outputs);
                if let Phase::Closing(closing) = &mut self.phase
                    && let Some(watch) = closing.watch.as_mut()
                {
                    watch.on_state(TcpState::TimeWait);
                }
                self.finish(at, true, outputs);
                return;
            }
            SocketError::None if draft.process.is_none() && draft.reset_sent => Some(Cause::KernelReset),
            SocketError::None => None,
        };
        match cause {
            Some(cause) => {
                self.begin(draft, cause, context, outputs);
                self.finish(at, true, outputs);
            }
            None => self.phase = Phase::Deciding(Box::new(draft), at.plus_ms(HOLD_MS)),
        }
    }

    /// The reason of a sudden CLOSE is known now.
    pub(crate) fn conclude(&mut self, cause: Cause, context: &Context<'_>, outputs: &mut VecDeque<Output>) {
        let Phase::Deciding(draft, _) = core::mem::replace(&mut self.phase, Phase::Open) else { return };
        let at = draft.at;
        self.begin(*draft, cause, context, outputs);
        self.finish(at, true, outputs);
    }

    /// The hold of a sudden CLOSE is over: decide on what is known.
    pub(crate) fn conclude_without_reset(&mut self, context: &Context<'_>, outputs: &mut VecDeque<Output>) {
        let Phase::Deciding(draft, _) = &self.phase else { return };
        let cause = match (&draft.process, &self.half) {
            // A half-closed connection that the host closed: its FIN was out already, no RST is needed.
            (Some(_), Some(_)) => Cause::HostFin,
            (Some(_), None) => Cause::HostReset { seen: draft.reset_sent },
            (None, Some(half)) => Cause::Unseen(half.cause.initiator()),
            (None, None) => Cause::Unseen(CloseInitiator::Unknown),
        };
        self.conclude(cause, context, outputs);
    }

    /// A half-closed connection came to its end: the first FIN was the close.
    pub(crate) fn promote(
        &mut self,
        end: HalfCloseEnd,
        at: Timestamp,
        context: &Context<'_>,
        outputs: &mut VecDeque<Output>,
    ) {
        let Some(mut closing) = self.half.take() else { return };
        closing.draft.closes = self.closes.clone();
        closing.draft.half_close = Some(end);
        let latest = self.evidence.snapshot.clone();
        let mut closing = self.closing(closing.draft, closing.cause, context);
        if let (Some(watch), Some(latest)) = (closing.watch.as_mut(), latest.as_ref()) {
            watch.on_snapshot(latest);
        }
        closing.deadline = at.plus_ms(context.policy.postmortem_window_ms.saturating_mul(2));
        if let Some(watch) = closing.watch.as_mut() {
            watch.on_state(TcpState::Closing);
            watch.reopen(at, context.policy);
        }
        self.enter(closing, at, outputs);
    }

    /// Begins a close.
    pub(crate) fn begin(
        &mut self,
        draft: Draft,
        cause: Cause,
        context: &Context<'_>,
        outputs: &mut VecDeque<Output>,
    ) {
        let at = draft.at;
        self.half = None;
        let closing = self.closing(draft, cause, context);
        self.enter(closing, at, outputs);
    }

    pub(crate) fn enter(&mut self, closing: Closing, at: Timestamp, outputs: &mut VecDeque<Output>) {
        self.suspicion = None;
        self.verdict = Verdict::Closed;
        if closing.kind == CloseKind::HeartbeatKill
            && let Some(missed) = closing.draft.missed.filter(|missed| missed.on_tick)
        {
            self.learned_kill = Some(missed.count);
        }
        // Behind a proxy every peer has the same address: nobody could be known by it again.
        if closing.draft.assessed.scope == EvidenceScope::Peer {
            let path = self.upgrade.as_ref().and_then(|upgrade| upgrade.path.clone());
            self.ended = path.map(|path| Box::new((closing.draft.at, path)));
        }
        outputs.push_back(Output::Closing {
            connection: self.opened.connection,
            at,
            initiator: closing.initiator,
        });
        self.phase = Phase::Closing(Box::new(closing));
    }

    /// Decides who and what it was; the post-mortem of a host's close begins.
    pub(crate) fn closing(&self, mut draft: Draft, cause: Cause, context: &Context<'_>) -> Closing {
        let initiator = draft.initiator(cause);
        let kind = draft.kind(cause);
        if kind == CloseKind::HeartbeatKill {
            draft.judge_at_close_frame();
        }
        // `other` of a host's close: what would tell a polite one from a kill was not seen.
        let is_undecided =
            kind == CloseKind::Other && matches!(cause, Cause::HostFin | Cause::HostReset { .. });
        // Whoever destroyed the socket from outside (`ss --kill`, the reaper) is not the host: what it knew is not known.
        let is_evidence_complete = !matches!(cause, Cause::Unseen(_) | Cause::Destroyed)
            && !is_undecided
            && (draft.is_sight_complete || kind == CloseKind::HeartbeatKill);
        let watch = match (&draft.snapshot, initiator, cause) {
            (Some(base), CloseInitiator::Host, Cause::HostFin | Cause::PeerFin | Cause::Unseen(_)) => {
                let mut watch = Watch::new(base.clone(), draft.at, context.policy);
                if cause == Cause::PeerFin {
                    watch.on_state(TcpState::Closing);
                }
                Some(watch)
            }
            _ => None,
        };
        let deadline = draft.at.plus_ms(context.policy.postmortem_window_ms.saturating_mul(2));
        Closing { draft, cause, initiator, kind, is_evidence_complete, watch, deadline, held_until: None }
    }

    /// The socket of a closing connection is gone.
    pub(crate) fn on_closing_gone(
        &mut self,
        snapshot: &Snapshot,
        context: &Context<'_>,
        outputs: &mut VecDeque<Output>,
    ) {
        let at = snapshot.at;
        let peer_reset_at = self.peer_reset_at;
        let Phase::Closing(closing) = &mut self.phase else { return };
        let Some(watch) = closing.watch.as_mut() else {
            self.finish(at, true, outputs);
            return;
        };
        if peer_reset_at.is_some_and(|reset| reset >= closing.draft.at) {
            watch.on_peer_reset();
        }
        if SocketError::of(snapshot) == SocketError::KernelGaveUp {
            watch.on_kernel_error();
        }
        if watch.is_settled() || SocketError::of(snapshot) == SocketError::KernelGaveUp {
            self.finish(at, true, outputs);
        } else {
            closing.held_until = Some(at.plus_ms(HOLD_MS.min(context.policy.postmortem_window_ms)));
        }
    }

    pub(crate) fn finish_if_settled(&mut self, at: Timestamp, outputs: &mut VecDeque<Output>) {
        if let Phase::Closing(closing) = &self.phase
            && closing.watch.as_ref().is_some_and(Watch::is_settled)
        {
            self.finish(at, true, outputs);
        }
    }

    /// Writes the record. `is_complete` is false where the post-mortem was cut short.
    pub(crate) fn finish(&mut self, at: Timestamp, is_complete: bool, outputs: &mut VecDeque<Output>) {
        let Phase::Closing(closing) = core::mem::replace(&mut self.phase, Phase::Finished) else { return };
        let is_host = closing.initiator == CloseInitiator::Host;
        // Whoever answers the watchdog's Close frame was there.
        let has_answered =
            closing.kind == CloseKind::HeartbeatKill && closing.draft.closes.frames() == CloseFrames::Both;
        let postmortem = is_host.then(|| match closing.watch.as_ref() {
            _ if has_answered => Postmortem::AppProgress,
            Some(watch) => watch.result(is_complete),
            None => Postmortem::Unresolved,
        });
        let is_evidence_complete = closing.is_evidence_complete;
        let is_peer_overdue = closing.draft.is_peer_overdue();
        let assessed = closing.draft.assessed;
        // Neither a polite close nor a planned one took the peer for dead.
        let is_kill = !matches!(closing.kind, CloseKind::Graceful | CloseKind::PlannedRestart);
        let assessment = postmortem.filter(|_| is_kill).map(|postmortem| {
            assess(
                assessed.verdict,
                assessed.kill_justified,
                postmortem,
                is_evidence_complete,
                is_peer_overdue,
            )
        });
        let said = closing.draft.closes.of(closing.initiator);
        let record = CloseRecord {
            connection: self.opened.connection,
            endpoints: self.opened.endpoints,
            role: self.opened.role,
            preexisting: self.opened.preexisting,
            upgrade: self.upgrade.take(),
            is_websocket: self.is_websocket,
            opened_at: self.opened.at,
            closed_at: closing.draft.at,
            ended_at: at.max(closing.draft.at),
            last_proof_of_life_at: closing.draft.last_proof_of_life_at,
            kind: closing.kind,
            initiator: closing.initiator,
            method: closing.cause.method(),
            close_frames: closing.draft.closes.frames(),
            close_code: said.and_then(|close| close.code),
            close_reason: said.and_then(|close| close.reason.clone()),
            // The engine fills it in.
            is_final: None,
            process: if is_host { closing.draft.process } else { None },
            socket_error: closing.draft.snapshot.as_ref().and_then(|socket| socket.socket_error),
            assessed,
            postmortem,
            assessment,
            snapshot: closing.draft.snapshot,
            verdict_changes: core::mem::take(&mut self.history),
            verdict_changes_dropped: self.history_dropped,
            records_lost: self.records_lost,
            reconnect: self.reconnect.as_deref().copied(),
            still_open: false,
        };
        outputs.push_back(Output::Closed(Box::new(record)));
    }

    /// The engine stops: whatever is known goes out.
    pub(crate) fn on_shut_down(
        &mut self,
        at: Timestamp,
        context: &Context<'_>,
        outputs: &mut VecDeque<Output>,
    ) {
        if matches!(self.phase, Phase::Deciding(..)) {
            self.conclude_without_reset(context, outputs);
        }
        if matches!(self.phase, Phase::Closing(_)) {
            self.finish(at, false, outputs);
        }
        if !matches!(self.phase, Phase::Open) {
            return;
        }
        let draft = self.draft(at, self.evidence.snapshot.clone(), None, context);
        self.phase = Phase::Closing(Box::new(Closing {
            draft,
            cause: Cause::Unseen(CloseInitiator::Unknown),
            initiator: CloseInitiator::Unknown,
            kind: CloseKind::Other,
            is_evidence_complete: false,
            watch: None,
            deadline: at,
            held_until: None,
        }));
        self.finish(at, false, outputs);
        if let Some(Output::Closed(record)) = outputs.back_mut() {
            record.still_open = true;
        }
    }
}
