//! The heartbeat of one connection in which the host asks: which Pings are unanswered, where they are, and how many the host
//! has missed.
//!
//! RFC 6455 section 5.5.3: a Pong repeats its Ping's application data, and an endpoint may answer only the most
//! recent Ping. So a Pong answers the latest Ping with the same data, and all earlier ones with it. Text heartbeats, and
//! Pongs that the application reports without an id, have nothing in common with their Pings: they answer the last one.
//!
//! A host may ask in two ways at once, a library by control frames and its application by text. The one that is seen first
//! is followed; the other one's Pongs are payload like any other.
//!
//! What the application reports comes late, and out of order with what is seen on the wire. So nothing is expected before it
//! was told of, and not sooner after that than its reports take.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use crate::schedule::{Answers, Schedule, Ticks};
use crate::{
    Direction, Frame, HeartbeatAnswered, HeartbeatProfile, HeartbeatSource, PingLocation, Seq, Snapshot,
    Timestamp,
};

/// Pings that are remembered. The oldest unanswered one is always among them.
const PINGS_MAX: usize = 16;
/// Pongs that are remembered, to tell which of them the host has read.
const PONGS_MAX: usize = 8;

/// A Pong may be reported before its Ping, on another connection to the API; and a Ping that was reported is dated by when the
/// report came, while its Pong on the wire is not. Within this a Pong that answered nothing answers the Ping that comes after it.
const REPORT_SLACK_MS: u64 = 1_000;

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

/// Bytes of a Ping's data that are kept in place: most libraries send none, some a counter or a time.
const SHORT_BYTES: usize = 22;

/// The data of a Ping, which its Pong repeats.
#[derive(Clone, Debug)]
enum Payload {
    /// As long as its first number says.
    Short(u8, [u8; SHORT_BYTES]),
    Long(Box<[u8]>),
}

impl Payload {
    fn of(bytes: &[u8]) -> Self {
        let mut room = [0; SHORT_BYTES];
        match (room.get_mut(..bytes.len()), u8::try_from(bytes.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(bytes);
                Self::Short(length, room)
            }
            _ => Self::Long(bytes.into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(length, room) => room.get(..usize::from(*length)).unwrap_or_default(),
            Self::Long(bytes) => bytes,
        }
    }
}

/// Puts something into its place. A queue that is full grows by one: each connection has two, and they stay small.
fn insert<T>(queue: &mut VecDeque<T>, index: usize, value: T) {
    if queue.len() == queue.capacity() {
        queue.reserve_exact(1);
    }
    queue.insert(index, value);
}

/// A Ping that passed.
#[derive(Clone, Debug)]
pub(crate) struct Ping {
    pub(crate) at: Timestamp,
    pub(crate) seq_start: Option<Seq>,
    pub(crate) seq_end: Option<Seq>,
    payload: Payload,
    /// When `snd_una` was seen to have passed it.
    pub(crate) acked_at: Option<Timestamp>,
    /// When something may be expected of the peer at the earliest: a report comes late, and so will that of the Pong.
    pub(crate) expected_from: Timestamp,
    on_wire: bool,
    answered: bool,
}

impl Ping {
    /// When the Pong's clock started: it was acknowledged, and a report of the Pong would have come.
    pub(crate) fn clock_at(&self) -> Option<Timestamp> {
        self.acked_at.map(|acked| acked.max(self.expected_from))
    }
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
    /// Where the peer asks: whole intervals without anything from it. A host may take any message for a heartbeat.
    pub(crate) unheard: Option<u32>,
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
    /// How the host asks; `None` before anything was seen.
    profile: Option<HeartbeatProfile>,
    /// The longest that a report took to come, in nanoseconds.
    report_delay_ns: u64,
    /// Where counting starts while there was no Pong: the upgrade. `None` where the start was not seen.
    pub(crate) start: Option<Timestamp>,
}

impl Heartbeat {
    /// A heartbeat that is counted from `start`; `None` where the start was not seen.
    pub(crate) fn new(start: Option<Timestamp>) -> Self {
        Self { start, ..Self::default() }
    }

