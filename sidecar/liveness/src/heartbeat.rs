//! The heartbeat of one connection: which Pings are unanswered, where they are, and how many the host has missed.
//!
//! RFC 6455 section 5.5.3: a Pong repeats its Ping's application data, and an endpoint may answer only the most
//! recent Ping. So a Pong answers the latest Ping with the same data, and all earlier ones with it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::schedule::{Schedule, Ticks};
use crate::{Frame, HeartbeatAnswered, HeartbeatSource, PingLocation, Seq, Snapshot, Timestamp};

/// Pings that are remembered. The oldest unanswered one is always among them.
const PINGS_MAX: usize = 16;
/// Pongs that are remembered, to tell which of them the host has read.
const PONGS_MAX: usize = 8;

/// A tick that is estimated to lie within this part of an interval after a connection's start was before it.
const JUST_MISSED_DIVISOR: u64 = 50;

/// Whether the frames of one direction are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Nothing was ever seen: no WebSocket, or older than the sidecar.
    #[default]
    Never,
    /// Every control frame is seen.
    Following,
    /// The wire parser lost its place.
    Lost,
    /// Records were dropped on their way: what they said is unknown, and so is whether the parser has its place.
    Dropped,
}

/// A Ping that passed.
#[derive(Clone, Debug)]
pub(crate) struct Ping {
    pub(crate) at: Timestamp,
    pub(crate) seq_start: Option<Seq>,
    pub(crate) seq_end: Option<Seq>,
    payload: Vec<u8>,
    /// When `snd_una` was seen to have passed it: the Pong's clock.
    pub(crate) acked_at: Option<Timestamp>,
    answered: bool,
}

/// A Pong that passed.
#[derive(Clone, Copy, Debug)]
struct Pong {
    at: Timestamp,
    seq_end: Option<Seq>,
    ping_at: Option<Timestamp>,
}

/// How many Pings the host has missed, as the host would count them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missed {
    /// Pings since the last Pong that the host has read.
    pub(crate) count: u32,
    /// How many of them are inferred from the port's schedule.
    pub(crate) inferred: u32,
    /// The moment that was asked about is a tick of the watchdog, and the watchdog sent no Ping at it.
    pub(crate) on_tick: bool,
}

/// The heartbeat of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heartbeat {
    pings: VecDeque<Ping>,
    /// Unanswered Pings that found no room.
    forgotten: u32,
    pongs: VecDeque<Pong>,
    /// The last Pong that found no room: it is older than all that are kept.
    older_pong: Option<Pong>,
    last_ping_at: Option<Timestamp>,
    pub(crate) egress: Sight,
    pub(crate) ingress: Sight,
    source: Option<HeartbeatSource>,
    /// Where counting starts while there was no Pong: the upgrade. `None` where the start was not seen.
    pub(crate) start: Option<Timestamp>,
}

impl Heartbeat {
    /// A heartbeat that is counted from `start`; `None` where the start was not seen.
    pub(crate) fn new(start: Option<Timestamp>) -> Self {
        Self { start, ..Self::default() }
    }

    /// A Ping went out. Gives the Ping before it, for the schedule, where none can have passed unseen between.
    pub(crate) fn on_ping(&mut self, frame: Frame) -> Option<Timestamp> {
        let earlier = self.last_ping_at.replace(frame.at);
        self.on_source(&frame);
        if self.pings.len() == PINGS_MAX {
            // Index 0 holds the oldest unanswered Ping if any is unanswered.
            let index = usize::from(self.pings.front().is_some_and(|ping| !ping.answered));
            if self.pings.remove(index).is_some_and(|ping| !ping.answered) {
                self.forgotten = self.forgotten.saturating_add(1);
            }
        }
        self.pings.push_back(Ping {
            at: frame.at,
            seq_start: frame.seq_start,
            seq_end: frame.seq_end,
            payload: frame.payload,
            acked_at: None,
            answered: false,
        });
        earlier
    }

    /// A Pong came in. Gives what it answers, if a Ping was outstanding; an unsolicited one answers none.
    pub(crate) fn on_pong(&mut self, frame: &Frame) -> Option<HeartbeatAnswered> {
        self.on_source(frame);
        let answered = self
            .pings
            .iter()
            .rposition(|ping| ping.payload == frame.payload && ping.at <= frame.at && !ping.answered);
        let ping = answered.and_then(|index| self.pings.get(index));
        let ping_at = ping.map(|ping| ping.at);
        let told = ping.map(|ping| HeartbeatAnswered {
            connection: frame.connection,
            at: frame.at,
            profile: frame.profile,
            ping_to_ack_us: ping.acked_at.map(|acked| acked.ns_since(ping.at) / 1_000),
            ack_to_pong_us: ping.acked_at.map(|acked| frame.at.ns_since(acked) / 1_000),
        });
        if let Some(index) = answered {
            self.forgotten = 0;
            for ping in self.pings.iter_mut().take(index + 1) {
                ping.answered = true;
            }
        }
        if self.pongs.len() == PONGS_MAX {
            self.older_pong = self.pongs.pop_front();
        }
        self.pongs.push_back(Pong { at: frame.at, seq_end: frame.seq_end, ping_at });
        told
    }

