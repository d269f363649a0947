//! Segments to frames: holes, repetitions, loss of sync and safe points (RFC 6455 section 5).
//!
//! # When a lost position counts as found again
//!
//! After a loss the parser guesses: a segment that follows the one before it without a gap, after a quiet time of
//! [`QUIET_NS`], may begin with a frame header. It follows the chain from there, reports nothing, and believes it
//! after [`ALIGNMENTS_NEEDED`] *independent alignments* with no invalid header in between. An alignment is a segment
//! after a quiet time that begins where the chain expects a header and is exactly one control frame or text heartbeat,
//! whole, with nothing behind it: what a Ping or Pong on a connection without other traffic looks like.
//!
//! How likely is a wrong position? For bytes drawn at random, a first byte is that of a control frame with probability
//! 3/256 (FIN, RSV, opcode), and the second byte names exactly the length that ends at the segment's end, with the
//! right mask bit, with 1/256: below 5 in 100,000, three times 1 in 10^13. Each needs a quiet time, so a connection
//! can try some 60 times a second: one wrong position in some thousand years of random bytes, and even then the next
//! header is invalid in 19 of 20 cases, before a wrong frame is reported. A text heartbeat is less likely still: first byte
//! and length are as rare, and its payload must fit a pattern, the shortest of which is a whole byte.
//!
//! Bytes chosen by somebody can look like an endless chain of frames: a file full of `8a 00`, empty Pongs, inside one
//! large message, and a slow link makes quiet times between its segments. But those segments are full ones, never two
//! bytes long. Whoever chooses the bytes, the time *and* the length of every segment is the endpoint itself, and could
//! send real frames as well; and what a browser's page chooses is masked with a key that it does not choose.

use ackbeat_abi::{Counter, Direction, LossReason};

use crate::{
    Environment, Outcome, ReportedFrame, Segment, before,
    frame::{CONTROL, Decoded, OPCODE, decode, next_message},
    handshake,
    state::{DirectionState, FlowState, HEADER_ROOM_BYTES, message, phase},
    text,
};

/// Independent alignments after which a guessed position is believed.
pub const ALIGNMENTS_NEEDED: u8 = 3;
/// Time without payload in a direction after which its next segment begins a new write, in nanoseconds: 5 ms. Longer
/// than the gaps inside a burst; far shorter than any heartbeat interval.
pub const QUIET_NS: u64 = 5_000_000;
/// Segments after a quiet time that may begin inside a payload before a guess with at least one alignment is given up:
/// one that misread a length would otherwise wait for ever. A guess without any is given up at once.
pub const UNALIGNED_MAX: u8 = 3;

/// The bytes of a masking key in the header of a frame that is collected.
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
    if matches!(direction, Direction::Egress) {
        acknowledge(environment, &mut flow.ingress, segment.ack_seq);
    }
    let phase = match direction {
        Direction::Ingress => flow.ingress.phase,
        Direction::Egress => flow.egress.phase,
    };
    match phase {
        phase::OPAQUE => {}
        phase::HTTP | phase::ANSWER => match direction {
            Direction::Ingress => handshake::ingress(environment, flow, segment),
            Direction::Egress => handshake::egress(environment, flow, segment),
        },
        _ => match direction {
            Direction::Ingress => frames(environment, &mut flow.ingress, direction, segment),
            Direction::Egress => frames(environment, &mut flow.egress, direction, segment),
        },
    }
}

/// The position of the next header is `expected_seq`.
#[inline(always)]
pub(crate) fn synchronize(state: &mut DirectionState, message: u8) {
    state.phase = phase::FRAMES;
    state.frame_seq = state.expected_seq;
    state.message = message;
    state.skip_bytes = 0;
    state.header_bytes = 0;
    state.collecting = 0;
    state.kept = 0;
}

/// The position is no longer known; it is said once.
#[inline(never)]
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

/// The position is no longer known from this segment on.
#[inline(always)]
fn lose_now<E: Environment>(
    environment: &mut E,
    state: &mut DirectionState,
    direction: Direction,
    reason: LossReason,
) {
    state.last_segment_ns = environment.now_ns();
    lose(environment, state, direction, state.expected_seq, reason);
}

