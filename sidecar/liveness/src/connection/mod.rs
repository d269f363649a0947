//! One connection, from its first record to its last.

mod ending;
mod judging;
mod time;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use crate::agenda::Slot;
use crate::closing::{AtCloseFrame, Cause, Closing, Draft, HOLD_MS, SeenCloses, Step, step};
use crate::engine::{ConnectionInfo, EvidenceDates};
use crate::evidence::{Evidence, raise};
use crate::heartbeat::{Heartbeat as Beats, Sight};
use crate::middle_hop::PongLag;
use crate::peer_heartbeat::PeerHeartbeat;
use crate::probing::{Probing, WindowProbes};
use crate::schedule::{Answers, Lesson, Schedule};
use crate::termination::Terminations;
use crate::{
    CloseInitiator, CloseKind, Deployment, Direction, Frame, FrameKind, HeartbeatSource, Opened, Output,
    Policy, ProbeWanted, Reconnect, Reset, Role, Snapshot, Synchronization, TcpState, Timestamp, Transition,
    Upgrade, Verdict, VerdictChange,
};

/// What a connection's decisions depend on beside itself.
pub(crate) struct Context<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) schedule: Option<&'a Schedule>,
    pub(crate) window_opened_at: Timestamp,
    /// The latest moment that the engine was told of.
    pub(crate) now: Timestamp,
    /// What whoever deploys says.
    pub(crate) deployment: &'a Deployment,
    /// Who was told to stop.
    pub(crate) terminations: &'a Terminations,
}

/// Whose Pings share a watchdog: the connections to one listening port, or to one remote port.
pub(crate) type ScheduleKey = (bool, u16);

/// How far a connection's end has come.
#[derive(Debug)]
enum Phase {
    Open,
    /// The socket went to CLOSE at once, and it is not known yet why.
    Deciding(Box<Draft>, Timestamp),
    /// Decided; its end or its post-mortem is awaited.
    Closing(Box<Closing>),
    /// The record is out.
    Finished,
}

/// A state that a sample or a pass of the sampler showed, and that no transition told of (yet).
#[derive(Debug)]
struct Suspicion {
    until: Timestamp,
    /// `None`: the socket was missing from a pass.
    snapshot: Option<Box<Snapshot>>,
    at: Timestamp,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) opened: Opened,
    pub(crate) upgrade: Option<Upgrade>,
    pub(crate) is_websocket: bool,
    pub(crate) verdict: Verdict,
    kill_justified: bool,
    /// When `kill_justified` may turn by time alone.
    turns_at: Option<Timestamp>,
    /// The last reading was too old to judge by, and nothing was seen since.
    is_stale: bool,
    /// A Ping was due at the last judgement and is not on the wire.
    is_ping_waiting: bool,
    /// A Pong of the host's Pings was owed at the last judgement, and would be seen.
    is_pong_visible: bool,
    /// The peer was the one that asks at the last judgement.
    is_peer_asking: bool,
    pub(crate) tcp_state: Option<TcpState>,
    evidence: Evidence,
    probing: Probing,
    beats: Beats,
    peer_beats: PeerHeartbeat,
    pong_lag: PongLag,
    closes: SeenCloses,
    /// Records were lost, and no frame has shown since that the wire is seen again.
    is_record_lost: bool,
    records_lost: u64,
    peer_reset_at: Option<Timestamp>,
    own_reset_at: Option<Timestamp>,
    peer_fin_seen: bool,
    /// The close that it will have been if the half-closed connection ends in order.
    half: Option<Box<Closing>>,
    phase: Phase,
    suspicion: Option<Suspicion>,
    history: Vec<VerdictChange>,
    history_dropped: u32,
    /// When it was last part of a pass of the sampler.
    pub(crate) sampled_at: Option<Timestamp>,
    /// A kill with this many Pings missed was seen: the port's schedule wants to know.
    pub(crate) learned_kill: Option<u32>,
    /// It ended, and its peer may be known again by this path.
    pub(crate) ended: Option<Box<(Timestamp, String)>>,
    /// The end that this connection followed.
    pub(crate) reconnect: Option<Box<Reconnect>>,
    /// Where the engine's tables have it.
    pub(crate) slot: Slot,
}