    /// A Ping went out, and was told of at `told_at`. Gives the Ping before it, for the schedule, where none can have passed
    /// unseen between; `None` if there is nothing to learn.
    pub(crate) fn on_ping(&mut self, frame: &Frame, told_at: Timestamp) -> Option<Option<Timestamp>> {
        if !self.takes(frame, told_at) {
            return None;
        }
        let on_wire = frame.is_on_wire();
        if on_wire && self.pings.iter().any(|ping| !ping.on_wire) {
            // From now on each is seen; those that were reported would be counted twice.
            self.pings.retain(|ping| ping.on_wire);
            self.forgotten = 0;
            self.last_ping_at = None;
        }
        let is_latest = self.last_ping_at.is_none_or(|last| frame.at > last);
        let earlier = if is_latest { self.last_ping_at.replace(frame.at) } else { None };
        let is_answered = !on_wire && self.is_answered_before(frame.at);
        if self.pings.len() == PINGS_MAX {
            // Index 0 holds the oldest unanswered Ping if any is unanswered.
            let index = usize::from(self.pings.front().is_some_and(|ping| !ping.answered));
            if self.pings.remove(index).is_some_and(|ping| !ping.answered) {
                self.forgotten = self.forgotten.saturating_add(1);
            }
        }
        // Reports may be out of order; what is seen on the wire stays as it was told.
        let later =
            if on_wire { 0 } else { self.pings.iter().rev().take_while(|ping| ping.at > frame.at).count() };
        let expected_from = if on_wire { frame.at } else { told_at.plus_ns(self.report_delay_ns) };
        let index = self.pings.len() - later;
        insert(
            &mut self.pings,
            index,
            Ping {
                at: frame.at,
                seq_start: frame.seq_start,
                seq_end: frame.seq_end,
                payload: Payload::of(&frame.payload),
                acked_at: None,
                expected_from,
                on_wire,
                answered: is_answered,
            },
        );
        is_latest.then_some(earlier)
    }

    /// Whether a Pong that answered nothing came so shortly before a reported Ping that it answers it.
    fn is_answered_before(&self, ping_at: Timestamp) -> bool {
        self.pongs.back().is_some_and(|pong| {
            pong.ping_at.is_none()
                && pong.at.plus_ms(REPORT_SLACK_MS) >= ping_at
                && self.pings.back().is_none_or(|ping| ping.at <= pong.at)
        })
    }

    /// A Pong came in. Gives what it answers, if a Ping was outstanding; an unsolicited one answers none.
    pub(crate) fn on_pong(&mut self, frame: &Frame, told_at: Timestamp) -> Option<HeartbeatAnswered> {
        if !self.takes(frame, told_at) {
            return None;
        }
        let profile = self.profile.unwrap_or(frame.profile);
        let has_id =
            if frame.is_on_wire() { profile == HeartbeatProfile::Rfc6455 } else { !frame.payload.is_empty() };
        let answered = self.pings.iter().rposition(|ping| {
            (!has_id || ping.payload.bytes() == frame.payload) && ping.at <= frame.at && !ping.answered
        });
        let ping = answered.and_then(|index| self.pings.get(index));
        let ping_at = ping.map(|ping| ping.at);
        let told = ping.map(|ping| {
            let acked = ping.acked_at.map(|acked| acked.min(frame.at));
            HeartbeatAnswered {
                connection: frame.connection,
                at: frame.at,
                profile,
                ping_to_pong_us: frame.at.ns_since(ping.at) / 1_000,
                ping_to_ack_us: acked.map(|acked| acked.ns_since(ping.at) / 1_000),
                ack_to_pong_us: acked.map(|acked| frame.at.ns_since(acked) / 1_000),
            }
        });
        if let Some(index) = answered {
            self.forgotten = 0;
            for ping in self.pings.iter_mut().take(index + 1) {
                ping.answered = true;
            }
        }
        if self.pongs.len() == PONGS_MAX {
            self.older_pong = self.pongs.pop_front();
            self.forget_counted();
        }
        let later = if frame.is_on_wire() {
            0
        } else {
            self.pongs.iter().rev().take_while(|pong| pong.at > frame.at).count()
        };
        let index = self.pongs.len() - later;
        insert(&mut self.pongs, index, Pong { at: frame.at, seq_end: frame.seq_end, ping_at });
        told
    }