/// Says that a segment went by unseen, if one did: another processor worked on this direction for too long.
///
/// To be called while the direction is held, so that no frame can be reported behind the loss.
#[inline(always)]
pub fn contended<E: Environment>(environment: &mut E, state: &mut DirectionState, direction: Direction) {
    state.contended = 0;
    if state.phase == phase::FRAMES {
        lose_now(environment, state, direction, LossReason::Contended);
    }
}

/// Assumes a frame header at the first byte of this segment.
#[inline(always)]
fn guess(state: &mut DirectionState) {
    synchronize(state, message::UNKNOWN);
    state.phase = phase::TENTATIVE;
    state.alignments = 0;
    state.unaligned = 0;
}

/// Steps over a segment that is payload of a data frame and nothing else, in its place: most of a large message. Returns
/// whether it is one.
#[inline(always)]
fn step_over(state: &mut DirectionState, segment: &Segment) -> bool {
    let bytes = u64::from(segment.length_bytes);
    if state.phase != phase::FRAMES
        || state.kept != 0
        || state.expected_seq != segment.seq
        || state.skip_bytes < bytes
    {
        return false;
    }
    state.skip_bytes -= bytes;
    state.expected_seq = segment.end();
    true
}

/// Whether this segment comes after a quiet time. Keeps its own time for the next.
#[inline(always)]
fn was_quiet<E: Environment>(environment: &mut E, state: &mut DirectionState) -> bool {
    let now_ns = environment.now_ns();
    let is_quiet = now_ns.wrapping_sub(state.last_segment_ns) >= QUIET_NS;
    state.last_segment_ns = now_ns;
    is_quiet
}

#[inline(always)]
fn frames<E: Environment>(
    environment: &mut E,
    state: &mut DirectionState,
    direction: Direction,
    segment: &Segment,
) {
    if step_over(state, segment) {
        return;
    }
    if state.phase == phase::MIDSTREAM {
        state.started = 0;
        lose(environment, state, direction, segment.seq, LossReason::Midstream);
    }
    // Where the position is known and no hole is waited for, no time matters.
    let quiet = (state.phase != phase::FRAMES || state.kept != 0) && was_quiet(environment, state);
    let end = segment.end();
    if state.started == 0 {
        state.started = 1;
        state.expected_seq = end;
        return;
    }
    if !before(state.expected_seq, end) {
        environment.count(Counter::WireRetransmissions, 1);
        return;
    }
    let mut position = 0;
    if before(segment.seq, state.expected_seq) {
        position = state.expected_seq.wrapping_sub(segment.seq);
    }
    if before(state.expected_seq, segment.seq) {
        let gap = segment.seq.wrapping_sub(state.expected_seq);
        // While payload is skipped no header and no payload is being collected.
        let payload_only = state.phase == phase::FRAMES && u64::from(gap) <= state.skip_bytes;
        if !payload_only {
            if state.phase == phase::FRAMES && environment.keep_segment(&mut state.kept, segment) {
                // The missing bytes may still come, and the peer's TCP sees to it that they do.
                state.last_segment_ns = environment.now_ns();
                return;
            }
            lose_now(environment, state, direction, LossReason::Hole);
            state.expected_seq = end;
            return;
        }
        // Nothing but payload of a data frame went by unseen: no header can have been in it.
        state.skip_bytes -= u64::from(gap);
        state.expected_seq = segment.seq;
    }
    let independent = position == 0 && quiet;
    if state.phase != phase::FRAMES && independent {
        let at_header = at_header(state);
        let given_up = state.alignments == 0 || state.unaligned >= UNALIGNED_MAX;
        if state.phase == phase::LOST || (!at_header && given_up) {
            guess(state);
        } else if !at_header {
            state.unaligned += 1;
        }
    }
    if state.phase == phase::LOST {
        state.expected_seq = end;
        return;
    }
    let may_align = state.phase == phase::TENTATIVE && independent && at_header(state);
    state.walk.position = position;
    state.walk.length_bytes = segment.length_bytes;
    walk(environment, state, direction, segment);
    // No data frame in it, and the last frame began with the segment: it is one control frame or text heartbeat, and
    // nothing else.
    let alone = state.walk.data_frames == 0 && state.frame_seq == segment.seq && at_header(state);
    if may_align && alone && state.phase == phase::TENTATIVE {
        state.alignments += 1;
        if state.alignments >= ALIGNMENTS_NEEDED {
            state.phase = phase::FRAMES;
            environment.count(Counter::WireRecoveries, 1);
            environment.synchronization(direction, state.expected_seq, None);
        }
    }
}

