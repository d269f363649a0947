//! The WebSocket stream parser (RFC 6455), pure.
//!
//! The same code runs in the kernel program and in the tests: state plus bytes in, heartbeats, Close frames and losses out. No
//! allocation, no clock, no IO. What differs between the two (how bytes are read, how a loop is bounded, where
//! records go) is the trait [`Environment`].
//!
//! - [`frame`]: one frame header.
//! - [`handshake`]: the HTTP part before the frames.
//! - [`stream`]: segments to frames, holes, safe points.
//! - [`text`]: data frames that are text heartbeats.
//! - [`state`]: what is remembered between two segments.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod frame;
pub mod handshake;
pub mod state;
pub mod stream;
pub mod text;

use ackbeat_abi::{
    Counter, Direction, LossReason,
    patterns::{Lengths, Pattern, Word},
};
use state::{DirectionState, PAYLOAD_ROOM_BYTES};

/// `left` comes before `right`; sequence numbers wrap (RFC 9293 section 3.4).
#[inline(always)]
#[must_use]
pub const fn before(left: u32, right: u32) -> bool {
    left.wrapping_sub(right) > i32::MAX as u32
}

/// The payload of one TCP segment (or of many, where the kernel joined them).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Sequence number of the first byte.
    pub seq: u32,
    /// Bytes, at least 1.
    pub length_bytes: u32,
    /// The segment's acknowledgement number.
    pub ack_seq: u32,
}

impl Segment {
    /// Sequence number after the last byte.
    #[inline(always)]
    #[must_use]
    pub const fn end(&self) -> u32 {
        self.seq.wrapping_add(self.length_bytes)
    }
}

/// Where a walk stands in the segment's payload.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    /// Offset of the next byte to look at.
    pub position: u32,
    /// Bytes in the payload.
    pub length_bytes: u32,
    /// Data frames stepped over, or that no pattern fits.
    pub data_frames: u32,
    /// How it ended: a number of [`Outcome`].
    pub outcome: u32,
    /// 1 while the bytes are those of a kept segment.
    pub from_kept: u32,
    /// Sequence number after the kept segment's last byte. It can lie behind the bytes that were kept of it.
    pub kept_end: u32,
}

/// How a walk ended.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The loop's bound was reached first.
    Unfinished = 0,
    /// Every byte was used.
    Exhausted = 1,
    /// Bytes that are no frame header.
    InvalidHeader = 2,
    /// Bytes could not be read.
    Unreadable = 3,
    /// The answer is not one of status 101.
    OtherAnswer = 4,
    /// The first answer is no HTTP/1.
    NotHttp = 5,
    /// The head of the 101 answer ended; the frames begin here.
    Upgraded = 6,
    /// The head of a 101 answer ended that speaks of another protocol.
    OtherProtocol = 7,
    /// The head of the answer is too long.
    HeadTooLong = 8,
    /// A kept segment was longer than what was kept of it, and a frame header may have been in the rest.
    Hole = 9,
}

/// Segments of one direction that are kept while they wait for a hole to be filled.
pub const KEPT_SEGMENTS_MAX: usize = 8;
/// Bytes that are kept of each. What lies behind must be payload of a data frame, or the position is lost.
pub const KEPT_BYTES_MAX: usize = 512;

/// A control frame, or a data frame that a pattern fits.
#[derive(Clone, Copy, Debug)]
pub struct ReportedFrame<'a> {
    /// Sequence number of the frame's first byte.
    pub seq_start: u32,
    /// Sequence number after its last byte.
    pub seq_end: u32,
    /// Opcode: 8, 9 or 10; 1 or 2.
    pub opcode: u8,
    /// Masking key, if the direction has one.
    pub mask: [u8; 4],
    /// Bytes of payload.
    pub payload_bytes: u8,
    /// The payload as on the wire; zeros up to 128 bytes.
    pub payload: &'a [u8; PAYLOAD_ROOM_BYTES],
}

/// What the parser needs from where it runs.
pub trait Environment {
    /// Copies `length` bytes of the segment's payload from `offset` on into `room[at..]`. Returns whether it could.
    ///
    /// `at` and `length` are both less than half of `N`, so they always fit; the kernel's verifier wants exactly that
    /// bound, because it adds the largest offset to the largest length.
    fn load<const N: usize>(&mut self, offset: u32, room: &mut [u8; N], at: u32, length: u32) -> bool;

    /// Runs [`stream::go_on`] until it says stop, at most [`ackbeat_abi::FRAMES_PER_BUFFER_MAX`] times.
    fn walk_frames(&mut self, state: &mut DirectionState);

    /// Runs [`handshake::answer_step`] until it says stop, at most [`ackbeat_abi::HEAD_MAX_BYTES`] times.
    fn walk_answer(&mut self, state: &mut DirectionState);

    /// A request's bytes, from `offset` of the segment on: `seq` is their sequence number. `fresh` begins a new
    /// request; otherwise they are kept only if they continue what was kept.
    fn keep_head(&mut self, seq: u32, offset: u32, length: u32, fresh: bool);

    /// Whether a request's head is kept that ends at `seq`.
    fn continues_head(&mut self, seq: u32) -> bool;

    /// The upgrade happened. Reports the request's head if one is kept that ends at `end_seq`, before it by a FIN, or
    /// that was cut; and forgets it. Returns the sequence number after its blank line if bytes follow it that came
    /// before the answer, else `end_seq`.
    fn take_head(&mut self, end_seq: u32) -> u32;

    /// Keeps a segment that came before a hole in front of it was filled, or as much of it as there is room for.
    /// Returns whether it could. `kept` is [`DirectionState::kept`]: one bit for each place that is taken.
    fn keep_segment(&mut self, kept: &mut u8, segment: &Segment) -> bool;

    /// Makes a kept segment that begins at or before `state.expected_seq` and ends behind it the source of bytes, and
    /// sets `state.walk` to it. Gives places of segments that end before back. Returns whether there was one.
    fn next_kept(&mut self, state: &mut DirectionState) -> bool;

    /// Which payloads of this opcode (text, binary) are worth collecting in this direction.
    fn text_lengths(&mut self, opcode: u8) -> Lengths;

    /// A pattern, below [`ackbeat_abi::patterns::PATTERNS_MAX`]. `None` behind the
    /// last one.
    fn pattern(&mut self, index: usize) -> Option<Pattern>;

    /// A word of the patterns, below [`ackbeat_abi::patterns::WORDS_MAX`]. `None` behind the last one.
    fn word(&mut self, index: usize) -> Option<Word>;

    /// The byte of `state.payload` at `position`, which is below half of its room.
    fn payload_byte(&mut self, state: &DirectionState, position: u32) -> u8;

    /// Runs [`text::search_step`] until it says stop, at most [`ackbeat_abi::CONTROL_PAYLOAD_MAX_BYTES`] times.
    fn search_words(&mut self, state: &mut DirectionState);

    /// A whole frame at its exact position: a control frame, or a data frame that a pattern fits.
    fn frame(&mut self, frame: &ReportedFrame<'_>);

    /// The parser now follows this direction of the stream from `seq` on (`reason` is `None`), or no longer.
    fn synchronization(&mut self, direction: Direction, seq: u32, reason: Option<LossReason>);

    /// The monotonic clock, in nanoseconds. Asked only where time matters: reading it costs as much as stepping over a
    /// whole buffer.
    fn now_ns(&mut self) -> u64;

    /// Adds to a counter.
    fn count(&mut self, counter: Counter, amount: u64);
}