    /// Forgets answered Pings that no count can begin before: the host's starts at one of the Pongs that are kept, or at the
    /// one before them.
    fn forget_counted(&mut self) {
        let Some(base_at) = self.older_pong.map(|pong| pong.at) else { return };
        while self.pings.front().is_some_and(|ping| ping.answered && ping.at <= base_at) {
            self.pings.pop_front();
        }
    }

    /// Notes where a frame is known from. Gives whether it belongs to the heartbeat that is followed.
    fn takes(&mut self, frame: &Frame, told_at: Timestamp) -> bool {
        let source = HeartbeatSource::of(frame);
        match (self.source, source) {
            (Some(HeartbeatSource::Wire), HeartbeatSource::Wire) => {
                return self.profile.is_none_or(|profile| profile == frame.profile);
            }
            (Some(HeartbeatSource::Wire), _) => {}
            _ => (self.source, self.profile) = (Some(source), Some(frame.profile)),
        }
        if source == HeartbeatSource::Application {
            self.report_delay_ns = self.report_delay_ns.max(told_at.ns_since(frame.at));
        }
        true
    }

    /// Whether what the application could report of one direction is seen on the wire anyway.
    pub(crate) fn is_report_redundant(&self, direction: Direction) -> bool {
        let sight = match direction {
            Direction::Ingress => self.ingress,
            Direction::Egress => self.egress,
        };
        self.source == Some(HeartbeatSource::Wire) && sight == Sight::Following
    }

    /// How the host asks; `None` before anything was seen.
    pub(crate) fn profile(&self) -> Option<HeartbeatProfile> {
        self.profile
    }

    /// Whether a Pong is owed to the host's Pings at all: RFC 6455 asks for one, anything else has to have been answered on
    /// this port before.
    pub(crate) fn is_answered(&self, schedule: Option<&Schedule>) -> bool {
        let has_seen = |answers| schedule.is_some_and(|schedule| schedule.has_seen(answers));
        match self.source {
            Some(HeartbeatSource::Application) => has_seen(Answers::Reported),
            _ => match self.profile.or(schedule.and_then(Schedule::profile)) {
                None | Some(HeartbeatProfile::Rfc6455) => true,
                Some(profile) => has_seen(Answers::Wire(profile)),
            },
        }
    }

    /// Whether a Pong is owed, and would be seen: on the wire, or in a report.
    pub(crate) fn is_pong_visible(&self, schedule: Option<&Schedule>) -> bool {
        let is_reported = || schedule.is_some_and(|schedule| schedule.has_seen(Answers::Reported));
        self.is_answered(schedule)
            && (self.source == Some(HeartbeatSource::Application)
                || self.ingress == Sight::Following
                || is_reported())
    }

