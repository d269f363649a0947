//! Segments to frames: holes, repetitions, loss of sync and safe points (RFC 6455 section 5).
//!
//! # When a lost position counts as found again
//!
//! A segment that follows the one before it without a gap may begin with a frame header: hosts write whole frames, and
//! an idle connection's Ping or Pong stands alone in its segment. So after a loss the parser assumes a header at the
//! first byte of such a segment and follows the chain. It believes the position after
//! [`ALIGNMENTS_NEEDED`] segments began exactly at a header of that chain, with no invalid header in between, and
//! only segments that came after a quiet time of [`QUIET_NS`] count. Until then it reports no frame.
//!
//! How likely is a wrong position? For bytes drawn at random, a first byte is valid with probability 13/256 (opcode,
//! FIN, RSV), and a second byte names exactly the length that ends at the segment's end, with the right mask bit, with
//! 1/256: about 2 in 10,000 for each segment, chains of shorter frames included. Three whole segments must fit before
//! the fourth is believed: 8 in 10^12. Even then the next header must be a control frame's for a wrong report (below
//! 1 in 100), else the position is lost again at once. An attempt needs three quiet times, so a connection can make
//! at most about 60 a second: one wrong report in some ten thousand years of random bytes.
//!
//! Bytes chosen by somebody (a file full of `8a 00`, empty Pongs, inside one large message) can look like an endless
//! chain of frames. They come as bulk, without quiet times between the segments, so they are never believed; bytes of
//! a protocol whose messages all begin alike fail the order of fragments or the mask. Who can choose the bytes *and*
//! the time of every segment is the endpoint itself, and could send real frames as well.

use ackbeat_abi::{Counter, Direction, LossReason};

use crate::{
    ControlFrame, Environment, Outcome, Segment, Walk, before,
    frame::{Decoded, decode, next_message},
    handshake,
    state::{DirectionState, FlowState, HEADER_ROOM_BYTES, message, phase},
};

/// Aligned segments after which a guessed position is believed.
pub const ALIGNMENTS_NEEDED: u8 = 4;
/// Time without payload in a direction after which its next segment begins a new write, in nanoseconds: 5 ms. Longer
/// than the gaps inside a burst; far shorter than any heartbeat interval.
pub const QUIET_NS: u64 = 5_000_000;
/// Segments after a quiet time that may begin inside a payload before a guessed position is given up: a guess that
/// misread a length would otherwise wait for ever.
pub const UNALIGNED_MAX: u8 = 4;

/// The bytes of a masking key in a control frame's header.
const MASK_OFFSET: usize = 2;

/// Looks at the payload of one TCP segment.
///
/// Segments of one direction are given one at a time, in the order in which they passed.
#[inline(always)]
pub fn on_segment<E: Environment>(
    environment: &mut E,
    flow: &mut FlowState,
    direction: Direction,
    segment: &Segment,
) {
    let (state, masked_direction) = match direction {
        Direction::Ingress => (&mut flow.ingress, Direction::Ingress),
        Direction::Egress => (&mut flow.egress, Direction::Egress),
    };
    match state.phase {
        phase::OPAQUE => {}
        phase::HTTP | phase::ANSWER => match direction {
            Direction::Ingress => handshake::ingress(environment, flow, segment),
            Direction::Egress => handshake::egress(environment, flow, segment),
        },
        _ => frames(environment, state, masked_direction, segment),
    }
}

/// The position of the next header is `expected_seq`.
#[inline(always)]
pub(crate) fn synchronize(state: &mut DirectionState, message: u8) {
    state.phase = phase::FRAMES;
    state.message = message;
    state.skip_bytes = 0;
    state.header_bytes = 0;
    state.collecting = 0;
    state.kept = 0;
}

/// The position is no longer known; it is said once.
#[inline(always)]
pub(crate) fn lose<E: Environment>(
    environment: &mut E,
    state: &mut DirectionState,
    direction: Direction,
    seq: u32,
    reason: LossReason,
) {
    let said = state.phase == phase::TENTATIVE || state.phase == phase::LOST;
    state.phase = phase::LOST;
    state.kept = 0;
    if !said {
        environment.count(Counter::WireLosses, 1);
        environment.synchronization(direction, seq, Some(reason));
    }
}

