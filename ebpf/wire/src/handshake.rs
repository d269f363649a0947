//! HTTP before the frames (RFC 6455 section 4): the request's head is kept, the answer's head is followed to its end.
//!
//! Frames begin right after the blank line of an answer with status 101 that carries `Sec-WebSocket-Accept`. Other
//! protocols upgrade with 101 as well (h2c, SPDY, a container's attach stream); without that field it is no WebSocket.

use ackbeat_abi::{Counter, Direction, HEAD_MAX_BYTES, LossReason};

use crate::{
    Environment, Outcome, Segment, Walk, before,
    state::{ACCEPTED, DirectionState, FlowState, INTERIM, NO_MATCH, message, phase},
    stream,
};

/// The status line that is looked for. 16 bytes, so that an index with 4 bits is always inside.
const STATUS: &[u8; 16] = b"HTTP/1.1 101\0\0\0\0";
/// Bytes of [`STATUS`] that count.
const STATUS_BYTES: u8 = 12;
/// Bytes of it that every HTTP/1 answer shares.
const VERSION_BYTES: u8 = 7;
/// Bytes of it that every interim answer (RFC 9110 section 15.2) shares.
const INTERIM_BYTES: u8 = 10;
/// The field that makes an answer a WebSocket's, in lower case, after the line feed before it. No byte but the first
/// is a line feed, so after a mismatch only a line feed can begin it anew. 32 bytes, so that an index with 5 bits is
/// always inside.
const ACCEPT: &[u8; 32] = b"\nsec-websocket-accept:\0\0\0\0\0\0\0\0\0\0";
/// Bytes of [`ACCEPT`] that count.
const ACCEPT_BYTES: u8 = 22;
/// Bytes of a blank line together with the line end before it.
const BLANK_BYTES: u8 = 4;

/// Follows `\r\n\r\n`: the number of its bytes that are matched after `byte`.
#[inline(always)]
#[must_use]
pub const fn blank_line(matched: u8, byte: u8) -> u8 {
    match (byte, matched) {
        (b'\r', 2) => 3,
        (b'\r', _) => 1,
        (b'\n', 1) => 2,
        (b'\n', 3) => BLANK_BYTES,
        _ => 0,
    }
}

/// Looks at one byte of an answer. Returns whether to go on.
#[inline(always)]
pub fn answer_step<E: Environment>(environment: &mut E, state: &mut DirectionState) -> bool {
    if state.walk.position >= state.walk.length_bytes {
        state.walk.outcome = Outcome::Exhausted as u32;
        return false;
    }
    if !environment.load(state.walk.position, &mut state.header, 0, 1) {
        state.walk.outcome = Outcome::Unreadable as u32;
        return false;
    }
    let byte = state.header[0];
    state.walk.position += 1;
    state.expected_seq = state.expected_seq.wrapping_add(1);
    if state.phase == phase::ANSWER {
        state.head_bytes += 1;
        if state.accept_matched != ACCEPTED {
            let matched = state.accept_matched & 31;
            state.accept_matched = if byte.to_ascii_lowercase() == ACCEPT[usize::from(matched)] {
                if matched + 1 == ACCEPT_BYTES { ACCEPTED } else { matched + 1 }
            } else {
                u8::from(byte == b'\n')
            };
        }
        state.blank_matched = blank_line(state.blank_matched, byte);
        if state.blank_matched == BLANK_BYTES {
            state.walk.outcome = if state.accept_matched == ACCEPTED {
                Outcome::Upgraded as u32
            } else {
                Outcome::OtherProtocol as u32
            };
            return false;
        }
        if usize::from(state.head_bytes) >= HEAD_MAX_BYTES {
            state.walk.outcome = Outcome::HeadTooLong as u32;
            return false;
        }
        return true;
    }
    if state.status_matched == INTERIM {
        state.blank_matched = blank_line(state.blank_matched, byte);
        if state.blank_matched == BLANK_BYTES {
            state.blank_matched = 0;
            state.status_matched = 0;
        }
        return true;
    }
    let matched = state.status_matched & 15;
    if byte == STATUS[usize::from(matched)] && matched < STATUS_BYTES {
        state.status_matched = matched + 1;
        if matched + 1 == VERSION_BYTES {
            state.answered = 1;
        }
        if matched + 1 == STATUS_BYTES {
            state.phase = phase::ANSWER;
            state.head_bytes = u16::from(STATUS_BYTES);
            state.blank_matched = 0;
            state.accept_matched = 0;
        }
        return true;
    }
    if matched >= INTERIM_BYTES {
        state.status_matched = INTERIM;
        state.blank_matched = 0;
        return true;
    }
    state.walk.outcome =
        if state.answered == 0 { Outcome::NotHttp as u32 } else { Outcome::OtherAnswer as u32 };
    false
}

