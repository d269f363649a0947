//! Phoenix channels: the client sends the event `heartbeat` on the topic `phoenix`, the server answers with `phx_reply` and
//! the same `ref`.
//!
//! Serializer 2.0.0 writes an array of join reference, reference, topic, event and payload; 1.0.0 an object. A `phx_reply` on
//! another topic answers somebody's own message.

use ackbeat_abi::patterns::{NoRoom, Pattern, Patterns};
use ackbeat_liveness::FrameKind;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{FROM_PEER, LONGEST, Message, TEXT, TO_PEER};

const TOPIC: &str = "phoenix";
const QUESTION: &str = "heartbeat";
const ANSWER: &str = "phx_reply";

/// `ref`: clients count in text; a number is taken as well.
#[derive(Deserialize)]
#[serde(untagged)]
enum Reference {
    Text(String),
    Number(u64),
}

#[derive(Deserialize)]
struct Object {
    topic: String,
    event: String,
    #[serde(rename = "ref")]
    reference: Reference,
}

/// Join reference, reference, topic, event, payload.
type Array = (IgnoredAny, Reference, String, String, IgnoredAny);

pub(super) fn add_patterns(patterns: &mut Patterns) -> Result<(), NoRoom> {
    for start in [b"[", b"{"] {
        patterns.add(Pattern::new(TEXT, FROM_PEER, start, LONGEST), &[b"phoenix\"", b"\"heartbeat"])?;
        patterns.add(Pattern::new(TEXT, TO_PEER, start, LONGEST), &[b"phoenix\"", b"\"phx_reply"])?;
    }
    Ok(())
}

pub(super) fn decide(message: &Message<'_>) -> Option<(FrameKind, Vec<u8>)> {
    if message.binary {
        return None;
    }
    let (topic, event, reference) = match message.payload.first()? {
        b'[' => {
            let (_, reference, topic, event, _): Array = serde_json::from_slice(message.payload).ok()?;
            (topic, event, reference)
        }
        b'{' => {
            let found: Object = serde_json::from_slice(message.payload).ok()?;
            (found.topic, found.event, found.reference)
        }
        _ => return None,
    };
    let kind = match (topic.as_str(), event.as_str()) {
        (TOPIC, QUESTION) => FrameKind::Ping,
        (TOPIC, ANSWER) => FrameKind::Pong,
        _ => return None,
    };
    let id = match reference {
        Reference::Text(text) => text,
        Reference::Number(number) => number.to_string(),
    };
    Some((kind, id.into_bytes()))
}