/// Assumes a frame header at the first byte of this segment.
#[inline(always)]
fn guess(state: &mut DirectionState) {
    synchronize(state, message::UNKNOWN);
    state.phase = phase::TENTATIVE;
    state.alignments = 1;
    state.unaligned = 0;
}

#[inline(always)]
fn frames<E: Environment>(
    environment: &mut E,
    state: &mut DirectionState,
    direction: Direction,
    segment: &Segment,
) {
    if state.phase == phase::MIDSTREAM {
        state.started = 0;
        lose(environment, state, direction, segment.seq, LossReason::Midstream);
    }
    let end = segment.end();
    if state.started == 0 {
        state.started = 1;
        state.expected_seq = end;
        state.last_segment_ns = segment.now_ns;
        return;
    }
    if !before(state.expected_seq, end) {
        environment.count(Counter::WireRetransmissions, 1);
        return;
    }
    let quiet = segment.now_ns.wrapping_sub(state.last_segment_ns) >= QUIET_NS;
    state.last_segment_ns = segment.now_ns;
    let mut position = 0;
    if before(segment.seq, state.expected_seq) {
        position = state.expected_seq.wrapping_sub(segment.seq);
    }
    if before(state.expected_seq, segment.seq) {
        let gap = segment.seq.wrapping_sub(state.expected_seq);
        let payload_only = state.phase == phase::FRAMES
            && state.header_bytes == 0
            && state.collecting == 0
            && u64::from(gap) <= state.skip_bytes;
        if !payload_only {
            lose(environment, state, direction, state.expected_seq, LossReason::Hole);
            state.expected_seq = end;
            return;
        }
        // Nothing but payload of a data frame went by unseen: no header can have been in it.
        state.skip_bytes -= u64::from(gap);
        state.expected_seq = segment.seq;
    }
    if state.phase != phase::FRAMES && !find_safe_point(environment, state, direction, position == 0 && quiet) {
        state.expected_seq = end;
        return;
    }
    let mut walk = Walk { position, length_bytes: segment.length_bytes, ..Walk::default() };
    self::walk(environment, state, direction, segment, &mut walk);
}

/// Before a segment in order, while lost: decides whether it is parsed. `independent` says that it begins exactly where
/// the last ended, after a quiet time.
#[inline(always)]
fn find_safe_point<E: Environment>(
    environment: &mut E,
    state: &mut DirectionState,
    direction: Direction,
    independent: bool,
) -> bool {
    if state.phase == phase::LOST {
        if independent {
            guess(state);
        }
        return independent;
    }
    if !independent {
        return true;
    }
    if state.skip_bytes == 0 && state.header_bytes == 0 && state.collecting == 0 {
        state.alignments += 1;
        if state.alignments >= ALIGNMENTS_NEEDED {
            state.phase = phase::FRAMES;
            environment.count(Counter::WireRecoveries, 1);
            environment.synchronization(direction, state.expected_seq, None);
        }
    } else {
        state.unaligned += 1;
        if state.unaligned > UNALIGNED_MAX {
            guess(state);
        }
    }
    true
}

/// Follows the frames of a segment from `walk.position` on, where `expected_seq` stands.
#[inline(always)]
pub(crate) fn walk<E: Environment>(
    environment: &mut E,
    state: &mut DirectionState,
    direction: Direction,
    segment: &Segment,
    walk: &mut Walk,
) {
    walk.outcome = Outcome::Unfinished as u32;
    walk.data_frames = 0;
    environment.walk_frames(state, walk);
    if walk.data_frames > 0 && state.phase == phase::FRAMES {
        environment.count(Counter::WireDataFrames, u64::from(walk.data_frames));
    }
    if walk.outcome == Outcome::Exhausted as u32 {
        return;
    }
    let reason = if walk.outcome == Outcome::InvalidHeader as u32 {
        LossReason::InvalidHeader
    } else if walk.outcome == Outcome::Unreadable as u32 {
        LossReason::Unreadable
    } else {
        LossReason::TooManyFrames
    };
    lose(environment, state, direction, state.expected_seq, reason);
    state.expected_seq = segment.end();
}

