//! What the evidence adds up to.
//!
//! Absence is only ever judged up to the last reading of the socket, never up to now: what was not looked at is not
//! absent. And it is judged from the start of the current *window* at the earliest, which a late tick moves.
//!
//! Whether a kill is justified is a matter of thresholds, and a threshold has a moment. There a reading speaks for one
//! sample interval more, until the next one is due, so that the moment is met exactly and not only at the next reading.

use crate::evidence::{Evidence, is_outstanding, window_limits};
use crate::heartbeat::Ping;
use crate::loss::Doubt;
use crate::peer_heartbeat::Expected;
use crate::probing::Probing;
use crate::{Policy, Rung, Snapshot, Timestamp, Verdict};

/// The kernel's timer wheel rounds a timeout up, by at most an eighth (kernel/time/timer.c). On a LAN and at 200 ms of
/// round-trip time the third timeout of a segment was measured at 10 to 35 ms late.
const TIMER_SLACK_MS: u64 = 40;
const TIMER_SLACK_MAX_MS: u64 = 240;
/// Where a path was losing segments by chance before, so many timeouts more must go unanswered: with 15 % lost each way,
/// three round trips in a row fail once in fifty times, five once in six hundred.
const LOSSY_RETRANSMITS: u8 = 2;
/// Where something was lost in the last minute, and it is not known how often that happens.
const DOUBTFUL_RETRANSMITS: u8 = 1;

/// What was decided about one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    pub(crate) rung: Rung,
    pub(crate) kill_justified: bool,
    /// When `kill_justified` may turn by time alone; `None` where only another reading can turn it.
    pub(crate) turns_at: Option<Timestamp>,
    /// The last reading is too old to judge by.
    pub(crate) is_stale: bool,
}

/// Everything that a verdict depends on.
pub(crate) struct Facts<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) evidence: &'a Evidence,
    /// The own window probes.
    pub(crate) probing: &'a Probing,
    /// The oldest Ping on the wire that nothing answered, where a Pong can be expected and would be seen.
    pub(crate) ping: Option<&'a Ping>,
    /// What is expected of a peer that asks, where the host does not.
    pub(crate) peer: Option<Expected>,
    /// A Ping was due and is not on the wire.
    pub(crate) is_ping_waiting: bool,
    /// Older than the sidecar.
    pub(crate) preexisting: bool,
    /// The last reading was too old to judge by already, and nothing was seen since: a new window makes it no younger.
    pub(crate) is_known_stale: bool,
    /// Whatever terminates TCP on the other end is known not to be the peer: ACKs speak for the next hop.
    pub(crate) is_behind_hop: bool,
    /// Start of the current window for everything that is absent.
    pub(crate) window_opened_at: Timestamp,
    pub(crate) now: Timestamp,
}

/// How long the last `count` retransmission timeouts took, if the one that runs now takes `rto_ms`.
fn unanswered_ms(rto_ms: u32, count: u8) -> u64 {
    u64::from(rto_ms - rto_ms.checked_shr(u32::from(count)).unwrap_or(0))
}

