//! Any input of the engine, read off bytes.

use std::net::IpAddr;

use ackbeat_liveness::{
    ConnectionId, Direction, Endpoints, Frame, FrameKind, HeartbeatProfile, Input, Opened, Process, Reset,
    Role, Seq, Snapshot, Synchronization, TcpState, Timestamp, Transition, Upgrade,
};

use crate::draw::Draw;

/// A clock that mostly goes on by a little, sometimes by much, and whose stamps are sometimes out of order.
pub(super) struct Clock {
    pub(super) now: Timestamp,
}

impl Clock {
    pub(super) const fn new() -> Self {
        Self { now: Timestamp::from_ms(100_000) }
    }

    pub(super) fn go_on(&mut self, draw: &mut Draw<'_>) {
        let ms = match draw.below(8) {
            0 | 1 => 0,
            2..=4 => u64::from(draw.byte()),
            5 | 6 => u64::from(draw.byte()) * 10,
            _ => u64::from(draw.u16()),
        };
        self.now = self.now.plus_ms(ms);
    }

    /// A moment at or about now.
    pub(super) fn stamp(&self, draw: &mut Draw<'_>) -> Timestamp {
        match draw.below(16) {
            0..=11 => self.now,
            12 => self.now.minus_ms(u64::from(draw.byte())),
            13 => self.now.minus_ms(u64::from(draw.u16())),
            14 => Timestamp::from_ns(self.now.as_ns() + u64::from(draw.u32())),
            _ => Timestamp::from_ns(draw.u64()),
        }
    }
}

fn connection(draw: &mut Draw<'_>) -> ConnectionId {
    ConnectionId(u64::from(draw.below(6)))
}

fn seq(draw: &mut Draw<'_>) -> Option<Seq> {
    draw.usually(|draw| Seq(draw.edgy_u32()))
}

fn direction(draw: &mut Draw<'_>) -> Direction {
    if draw.is_odd() { Direction::Ingress } else { Direction::Egress }
}

pub(super) fn opened(draw: &mut Draw<'_>, connection: ConnectionId, at: Timestamp) -> Opened {
    let address = IpAddr::from([10, 0, 0, draw.below(2)]);
    Opened {
        connection,
        at,
        endpoints: Endpoints {
            local_address: address,
            local_port: 80,
            peer_address: address,
            peer_port: u16::from(draw.below(3)),
        },
        role: if draw.is_odd() { Role::Client } else { Role::Server },
        preexisting: draw.is_odd(),
        frames_visible: draw.below(4) != 0,
    }
}

fn snapshot(draw: &mut Draw<'_>, clock: &Clock) -> Snapshot {
    let state =
        if draw.below(4) == 0 { draw.of(&TcpState::ALL, TcpState::Close) } else { TcpState::Established };
    Snapshot {
        connection: connection(draw),
        at: clock.stamp(draw),
        state,
        write_seq: seq(draw),
        snd_nxt: seq(draw),
        snd_una: seq(draw),
        snd_wnd_bytes: draw.usually(Draw::edgy_u32),
        rcv_nxt: seq(draw),
        copied_seq: seq(draw),
        send_queue_bytes: draw.usually(Draw::edgy_u32),
        unsent_bytes: draw.usually(Draw::edgy_u32),
        unread_bytes: draw.usually(Draw::edgy_u32),
        last_ack_at: draw.usually(|draw| clock.stamp(draw)),
        last_send_at: draw.usually(|draw| clock.stamp(draw)),
        last_inbound_at: draw.usually(|draw| clock.stamp(draw)),
        bytes_acked: draw.usually(|draw| u64::from(draw.edgy_u32())),
        bytes_received: draw.usually(|draw| u64::from(draw.edgy_u32())),
        srtt_us: draw.usually(Draw::edgy_u32),
        rto_ms: draw.usually(Draw::edgy_u32),
        backoff: draw.usually(Draw::byte),
        retransmits: draw.usually(|draw| draw.below(5)),
        probes_out: draw.usually(|draw| draw.below(5)),
        packets_out: draw.usually(Draw::edgy_u32),
        total_retransmits: draw.usually(Draw::edgy_u32),
        retransmitting_since: draw.usually(|draw| clock.stamp(draw)),
        socket_error: draw.usually(|draw| draw.of(&[0, 32, 103, 104, 110, 113], 0)),
        soft_error: draw.usually(|draw| draw.of(&[0, 101, 110, 113], 0)),
        shutdown: draw.usually(|draw| draw.below(4)),
        queued_memory_bytes: None,
    }
}