/// The stream is no WebSocket: said once, then nothing of it is looked at any more.
#[inline(never)]
fn give_up<E: Environment>(environment: &mut E, flow: &mut FlowState, direction: Direction, seq: u32) {
    flow.ingress.phase = phase::OPAQUE;
    flow.egress.phase = phase::OPAQUE;
    environment.count(Counter::WireNotHttp, 1);
    environment.synchronization(direction, seq, Some(LossReason::NotHttp));
}

/// The upgrade cannot be followed: both directions look for a safe point.
#[inline(never)]
fn lose_both<E: Environment>(
    environment: &mut E,
    flow: &mut FlowState,
    segment: &Segment,
    reason: LossReason,
) {
    flow.egress.expected_seq = segment.end();
    stream::lose(environment, &mut flow.egress, Direction::Egress, segment.end(), reason);
    flow.ingress.started = 0;
    stream::lose(environment, &mut flow.ingress, Direction::Ingress, segment.ack_seq, reason);
}

/// Payload from the peer before the upgrade: a request's head is kept for the case that it is answered with 101.
#[inline(always)]
pub fn ingress<E: Environment>(environment: &mut E, flow: &mut FlowState, segment: &Segment) {
    let state = &mut flow.ingress;
    let mut position = 0;
    if state.started != 0 {
        if !before(state.expected_seq, segment.end()) {
            environment.count(Counter::WireRetransmissions, 1);
            return;
        }
        if before(segment.seq, state.expected_seq) {
            position = state.expected_seq.wrapping_sub(segment.seq);
        }
    }
    let seq = segment.seq.wrapping_add(position);
    let length = segment.length_bytes - position;
    let first = state.started == 0;
    // The first segment can arrive before the connection has an entry; then its bytes are kept without one.
    let fresh = if first { !environment.continues_head(seq) } else { state.turn != 0 };
    state.started = 1;
    state.expected_seq = segment.end();
    if fresh {
        state.turn = 0;
        let looked_at = length.min(4);
        if !environment.load(position, &mut state.header, 0, looked_at) {
            return;
        }
        // Not "begins with a method": where the first segment was lost on its way, the second is seen first. A TLS
        // record (22) and other binary protocols are told apart all the same, and text that is no HTTP by its answer.
        if first && !is_text(state.header[0]) {
            give_up(environment, flow, Direction::Ingress, seq);
            return;
        }
        flow.egress.turn = 1;
        if begins_get(&flow.ingress.header, looked_at) {
            environment.keep_head(seq, position, length, true);
        }
    } else {
        flow.egress.turn = 1;
        environment.keep_head(seq, position, length, false);
    }
}

/// Whether a byte can stand in the head of a request.
#[inline(always)]
const fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\r' | b'\n' | b' '..=b'~')
}

/// Whether the first `length` bytes, at most 4, are those of `GET `.
#[inline(always)]
#[must_use]
pub const fn begins_get<const N: usize>(bytes: &[u8; N], length: u32) -> bool {
    bytes[0] == b'G'
        && (length < 2 || bytes[1] == b'E')
        && (length < 3 || bytes[2] == b'T')
        && (length < 4 || bytes[3] == b' ')
}