impl Connection {
    pub(crate) fn new(opened: Opened, slot: Slot) -> Self {
        let start = (!opened.preexisting).then_some(opened.at);
        Self {
            evidence: Evidence::new(opened.at, opened.preexisting),
            probing: Probing::default(),
            beats: Beats::new(start),
            peer_beats: PeerHeartbeat::default(),
            pong_lag: PongLag::default(),
            verdict: if opened.preexisting { Verdict::Unknown } else { Verdict::Alive },
            kill_justified: false,
            turns_at: None,
            is_stale: false,
            is_ping_waiting: false,
            is_pong_visible: false,
            is_peer_asking: false,
            opened,
            upgrade: None,
            is_websocket: false,
            tcp_state: None,
            closes: SeenCloses::default(),
            is_record_lost: false,
            records_lost: 0,
            peer_reset_at: None,
            own_reset_at: None,
            peer_fin_seen: false,
            half: None,
            phase: Phase::Open,
            suspicion: None,
            history: Vec::new(),
            history_dropped: 0,
            sampled_at: None,
            learned_kill: None,
            ended: None,
            reconnect: None,
            slot,
        }
    }

    pub(crate) fn schedule_key(&self) -> ScheduleKey {
        match self.opened.role {
            Role::Server => (false, self.opened.endpoints.local_port),
            Role::Client => (true, self.opened.endpoints.peer_port),
        }
    }