    /// A reading of the socket: `snd_una` may have passed Pings.
    pub(crate) fn on_snapshot(&mut self, snapshot: &Snapshot) {
        let Some(una) = snapshot.snd_una else { return };
        for ping in self.pings.iter_mut().filter(|ping| ping.acked_at.is_none() && ping.at <= snapshot.at) {
            // A Ping that the application reported has no position, and may lie in the host's own queue. That is empty
            // once the kernel has nothing left to send; everything written by then is a safe bound.
            if ping.seq_end.is_none() && snapshot.unsent_bytes.is_none_or(|bytes| bytes == 0) {
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
        if self.source == Some(HeartbeatSource::Application) {
            // Reports do not pass where records are lost.
            return;
        }
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
    pub(crate) fn last_ping_at(&self) -> Option<Timestamp> {
        self.last_ping_at
    }

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
        let is_reported = self.source == Some(HeartbeatSource::Application);
        if !self.is_pong_visible(schedule) || (self.egress == Sight::Dropped && !is_reported) {
            return None;
        }
        let (base_at, base_ping_at) = self.base(snapshot)?;
        let on_wire = self.pings.iter().filter(|ping| ping.at > base_at && ping.at <= at).count();
        let on_wire = u32::try_from(on_wire).unwrap_or(u32::MAX).saturating_add(self.forgotten);
        let Some(interval_ns) = schedule.and_then(Schedule::interval_ns) else {
            // Without a schedule, Pings that wait behind unsent data cannot be counted.
            let is_hidden = snapshot.and_then(|latest| latest.unsent_bytes).is_some_and(|bytes| bytes > 0);
            let is_counted = self.egress == Sight::Following || is_reported;
            return (is_counted && (!is_hidden || on_wire >= 2)).then_some(Missed {
                count: on_wire,
                inferred: 0,
                unheard: None,
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
        if !is_reported && (waiting || self.egress != Sight::Following) {
            // The tick whose Ping the last Pong answered is not counted again, however the beat is estimated. Nor is one
            // that a connection just missed: the beat is known from Pings, which leave a little after their tick.
            let after = match base_ping_at {
                Some(ping) => base_at.max(ping.plus_ns(interval_ns / 2)),
                None => base_at.plus_ns(interval_ns / JUST_MISSED_DIVISOR),
            };
            let before = match tick {
                Some(tick) => tick,
                None if closing => at,
                None => Timestamp::from_ns(at.as_ns().saturating_sub(ticks.lateness_ns())),
            };
            count = count.max(ticks.between(after, before));
        }
        Some(Missed { count, inferred: count - on_wire, unheard: None, on_tick: tick.is_some() })
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
    use crate::{
        ConnectionId, Direction, Frame, FrameKind, HeartbeatAnswered, HeartbeatProfile, Seq, Timestamp,
    };

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

    fn ping(heartbeat: &mut Heartbeat, frame: &Frame) {
        heartbeat.on_ping(frame, frame.at);
    }

    fn pong(heartbeat: &mut Heartbeat, frame: &Frame) -> Option<HeartbeatAnswered> {
        heartbeat.on_pong(frame, frame.at)
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
        ping(&mut heartbeat, &frame(4_000, Direction::Egress, FrameKind::Ping, b""));
        pong(&mut heartbeat, &frame(4_001, Direction::Ingress, FrameKind::Pong, b""));
        schedule.on_ping(ConnectionId(1), Timestamp::from_ms(4_000), None);
        let missed = heartbeat.missed(Timestamp::from_ms(10_010), true, Some(&schedule), None).unwrap();
        assert_eq!((missed.count, missed.on_tick), (2, true));
    }

    #[test]
    fn pong_answers_its_own_ping_and_those_before_it_only() {
        let mut heartbeat = heartbeat();
        for (at, payload) in [(1_000, b"a"), (2_000, b"b"), (3_000, b"c")] {
            ping(&mut heartbeat, &frame(at, Direction::Egress, FrameKind::Ping, payload));
        }
        assert!(pong(&mut heartbeat, &frame(3_100, Direction::Ingress, FrameKind::Pong, b"b")).is_some());
        assert_eq!(heartbeat.oldest_unanswered().unwrap().at, Timestamp::from_ms(3_000));
        assert!(
            pong(&mut heartbeat, &frame(3_200, Direction::Ingress, FrameKind::Pong, b"x")).is_none(),
            "unsolicited"
        );
        assert!(heartbeat.oldest_unanswered().is_some());
    }

    #[test]
    fn nothing_is_counted_where_pongs_may_pass_unseen() {
        let mut heartbeat = heartbeat();
        ping(&mut heartbeat, &frame(1_000, Direction::Egress, FrameKind::Ping, b""));
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