/// Whether the next byte is the first of a frame header.
#[inline(always)]
const fn at_header(state: &DirectionState) -> bool {
    state.skip_bytes == 0 && state.header_bytes == 0 && state.collecting == 0
}

/// Follows the frames of a segment from `state.walk.position` on, where `expected_seq` stands.
#[inline(always)]
pub(crate) fn walk<E: Environment>(
    environment: &mut E,
    state: &mut DirectionState,
    direction: Direction,
    segment: &Segment,
) {
    state.walk.outcome = Outcome::Unfinished as u32;
    state.walk.data_frames = 0;
    state.walk.from_kept = 0;
    environment.walk_frames(state);
    if state.walk.data_frames > 0 && state.phase == phase::FRAMES {
        environment.count(Counter::WireDataFrames, u64::from(state.walk.data_frames));
    }
    if state.walk.outcome == Outcome::Exhausted as u32 {
        return;
    }
    let reason = if state.walk.outcome == Outcome::InvalidHeader as u32 {
        LossReason::InvalidHeader
    } else if state.walk.outcome == Outcome::Unreadable as u32 {
        LossReason::Unreadable
    } else if state.walk.outcome == Outcome::Hole as u32 {
        LossReason::Hole
    } else {
        LossReason::TooManyFrames
    };
    lose_now(environment, state, direction, reason);
    if before(state.expected_seq, segment.end()) {
        state.expected_seq = segment.end();
    }
}

/// [`step`], and when the bytes at hand are used up: goes on with a kept segment that follows. Returns whether to go on.
#[inline(always)]
pub fn go_on<E: Environment>(environment: &mut E, state: &mut DirectionState, masked: bool) -> bool {
    step(environment, state, masked) || next_source(environment, state)
}

/// Goes on with a kept segment, if one follows.
#[inline(always)]
fn next_source<E: Environment>(environment: &mut E, state: &mut DirectionState) -> bool {
    if state.kept == 0 && state.walk.from_kept == 0 {
        return false;
    }
    if state.walk.outcome != Outcome::Exhausted as u32 || state.phase != phase::FRAMES {
        return false;
    }
    if state.walk.from_kept != 0 && before(state.expected_seq, state.walk.kept_end) {
        let unseen = u64::from(state.walk.kept_end.wrapping_sub(state.expected_seq));
        if unseen > state.skip_bytes {
            state.walk.outcome = Outcome::Hole as u32;
            return false;
        }
        state.skip_bytes -= unseen;
        state.expected_seq = state.walk.kept_end;
    }
    state.walk.from_kept = 0;
    state.kept != 0 && environment.next_kept(state)
}

/// On the way out: this host's TCP acknowledges bytes from the peer that the parser still waits for, so they went by
/// unseen and nothing will fill the hole.
#[inline(always)]
pub fn acknowledge<E: Environment>(environment: &mut E, state: &mut DirectionState, ack_seq: u32) {
    if state.kept != 0 && state.phase == phase::FRAMES && before(state.expected_seq, ack_seq) {
        lose(environment, state, Direction::Ingress, state.expected_seq, LossReason::Hole);
        state.expected_seq = ack_seq;
    }
}

/// Goes on by `bytes`, which are at hand.
#[inline(always)]
fn advance(state: &mut DirectionState, bytes: u32) {
    state.walk.position = state.walk.position.wrapping_add(bytes);
    state.expected_seq = state.expected_seq.wrapping_add(bytes);
}