impl Facts<'_> {
    /// Something is expected from the peer, so it is worth while to look at the socket.
    pub(crate) fn is_waiting(&self) -> bool {
        self.ping.is_some() || self.evidence.queued_since.is_some() || self.is_peer_late()
    }

    /// Since when nothing came from a peer that asks.
    fn peer_heard_at(&self, peer: Expected) -> Timestamp {
        // Any payload will do; and behind the window of a host that does not read nothing can be sent.
        self.absent_since(self.evidence.inbound_at.max(self.evidence.unread_left_at()), peer.heard_at)
    }

    /// When a peer that asks is late, unless something comes from it; from then on the socket is looked at.
    pub(crate) fn peer_late_at(&self) -> Option<Timestamp> {
        self.peer.map(|peer| self.peer_heard_at(peer).plus_ns(peer.within_ns))
    }

    fn is_peer_late(&self) -> bool {
        self.peer_late_at().is_some_and(|at| self.now >= at)
    }

    /// When a look at the socket is worth while because the retransmission timeout that makes a silent peer unreachable
    /// should be over; `None` where the next one does not decide.
    ///
    /// The kernel counts from its last transmission (`lsndtime`, which `tcp_event_data_sent()` renews with each
    /// retransmission), so the moment is known, and only a look at it finds the verdict without waiting for the next
    /// turn of a grid that knows nothing of it. Where a lossy path asks for more of them, each from the one that decides on a
    /// clean path on: an outage of all peers is told by that one.
    pub(crate) fn decides_at(&self) -> Option<Timestamp> {
        let snapshot = self.evidence.snapshot.as_ref()?;
        let count = self.evidence.retransmits()?;
        let first_missing = u32::from(self.policy.unreachable_retransmits.max(1) - 1);
        if is_outstanding(snapshot) != Some(true) || count < first_missing {
            return None;
        }
        let silent_since = self.absent_since(self.evidence.heard_at(), self.evidence.queued_since?);
        if count >= u32::from(self.enough_retransmits(silent_since, snapshot)) {
            return None;
        }
        let due = snapshot.last_send_at?.plus_ms(u64::from(snapshot.rto_ms?));
        let first = due.plus_ms(TIMER_SLACK_MS);
        // The timer was later than usual: again, and then it is left to the grid.
        let again = snapshot.at.plus_ms(TIMER_SLACK_MS);
        (again <= due.plus_ms(TIMER_SLACK_MAX_MS)).then_some(first.max(again))
    }

    /// When the last look at the socket becomes too old to judge by; `None` where nothing is expected.
    pub(crate) fn stale_at(&self) -> Option<Timestamp> {
        let late_at = self.peer_late_at().filter(|at| self.now >= *at);
        let ping_at = self.ping.map(|ping| ping.expected_from);
        let since = [ping_at, self.evidence.queued_since, late_at].into_iter().flatten().min()?;
        let seen = self.evidence.snapshot.as_ref().map_or(since, |snapshot| snapshot.at.max(since));
        Some(
            seen.max(self.window_opened_at)
                .plus_ms(self.policy.fresh_ms.saturating_add(self.policy.late_tick_ms).saturating_add(1)),
        )
    }

    pub(crate) fn judge(&self) -> Judgement {
        if self.stale_at().is_some_and(|at| self.is_known_stale || self.now >= at) {
            return Judgement { is_stale: true, ..self.unknown() };
        }
        let Some(snapshot) = self.evidence.snapshot.as_ref() else {
            return if self.preexisting { self.unknown() } else { self.alive() };
        };
        if let Some(since) = self.unanswered_since(snapshot) {
            let justified_at = since.plus_ms(self.bound_ms(self.policy.unreachable_after_ms, since));
            return Judgement {
                kill_justified: self.counted_until(snapshot) >= justified_at,
                turns_at: self.next_turn(&[justified_at], snapshot),
                ..self.plain(Verdict::Unreachable, Rung::None)
            };
        }
        if let Some(acked_at) = self.ping.and_then(Ping::clock_at)
            && self.absent_ms(Some(acked_at), acked_at, snapshot) > self.policy.pong_budget_ms
        {
            return self.judge_overdue_pong(acked_at, snapshot);
        }
        self.judge_progress(snapshot)
    }

    /// How long absence since `since` must last to justify a kill. What the path was before counts: it does not become
    /// another while nothing is heard.
    fn bound_ms(&self, clean_ms: u64, since: Timestamp) -> u64 {
        if self.evidence.is_lossy(since) { clean_ms.max(self.policy.lossy_after_ms) } else { clean_ms }
    }

    /// How many retransmission timeouts in a row must go unanswered in a silence since `since`, as of the last reading. As with
    /// [`Self::bound_ms`], what the path was before counts. It never keeps a kill from being justified in its time.
    fn enough_retransmits(&self, since: Timestamp, snapshot: &Snapshot) -> u8 {
        let clean = self.policy.unreachable_retransmits.max(1);
        if snapshot.at.ms_since(since) >= self.bound_ms(self.policy.unreachable_after_ms, since) {
            return clean;
        }
        clean.saturating_add(match self.evidence.doubt(since) {
            Doubt::None => 0,
            Doubt::Some => DOUBTFUL_RETRANSMITS,
            Doubt::Strong => LOSSY_RETRANSMITS,
        })
    }

    /// Since when something is absent: since it was seen, or since it could be expected (`from`), or since the window was
    /// opened.
    fn absent_since(&self, seen: Option<Timestamp>, from: Timestamp) -> Timestamp {
        seen.map_or(from, |at| at.max(from)).max(self.window_opened_at)
    }

    /// Milliseconds without something, as of the last reading.
    fn absent_ms(&self, seen: Option<Timestamp>, from: Timestamp, snapshot: &Snapshot) -> u64 {
        snapshot.at.ms_since(self.absent_since(seen, from))
    }

    /// The last moment that a reading speaks for: when the next one is due.
    fn horizon(&self, snapshot: &Snapshot) -> Timestamp {
        snapshot.at.plus_ms(self.policy.sample_interval_ms)
    }

    /// The moment up to which absence counts towards a kill.
    fn counted_until(&self, snapshot: &Snapshot) -> Timestamp {
        self.now.min(self.horizon(snapshot)).max(snapshot.at)
    }

    /// The next of these moments that the reading speaks for.
    fn next_turn(&self, moments: &[Timestamp], snapshot: &Snapshot) -> Option<Timestamp> {
        let (counted, horizon) = (self.counted_until(snapshot), self.horizon(snapshot));
        moments.iter().copied().filter(|at| *at > counted && *at <= horizon).min()
    }

    /// Whether a rung's evidence is fresh.
    fn is_fresh(&self, seen: Option<Timestamp>, snapshot: &Snapshot) -> bool {
        seen.is_some_and(|at| snapshot.at.ms_since(at.max(self.window_opened_at)) <= self.policy.fresh_ms)
    }

    /// Since when nothing at all came although it was asked for again and again; `None` where that is not so.
    ///
    /// A back-off or one window probe in flight proves nothing: both are seen with a live peer whose window is
    /// closed. Retransmissions count only if nothing came since the first of them, or for as long as the last timeouts
    /// took that must go unanswered. They doubled up to the one that runs now, so the last three took 1/2, 1/4 and 1/8 of it.
    /// (The first retransmission may be older than the last segment: a loss that the peer itself asked to be repaired, just
    /// before it was lost itself.)
    fn unanswered_since(&self, snapshot: &Snapshot) -> Option<Timestamp> {
        if is_outstanding(snapshot) != Some(true) {
            return None;
        }
        // Without the date of the last segment its absence is not known.
        snapshot.last_ack_at?;
        let heard_at = self.evidence.heard_at();
        let silent_since = self.absent_since(heard_at, self.evidence.queued_since?);
        let enough = self.enough_retransmits(silent_since, snapshot);
        let silence_ms = snapshot.at.ms_since(silent_since);
        let is_retransmitting = self.evidence.retransmits().is_some_and(|count| count >= u32::from(enough))
            && (matches!((heard_at, snapshot.retransmitting_since), (Some(heard), Some(since)) if heard < since)
                || silence_ms >= snapshot.rto_ms.map_or(0, |rto_ms| unanswered_ms(rto_ms, enough)));
        // `icsk_probes_out` is set back by any ACK (`tcp_ack()`): so many of them are unanswered in a row.
        let is_probing = snapshot.probes_out.is_some_and(|count| count >= enough);
        let is_unanswered = is_retransmitting || is_probing || self.probing.is_unanswered(snapshot, heard_at);
        (is_unanswered && silence_ms >= self.policy.unreachable_floor_ms).then_some(silent_since)
    }

    /// Whether everything that the peer's kernel was asked so far is answered, or the question is young.
    fn is_hop_answering(&self, snapshot: &Snapshot) -> bool {
        self.is_fresh(self.evidence.heard_at(), snapshot)
            || (self.evidence.retransmits() == Some(0) && snapshot.probes_out.is_some_and(|count| count <= 1))
    }

    /// The Ping was acknowledged longer than a Pong's budget ago.
    fn judge_overdue_pong(&self, acked_at: Timestamp, snapshot: &Snapshot) -> Judgement {
        let inbound_absent_ms = self.absent_ms(self.evidence.inbound_at, acked_at, snapshot);
        if inbound_absent_ms <= self.policy.pong_budget_ms {
            return self.congested(Rung::Inbound, snapshot);
        }
        // Whoever reads on gets to the Ping in time.
        if self.absent_ms(self.evidence.drain_at, acked_at, snapshot) <= self.policy.pong_budget_ms {
            return self.congested(Rung::Drain, snapshot);
        }
        // A next hop that takes bytes may pass them on; for how long its word counts for the peer is bounded. (That it *reads
        // on* behind a window that was limiting it says more: a hop whose peer is gone has nowhere to put them.)
        let is_hop_spent = self.is_behind_hop && inbound_absent_ms > self.policy.silent_after_ms;
        let (Some(limits), Some(unsent)) = (window_limits(snapshot), snapshot.unsent_bytes) else {
            return self.unknown();
        };
        if limits {
            return if self.is_hop_answering(snapshot) {
                self.stalled(acked_at, snapshot)
            } else {
                self.unknown()
            };
        }
        if unsent > 0 && !is_hop_spent && self.is_fresh(self.evidence.ack_at, snapshot) {
            return self.congested(Rung::Ack, snapshot);
        }
        if (unsent > 0 && !is_hop_spent) || !self.is_hop_answering(snapshot) {
            let out_of_order = self.answered_out_of_order(snapshot).filter(|_| !is_hop_spent);
            return out_of_order.unwrap_or_else(|| self.unknown());
        }
        if self.evidence.is_behind() && !is_hop_spent {
            // The Ping lies behind bytes that the application has not read yet.
            return self.stalled(acked_at, snapshot);
        }
        // A host that does not read closes its own window, and behind it the peer can write nothing, a Pong neither: its
        // time begins when the host reads again.
        let unread_left_at = self.evidence.unread_left_at();
        if self.absent_ms(unread_left_at, acked_at, snapshot) <= self.policy.pong_budget_ms {
            return self.unknown();
        }
        let seen = self.evidence.inbound_at.max(self.evidence.drain_at).max(unread_left_at);
        let since = self.absent_since(seen, acked_at);
        let justified_at = since.plus_ms(self.bound_ms(self.policy.silent_after_ms, since));
        Judgement {
            kill_justified: self.counted_until(snapshot) >= justified_at,
            turns_at: self.next_turn(&[justified_at], snapshot),
            ..self.plain(Verdict::Silent, Rung::Ack)
        }
    }

    /// No Pong is overdue: does what is queued get on?
    fn judge_progress(&self, snapshot: &Snapshot) -> Judgement {
        // What gets on to a next hop does not excuse a peer that asks and is late.
        if self.is_behind_hop
            && let Some(judgement) = self.judge_asking_peer(snapshot)
        {
            return judgement;
        }
        let Some(since) = self.evidence.queued_since.filter(|_| is_outstanding(snapshot) == Some(true))
        else {
            if is_outstanding(snapshot) == Some(false)
                && let Some(judgement) = self.judge_asking_peer(snapshot)
            {
                return judgement;
            }
            // Nothing is queued, or nothing says whether something is.
            let is_blind =
                self.ping.is_some_and(|ping| ping.acked_at.is_none()) && snapshot.snd_una.is_none();
            let is_old =
                self.ping.is_some_and(|ping| snapshot.at.ms_since(ping.at) > self.policy.pong_budget_ms);
            return if is_blind && is_old { self.unknown() } else { self.alive() };
        };
        // Data in flight for some round trips is no backlog. Bounded, because a queue on a slow link is part of the
        // round-trip time that it makes: 600 kB at 50 kbit/s would be called no backlog for a minute.
        let srtt_ms = snapshot.srtt_us.map_or(0, |us| u64::from(us) / 1_000);
        let patience_ms = (self.policy.fresh_ms / 4).max(srtt_ms.saturating_mul(3)).min(self.policy.fresh_ms);
        if !self.is_ping_waiting && snapshot.at.ms_since(since) < patience_ms {
            return self.judge_asking_peer(snapshot).unwrap_or_else(|| self.alive());
        }
        for (rung, seen) in self.evidence.dates() {
            if rung != Rung::Hop && self.is_fresh(seen, snapshot) {
                return self.congested(rung, snapshot);
            }
        }
        let seen = self
            .evidence
            .dates()
            .into_iter()
            .filter(|(rung, _)| *rung != Rung::Hop)
            .filter_map(|(_, at)| at)
            .max();
        if self.absent_ms(seen, since, snapshot) <= self.policy.fresh_ms {
            // It has not waited long enough to say that nothing moves.
            return self.alive();
        }
        match window_limits(snapshot) {
            Some(true) if self.is_hop_answering(snapshot) => self.stalled(since, snapshot),
            _ => self.answered_out_of_order(snapshot).unwrap_or_else(|| self.unknown()),
        }
    }

    /// The peer asks, everything that was sent to it is acknowledged, or is about to be, and it says nothing any more:
    /// half-open behind a middle box, or a hung application. `None` where it is in time.
    ///
    /// Unlike a Pong, the next heartbeat is owed to nobody. So it is judged only after the peer has asked for a while
    /// (`peer_heartbeat`), only when twice its longest recent interval and a Pong's budget on top have passed since *anything*
    /// came from it, and a kill is justified `silent_after_ms` later. A peer that may have a backlog before it is busy, and
    /// gets `stalled_after_ms`.
    fn judge_asking_peer(&self, snapshot: &Snapshot) -> Option<Judgement> {
        let peer = self.peer?;
        let since = self.peer_heard_at(peer);
        let overdue_at = since.plus_ns(peer.within_ns).plus_ms(self.policy.pong_budget_ms);
        if snapshot.at <= overdue_at || !self.is_hop_answering(snapshot) {
            return None;
        }
        let Some(is_busy) = self.evidence.may_lie_unread(snapshot, peer.acked) else {
            return Some(self.unknown());
        };
        let is_since = |date: Option<Timestamp>| date.is_some_and(|at| at > since);
        let rung = match (is_since(self.evidence.ack_at), is_since(self.evidence.hop_at)) {
            (true, _) => Rung::Ack,
            (false, true) => Rung::Hop,
            (false, false) => Rung::None,
        };
        let hop_spent_at = overdue_at.plus_ms(self.policy.silent_after_ms);
        let (verdict, after_ms) = if is_busy && !(self.is_behind_hop && snapshot.at > hop_spent_at) {
            (Verdict::Stalled, self.policy.stalled_after_ms)
        } else {
            (Verdict::Silent, self.bound_ms(self.policy.silent_after_ms, since))
        };
        let justified_at = overdue_at.plus_ms(after_ms);
        Some(Judgement {
            kill_justified: self.counted_until(snapshot) >= justified_at,
            turns_at: self.next_turn(&[justified_at], snapshot),
            ..self.plain(verdict, rung)
        })
    }

    /// Segments are in flight and segments without payload keep coming: those answer what arrives (RFC 5681 section 4.2),
    /// while a hole before it is being repaired. It gets on, and how far is not known: that justifies no kill.
    fn answered_out_of_order(&self, snapshot: &Snapshot) -> Option<Judgement> {
        let is_in_flight = snapshot.packets_out.is_some_and(|count| count > 0);
        (is_in_flight && self.is_fresh(self.evidence.heard_at(), snapshot))
            .then(|| self.plain(Verdict::Congested, Rung::Hop))
    }

    /// A verdict that justifies nothing.
    fn plain(&self, verdict: Verdict, rung: Rung) -> Judgement {
        Judgement { verdict, rung, kill_justified: false, turns_at: None, is_stale: false }
    }

    fn unknown(&self) -> Judgement {
        self.plain(Verdict::Unknown, Rung::None)
    }

    /// Stands on the strongest rung among the latest evidence.
    fn alive(&self) -> Judgement {
        let dates = self.evidence.dates();
        let latest = dates.iter().filter_map(|(_, at)| *at).max();
        let rung = latest.and_then(|latest| {
            let recent = latest.minus_ms(self.policy.fresh_ms);
            dates.iter().find(|(_, at)| at.is_some_and(|at| at >= recent)).map(|(rung, _)| *rung)
        });
        self.plain(Verdict::Alive, rung.unwrap_or(Rung::None))
    }

    fn congested(&self, rung: Rung, snapshot: &Snapshot) -> Judgement {
        let trickles_at = self.trickles_at();
        Judgement {
            kill_justified: trickles_at.is_some_and(|at| self.counted_until(snapshot) >= at),
            turns_at: self.next_turn(trickles_at.as_slice(), snapshot),
            ..self.plain(Verdict::Congested, rung)
        }
    }

    /// The application does not read; at the earliest since `waiting_since`, or since something is queued.
    fn stalled(&self, waiting_since: Timestamp, snapshot: &Snapshot) -> Judgement {
        let from = self.evidence.queued_since.map_or(waiting_since, |queued| queued.min(waiting_since));
        let since = self.absent_since(self.evidence.application_at(), from);
        let counted = self.counted_until(snapshot);
        let justified_at = since.plus_ms(self.policy.stalled_after_ms);
        let trickles_at = self.trickles_at();
        // Between two drops of a trickle the verdict is stalled; it must not start the clock anew each time.
        let dry_at = since.plus_ms((self.policy.progress_window_ms / 2).saturating_add(1));
        let is_dripping = self.evidence.has_unmarked_progress()
            && trickles_at.is_some_and(|at| counted >= at)
            && counted < dry_at;
        Judgement {
            kill_justified: counted >= justified_at || is_dripping,
            turns_at: self.next_turn(&[justified_at, dry_at, trickles_at.unwrap_or(justified_at)], snapshot),
            ..self.plain(Verdict::Stalled, Rung::Hop)
        }
    }

    /// When the peer will have made less than `min_progress_bytes` in a whole `progress_window` during which data waited.
    fn trickles_at(&self) -> Option<Timestamp> {
        let since = self.absent_since(self.evidence.progress_mark_at, self.evidence.queued_since?);
        Some(since.plus_ms(self.policy.progress_window_ms))
    }
}
