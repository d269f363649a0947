//! The frame header (RFC 6455 section 5.2).

use crate::state::{HEADER_ROOM_BYTES, message};

/// Opcode: continuation of a message.
pub const CONTINUATION: u8 = 0;
/// Opcode: text.
pub const TEXT: u8 = 1;
/// Opcode: binary.
pub const BINARY: u8 = 2;
/// Opcode: Close.
pub const CLOSE: u8 = 8;
/// Opcode: Ping.
pub const PING: u8 = 9;
/// Opcode: Pong.
pub const PONG: u8 = 10;

const FIN: u8 = 0x80;
const RSV1: u8 = 0x40;
const RSV2_RSV3: u8 = 0x30;
const MASK: u8 = 0x80;
const LENGTH: u8 = 0x7f;
/// A control frame's opcode has this bit.
pub const CONTROL: u8 = 0x08;
/// Bits of a frame's first byte that are its opcode.
pub const OPCODE: u8 = 0x0f;

/// A frame header that is whole and valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the header itself, 2 to 14.
    pub header_bytes: u32,
    /// Bytes of payload that follow.
    pub payload_bytes: u64,
    /// Opcode.
    pub opcode: u8,
    /// Whether it is a control frame.
    pub control: bool,
    /// The last frame of its message.
    pub fin: bool,
    /// RSV1 is set: its message is compressed (RFC 7692 section 6).
    pub compressed: bool,
}

/// What the first bytes of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A valid header, and where its payload begins.
    Whole(FrameHeader),
    /// So far a header; more bytes are needed.
    Incomplete,
    /// No header that this direction of a WebSocket may carry.
    Invalid,
}

/// Reads the header from the first `held_bytes` bytes of `bytes`.
///
/// `masked` is what this direction demands: a client masks, a server does not (RFC 6455 section 5.1). RSV1 is allowed
/// on the first frame of a message: permessage-deflate (RFC 7692) sets it. A length must be in its shortest
/// encoding, a 64-bit length must have its top bit clear, and a control frame must be final and short.
#[inline(always)]
#[must_use]
pub fn decode(bytes: &[u8; HEADER_ROOM_BYTES], held_bytes: u32, masked: bool) -> Decoded {
    if held_bytes == 0 {
        return Decoded::Incomplete;
    }
    let first = bytes[0];
    let opcode = first & OPCODE;
    let fin = first & FIN != 0;
    let control = opcode & CONTROL != 0;
    if first & RSV2_RSV3 != 0 {
        return Decoded::Invalid;
    }
    if control {
        if opcode > PONG || !fin || first & RSV1 != 0 {
            return Decoded::Invalid;
        }
    } else if opcode > BINARY || (opcode == CONTINUATION && first & RSV1 != 0) {
        return Decoded::Invalid;
    }
    if held_bytes < 2 {
        return Decoded::Incomplete;
    }
    let second = bytes[1];
    if (second & MASK != 0) != masked {
        return Decoded::Invalid;
    }
    let mask_bytes: u32 = if masked { 4 } else { 0 };
    let short = second & LENGTH;
    if control && short > 125 {
        return Decoded::Invalid;
    }
    let (header_bytes, payload_bytes) = match short {
        126 => {
            if held_bytes < 4 {
                return Decoded::Incomplete;
            }
            let length = u16::from_be_bytes([bytes[2], bytes[3]]);
            if length < 126 {
                return Decoded::Invalid;
            }
            (4 + mask_bytes, u64::from(length))
        }
        127 => {
            if held_bytes < 10 {
                return Decoded::Incomplete;
            }
            let length = u64::from_be_bytes([
                bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7], bytes[8], bytes[9],
            ]);
            if length < 0x1_0000 || length >> 63 != 0 {
                return Decoded::Invalid;
            }
            (10 + mask_bytes, length)
        }
        length => (2 + mask_bytes, u64::from(length)),
    };
    if held_bytes < header_bytes {
        return Decoded::Incomplete;
    }
    Decoded::Whole(FrameHeader {
        header_bytes,
        payload_bytes,
        opcode,
        control,
        fin,
        compressed: first & RSV1 != 0,
    })
}

/// Whether a data frame may follow, and what may follow it (RFC 6455 section 5.4): the new [`message`] state, or
/// `None` where fragments are out of order.
#[inline(always)]
#[must_use]
pub const fn next_message(state: u8, opcode: u8, fin: bool) -> Option<u8> {
    let continues = opcode == CONTINUATION;
    if (state == message::NONE && continues) || (state == message::OPEN && !continues) {
        return None;
    }
    Some(if fin { message::NONE } else { message::OPEN })
}