    /// What whoever lists connections is told.
    pub(crate) fn info(&self) -> ConnectionInfo<'_> {
        ConnectionInfo {
            connection: self.opened.connection,
            endpoints: self.opened.endpoints,
            role: self.opened.role,
            preexisting: self.opened.preexisting,
            opened_at: self.opened.at,
            upgrade: self.upgrade.as_ref(),
            is_websocket: self.is_websocket,
            tcp_state: self.tcp_state,
            verdict: if self.is_closing() { Verdict::Closed } else { self.verdict },
            close_frames: self.close_frames(),
            is_ping_report_redundant: self.beats.is_report_redundant(Direction::Egress),
            is_pong_report_redundant: self.beats.is_report_redundant(Direction::Ingress),
            snapshot: self.evidence.snapshot.as_ref(),
            evidence: EvidenceDates {
                hop_at: self.evidence.hop_at,
                ack_at: self.evidence.ack_at,
                drain_at: self.evidence.drain_at,
                inbound_at: self.evidence.inbound_at,
                pong_at: self.evidence.pong_at,
            },
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    pub(crate) fn is_closing(&self) -> bool {
        !matches!(self.phase, Phase::Open)
    }

    pub(crate) fn on_upgrade(&mut self, upgrade: Upgrade) {
        self.is_websocket = true;
        // The parser starts after the blank line of the 101 answer: from here on every frame is seen.
        self.beats.egress = Sight::Following;
        self.beats.ingress = Sight::Following;
        if self.beats.start.is_some() {
            self.beats.start = Some(upgrade.at);
        }
        self.upgrade = Some(upgrade);
    }

    pub(crate) fn on_synchronization(&mut self, synchronization: &Synchronization) {
        match (synchronization.direction, synchronization.synchronized) {
            (Direction::Egress, true) => self.beats.egress = Sight::Following,
            (Direction::Ingress, true) => self.beats.ingress = Sight::Following,
            (Direction::Egress, false) if self.beats.egress != Sight::Never => {
                self.beats.on_egress_lost(Sight::Lost);
            }
            (Direction::Ingress, false) if self.beats.ingress != Sight::Never => {
                self.beats.on_ingress_lost(Sight::Lost);
                self.peer_beats.on_lost();
            }
            (_, false) => {}
        }
        if synchronization.synchronized {
            self.is_record_lost = false;
        }
    }

    pub(crate) fn on_records_lost(&mut self, count: u64) {
        self.records_lost = self.records_lost.saturating_add(count);
        if self.is_closing() {
            return;
        }
        self.is_record_lost = true;
        self.beats.on_egress_lost(if self.beats.egress == Sight::Never {
            Sight::Never
        } else {
            Sight::Dropped
        });
        self.beats.on_ingress_lost(if self.beats.ingress == Sight::Never {
            Sight::Never
        } else {
            Sight::Dropped
        });
        self.peer_beats.on_lost();
    }

    pub(crate) fn on_outstanding(&mut self, at: Timestamp) {
        self.evidence.on_sent(at);
    }

    /// The own window probe that is worth sending after the latest reading of the socket.
    pub(crate) fn probe_wanted(&self, settings: WindowProbes) -> Option<ProbeWanted> {
        let snapshot = self.evidence.snapshot.as_ref().filter(|_| !self.is_closing())?;
        let (seq, ack) = self.probing.wanted(snapshot, settings)?;
        let Opened { connection, endpoints, .. } = self.opened;
        Some(ProbeWanted { connection, at: snapshot.at, endpoints, seq, ack })
    }

    pub(crate) fn on_probe_asked(&mut self, at: Timestamp) {
        self.probing.on_asked(at);
    }

    pub(crate) fn on_probe_sent(&mut self, at: Timestamp) {
        if !self.is_closing() {
            self.probing.on_sent(at, self.evidence.snapshot.as_ref(), self.evidence.heard_at());
        }
    }

    /// A frame passed, or was reported. Gives what the schedule may learn from it.
    pub(crate) fn on_frame(
        &mut self,
        frame: Frame,
        context: &Context<'_>,
        outputs: &mut VecDeque<Output>,
    ) -> Option<Lesson> {
        let on_wire = frame.is_on_wire();
        if !on_wire && self.is_redundant(&frame) {
            return None;
        }
        self.is_websocket = true;
        if on_wire {
            self.is_record_lost = false;
            match frame.direction {
                Direction::Egress => self.beats.egress = Sight::Following,
                Direction::Ingress => self.beats.ingress = Sight::Following,
            }
        }
        match &mut self.phase {
            Phase::Open | Phase::Deciding(..) => {}
            Phase::Finished => return None,
            Phase::Closing(closing) => {
                let at = frame.at;
                let is_late = at >= closing.draft.at;
                if frame.direction == Direction::Ingress && on_wire && is_late {
                    if let Some(watch) = closing.watch.as_mut() {
                        watch.on_payload();
                    }
                } else if frame.direction == Direction::Egress && frame.kind == FrameKind::Close {
                    // It had been written before the FIN and waited in the send queue until now.
                    closing.draft.closes.on_frame(frame, None);
                    if closing.initiator == CloseInitiator::Host && closing.draft.closes.announce_restart() {
                        closing.kind = CloseKind::PlannedRestart;
                    } else if closing.draft.is_announced_kill(closing.cause) {
                        closing.kind = CloseKind::HeartbeatKill;
                        closing.is_evidence_complete = true;
                    } else if matches!(
                        closing.kind,
                        CloseKind::Abort | CloseKind::HeartbeatKill | CloseKind::Other
                    ) && closing.cause == Cause::HostFin
                    {
                        closing.kind = CloseKind::Graceful;
                    }
                }
                self.finish_if_settled(at, outputs);
                return None;
            }
        }
        let is_open = !self.is_closing();
        let lesson = match frame.direction {
            Direction::Egress => self.on_sent_frame(frame, context),
            Direction::Ingress => self.on_received_frame(frame, context, outputs),
        };
        lesson.filter(|_| is_open)
    }

    /// Whether a report tells of what is seen on the wire anyway.
    fn is_redundant(&self, frame: &Frame) -> bool {
        match (frame.direction, frame.kind) {
            (Direction::Egress, FrameKind::Ping) | (Direction::Ingress, FrameKind::Pong) => {
                self.beats.is_report_redundant(frame.direction)
            }
            (Direction::Ingress, FrameKind::Ping) => {
                self.peer_beats.source() == Some(HeartbeatSource::Wire)
                    && self.beats.ingress == Sight::Following
            }
            (Direction::Egress, FrameKind::Pong) | (_, FrameKind::Close) => false,
        }
    }

    fn on_sent_frame(&mut self, frame: Frame, context: &Context<'_>) -> Option<Lesson> {
        // Nobody can have looked at what a report tells of before it came.
        self.evidence.on_sent(if frame.is_on_wire() { frame.at } else { context.now });
        match frame.kind {
            FrameKind::Ping if frame.profile.is_unanswered() => self.peer_beats.on_seen(&frame),
            FrameKind::Ping => {
                let profile = frame.profile;
                let earlier = self.beats.on_ping(&frame, context.now)?;
                return Some(Lesson::HostAsked { profile, earlier });
            }
            FrameKind::Pong => {}
            FrameKind::Close => {
                let known = (!self.is_closing()).then(|| AtCloseFrame {
                    assessed: self.assessed(context.now, context),
                    missed: self.missed(frame.at, true, context),
                });
                self.closes.on_frame(frame, known);
            }
        }
        None
    }

    fn on_received_frame(
        &mut self,
        frame: Frame,
        context: &Context<'_>,
        outputs: &mut VecDeque<Output>,
    ) -> Option<Lesson> {
        let at = frame.at;
        self.evidence.on_payload(at);
        self.is_stale = false;
        match frame.kind {
            FrameKind::Pong => {
                let oldest_end = self.beats.oldest_unanswered().and_then(|ping| ping.seq_end);
                let answered = self.beats.on_pong(&frame, context.now)?;
                self.evidence.on_answer(at, oldest_end);
                if self.verdict == Verdict::Alive {
                    let srtt_us = self.evidence.snapshot.as_ref().and_then(|socket| socket.srtt_us);
                    self.pong_lag.on_answered(&answered, srtt_us);
                }
                outputs.push_back(Output::Answered(answered));
                let answers =
                    if frame.is_on_wire() { Answers::Wire(answered.profile) } else { Answers::Reported };
                let is_news = context.schedule.is_none_or(|schedule| !schedule.has_seen(answers));
                is_news.then_some(Lesson::PeerAnswered(answers))
            }
            FrameKind::Close => {
                self.closes.on_frame(frame, None);
                None
            }
            FrameKind::Ping => {
                let acked = self.evidence.snapshot.as_ref().and_then(|snapshot| snapshot.snd_una);
                let gap_ns = self.peer_beats.on_ping(&frame, acked)?;
                Some(Lesson::PeerAsked { profile: frame.profile, gap_ns })
            }
        }
    }

    pub(crate) fn on_sample(
        &mut self,
        snapshot: Snapshot,
        context: &Context<'_>,
        outputs: &mut VecDeque<Output>,
    ) {
        let at = snapshot.at;
        raise(&mut self.sampled_at, at);
        match &mut self.phase {
            Phase::Finished | Phase::Deciding(..) => {}
            Phase::Closing(closing) => {
                if let Some(watch) = closing.watch.as_mut() {
                    watch.on_snapshot(&snapshot);
                    watch.on_state(snapshot.state);
                }
                self.tcp_state = Some(snapshot.state);
                self.finish_if_settled(at, outputs);
            }
            Phase::Open => match step(snapshot.state, snapshot.shutdown, self.is_half_closed_by_host()) {
                Step::Nothing => self.observe(&snapshot, context, outputs),
                Step::PeerFinished if self.peer_fin_seen => self.observe(&snapshot, context, outputs),
                // The record of the transition may still be on its way; it knows more.
                _ => {
                    let until = self.suspicion.as_ref().map_or(at.plus_ms(HOLD_MS), |known| known.until);
                    self.suspicion = Some(Suspicion { until, snapshot: Some(Box::new(snapshot)), at });
                }
            },
        }
    }

    /// A pass of the sampler that began at `began_at` did not show this socket.
    pub(crate) fn on_missing(&mut self, began_at: Timestamp, at: Timestamp, policy: &Policy) {
        match &mut self.phase {
            Phase::Finished | Phase::Deciding(..) => {}
            Phase::Closing(closing) => {
                if closing.held_until.is_none() && closing.draft.at < began_at {
                    closing.held_until = Some(at.plus_ms(HOLD_MS.min(policy.postmortem_window_ms)));
                }
            }
            Phase::Open => {
                if self.suspicion.is_none() {
                    self.suspicion = Some(Suspicion { until: at.plus_ms(HOLD_MS), snapshot: None, at });
                }
            }
        }
    }

    pub(crate) fn on_reset(&mut self, reset: &Reset, context: &Context<'_>, outputs: &mut VecDeque<Output>) {
        let at = reset.at;
        let is_own = reset.direction == Direction::Egress && !reset.answers_segment;
        match reset.direction {
            Direction::Ingress => raise(&mut self.peer_reset_at, at),
            Direction::Egress if is_own => raise(&mut self.own_reset_at, at),
            Direction::Egress => {}
        }
        match &mut self.phase {
            Phase::Open | Phase::Finished => {}
            Phase::Deciding(..) => {
                if is_own {
                    self.conclude(Cause::HostReset { seen: true }, context, outputs);
                } else if reset.direction == Direction::Ingress {
                    self.conclude(Cause::PeerReset, context, outputs);
                }
            }
            Phase::Closing(closing) => {
                if let Some(watch) = closing.watch.as_mut() {
                    match reset.direction {
                        Direction::Ingress => watch.on_peer_reset(),
                        Direction::Egress if reset.answers_segment => watch.on_payload(),
                        Direction::Egress => {}
                    }
                }
                self.finish_if_settled(at, outputs);
            }
        }
    }

    pub(crate) fn on_transition(
        &mut self,
        transition: Transition,
        context: &Context<'_>,
        outputs: &mut VecDeque<Output>,
    ) {
        let Transition { old_state, new_state, process, snapshot } = transition;
        let at = snapshot.at;
        self.tcp_state = Some(new_state);
        match &mut self.phase {
            Phase::Finished | Phase::Deciding(..) => {}
            Phase::Closing(closing) => {
                if let Some(watch) = closing.watch.as_mut() {
                    watch.on_snapshot(&snapshot);
                    watch.on_state(new_state);
                }
                if matches!(new_state, TcpState::Close | TcpState::TimeWait) {
                    self.on_closing_gone(&snapshot, context, outputs);
                } else {
                    self.finish_if_settled(at, outputs);
                }
            }
            Phase::Open => {
                let suspicion = self.suspicion.take();
                let step = step(new_state, snapshot.shutdown, self.is_half_closed_by_host());
                self.on_step(step, Some(old_state), process, snapshot, context, outputs);
                // What a sample showed before this record arrived belongs to the time after the close.
                if let Some(sample) = suspicion.and_then(|suspicion| suspicion.snapshot)
                    && sample.at >= at
                {
                    self.on_sample(*sample, context, outputs);
                }
            }
        }
    }
}
