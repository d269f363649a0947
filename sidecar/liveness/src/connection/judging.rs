//! What a connection looks like now: verdict, heartbeat, ages.

use alloc::collections::VecDeque;

use super::{Connection, Context, Phase};
use crate::closing::{Cause, Draft, HOLD_MS};
use crate::heartbeat::{Missed, Sight};
use crate::peer_heartbeat::intervals;
use crate::schedule::Schedule;
use crate::verdict::{Facts, Judgement};
use crate::{
    Assessed, CloseFrames, EvidenceScope, Heartbeat, HeartbeatSource, Output, PeerIsProxy, PingLocation,
    Process, Rung, Snapshot, Timestamp, VERDICT_HISTORY_MAX, Verdict, VerdictChange,
};

/// Who asks whether the other one is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    Host,
    Peer,
}

const fn rounded_ms(ns: u64) -> u64 {
    ns.saturating_add(500_000) / 1_000_000
}

impl Connection {
    pub(crate) fn is_half_closed_by_host(&self) -> bool {
        self.half.as_ref().is_some_and(|half| half.cause == Cause::HostFin)
    }

    pub(crate) fn observe(
        &mut self,
        snapshot: &Snapshot,
        context: &Context<'_>,
        outputs: &mut VecDeque<Output>,
    ) {
        self.tcp_state = Some(snapshot.state);
        self.evidence.on_snapshot(snapshot, context.policy);
        self.probing.on_snapshot(snapshot, self.evidence.heard_at());
        self.beats.on_snapshot(snapshot);
        if let Some(watch) = self.half.as_mut().and_then(|half| half.watch.as_mut()) {
            watch.on_snapshot(snapshot);
        }
        self.is_stale = false;
        self.update_verdict(context, outputs);
    }

