//! Takes the payloads out of what is recorded.

use std::hash::{BuildHasher as _, RandomState};

use ackbeat_liveness::{Frame, Input};

/// Replaces the application data of heartbeats by words that are equal where the data were.
///
/// A recording is made to be handed on after an incident, and a heartbeat may carry anything: session names, tokens.
/// The engine asks only whether a Pong repeats its Ping (RFC 6455 section 5.5.3). So each payload becomes its length
/// and a keyed hash; the key is random and is kept nowhere, so a guess cannot be tried against the file.
#[derive(Debug, Default)]
pub(super) struct PayloadHasher {
    key: RandomState,
}

impl PayloadHasher {
    /// The input without payload; `None` where it has none and can be recorded as it is.
    pub(super) fn without_payload(&self, input: &Input) -> Option<Input> {
        match input {
            Input::Frame(frame) if !frame.payload.is_empty() => {
                Some(Input::Frame(Frame { payload: self.word(&frame.payload), ..frame.clone() }))
            }
            _ => None,
        }
    }

    fn word(&self, payload: &[u8]) -> Vec<u8> {
        // A control frame has at most 125 bytes (RFC 6455 section 5.5).
        let mut word = vec![u8::try_from(payload.len()).unwrap_or(u8::MAX)];
        word.extend(self.key.hash_one(payload).to_be_bytes());
        word
    }
}

#[cfg(test)]
mod tests {
    use super::PayloadHasher;

    #[test]
    fn words_are_equal_where_payloads_were() {
        let hasher = PayloadHasher::default();
        assert_eq!(hasher.word(b"beat 1"), hasher.word(b"beat 1"));
        // The shortest payloads too: a hash cut to their length would mix them up.
        let words: std::collections::HashSet<_> = (0..=u8::MAX).map(|byte| hasher.word(&[byte])).collect();
        assert_eq!(words.len(), 256);
        assert_eq!(hasher.word(b"beat 1").first(), Some(&6), "the length stays");
        assert_ne!(hasher.word(b"beat 1"), PayloadHasher::default().word(b"beat 1"), "another key");
    }
}
