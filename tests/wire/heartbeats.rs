//! Text heartbeats of the streams: the patterns that the parser looks for, and what they mean in plain words.

use ackbeat_abi::{
    Direction,
    patterns::{Pattern, Patterns},
};

use super::random::Random;

const TO_HOST: u8 = 1 << Direction::Ingress as u8;
const TO_PEER: u8 = 1 << Direction::Egress as u8;
const BOTH: u8 = TO_HOST | TO_PEER;

/// Every kind of pattern: exact, a beginning, words, one direction only, binary, longer than what is compared.
pub(crate) fn patterns() -> Patterns {
    let mut patterns = Patterns::default();
    let rows: &[(Pattern, &[&[u8]])] = &[
        (Pattern::exact(1, BOTH, b"2"), &[]),
        (Pattern::exact(1, TO_HOST, b"pong"), &[]),
        (Pattern::exact(1, TO_PEER, b"ping"), &[]),
        (Pattern::new(1, BOTH, b"{", 125), &[b"\"ping\"", b"\"type\""]),
        (Pattern::new(1, TO_HOST, b"[", 60), &[b"phoenix\"", b"heartbeat"]),
        (Pattern::new(1, TO_PEER, b"beat:0123456789abcdef", 125), &[]),
        (Pattern::exact(2, BOTH, b"\x02\x91\x06"), &[]),
    ];
    for (pattern, words) in rows {
        // Their number is that of the rows above.
        patterns.add(*pattern, words).unwrap_or_else(|error| unreachable!("{error}"));
    }
    patterns
}

fn holds(payload: &[u8], word: &[u8]) -> bool {
    payload.windows(word.len()).any(|window| window == word)
}

/// Whether [`patterns`] fit a whole message of one frame; `payload` is unmasked.
pub(crate) fn is_heartbeat(direction: Direction, first: u8, payload: &[u8]) -> bool {
    let to_host = direction == Direction::Ingress;
    if payload.len() > 125 {
        return false;
    }
    match first {
        0x81 => {
            payload == b"2"
                || (to_host && payload == b"pong")
                || (!to_host && payload == b"ping")
                || (payload.starts_with(b"{") && holds(payload, b"\"ping\"") && holds(payload, b"\"type\""))
                || (to_host
                    && payload.len() <= 60
                    && payload.starts_with(b"[")
                    && holds(payload, b"phoenix\"")
                    && holds(payload, b"heartbea"))
                // Of a beginning 16 bytes are compared, its length in whole.
                || (!to_host && payload.len() >= 21 && payload.starts_with(b"beat:0123456789a"))
        }
        0x82 => payload == b"\x02\x91\x06",
        _ => false,
    }
}

/// A payload that is a heartbeat in one direction at least, or only looks like one.
pub(crate) fn payload(random: &mut Random) -> Vec<u8> {
    let filler = "x".repeat(random.below(90));
    match random.below(20) {
        0 | 1 => b"2".to_vec(),
        2 => b"ping".to_vec(),
        3 => b"pong".to_vec(),
        4 => b"{\"type\":\"ping\"}".to_vec(),
        5 => format!("{{\"x\":\"{filler}\", \"type\" : \"ping\"}}").into_bytes(),
        6 => b"[null,\"5\",\"phoenix\",\"heartbeat\",{}]".to_vec(),
        7 => format!("[\"{filler}\",\"5\",\"phoenix\",\"heartbeat\",{{}}]").into_bytes(),
        8 => format!("beat:0123456789abcdef{filler}").into_bytes(),
        9 => b"\x02\x91\x06".to_vec(),
        // Lures: one byte too few, too many or another; a word cut off by the end; another beginning; a word of the wrong
        // case; both words in the wrong kind of message.
        10 => b"2probe".to_vec(),
        11 => b"pin".to_vec(),
        12 => b"pingx".to_vec(),
        13 => format!("{{\"type\":\"pong\",\"x\":\"{filler}\"}}").into_bytes(),
        14 => b"{\"type\":\"ping".to_vec(),
        15 => b" {\"type\":\"ping\"}".to_vec(),
        16 => b"{\"type\":\"PING\"}".to_vec(),
        17 => b"beat:0123456789abcde".to_vec(),
        18 => format!("42[\"type\",\"ping\",\"phoenix\",\"heartbeat\",\"{filler}\"]").into_bytes(),
        _ => b"beat:0123456789X".to_vec(),
    }
}

/// The first byte of a frame for such a payload: mostly a whole text message.
pub(crate) fn first_byte(random: &mut Random, payload: &[u8]) -> u8 {
    match random.below(8) {
        // Binary, compressed, and a first fragment.
        0 => 0x82,
        1 => 0xc1,
        2 => 0x01,
        _ if payload.first() == Some(&0x02) => 0x82,
        _ => 0x81,
    }
}
