//! What a text heartbeat looks like to the wire parser: short patterns, written by userspace before the object is loaded.
//!
//! The kernel only sorts out what cannot be a heartbeat; whether it is one is decided in userspace.
#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths and places are at most 125; a conversion that can fail is not const"
)]

use crate::{CONTROL_PAYLOAD_MAX_BYTES, Direction};

/// Patterns that one object can look for.
pub const PATTERNS_MAX: usize = 16;
/// Words that they share.
pub const WORDS_MAX: usize = 8;
/// Longest word, in bytes.
pub const WORD_MAX_BYTES: usize = 8;
/// Longest beginning that is compared, in bytes. What follows of a longer one is left to userspace.
pub const START_MAX_BYTES: usize = 16;

/// A word that may stand anywhere in a payload. It has no zero byte.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Word {
    /// Its bytes as one number in network order, in the low bits.
    pub value: u64,
    /// The bits of `value` that count; 0 where there is no word.
    pub mask: u64,
}

impl Word {
    /// A word of 1 to [`WORD_MAX_BYTES`] bytes; a longer text is cut, and a shorter text than that matches nothing.
    #[must_use]
    pub const fn new(text: &[u8]) -> Self {
        let mut word = Self { value: 0, mask: 0 };
        let mut at = 0;
        while at < text.len() && at < WORD_MAX_BYTES {
            word.value = (word.value << 8) | text[at] as u64;
            word.mask = (word.mask << 8) | 0xff;
            at += 1;
        }
        word
    }
}

/// What a text heartbeat looks like: all of it must hold.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    /// The first 16 bytes of the payload as two numbers in network order, where they are given.
    pub start: [u64; 2],
    /// The bits of `start` that count.
    pub start_mask: [u64; 2],
    /// Bits of the [`Patterns::words`] that the payload holds.
    pub words: u8,
    /// Bits of the [`Direction`]s that it is looked for in: `1 << direction`.
    pub directions: u8,
    /// Opcode: 1 text, 2 binary (RFC 6455 section 11.8).
    pub opcode: u8,
    /// Shortest payload, in bytes: not shorter than `start`.
    pub length_min_bytes: u8,
    /// Longest payload, in bytes: at most 125.
    pub length_max_bytes: u8,
    /// Always zero.
    pub padding: [u8; 3],
}

impl Pattern {
    /// A payload that begins with `start`, of at most `length_max_bytes` bytes. Of `start` at most
    /// [`START_MAX_BYTES`] are compared.
    #[must_use]
    pub const fn new(opcode: u8, directions: u8, start: &[u8], length_max_bytes: u8) -> Self {
        let (mut value, mut mask) = ([0; 2], [0; 2]);
        let mut at = 0;
        while at < start.len() && at < START_MAX_BYTES {
            let shift = 56 - 8 * (at as u32 % 8);
            value[at / 8] |= (start[at] as u64) << shift;
            mask[at / 8] |= 0xff << shift;
            at += 1;
        }
        let longest = longest_payload();
        Self {
            start: value,
            start_mask: mask,
            words: 0,
            directions,
            opcode,
            length_min_bytes: if start.len() < longest as usize { start.len() as u8 } else { longest },
            length_max_bytes: if length_max_bytes < longest { length_max_bytes } else { longest },
            padding: [0; 3],
        }
    }

    /// A payload that is exactly `text`.
    #[must_use]
    pub const fn exact(opcode: u8, directions: u8, text: &[u8]) -> Self {
        let longest = longest_payload();
        Self::new(
            opcode,
            directions,
            text,
            if text.len() < longest as usize { text.len() as u8 } else { longest },
        )
    }

    /// Whether it looks in this direction.
    #[inline(always)]
    #[must_use]
    pub const fn looks_in(&self, direction: Direction) -> bool {
        self.directions & (1 << direction.number()) != 0
    }
}

const fn longest_payload() -> u8 {
    CONTROL_PAYLOAD_MAX_BYTES as u8
}

