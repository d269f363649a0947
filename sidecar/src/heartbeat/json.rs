//! JSON objects whose member `type` is `ping` or `pong`, with any other members, in any order.
//!
//! The kernel wants `{` as the first byte and the words `"type"` and `"ping"` or `"pong"` anywhere: what JSON writers write,
//! with or without white space between the tokens. Escapes inside these words are not looked for; nobody writes them.

use ackbeat_abi::patterns::{NoRoom, Pattern, Patterns};
use ackbeat_liveness::FrameKind;
use serde::Deserialize;

use super::{BOTH_WAYS, LONGEST, Message, TEXT};

/// A second `type` makes it no object of this kind, other members are passed over.
#[derive(Deserialize)]
struct Object {
    #[serde(rename = "type")]
    kind: String,
}

pub(super) fn add_patterns(patterns: &mut Patterns) -> Result<(), NoRoom> {
    for word in [b"\"ping\"", b"\"pong\""] {
        patterns.add(Pattern::new(TEXT, BOTH_WAYS, b"{", LONGEST), &[b"\"type\"", word])?;
    }
    Ok(())
}

pub(super) fn decide(message: &Message<'_>) -> Option<FrameKind> {
    // An array would do for a struct, too.
    if message.binary || message.payload.first() != Some(&b'{') {
        return None;
    }
    match serde_json::from_slice::<Object>(message.payload).ok()?.kind.as_str() {
        "ping" => Some(FrameKind::Ping),
        "pong" => Some(FrameKind::Pong),
        _ => None,
    }
}
