//! Text frames `ping` and `pong`, as small hosts write them.

use ackbeat_abi::patterns::{NoRoom, Pattern, Patterns};
use ackbeat_liveness::FrameKind;

use super::{BOTH_WAYS, Message, TEXT};

const QUESTION: &[u8] = b"ping";
const ANSWER: &[u8] = b"pong";

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