    pub(crate) fn facts<'a>(
        &'a self,
        context: &'a Context<'_>,
        now: Timestamp,
        is_ping_waiting: bool,
    ) -> Facts<'a> {
        // A peer that has finished writing answers no Ping any more; one whose Pong lies unread did answer.
        let is_pong_expected = !self.peer_fin_seen
            && !self.beats.is_pong_unread(self.evidence.snapshot.as_ref())
            && self.is_pong_visible;
        // Nor does one that is closing, or one of which frames may pass unseen, owe the next heartbeat of its own.
        let is_peer_expected =
            !self.peer_fin_seen && self.closes.frames() == CloseFrames::None && self.is_peer_asking;
        Facts {
            policy: context.policy,
            evidence: &self.evidence,
            probing: &self.probing,
            ping: self.beats.oldest_unanswered().filter(|_| is_pong_expected),
            peer: if is_peer_expected { self.peer_beats.expected() } else { None },
            is_ping_waiting,
            preexisting: self.opened.preexisting,
            is_known_stale: self.is_stale,
            is_behind_hop: self.is_hop_named(context),
            window_opened_at: context.window_opened_at,
            now,
        }
    }

    /// Whether somebody says that whatever terminates TCP on the other end is not the peer: whoever deploys, or a header.
    fn is_hop_named(&self, context: &Context<'_>) -> bool {
        match context.deployment.peer_is_proxy {
            PeerIsProxy::Yes => true,
            PeerIsProxy::No => false,
            PeerIsProxy::Auto => {
                self.upgrade.as_ref().is_some_and(|upgrade| !upgrade.forwarding_headers.is_empty())
            }
        }
    }

    /// How far the evidence reaches. What lagging Pongs teach counts here and nowhere else: an application that is always slow
    /// looks the same, and must not be judged more strictly for it.
    pub(crate) fn scope(&self, context: &Context<'_>) -> EvidenceScope {
        let is_learned =
            context.deployment.peer_is_proxy == PeerIsProxy::Auto && self.pong_lag.is_of_a_proxy();
        if self.is_hop_named(context) || is_learned { EvidenceScope::NextHop } else { EvidenceScope::Peer }
    }

    pub(crate) fn missed(&self, at: Timestamp, closing: bool, context: &Context<'_>) -> Option<Missed> {
        if !self.is_websocket {
            return None;
        }
        if self.asking(context) == Some(Asking::Peer) {
            return self.missed_of_peer(at, closing, context);
        }
        self.beats.missed(at, closing, self.schedule(context), self.evidence.snapshot.as_ref())
    }

    fn missed_of_peer(&self, at: Timestamp, closing: bool, context: &Context<'_>) -> Option<Missed> {
        let last_at = self.peer_beats.last_at()?;
        let interval_ns = self.peer_interval_ns(context)?;
        let heard_at = self.evidence.inbound_at.map_or(last_at, |inbound| inbound.max(last_at));
        Some(Missed {
            count: intervals(last_at, at, closing, interval_ns),
            inferred: 0,
            unheard: Some(intervals(heard_at, at, closing, interval_ns)),
            on_tick: false,
        })
    }

    fn peer_interval_ns(&self, context: &Context<'_>) -> Option<u64> {
        let port_ns =
            context.schedule.and_then(|schedule| schedule.peers_interval_ns(self.peer_beats.profile()));
        self.peer_beats.interval_ns(port_ns)
    }

    /// What was learned about the port, as far as it speaks for this connection's heartbeat.
    fn schedule<'a>(&self, context: &Context<'a>) -> Option<&'a Schedule> {
        context.schedule.filter(|schedule| schedule.is_of(self.beats.profile()))
    }

    /// Who asks on this connection: the host, if it does and is answered, else the peer. `None` where nobody was seen to.
    fn asking(&self, context: &Context<'_>) -> Option<Asking> {
        let is_host = self.beats.source().is_some();
        if is_host && self.beats.is_answered(self.schedule(context)) {
            return Some(Asking::Host);
        }
        if self.peer_beats.source().is_some() {
            return Some(Asking::Peer);
        }
        is_host.then_some(Asking::Host)
    }

    /// Judges anew, and tells if the verdict changed, or whether a kill is justified.
    pub(crate) fn update_verdict(&mut self, context: &Context<'_>, outputs: &mut VecDeque<Output>) {
        if self.is_closing() {
            return;
        }
        let now = context.now;
        // Kept, so that a question between two records is answered by the same facts as the last output: what others teach
        // their common port meanwhile counts from the next record on.
        self.is_pong_visible = self.beats.is_pong_visible(self.schedule(context));
        self.is_peer_asking = self.asking(context) == Some(Asking::Peer);
        self.is_ping_waiting = self.missed(now, false, context).is_some_and(|missed| missed.inferred > 0);
        let judgement = self.facts(context, now, self.is_ping_waiting).judge();
        self.turns_at = judgement.turns_at;
        self.is_stale = judgement.is_stale;
        if (judgement.verdict, judgement.kill_justified) == (self.verdict, self.kill_justified) {
            return;
        }
        let change = VerdictChange {
            connection: self.opened.connection,
            at: now,
            from: self.verdict,
            to: judgement.verdict,
            rung: judgement.rung,
            kill_justified: judgement.kill_justified,
        };
        self.verdict = judgement.verdict;
        self.kill_justified = judgement.kill_justified;
        if self.history.len() >= VERDICT_HISTORY_MAX {
            self.history.remove(VERDICT_HISTORY_MAX / 2);
            self.history_dropped = self.history_dropped.saturating_add(1);
        }
        self.history.push(change.clone());
        outputs.push_back(Output::VerdictChanged(change));
    }

    pub(crate) fn heartbeat(
        &self,
        at: Timestamp,
        missed: Option<Missed>,
        context: &Context<'_>,
    ) -> Heartbeat {
        if self.asking(context) == Some(Asking::Peer) {
            return Heartbeat {
                source: self.peer_beats.source().unwrap_or(HeartbeatSource::None),
                profile: self.peer_beats.profile(),
                interval_ms: self.peer_interval_ns(context).map(rounded_ms),
                missed: missed.map(|missed| missed.count),
                last_ping_age_ms: self.peer_beats.last_at().map(|last| at.ms_since(last)),
                last_pong_age_ms: self.peer_beats.last_at().map(|last| at.ms_since(last)),
                ping_location: PingLocation::Unknown,
                ping_bytes_ahead: None,
                inferred: false,
            };
        }
        let schedule = self.schedule(context);
        let inferred = missed.is_some_and(|missed| missed.inferred > 0);
        let source = self.beats.source().or(inferred.then_some(HeartbeatSource::Wire));
        let Some(source) = source else {
            return Heartbeat {
                source: HeartbeatSource::None,
                profile: None,
                interval_ms: None,
                missed: None,
                last_ping_age_ms: None,
                last_pong_age_ms: None,
                ping_location: PingLocation::Unknown,
                ping_bytes_ahead: None,
                inferred: false,
            };
        };
        let (ping_location, ping_bytes_ahead) = self.beats.location(missed, self.evidence.snapshot.as_ref());
        Heartbeat {
            source,
            profile: self
                .beats
                .profile()
                .or(schedule.and_then(Schedule::profile))
                .filter(|_| source == HeartbeatSource::Wire),
            interval_ms: schedule.and_then(Schedule::interval_ns).map(rounded_ms),
            missed: missed.map(|missed| missed.count),
            last_ping_age_ms: self.beats.last_ping_at().map(|ping| at.ms_since(ping)),
            last_pong_age_ms: self.beats.last_pong_at().map(|pong| at.ms_since(pong)),
            ping_location,
            ping_bytes_ahead,
            inferred,
        }
    }

    pub(crate) fn assessed_with(
        &self,
        at: Timestamp,
        missed: Option<Missed>,
        judgement: Judgement,
        context: &Context<'_>,
    ) -> Assessed {
        let snapshot = self.evidence.snapshot.as_ref();
        let has_payload = snapshot.is_none_or(|socket| socket.bytes_received.is_none_or(|bytes| bytes > 0));
        let last_inbound = snapshot.and_then(|socket| socket.last_inbound_at).filter(|_| has_payload);
        let last_ack = snapshot.and_then(|socket| socket.last_ack_at);
        Assessed {
            verdict: judgement.verdict,
            rung: judgement.rung,
            kill_justified: judgement.kill_justified,
            scope: self.scope(context),
            heartbeat: self.heartbeat(at, missed, context),
            last_ack_age_ms: last_ack.map(|ack| at.ms_since(ack)),
            last_inbound_age_ms: last_inbound
                .max(self.evidence.inbound_at)
                .map(|inbound| at.ms_since(inbound)),
        }
    }

    pub(crate) fn assessed(&self, now: Timestamp, context: &Context<'_>) -> Assessed {
        match &self.phase {
            Phase::Open => {
                let missed = self.missed(now, false, context);
                let judgement = self.facts(context, now, self.is_ping_waiting).judge();
                self.assessed_with(now, missed, judgement, context)
            }
            Phase::Deciding(draft, _) => {
                Assessed { verdict: Verdict::Closed, rung: Rung::None, ..draft.assessed.clone() }
            }
            Phase::Closing(closing) => {
                Assessed { verdict: Verdict::Closed, rung: Rung::None, ..closing.draft.assessed.clone() }
            }
            Phase::Finished => {
                let judgement = Judgement {
                    verdict: Verdict::Closed,
                    rung: Rung::None,
                    kill_justified: false,
                    turns_at: None,
                    is_stale: false,
                };
                self.assessed_with(now, None, judgement, context)
            }
        }
    }

    pub(crate) fn draft(
        &self,
        at: Timestamp,
        snapshot: Option<Snapshot>,
        process: Option<Process>,
        context: &Context<'_>,
    ) -> Draft {
        let missed = self.missed(at, true, context);
        let is_ping_waiting = missed.is_some_and(|missed| missed.inferred > 0);
        let judgement = self.facts(context, at, is_ping_waiting).judge();
        let is_sight_complete = if self.is_websocket {
            self.beats.egress == Sight::Following
                && self.beats.ingress == Sight::Following
                && !self.is_record_lost
        } else {
            self.opened.frames_visible
                && !self.is_record_lost
                && (!self.opened.preexisting || self.beats.egress != Sight::Never)
        };
        let heard_at = self.evidence.heard_at().map_or(self.opened.at, |heard| heard.max(self.opened.at));
        let is_stopping = context.terminations.is_stopping(process.as_ref(), self.opened.at, at);
        Draft {
            at,
            snapshot,
            process,
            is_stopping,
            assessed: self.assessed_with(at, missed, judgement, context),
            missed,
            last_proof_of_life_at: heard_at.min(at.max(self.opened.at)),
            closes: self.closes.clone(),
            is_websocket: self.is_websocket,
            is_sight_complete,
            half_close: None,
            tolerance: self.schedule(context).and_then(Schedule::tolerance),
            reset_sent: self.own_reset_at.is_some_and(|reset| at.ms_since(reset) <= HOLD_MS),
        }
    }

    /// Close frames so far, for whoever lists connections.
    pub(crate) fn close_frames(&self) -> CloseFrames {
        self.closes.frames()
    }
}