/// Lengths of the payloads that any pattern of one direction and one opcode fits.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// The shortest, in bytes.
    pub min_bytes: u8,
    /// The longest, in bytes; 0 where no pattern looks.
    pub max_bytes: u8,
}

/// Everything that is looked for. All zeros: nothing, and data frames are stepped over unread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    /// The patterns; those behind `count` mean nothing.
    pub patterns: [Pattern; PATTERNS_MAX],
    /// The words that they share; those behind `word_count` mean nothing.
    pub words: [Word; WORDS_MAX],
    /// Which payloads are worth reading, by direction and by opcode (text, binary).
    pub lengths: [[Lengths; 2]; 2],
    /// Patterns that there are.
    pub count: u32,
    /// Words that there are.
    pub word_count: u32,
}

/// No room: more patterns than [`PATTERNS_MAX`], or more different words than [`WORDS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl core::fmt::Display for NoRoom {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "more than {PATTERNS_MAX} patterns, or more than {WORDS_MAX} words in them")
    }
}

impl core::error::Error for NoRoom {}

impl Patterns {
    /// Adds a pattern whose payload also holds each of `words`, of which at most [`WORD_MAX_BYTES`] bytes are compared.
    ///
    /// # Errors
    /// [`NoRoom`]; then nothing was added.
    pub fn add(&mut self, pattern: Pattern, words: &[&[u8]]) -> Result<(), NoRoom> {
        let (mut pattern, mut all, mut word_count) = (pattern, self.words, self.word_count as usize);
        for text in words {
            let word = Word::new(text);
            let place = match all.iter().take(word_count).position(|known| *known == word) {
                Some(place) => place,
                None => {
                    *all.get_mut(word_count).ok_or(NoRoom)? = word;
                    word_count += 1;
                    word_count - 1
                }
            };
            pattern.words |= 1 << place;
            pattern.length_min_bytes = pattern.length_min_bytes.max(text.len().min(WORD_MAX_BYTES) as u8);
        }
        *self.patterns.get_mut(self.count as usize).ok_or(NoRoom)? = pattern;
        (self.words, self.word_count) = (all, word_count as u32);
        self.count += 1;
        for direction in Direction::ALL.iter().filter(|direction| pattern.looks_in(**direction)) {
            let of_opcode =
                self.lengths[*direction as usize].get_mut(usize::from(pattern.opcode).wrapping_sub(1));
            if let Some(lengths) = of_opcode {
                let known = *lengths;
                lengths.min_bytes = if known.max_bytes == 0 {
                    pattern.length_min_bytes
                } else {
                    known.min_bytes.min(pattern.length_min_bytes)
                };
                lengths.max_bytes = known.max_bytes.max(pattern.length_max_bytes);
            }
        }
        Ok(())
    }

    /// The patterns as the bytes of this machine, for the object's `.rodata`.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; size_of::<Self>()] {
        let mut bytes = [0; size_of::<Self>()];
        let mut rest = bytes.as_mut_slice();
        let mut put = |part: &[u8]| {
            let (head, tail) = core::mem::take(&mut rest).split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        };
        for pattern in &self.patterns {
            for number in pattern.start.iter().chain(&pattern.start_mask) {
                put(&number.to_ne_bytes());
            }
            put(&[
                pattern.words,
                pattern.directions,
                pattern.opcode,
                pattern.length_min_bytes,
                pattern.length_max_bytes,
            ]);
            put(&pattern.padding);
        }
        for word in &self.words {
            put(&word.value.to_ne_bytes());
            put(&word.mask.to_ne_bytes());
        }
        for lengths in self.lengths.iter().flatten() {
            put(&[lengths.min_bytes, lengths.max_bytes]);
        }
        put(&self.count.to_ne_bytes());
        put(&self.word_count.to_ne_bytes());
        bytes
    }
}