/// Goes on by `bytes`, which are at hand.
#[inline(always)]
fn advance(state: &mut DirectionState, walk: &mut Walk, bytes: u32) {
    walk.position = walk.position.wrapping_add(bytes);
    state.expected_seq = state.expected_seq.wrapping_add(bytes);
}

/// Takes the next frame, or as much of it as the segment holds. Returns whether to go on.
///
/// `masked` is what the direction demands.
#[inline(always)]
pub fn step<E: Environment>(
    environment: &mut E,
    state: &mut DirectionState,
    walk: &mut Walk,
    masked: bool,
) -> bool {
    let mut remaining = walk.length_bytes.wrapping_sub(walk.position);
    if state.skip_bytes > 0 {
        if state.skip_bytes >= u64::from(remaining) {
            state.skip_bytes -= u64::from(remaining);
            advance(state, walk, remaining);
            walk.outcome = Outcome::Exhausted as u32;
            return false;
        }
        let skipped = (state.skip_bytes & 0xffff_ffff) as u32;
        state.skip_bytes = 0;
        advance(state, walk, skipped);
        remaining -= skipped;
    }
    if remaining == 0 {
        walk.outcome = Outcome::Exhausted as u32;
        return false;
    }
    if state.collecting == 0 {
        let held = u32::from(state.header_bytes);
        if held == 0 {
            state.frame_seq = state.expected_seq;
        }
        let taken = remaining.min(14_u32.saturating_sub(held));
        if !environment.load(walk.position, &mut state.header, held, taken) {
            walk.outcome = Outcome::Unreadable as u32;
            return false;
        }
        let header = match decode(&state.header, held + taken, masked) {
            Decoded::Whole(header) => header,
            Decoded::Incomplete => {
                state.header_bytes = (held + taken) as u8;
                advance(state, walk, taken);
                walk.outcome = Outcome::Exhausted as u32;
                return false;
            }
            Decoded::Invalid => {
                walk.outcome = Outcome::InvalidHeader as u32;
                return false;
            }
        };
        let used = header.header_bytes.wrapping_sub(held);
        state.header_bytes = 0;
        advance(state, walk, used);
        remaining = remaining.wrapping_sub(used);
        if !header.control {
            let Some(next) = next_message(state.message, header.opcode, header.fin) else {
                walk.outcome = Outcome::InvalidHeader as u32;
                return false;
            };
            state.message = next;
            state.skip_bytes = header.payload_bytes;
            walk.data_frames += 1;
            return true;
        }
        state.collecting = 1;
        state.payload_bytes = 0;
        state.payload_length_bytes = header.payload_bytes as u8;
        clear(state);
    }
    let held = u32::from(state.payload_bytes);
    let taken = remaining.min(u32::from(state.payload_length_bytes).saturating_sub(held));
    if taken > 0 && !environment.load(walk.position, &mut state.payload, held, taken) {
        walk.outcome = Outcome::Unreadable as u32;
        return false;
    }
    advance(state, walk, taken);
    state.payload_bytes = (held + taken) as u8;
    if state.payload_bytes != state.payload_length_bytes {
        walk.outcome = Outcome::Exhausted as u32;
        return false;
    }
    state.collecting = 0;
    if state.phase == phase::FRAMES {
        environment.control_frame(&control_frame(state));
    }
    true
}

/// Zeros where the payload of a control frame goes.
#[inline(always)]
fn clear(state: &mut DirectionState) {
    if let Some(room) = state.payload.first_chunk_mut::<128>() {
        *room = [0; 128];
    }
}

/// The control frame that was collected.
#[inline(always)]
fn control_frame(state: &DirectionState) -> ControlFrame<'_> {
    let header: &[u8; HEADER_ROOM_BYTES] = &state.header;
    ControlFrame {
        seq_start: state.frame_seq,
        seq_end: state.expected_seq,
        opcode: header[0] & 0x0f,
        mask: [header[MASK_OFFSET], header[MASK_OFFSET + 1], header[MASK_OFFSET + 2], header[MASK_OFFSET + 3]],
        payload_bytes: state.payload_bytes,
        payload: &state.payload,
    }
}
