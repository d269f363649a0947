//! Text heartbeats: short, unfragmented, uncompressed data frames that one of the patterns fits.
//!
//! The payload of such a frame is collected like that of a control frame, unmasked for the comparison only, and reported if
//! a pattern fits. Every other data frame is stepped over.
//!
//! Beginnings and lengths are compared first. Only where a pattern is left that also asks for words, the payload is gone
//! through byte by byte: a chat's messages mostly end with their first byte.

use ackbeat_abi::{
    Counter, Direction,
    patterns::{PATTERNS_MAX, WORDS_MAX},
};

use crate::{
    Environment,
    frame::{BINARY, FrameHeader, TEXT},
    state::DirectionState,
};

/// Where the search for words in a payload stands. Meaningless between payloads; it is in the state for the same reason as
/// [`crate::Walk`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// The last eight bytes that were looked at, unmasked, the latest in the low bits.
    pub window: u64,
    /// Bits of the words that were found.
    pub found: u32,
    /// Offset of the next byte to look at.
    pub position: u32,
}

/// Whether the payload of a data frame is worth collecting.
#[inline(always)]
pub(crate) fn is_candidate<E: Environment>(environment: &mut E, header: &FrameHeader) -> bool {
    if header.opcode != TEXT && header.opcode != BINARY {
        return false;
    }
    let lengths = environment.text_lengths(header.opcode);
    lengths.max_bytes != 0
        && header.fin
        && !header.compressed
        && header.payload_bytes <= u64::from(lengths.max_bytes)
        && header.payload_bytes >= u64::from(lengths.min_bytes)
}

/// Whether a pattern fits the payload that was collected.
///
/// `masked` is what the direction demands.
#[inline(always)]
pub(crate) fn fits<E: Environment>(environment: &mut E, state: &mut DirectionState, masked: bool) -> bool {
    environment.count(Counter::WireTextFrames, 1);
    let key = if masked { u64::from(key(state)) << 32 | u64::from(key(state)) } else { 0 };
    let start = [number(state, 0) ^ key, number(state, 8) ^ key];
    let opcode = state.header[0] & 0x0f;
    let length = state.payload_bytes;
    let direction = if masked { Direction::Ingress } else { Direction::Egress };
    let mut possible = 0_u32;
    for index in 0..PATTERNS_MAX {
        let Some(pattern) = environment.pattern(index) else { break };
        if !pattern.looks_in(direction)
            || pattern.opcode != opcode
            || length < pattern.length_min_bytes
            || length > pattern.length_max_bytes
            || start[0] & pattern.start_mask[0] != pattern.start[0]
            || start[1] & pattern.start_mask[1] != pattern.start[1]
        {
            continue;
        }
        if pattern.words == 0 {
            environment.count(Counter::WireTextMatches, 1);
            return true;
        }
        possible |= 1 << index;
    }
    if possible == 0 {
        return false;
    }
    state.search = Search::default();
    environment.search_words(state);
    for index in 0..PATTERNS_MAX {
        let Some(pattern) = environment.pattern(index) else { break };
        if possible & (1 << index) != 0
            && state.search.found & u32::from(pattern.words) == u32::from(pattern.words)
        {
            environment.count(Counter::WireTextMatches, 1);
            return true;
        }
    }
    false
}

/// Looks at one byte of the payload. Returns whether to go on.
#[inline(always)]
pub fn search_step<E: Environment>(environment: &mut E, state: &mut DirectionState, masked: bool) -> bool {
    let position = state.search.position;
    if position >= u32::from(state.payload_bytes) {
        return false;
    }
    let mut byte = environment.payload_byte(state, position);
    if masked {
        byte ^= ((key(state) >> (24 - 8 * (position & 3))) & 0xff) as u8;
    }
    state.search.position = position + 1;
    let window = state.search.window << 8 | u64::from(byte);
    state.search.window = window;
    let mut found = state.search.found;
    for index in 0..WORDS_MAX {
        let Some(word) = environment.word(index) else { break };
        // Before eight bytes were seen, zeros stand in front of them; no word has one.
        if window & word.mask == word.value {
            found |= 1 << index;
        }
    }
    state.search.found = found;
    true
}

/// The masking key, which is the end of the header (RFC 6455 section 5.2); a short payload's header has two bytes before.
#[inline(always)]
const fn key(state: &DirectionState) -> u32 {
    u32::from_be_bytes([state.header[2], state.header[3], state.header[4], state.header[5]])
}

/// Eight bytes of the payload as on the wire.
#[inline(always)]
const fn number(state: &DirectionState, at: usize) -> u64 {
    let payload = &state.payload;
    u64::from_be_bytes([
        payload[at],
        payload[at + 1],
        payload[at + 2],
        payload[at + 3],
        payload[at + 4],
        payload[at + 5],
        payload[at + 6],
        payload[at + 7],
    ])
}