const _: () = {
    assert!(size_of::<Word>() == 16);
    assert!(size_of::<Pattern>() == 40);
    assert!(size_of::<Patterns>() == 40 * PATTERNS_MAX + 16 * WORDS_MAX + 8 + 8);
    assert!(PATTERNS_MAX <= 32 && WORDS_MAX <= 8);
};

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: u8 = 3;

    #[test]
    fn numbers_are_in_network_order() {
        assert_eq!(Word::new(b"ab"), Word { value: 0x6162, mask: 0xffff });
        assert_eq!(Word::new(b"123456789"), Word::new(b"12345678"), "the rest is not compared");
        let pattern = Pattern::exact(1, BOTH, b"{\"type\":6}\x1e");
        assert_eq!(pattern.start, [0x7b22_7479_7065_223a, 0x367d_1e00_0000_0000]);
        assert_eq!(pattern.start_mask, [u64::MAX, 0xffff_ff00_0000_0000]);
        assert_eq!((pattern.length_min_bytes, pattern.length_max_bytes), (11, 11));
        let long = Pattern::exact(1, BOTH, &[b'x'; 300]);
        assert_eq!((long.length_min_bytes, long.length_max_bytes), (125, 125));
        assert_eq!(long.start_mask, [u64::MAX; 2]);
    }

    #[test]
    fn words_are_shared_and_lengths_are_summed_up() {
        let mut patterns = Patterns::default();
        patterns.add(Pattern::new(1, 1, b"{", 80), &[b"ping", b"type"]).unwrap();
        patterns.add(Pattern::new(1, 1, b"{", 125), &[b"pong", b"type"]).unwrap();
        patterns.add(Pattern::exact(2, 2, b"\x02\x91\x06"), &[]).unwrap();
        assert_eq!((patterns.count, patterns.word_count), (3, 3));
        assert_eq!([patterns.patterns[0].words, patterns.patterns[1].words], [0b011, 0b110]);
        let [[text_in, binary_in], [text_out, binary_out]] = patterns.lengths;
        assert_eq!(text_in, Lengths { min_bytes: 4, max_bytes: 125 });
        assert_eq!((binary_in.max_bytes, text_out.max_bytes), (0, 0));
        assert_eq!(binary_out, Lengths { min_bytes: 3, max_bytes: 3 });
    }

    #[test]
    fn what_has_no_room_is_refused_and_leaves_nothing_behind() {
        let mut patterns = Patterns::default();
        for number in 0..PATTERNS_MAX as u8 {
            patterns.add(Pattern::exact(1, BOTH, &[number]), &[&[number % WORDS_MAX as u8]]).unwrap();
        }
        let full = patterns;
        assert_eq!(patterns.add(Pattern::exact(1, BOTH, b"x"), &[]), Err(NoRoom));
        patterns.count = 0;
        assert_eq!(patterns.add(Pattern::exact(1, BOTH, b"x"), &[b"another"]), Err(NoRoom));
        patterns.count = full.count;
        assert_eq!(patterns, full);
    }

    #[test]
    fn the_bytes_are_those_of_the_struct() {
        let mut patterns = Patterns::default();
        patterns.add(Pattern::new(1, BOTH, b"ab", 125), &[b"cd"]).unwrap();
        let bytes = patterns.to_bytes();
        assert_eq!(bytes[..8], patterns.patterns[0].start[0].to_ne_bytes());
        assert_eq!(bytes[32..40], [1, 3, 1, 2, 125, 0, 0, 0]);
        let words = 40 * PATTERNS_MAX;
        assert_eq!(bytes[words..words + 8], 0x6364_u64.to_ne_bytes());
        let lengths = words + 16 * WORDS_MAX;
        assert_eq!(bytes[lengths..lengths + 8], [2, 125, 0, 0, 2, 125, 0, 0]);
        assert_eq!(bytes[lengths + 8..], [1_u32.to_ne_bytes(), 1_u32.to_ne_bytes()].concat());
    }
}