fn frame(draw: &mut Draw<'_>, at: Timestamp) -> Frame {
    let kind = draw.of(
        &[FrameKind::Ping, FrameKind::Pong, FrameKind::Ping, FrameKind::Pong, FrameKind::Close],
        FrameKind::Ping,
    );
    let usual = if kind == FrameKind::Ping { Direction::Egress } else { Direction::Ingress };
    let length = if draw.below(8) == 0 { draw.below(126) } else { draw.below(2) };
    // What an application reports has no position, and may be a minute old.
    let is_report = draw.below(4) == 0;
    let at = if is_report { at.minus_ms(u64::from(draw.u16() % 60_000)) } else { at };
    Frame {
        connection: connection(draw),
        at,
        direction: if draw.below(4) == 0 { direction(draw) } else { usual },
        kind,
        profile: if is_report || draw.is_odd() {
            HeartbeatProfile::Rfc6455
        } else {
            draw.of(HeartbeatProfile::ALL, HeartbeatProfile::Rfc6455)
        },
        seq_start: seq(draw).filter(|_| !is_report),
        seq_end: seq(draw).filter(|_| !is_report),
        payload: draw.take(usize::from(length)).to_vec(),
        close_code: None,
        close_reason: None,
    }
}

/// Any input.
pub(super) fn input(draw: &mut Draw<'_>, clock: &Clock) -> Input {
    let at = clock.stamp(draw);
    match draw.below(24) {
        0 | 1 => {
            let connection = connection(draw);
            Input::Opened(opened(draw, connection, at))
        }
        2..=9 => Input::Sample(snapshot(draw, clock)),
        10 | 11 => {
            let snapshot = snapshot(draw, clock);
            let old_state = draw.of(&TcpState::ALL, TcpState::Established);
            let process = draw.usually(|draw| Process {
                pid: draw.u32(),
                command: "node".into(),
                exiting: draw.is_odd(),
                ancestors: if draw.is_odd() { vec![u32::from(draw.byte())] } else { Vec::new() },
            });
            Input::Transition(Transition { old_state, new_state: snapshot.state, process, snapshot })
        }
        12 => Input::Reset(Reset {
            connection: connection(draw),
            at,
            direction: direction(draw),
            answers_segment: draw.is_odd(),
            reason: None,
        }),
        13..=18 => Input::Frame(frame(draw, at)),
        19 => Input::Synchronization(Synchronization {
            connection: connection(draw),
            at,
            direction: direction(draw),
            synchronized: draw.is_odd(),
            reason: None,
        }),
        20 => Input::Upgrade(Upgrade {
            connection: connection(draw),
            at,
            path: draw.usually(|_| "/a".into()),
            traceparent: None,
            forwarding_headers: Vec::new(),
        }),
        21 => Input::Outstanding { connection: connection(draw), at },
        22 if draw.is_odd() => Input::ProbeSent { connection: connection(draw), at },
        22 if draw.is_odd() => {
            Input::Terminating { at, process: draw.usually(|draw| u32::from(draw.byte())) }
        }
        22 if draw.is_odd() => Input::RecordsLost { at, count: draw.u64() },
        _ => Input::SamplingDone { began_at: clock.stamp(draw), at },
    }
}
