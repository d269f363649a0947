//! What time does to a connection.

use alloc::collections::VecDeque;

use super::{Connection, Context, Phase, Suspicion};
use crate::closing::{Cause, HOLD_MS, Step, step};
use crate::{CloseInitiator, Output, Policy, TcpState, Timestamp, Verdict};

impl Connection {
    /// When it wants to be called next.
    pub(crate) fn next_deadline(&self, context: &Context<'_>) -> Option<Timestamp> {
        let suspicion = self.suspicion.as_ref().map(|suspicion| suspicion.until);
        match &self.phase {
            Phase::Finished => None,
            Phase::Deciding(_, until) => Some(*until),
            Phase::Closing(closing) => {
                let watched = closing.watch.as_ref().map_or(closing.deadline, |watch| watch.deadline);
                Some(closing.held_until.map_or(watched, |held| held.min(watched)))
            }
            Phase::Open => {
                let facts = self.facts(context, context.now, false);
                let late = facts.peer_late_at().filter(|at| *at > context.now);
                // The clock of a look that is too old runs until the verdict says so.
                let stale = facts.stale_at().filter(|_| self.verdict != Verdict::Unknown);
                [suspicion, stale, late, self.turns_at].into_iter().flatten().min()
            }
        }
    }

    pub(crate) fn on_deadline(
        &mut self,
        now: Timestamp,
        context: &Context<'_>,
        outputs: &mut VecDeque<Output>,
    ) {
        match &mut self.phase {
            Phase::Finished => {}
            Phase::Deciding(_, until) => {
                if now >= *until {
                    self.conclude_without_reset(context, outputs);
                }
            }
            Phase::Closing(closing) => {
                let is_held_over = closing.held_until.is_some_and(|held| now >= held);
                let is_over = match closing.watch.as_mut() {
                    Some(watch) => now >= watch.deadline && watch.on_deadline(now),
                    None => now >= closing.deadline,
                };
                if is_held_over || is_over {
                    // A socket that is gone answers no more; a watch that was not cut short is complete.
                    self.finish(now, is_over, outputs);
                }
            }
            Phase::Open => {
                if let Some(suspicion) = self.suspicion.take_if(|suspicion| now >= suspicion.until) {
                    self.on_unseen(suspicion, context, outputs);
                }
            }
        }
    }

    /// A late tick: nothing expires now.
    pub(crate) fn reopen(&mut self, now: Timestamp, policy: &Policy) {
        let hold = now.plus_ms(HOLD_MS);
        self.probing.reopen();
        self.evidence.reopen();
        if let Some(suspicion) = self.suspicion.as_mut() {
            suspicion.until = suspicion.until.max(hold);
        }
        match &mut self.phase {
            Phase::Open | Phase::Finished => {}
            Phase::Deciding(_, until) => *until = (*until).max(hold),
            Phase::Closing(closing) => {
                closing.held_until = closing.held_until.map(|held| held.max(hold));
                closing.deadline = closing.deadline.max(hold);
                if let Some(watch) = closing.watch.as_mut() {
                    watch.reopen(now, policy);
                }
            }
        }
    }

    /// A state was seen that no transition told of, and none came.
    fn on_unseen(&mut self, suspicion: Suspicion, context: &Context<'_>, outputs: &mut VecDeque<Output>) {
        let Some(snapshot) = suspicion.snapshot else {
            let cause = match &self.half {
                Some(half) => Cause::Unseen(half.cause.initiator()),
                None => Cause::Unseen(CloseInitiator::Unknown),
            };
            let draft = self.draft(suspicion.at, self.evidence.snapshot.clone(), None, context);
            self.begin(draft, cause, context, outputs);
            self.finish(suspicion.at, false, outputs);
            return;
        };
        let at = snapshot.at;
        match step(snapshot.state, snapshot.shutdown, self.is_half_closed_by_host()) {
            step @ (Step::Nothing
            | Step::HostHalfClosed
            | Step::PeerFinished
            | Step::HostAnswered
            | Step::BothFinished) => {
                self.on_step(step, None, None, *snapshot, context, outputs);
            }
            Step::HostClosed => {
                let draft = self.draft(at, Some(*snapshot), None, context);
                self.begin(draft, Cause::Unseen(CloseInitiator::Host), context, outputs);
            }
            Step::Gone => {
                // Only the side that closed first comes to TIME_WAIT (RFC 9293 section 3.3.2).
                let initiator = match snapshot.state {
                    TcpState::TimeWait => CloseInitiator::Host,
                    _ => self.half.as_ref().map_or(CloseInitiator::Unknown, |half| half.cause.initiator()),
                };
                let draft = self.draft(at, Some(*snapshot), None, context);
                self.begin(draft, Cause::Unseen(initiator), context, outputs);
                self.finish(at, false, outputs);
            }
        }
    }

    /// When a sample would decide whether the peer is unreachable; `None` where none is awaited.
    pub(crate) fn decides_at(&self, context: &Context<'_>) -> Option<Timestamp> {
        match &self.phase {
            Phase::Open => self.facts(context, context.now, false).decides_at(),
            Phase::Deciding(..) | Phase::Closing(_) | Phase::Finished => None,
        }
    }

    /// Whether samples of this socket are worth their cost: something is expected from the peer.
    pub(crate) fn wants_samples(&self, context: &Context<'_>) -> bool {
        match &self.phase {
            Phase::Open => self.suspicion.is_some() || self.facts(context, context.now, false).is_waiting(),
            Phase::Closing(closing) => closing.watch.is_some(),
            Phase::Deciding(..) | Phase::Finished => false,
        }
    }
}