    fn on_source(&mut self, frame: &Frame) {
        let source =
            if frame.seq_end.is_some() { HeartbeatSource::Wire } else { HeartbeatSource::Application };
        if self.source != Some(HeartbeatSource::Wire) {
            self.source = Some(source);
        }
    }

    /// A reading of the socket: `snd_una` may have passed Pings.
    pub(crate) fn on_snapshot(&mut self, snapshot: &Snapshot) {
        let Some(una) = snapshot.snd_una else { return };
        for ping in self.pings.iter_mut().filter(|ping| ping.acked_at.is_none() && ping.at <= snapshot.at) {
            // A Ping that the application reported has no position; everything written by now is a safe bound.
            if ping.seq_end.is_none() {
                ping.seq_end = snapshot.write_seq;
            }
            if ping.seq_end.is_some_and(|end| una.reached(end)) {
                let at = snapshot.last_ack_at.map_or(snapshot.at, |ack| ack.min(snapshot.at));
                ping.acked_at = Some(at.max(ping.at));
            }
        }
    }

    /// Frames that the host sent may have passed unseen.
    pub(crate) fn on_egress_lost(&mut self, sight: Sight) {
        self.egress = sight;
        self.last_ping_at = None;
    }

    /// Frames that the peer sent may have passed unseen: any Ping may have been answered, and the host's count may
    /// have started anew.
    pub(crate) fn on_ingress_lost(&mut self, sight: Sight) {
        self.ingress = sight;
        self.pings.clear();
        self.forgotten = 0;
        self.start = None;
        self.pongs.clear();
        self.older_pong = None;
    }

    /// The oldest Ping on the wire that nothing answered.
    pub(crate) fn oldest_unanswered(&self) -> Option<&Ping> {
        self.pings.iter().find(|ping| !ping.answered)
    }

    /// When the last Pong passed.
    pub(crate) fn last_pong_at(&self) -> Option<Timestamp> {
        self.pongs.back().map(|pong| pong.at)
    }

    /// Where heartbeats are known from.
    pub(crate) fn source(&self) -> Option<HeartbeatSource> {
        self.source
    }

    /// Whether the last Pong lies unread in the host's receive queue: the host is late, not the peer.
    pub(crate) fn is_pong_unread(&self, snapshot: Option<&Snapshot>) -> bool {
        self.pongs.back().is_some_and(|pong| !is_read(pong, snapshot))
    }

    /// Where the host's count starts: the last Pong that it has read, or the upgrade.
    fn base(&self, snapshot: Option<&Snapshot>) -> Option<(Timestamp, Option<Timestamp>)> {
        self.pongs
            .iter()
            .rev()
            .find(|pong| is_read(pong, snapshot))
            .or(self.older_pong.as_ref())
            .map(|pong| (pong.at, pong.ping_at))
            .or_else(|| self.start.map(|at| (at, None)))
    }

