//! What is remembered of one connection between two buffers.

use ackbeat_abi::CONTROL_PAYLOAD_MAX_BYTES;

use crate::{Walk, text::Search};

/// Longest frame header, in bytes: 2, an 8-byte length, a 4-byte masking key (RFC 6455 section 5.2).
pub const HEADER_MAX_BYTES: usize = 14;
/// Room for a header that is split over buffers. More than [`HEADER_MAX_BYTES`]: the kernel's verifier adds the
/// largest offset (15) to the largest length (15) and wants room for the sum.
pub const HEADER_ROOM_BYTES: usize = 32;
/// Room for the payload of a collected frame that is split over buffers, for the same reason: 127 + 127.
pub const PAYLOAD_ROOM_BYTES: usize = 256;

const _: () = assert!(CONTROL_PAYLOAD_MAX_BYTES <= 127);

/// Where the parser stands in one direction of a stream.
///
/// The numbers are stable: a map value outlives the code that wrote it by one packet at most, but the tests read it.
pub mod phase {
    /// HTTP: the upgrade has not happened yet. Zero, so that a zeroed state is a connection that was just opened.
    pub const HTTP: u8 = 0;
    /// Egress only: inside the head of an answer that begins with `HTTP/1.1 101`.
    pub const ANSWER: u8 = 1;
    /// Synchronized: the position of the next frame header is known.
    pub const FRAMES: u8 = 2;
    /// The position is not known; the next segment in order may be a safe point.
    pub const LOST: u8 = 3;
    /// A parse that began at a guessed position and that too few independent alignments confirm yet.
    pub const TENTATIVE: u8 = 4;
    /// The connection is older than the parser. Becomes [`LOST`], and is reported, with the first segment.
    pub const MIDSTREAM: u8 = 5;
    /// No WebSocket. Nothing is looked at any more.
    pub const OPAQUE: u8 = 6;
}

/// Where a direction stands with regard to fragmented messages (RFC 6455 section 5.4).
pub mod message {
    /// The next data frame begins a message. Zero: a stream begins so.
    pub const NONE: u8 = 0;
    /// The next data frame is a continuation.
    pub const OPEN: u8 = 1;
    /// Not known: the parser came in the middle.
    pub const UNKNOWN: u8 = 2;
}

/// One direction of one connection.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectionState {
    /// 1 while a processor works on this direction, else 0. Only the kernel program touches it, atomically.
    pub busy: u64,
    /// Payload bytes that lie between `expected_seq` and the next frame header.
    pub skip_bytes: u64,
    /// Time of the last segment with payload, in nanoseconds of the monotonic clock. Kept only while the position is not
    /// known or a hole is waited for: a loss begins with it.
    pub last_segment_ns: u64,
    /// Sequence number after the last byte seen in order.
    pub expected_seq: u32,
    /// Sequence number of the first byte of the frame whose header or payload is split over buffers.
    pub frame_seq: u32,
    /// One of [`phase`].
    pub phase: u8,
    /// 1 once a segment with payload was seen, so that `expected_seq` means something.
    pub started: u8,
    /// Bytes of `header` that are filled.
    pub header_bytes: u8,
    /// Bytes of `payload` that are filled.
    pub payload_bytes: u8,
    /// Length of the payload that is being collected; meaningful while `collecting` is 1.
    pub payload_length_bytes: u8,
    /// 1 while the payload of a control frame, or of a data frame that may be a heartbeat, is being collected.
    pub collecting: u8,
    /// One of [`message`].
    pub message: u8,
    /// Independent alignments since the tentative parse began.
    pub alignments: u8,
    /// Segments since then that began inside a payload after a quiet time.
    pub unaligned: u8,
    /// HTTP: 1 if the next new byte of this direction begins a request (ingress) or an answer (egress) that was
    /// preceded by something in the other direction.
    pub turn: u8,
    /// HTTP, egress: bytes of `HTTP/1.1 101` matched so far, or [`NO_MATCH`], or [`INTERIM`].
    pub status_matched: u8,
    /// HTTP, egress: bytes of the blank line matched so far.
    pub blank_matched: u8,
    /// HTTP, egress: bytes matched so far of the field name that makes the answer a WebSocket's, or [`ACCEPTED`].
    pub accept_matched: u8,
    /// Places that are taken by segments which came before a hole in front of them was filled, one bit each.
    pub kept: u8,
    /// HTTP, egress: bytes of the answer's head so far.
    pub head_bytes: u16,
    /// HTTP, egress: 1 once an answer began like HTTP/1.
    pub answered: u8,
    /// 1 while a segment went by unseen because another processor worked on this direction for too long, and that is
    /// not said yet. Written without the lock; read and cleared under it.
    pub contended: u8,
    /// Always zero.
    pub padding: [u8; 6],
    /// Where the parser is in the segment at hand. Meaningless between segments; it is here because what the kernel's
    /// verifier reads from a map has no history, and so gives it no more cases to tell apart.
    pub walk: Walk,
    /// The search for words in a collected payload.
    pub search: Search,
    /// The header of the frame at hand: it may be split over buffers, and is needed until the payload is collected.
    pub header: [u8; HEADER_ROOM_BYTES],
    /// The payload of the frame that is being collected.
    pub payload: [u8; PAYLOAD_ROOM_BYTES],
}

