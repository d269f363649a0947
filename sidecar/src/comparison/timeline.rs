//! What one connection's socket and wire showed, over time.

use std::collections::VecDeque;

use ackbeat_liveness::{ConnectionId, Direction, Frame, FrameKind, Input, Opened, Seq, Snapshot, Timestamp};

use super::{Compared, drawing};

/// Readings of the socket that are kept. Beyond it every second one is dropped: the drawing is coarser than that.
const POINTS_MAX: usize = 65_536;
/// Frames that are kept; later ones are left out and counted.
const MARKS_MAX: usize = 65_536;
/// Pings for whose Pong and acknowledgement is looked.
const PINGS_MAX: usize = 64;

/// One reading of the socket. `None` means unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// When.
    pub at: Timestamp,
    /// `write_seq`: bytes that the host wrote, counted from where the first reading was acknowledged.
    pub written_bytes: Option<i64>,
    /// `snd_nxt`: bytes that were sent, counted from the same place.
    pub sent_bytes: Option<i64>,
    /// `snd_una`: bytes that were acknowledged, counted from the same place.
    pub acked_bytes: Option<i64>,
    /// Written and not acknowledged.
    pub send_queue_bytes: Option<u32>,
    /// Written and not sent.
    pub unsent_bytes: Option<u32>,
    /// The peer's receive window.
    pub snd_wnd_bytes: Option<u32>,
    /// Received and not read by the host.
    pub unread_bytes: Option<u32>,
    /// Unanswered retransmissions of the oldest segment.
    pub retransmits: Option<u8>,
    /// Unanswered window probes.
    pub probes_out: Option<u8>,
    /// Exponent of the retransmission back-off.
    pub backoff: Option<u8>,
    /// Segments retransmitted since the connection was made.
    pub total_retransmits: Option<u32>,
}

/// A Ping, Pong or Close frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When it passed on the wire.
    pub at: Timestamp,
    /// What it is.
    pub kind: FrameKind,
    /// Which way it went.
    pub direction: Direction,
    /// Its end in the host's stream, counted as [`Point::acked_bytes`] is. A frame of the peer stands where the Ping
    /// is that it answers, or else at what was acknowledged by then.
    pub position_bytes: Option<i64>,
    /// For a Ping of the host: when it was seen acknowledged.
    pub acked_at: Option<Timestamp>,
    /// Status code of a Close frame.
    pub close_code: Option<u16>,
}

/// What was true of the peer, told by whoever knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Truth {
    /// It was there and well.
    Alive,
    /// Its process did nothing, its kernel answered.
    Hung,
    /// It was gone.
    Gone,
    /// It was there, and the path was cut for a while.
    Outage,
}

impl Truth {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Hung => "hung",
            Self::Gone => "gone",
            Self::Outage => "outage",
        }
    }
}

/// For how long something was true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruthBand {
    /// From when on.
    pub from: Timestamp,
    /// Until when; `None` to the end.
    pub until: Option<Timestamp>,
    /// What.
    pub truth: Truth,
}

/// One connection over time, with what each contestant made of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// The connection and the outcomes.
    pub compared: Compared,
    /// When it was established, or found.
    pub began_at: Timestamp,
    /// Last moment that is shown.
    pub until: Timestamp,
    /// Readings of the socket, oldest first.
    pub points: Vec<Point>,
    /// Heartbeats and Close frames, oldest first.
    pub marks: Vec<Mark>,
    /// Frames that found no room.
    pub marks_left_out: u64,
    /// What was true, if somebody knows.
    pub truth: Vec<TruthBand>,
}

impl Timeline {
    /// The same, with what was true.
    #[must_use]
    pub fn with_truth(mut self, truth: Vec<TruthBand>) -> Self {
        self.truth = truth;
        self
    }

    /// Draws it.
    ///
    /// # Errors
    /// [`DrawError`](drawing::DrawError) if the drawing library refuses, which only a mistake of this program can cause.
    pub fn svg(&self) -> Result<String, drawing::DrawError> {
        drawing::svg(self)
    }
}

/// Collects a timeline while a recording passes.
#[derive(Debug)]
pub(super) struct Collector {
    connection: ConnectionId,
    began_at: Timestamp,
    until: Timestamp,
    points: Vec<Point>,
    /// One reading of this many is kept.
    stride: u64,
    seen: u64,
    marks: Vec<Mark>,
    marks_left_out: u64,
    /// Latest Pings of the host: their place among the marks, and what they carried.
    pings: VecDeque<(usize, Vec<u8>)>,
    positions: Positions,
}

/// Counts sequence numbers on beyond their wrapping.
#[derive(Debug, Default)]
struct Positions {
    last: Option<(Seq, i64)>,
    acked_bytes: Option<i64>,
}

impl Positions {
    /// Where a sequence number near the latest known one lies.
    fn of(&mut self, seq: Seq) -> i64 {
        let (last, position) = *self.last.get_or_insert((seq, 0));
        let bytes = if seq.reached(last) {
            i64::from(seq.bytes_since(last))
        } else {
            -i64::from(last.bytes_since(seq))
        };
        position + bytes
    }