    /// Pings that the host has missed at `at`. `closing` asks about a close: the tick that it belongs to, if any,
    /// sent no Ping. `None` where it cannot be known.
    pub(crate) fn missed(
        &self,
        at: Timestamp,
        closing: bool,
        schedule: Option<&Schedule>,
        snapshot: Option<&Snapshot>,
    ) -> Option<Missed> {
        if self.ingress != Sight::Following && self.source != Some(HeartbeatSource::Application) {
            return None;
        }
        if self.egress == Sight::Dropped {
            return None;
        }
        let (base_at, base_ping_at) = self.base(snapshot)?;
        let on_wire = self.pings.iter().filter(|ping| ping.at > base_at && ping.at <= at).count();
        let on_wire = u32::try_from(on_wire).unwrap_or(u32::MAX).saturating_add(self.forgotten);
        let Some(interval_ns) = schedule.and_then(Schedule::interval_ns) else {
            // Without a schedule, Pings that wait behind unsent data cannot be counted.
            let is_hidden = snapshot.and_then(|latest| latest.unsent_bytes).is_some_and(|bytes| bytes > 0);
            let is_counted =
                self.egress == Sight::Following || self.source == Some(HeartbeatSource::Application);
            return (is_counted && (!is_hidden || on_wire >= 2)).then_some(Missed {
                count: on_wire,
                inferred: 0,
                on_tick: false,
            });
        };
        let (ticks, tick) = self.beat(at, closing, interval_ns, base_at, schedule);
        // A watchdog that kills at a tick sends no Ping at it.
        let pinged = |tick: Timestamp| {
            let early = Timestamp::from_ns(tick.as_ns().saturating_sub(interval_ns / 4));
            self.last_ping_at.is_some_and(|ping| ping >= early)
        };
        let tick = tick.filter(|tick| !pinged(*tick));
        // Pings can be inferred only where they may be waiting, or where own Pings are not seen.
        let waiting = snapshot.and_then(|latest| latest.send_queue_bytes).is_some_and(|bytes| bytes > 0);
        let mut count = on_wire;
        if waiting || self.egress != Sight::Following {
            // The tick whose Ping the last Pong answered is not counted again, however the beat is estimated. Nor is one
            // that a connection just missed: the beat is known from Pings, which leave a little after their tick.
            let after = match base_ping_at {
                Some(ping) => base_at.max(plus_ns(ping, interval_ns / 2)),
                None => plus_ns(base_at, interval_ns / JUST_MISSED_DIVISOR),
            };
            let before = match tick {
                Some(tick) => tick,
                None if closing => at,
                None => Timestamp::from_ns(at.as_ns().saturating_sub(ticks.lateness_ns())),
            };
            count = count.max(ticks.between(after, before));
        }
        Some(Missed { count, inferred: count - on_wire, on_tick: tick.is_some() })
    }

    /// The beat that fits best, and the tick that `at` belongs to if a close is asked about.
    fn beat(
        &self,
        at: Timestamp,
        closing: bool,
        interval_ns: u64,
        base_at: Timestamp,
        schedule: Option<&Schedule>,
    ) -> (Ticks, Option<Timestamp>) {
        let port = schedule.and_then(|schedule| schedule.beat(at));
        let own = self.last_ping_at.map(|phase| Ticks { phase, interval_ns });
        // Without any phase: a timer of its own, started with the connection or at its last Pong.
        let start = Some(Ticks { phase: base_at, interval_ns });
        let candidates = match (port, own) {
            (Some((shared, true)), _) => [Some(shared), None],
            (_, Some(own)) => [Some(own), start],
            (Some((unshared, false)), None) => [Some(unshared), start],
            (None, None) => [start, None],
        };
        let best = candidates.iter().copied().flatten();
        if closing && let Some(found) = best.clone().find_map(|ticks| Some((ticks, Some(ticks.tick_of(at)?))))
        {
            return found;
        }
        (best.into_iter().next().unwrap_or(Ticks { phase: base_at, interval_ns }), None)
    }

    /// Where the oldest unanswered Ping is, and how many unacknowledged bytes stand before it.
    ///
    /// For a Ping that is not on the wire the send queue is a lower bound: what the host holds back in user space
    /// cannot be seen.
    pub(crate) fn location(
        &self,
        missed: Option<Missed>,
        snapshot: Option<&Snapshot>,
    ) -> (PingLocation, Option<u64>) {
        let una = snapshot.and_then(|latest| latest.snd_una);
        if self.is_pong_unread(snapshot) {
            return (PingLocation::PongUnread, Some(0));
        }
        if let Some(ping) = self.oldest_unanswered() {
            let is_acked = ping.acked_at.is_some()
                || matches!((una, ping.seq_end), (Some(una), Some(end)) if una.reached(end));
            if is_acked {
                return (PingLocation::Acked, Some(0));
            }
            return match (ping.seq_start, una) {
                (Some(start), una) => {
                    (PingLocation::InFlight, una.map(|una| u64::from(start.bytes_since(una))))
                }
                (None, _) => (PingLocation::Unknown, None),
            };
        }
        if missed.is_some_and(|missed| missed.inferred > 0) {
            let queue = snapshot.and_then(|latest| latest.send_queue_bytes).map(u64::from);
            return (PingLocation::NotSent, queue);
        }
        (PingLocation::Unknown, None)
    }
}

fn plus_ns(at: Timestamp, ns: u64) -> Timestamp {
    Timestamp::from_ns(at.as_ns().saturating_add(ns))
}

