//! engine.io (below socket.io): packet types `2` (ping) and `3` (pong) as text frames of their own.
//!
//! Protocol revision 4: the server asks, the client answers; revision 3: the other way round. `2probe` and `3probe` belong
//! to the change of the transport, `42…` is a socket.io message: neither is a heartbeat.

use ackbeat_abi::patterns::{NoRoom, Pattern, Patterns};
use ackbeat_liveness::FrameKind;

use super::{BOTH_WAYS, Message, TEXT};

const QUESTION: &[u8] = b"2";
const ANSWER: &[u8] = b"3";

pub(super) fn add_patterns(patterns: &mut Patterns) -> Result<(), NoRoom> {
    patterns.add(Pattern::exact(TEXT, BOTH_WAYS, QUESTION), &[])?;
    patterns.add(Pattern::exact(TEXT, BOTH_WAYS, ANSWER), &[])
}

pub(super) fn decide(message: &Message<'_>) -> Option<FrameKind> {
    if message.is_text(QUESTION) {
        Some(FrameKind::Ping)
    } else {
        message.is_text(ANSWER).then_some(FrameKind::Pong)
    }
}