    fn on_acked(&mut self, una: Seq) -> i64 {
        let position = self.of(una);
        self.last = Some((una, position));
        self.acked_bytes = Some(position);
        position
    }
}

impl Collector {
    pub(super) fn new(opened: &Opened) -> Self {
        Self {
            connection: opened.connection,
            began_at: opened.at,
            until: opened.at,
            points: Vec::new(),
            stride: 1,
            seen: 0,
            marks: Vec::new(),
            marks_left_out: 0,
            pings: VecDeque::new(),
            positions: Positions::default(),
        }
    }

    pub(super) fn input(&mut self, input: &Input) {
        // A reading from before a segment is not part of it.
        if input.connection() != Some(self.connection) || input.at() < self.began_at {
            return;
        }
        self.until = self.until.max(input.at());
        match input {
            Input::Sample(snapshot) => self.snapshot(snapshot),
            Input::Transition(transition) => self.snapshot(&transition.snapshot),
            Input::Frame(frame) => self.frame(frame),
            _ => {}
        }
    }

    /// The timeline. What happened later to the connection (its post-mortem) is part of it.
    pub(super) fn finish(mut self, compared: Compared) -> Timeline {
        self.points.sort_by_key(|point| point.at);
        self.marks.sort_by_key(|mark| mark.at);
        let ends = compared.closed.as_ref().map(|record| record.ended_at);
        let kills = compared.outcomes.iter().filter_map(|outcome| Some(outcome.kill.as_ref()?.at));
        let until = ends.into_iter().chain(kills).fold(self.until, Timestamp::max);
        Timeline {
            compared,
            began_at: self.began_at,
            until,
            points: self.points,
            marks: self.marks,
            marks_left_out: self.marks_left_out,
            truth: Vec::new(),
        }
    }

    fn snapshot(&mut self, snapshot: &Snapshot) {
        let acked_bytes = snapshot.snd_una.map(|una| self.positions.on_acked(una));
        if let Some(acked) = acked_bytes {
            for (index, _) in &self.pings {
                if let Some(ping) = self.marks.get_mut(*index)
                    && ping.acked_at.is_none()
                    && ping.position_bytes.is_some_and(|position| position <= acked)
                {
                    ping.acked_at = Some(
                        snapshot.last_ack_at.map_or(snapshot.at, |ack| ack.min(snapshot.at)).max(ping.at),
                    );
                }
            }
        }
        self.seen += 1;
        if !self.seen.is_multiple_of(self.stride) {
            return;
        }
        if self.points.len() == POINTS_MAX {
            let mut index = 0_usize;
            self.points.retain(|_| {
                index += 1;
                index.is_multiple_of(2)
            });
            self.stride *= 2;
        }
        let written_bytes = snapshot.write_seq.map(|seq| self.positions.of(seq));
        let sent_bytes = snapshot.snd_nxt.map(|seq| self.positions.of(seq));
        self.points.push(Point {
            at: snapshot.at,
            written_bytes,
            sent_bytes,
            acked_bytes,
            send_queue_bytes: snapshot.send_queue_bytes,
            unsent_bytes: snapshot.unsent_bytes,
            snd_wnd_bytes: snapshot.snd_wnd_bytes,
            unread_bytes: snapshot.unread_bytes,
            retransmits: snapshot.retransmits,
            probes_out: snapshot.probes_out,
            backoff: snapshot.backoff,
            total_retransmits: snapshot.total_retransmits,
        });
    }

    fn frame(&mut self, frame: &Frame) {
        let is_own_ping = (frame.direction, frame.kind) == (Direction::Egress, FrameKind::Ping);
        // The peer's own heartbeat, and answers to it, say nothing about the host's.
        let is_shown = is_own_ping
            || (frame.direction, frame.kind) == (Direction::Ingress, FrameKind::Pong)
            || frame.kind == FrameKind::Close;
        if !is_shown {
            return;
        }
        if self.marks.len() == MARKS_MAX {
            self.marks_left_out += 1;
            return;
        }
        let position_bytes = match frame.direction {
            Direction::Egress => frame.seq_end.map(|end| self.positions.of(end)),
            Direction::Ingress => {
                let answered = self.pings.iter().rev().find(|(_, payload)| *payload == frame.payload);
                answered
                    .filter(|_| frame.kind == FrameKind::Pong)
                    .and_then(|(index, _)| self.marks.get(*index)?.position_bytes)
                    .or(self.positions.acked_bytes)
            }
        };
        if is_own_ping {
            if self.pings.len() == PINGS_MAX {
                self.pings.pop_front();
            }
            self.pings.push_back((self.marks.len(), frame.payload.clone()));
        }
        self.marks.push(Mark {
            at: frame.at,
            kind: frame.kind,
            direction: frame.direction,
            position_bytes,
            acked_at: None,
            close_code: frame.close_code,
        });
    }
}