/// Whether the host has read a Pong. Where nothing shows it in the receive queue, it has.
fn is_read(pong: &Pong, snapshot: Option<&Snapshot>) -> bool {
    let Some(latest) = snapshot.filter(|latest| latest.at >= pong.at) else { return true };
    match (pong.seq_end, latest.rcv_nxt, latest.copied_seq) {
        // The wire is seen before TCP has it: only what was received can lie unread.
        (Some(end), Some(received), Some(copied)) => copied.reached(end) || !received.reached(end),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{Heartbeat, Sight};
    use crate::schedule::Schedule;
    use crate::{ConnectionId, Direction, Frame, FrameKind, HeartbeatProfile, Seq, Timestamp};

    fn frame(at_ms: u64, direction: Direction, kind: FrameKind, payload: &[u8]) -> Frame {
        Frame {
            connection: ConnectionId(1),
            at: Timestamp::from_ms(at_ms),
            direction,
            kind,
            profile: HeartbeatProfile::Rfc6455,
            seq_start: Some(Seq(0)),
            seq_end: Some(Seq(2)),
            payload: payload.to_vec(),
            close_code: None,
            close_reason: None,
        }
    }

    fn heartbeat() -> Heartbeat {
        let mut heartbeat = Heartbeat::new(Some(Timestamp::from_ms(500)));
        heartbeat.egress = Sight::Following;
        heartbeat.ingress = Sight::Following;
        heartbeat
    }

    #[test]
    fn tick_whose_ping_was_answered_is_not_counted_again() {
        // The port's beat is known from a sibling whose Ping left 3 ms after ours, which was answered within 1 ms.
        let mut schedule = Schedule::default();
        for (at, earlier) in [(3, None), (2_003, Some(3)), (4_003, Some(2_003))] {
            schedule.on_ping(ConnectionId(2), Timestamp::from_ms(at), earlier.map(Timestamp::from_ms));
        }
        let mut heartbeat = heartbeat();
        heartbeat.egress = Sight::Lost;
        heartbeat.on_ping(frame(4_000, Direction::Egress, FrameKind::Ping, b""));
        heartbeat.on_pong(&frame(4_001, Direction::Ingress, FrameKind::Pong, b""));
        schedule.on_ping(ConnectionId(1), Timestamp::from_ms(4_000), None);
        let missed = heartbeat.missed(Timestamp::from_ms(10_010), true, Some(&schedule), None).unwrap();
        assert_eq!((missed.count, missed.on_tick), (2, true));
    }

    #[test]
    fn pong_answers_its_own_ping_and_those_before_it_only() {
        let mut heartbeat = heartbeat();
        for (at, payload) in [(1_000, b"a"), (2_000, b"b"), (3_000, b"c")] {
            heartbeat.on_ping(frame(at, Direction::Egress, FrameKind::Ping, payload));
        }
        assert!(heartbeat.on_pong(&frame(3_100, Direction::Ingress, FrameKind::Pong, b"b")).is_some());
        assert_eq!(heartbeat.oldest_unanswered().unwrap().at, Timestamp::from_ms(3_000));
        assert!(
            heartbeat.on_pong(&frame(3_200, Direction::Ingress, FrameKind::Pong, b"x")).is_none(),
            "unsolicited"
        );
        assert!(heartbeat.oldest_unanswered().is_some());
    }

    #[test]
    fn nothing_is_counted_where_pongs_may_pass_unseen() {
        let mut heartbeat = heartbeat();
        heartbeat.on_ping(frame(1_000, Direction::Egress, FrameKind::Ping, b""));
        heartbeat.on_ingress_lost(Sight::Lost);
        assert!(heartbeat.oldest_unanswered().is_none());
        assert_eq!(heartbeat.missed(Timestamp::from_ms(9_000), true, None, None), None);
    }

    /// Pings leave some milliseconds after their tick, so the next tick is expected that much too late.
    #[test]
    fn connection_that_just_missed_a_tick_is_not_pinged_at_it() {
        let at = Timestamp::from_ms;
        let mut schedule = Schedule::default();
        for (id, pings) in [(1, [1_000, 3_000, 5_003]), (2, [1_001, 3_001, 5_004])] {
            for (index, ping) in pings.iter().enumerate() {
                let earlier = index.checked_sub(1).map(|before| at(pings[before]));
                schedule.on_ping(ConnectionId(id), at(*ping), earlier);
            }
        }
        let mut heartbeat = Heartbeat::new(Some(at(7_001)));
        heartbeat.ingress = Sight::Following;
        // Its own Pings are not seen, so all are inferred.
        heartbeat.egress = Sight::Lost;
        let missed = heartbeat.missed(at(13_002), true, Some(&schedule), None).unwrap();
        assert_eq!((missed.count, missed.on_tick), (2, true));
    }
}