/// Takes the next frame, or as much of it as the segment holds. Returns whether to go on.
///
/// `masked` is what the direction demands.
#[inline(always)]
pub fn step<E: Environment>(environment: &mut E, state: &mut DirectionState, masked: bool) -> bool {
    let mut remaining = state.walk.length_bytes.wrapping_sub(state.walk.position);
    if state.skip_bytes > 0 {
        if state.skip_bytes >= u64::from(remaining) {
            state.skip_bytes -= u64::from(remaining);
            advance(state, remaining);
            state.walk.outcome = Outcome::Exhausted as u32;
            return false;
        }
        let skipped = (state.skip_bytes & 0xffff_ffff) as u32;
        state.skip_bytes = 0;
        advance(state, skipped);
        remaining -= skipped;
    }
    if remaining == 0 {
        state.walk.outcome = Outcome::Exhausted as u32;
        return false;
    }
    if state.collecting == 0 {
        let held = u32::from(state.header_bytes);
        if held == 0 {
            state.frame_seq = state.expected_seq;
        }
        let taken = remaining.min(14_u32.saturating_sub(held));
        if !environment.load(state.walk.position, &mut state.header, held, taken) {
            state.walk.outcome = Outcome::Unreadable as u32;
            return false;
        }
        let header = match decode(&state.header, held + taken, masked) {
            Decoded::Whole(header) => header,
            Decoded::Incomplete => {
                state.header_bytes = ((held + taken) & 0xff) as u8;
                advance(state, taken);
                state.walk.outcome = Outcome::Exhausted as u32;
                return false;
            }
            Decoded::Invalid => {
                state.walk.outcome = Outcome::InvalidHeader as u32;
                return false;
            }
        };
        let used = header.header_bytes.wrapping_sub(held);
        state.header_bytes = 0;
        advance(state, used);
        remaining = remaining.wrapping_sub(used);
        if !header.control {
            let Some(next) = next_message(state.message, header.opcode, header.fin) else {
                state.walk.outcome = Outcome::InvalidHeader as u32;
                return false;
            };
            state.message = next;
            if !text::is_candidate(environment, &header) {
                state.skip_bytes = header.payload_bytes;
                state.walk.data_frames += 1;
                return true;
            }
        }
        state.collecting = 1;
        state.payload_bytes = 0;
        state.payload_length_bytes = (header.payload_bytes & 0xff) as u8;
        clear(state);
    }
    let held = u32::from(state.payload_bytes);
    let taken = remaining.min(u32::from(state.payload_length_bytes).saturating_sub(held));
    if taken > 0 && !environment.load(state.walk.position, &mut state.payload, held, taken) {
        state.walk.outcome = Outcome::Unreadable as u32;
        return false;
    }
    advance(state, taken);
    state.payload_bytes = ((held + taken) & 0xff) as u8;
    if state.payload_bytes != state.payload_length_bytes {
        state.walk.outcome = Outcome::Exhausted as u32;
        return false;
    }
    state.collecting = 0;
    if state.header[0] & CONTROL == 0 && !text::fits(environment, state, masked) {
        state.walk.data_frames += 1;
        return true;
    }
    if state.phase == phase::FRAMES {
        environment.frame(&reported_frame(state));
    }
    true
}

/// Zeros where the payload of a collected frame goes.
#[inline(always)]
fn clear(state: &mut DirectionState) {
    if let Some(room) = state.payload.first_chunk_mut::<128>() {
        *room = [0; 128];
    }
}

/// The frame that was collected.
#[inline(always)]
fn reported_frame(state: &DirectionState) -> ReportedFrame<'_> {
    let header: &[u8; HEADER_ROOM_BYTES] = &state.header;
    ReportedFrame {
        seq_start: state.frame_seq,
        seq_end: state.expected_seq,
        opcode: header[0] & OPCODE,
        mask: [
            header[MASK_OFFSET],
            header[MASK_OFFSET + 1],
            header[MASK_OFFSET + 2],
            header[MASK_OFFSET + 3],
        ],
        payload_bytes: state.payload_bytes,
        payload: &state.payload,
    }
}
