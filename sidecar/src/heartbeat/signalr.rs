//! SignalR's Ping: the message of type 6, alone in a frame. Each side sends its own when it has been quiet for a while, and
//! none answers another's.
//!
//! The JSON protocol writes `{"type":6}` and ends each message with the record separator 0x1e. The `MessagePack` protocol
//! writes a length (2), an array of one (0x91) and the 6, in a binary frame: three bytes, as safe to tell as the text.

use ackbeat_abi::patterns::{NoRoom, Pattern, Patterns};
use ackbeat_liveness::FrameKind;

use super::{BINARY, BOTH_WAYS, Message, TEXT};

const JSON: &[u8] = b"{\"type\":6}\x1e";
const MESSAGE_PACK: &[u8] = b"\x02\x91\x06";

pub(super) fn add_patterns(patterns: &mut Patterns) -> Result<(), NoRoom> {
    patterns.add(Pattern::exact(TEXT, BOTH_WAYS, JSON), &[])?;
    patterns.add(Pattern::exact(BINARY, BOTH_WAYS, MESSAGE_PACK), &[])
}

pub(super) fn decide(message: &Message<'_>) -> Option<FrameKind> {
    let ping = if message.binary { MESSAGE_PACK } else { JSON };
    (message.payload == ping).then_some(FrameKind::Ping)
}