/// Payload to the peer before the upgrade: an answer of status 101 is followed to its blank line, and what comes
/// after it is frames.
#[inline(always)]
pub fn egress<E: Environment>(environment: &mut E, flow: &mut FlowState, segment: &Segment) {
    let state = &mut flow.egress;
    let mut position = 0;
    let mut hole = false;
    if state.started != 0 {
        if !before(state.expected_seq, segment.end()) {
            environment.count(Counter::WireRetransmissions, 1);
            return;
        }
        if before(segment.seq, state.expected_seq) {
            position = state.expected_seq.wrapping_sub(segment.seq);
        } else {
            hole = segment.seq != state.expected_seq;
        }
    }
    if hole {
        if state.phase == phase::ANSWER {
            lose_both(environment, flow, segment, LossReason::Hole);
            return;
        }
        state.status_matched = NO_MATCH;
    }
    state.started = 1;
    state.expected_seq = segment.seq.wrapping_add(position);
    if state.phase == phase::HTTP && state.status_matched == NO_MATCH {
        if state.turn == 0 {
            state.expected_seq = segment.end();
            return;
        }
        state.status_matched = 0;
        state.blank_matched = 0;
    }
    state.turn = 0;
    flow.ingress.turn = 1;
    flow.egress.walk = Walk { position, length_bytes: segment.length_bytes, ..Walk::default() };
    environment.walk_answer(&mut flow.egress);
    let outcome = flow.egress.walk.outcome;
    let seq = flow.egress.expected_seq;
    if outcome == Outcome::Exhausted as u32 {
    } else if outcome == Outcome::Upgraded as u32 {
        upgrade(environment, flow, segment);
        let state = &mut flow.egress;
        stream::walk(environment, state, Direction::Egress, segment);
    } else if outcome == Outcome::OtherAnswer as u32 {
        flow.egress.status_matched = NO_MATCH;
        flow.egress.expected_seq = segment.end();
    } else if outcome == Outcome::NotHttp as u32 || outcome == Outcome::OtherProtocol as u32 {
        give_up(environment, flow, Direction::Egress, seq);
    } else if outcome == Outcome::Unreadable as u32 {
        lose_both(environment, flow, segment, LossReason::Unreadable);
    } else {
        lose_both(environment, flow, segment, LossReason::HeadTooLong);
    }
}

/// The 101 answer ended: both directions are synchronized.
///
/// From the peer, frames begin where its request ended. A client must not send before it has the answer (RFC 6455
/// section 4.1), so that is the acknowledgement number of the answer's last segment; it counts what this host's TCP
/// took, whatever the parser saw. A client that did send early is found out by the end of the kept head, or by
/// payload beyond the acknowledgement, and its direction is declared lost.
#[inline(never)]
fn upgrade<E: Environment>(environment: &mut E, flow: &mut FlowState, segment: &Segment) {
    let egress_seq = flow.egress.expected_seq;
    stream::synchronize(&mut flow.egress, message::NONE);
    environment.synchronization(Direction::Egress, egress_seq, None);

    let head_end = environment.take_head(segment.ack_seq);
    let early = flow.ingress.started != 0 && before(segment.ack_seq, flow.ingress.expected_seq);
    let hidden = head_end != segment.ack_seq;
    if !early {
        flow.ingress.expected_seq = segment.ack_seq;
    }
    flow.ingress.started = 1;
    stream::synchronize(&mut flow.ingress, message::NONE);
    environment.synchronization(Direction::Ingress, segment.ack_seq, None);
    if early || hidden {
        flow.ingress.last_segment_ns = environment.now_ns();
        stream::lose(environment, &mut flow.ingress, Direction::Ingress, segment.ack_seq, LossReason::Hole);
    }
}