/// [`DirectionState::status_matched`]: what is being sent is no answer of status 101.
pub const NO_MATCH: u8 = 255;
/// [`DirectionState::status_matched`]: inside the head of an interim answer, after which the real one follows.
pub const INTERIM: u8 = 254;
/// [`DirectionState::accept_matched`]: the answer is a WebSocket's.
pub const ACCEPTED: u8 = 255;

impl DirectionState {
    /// A direction in which nothing was sent yet.
    pub const OPENED: Self = Self {
        busy: 0,
        skip_bytes: 0,
        last_segment_ns: 0,
        expected_seq: 0,
        frame_seq: 0,
        phase: phase::HTTP,
        started: 0,
        header_bytes: 0,
        payload_bytes: 0,
        payload_length_bytes: 0,
        collecting: 0,
        message: message::NONE,
        alignments: 0,
        unaligned: 0,
        turn: 0,
        status_matched: 0,
        blank_matched: 0,
        accept_matched: 0,
        kept: 0,
        head_bytes: 0,
        answered: 0,
        contended: 0,
        padding: [0; 6],
        walk: Walk { position: 0, length_bytes: 0, data_frames: 0, outcome: 0, from_kept: 0, kept_end: 0 },
        search: Search { window: 0, found: 0, position: 0 },
        header: [0; HEADER_ROOM_BYTES],
        payload: [0; PAYLOAD_ROOM_BYTES],
    };
}

/// One connection: the value of the map `FLOWS`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowState {
    /// Socket cookie; 0 while it is not known.
    pub cookie: u64,
    /// 1 if the send queue was empty at the last sample: the next segment with payload is worth an
    /// [`ackbeat_abi::Outstanding`]. Set by the sampler, cleared by the wire parser.
    pub quiet: u8,
    /// Always zero.
    pub padding: [u8; 7],
    /// From the peer.
    pub ingress: DirectionState,
    /// To the peer.
    pub egress: DirectionState,
}

impl FlowState {
    /// A connection that was just established: all zeros.
    pub const OPENED: Self = Self {
        cookie: 0,
        quiet: 0,
        padding: [0; 7],
        ingress: DirectionState::OPENED,
        egress: DirectionState::OPENED,
    };
}

const _: () = {
    assert!(size_of::<DirectionState>() == 24 + 8 + 24 + 24 + 16 + HEADER_ROOM_BYTES + PAYLOAD_ROOM_BYTES);
    assert!(size_of::<FlowState>() == 16 + 2 * size_of::<DirectionState>());
};
