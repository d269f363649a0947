//! Bytes to values, and values to damage.

use fastrand::Rng;

/// Reads values off bytes. At their end everything is 0, so that every string of bytes is a script.
#[derive(Debug)]
pub struct Draw<'a> {
    bytes: &'a [u8],
}

impl<'a> Draw<'a> {
    /// From the first byte on.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Nothing is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        for byte in &mut array {
            *byte = self.byte();
        }
        array
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    /// Bytes, at most `limit`.
    pub fn take(&mut self, limit: usize) -> &'a [u8] {
        let (taken, rest) = self.bytes.split_at(limit.min(self.bytes.len()));
        self.bytes = rest;
        taken
    }

    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Whether a byte is odd.
    pub fn is_odd(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number below `limit` (at most 256).
    pub fn below(&mut self, limit: u8) -> u8 {
        self.byte() % limit.max(1)
    }

    /// One of them.
    pub fn of<T: Copy>(&mut self, choices: &[T], default: T) -> T {
        let index = usize::from(self.byte()) % choices.len().max(1);
        choices.get(index).copied().unwrap_or(default)
    }

    /// Something, but in one of eight cases.
    pub fn usually<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(8) != 7).then(|| draw(self))
    }

    /// A number that is small, or close to an edge of its range, or any.
    pub fn edgy_u32(&mut self) -> u32 {
        match self.below(8) {
            0..=3 => u32::from(self.byte()),
            4 => u32::from(self.u16()),
            5 => u32::MAX - u32::from(self.byte()),
            6 => (1 << 31) + u32::from(self.byte()) - 128,
            _ => self.u32(),
        }
    }
}

/// Bytes drawn at random, at most `limit`.
pub fn noise(rng: &mut Rng, limit: usize) -> Vec<u8> {
    let length = rng.usize(0..=limit);
    let mut bytes = vec![0; length];
    rng.fill(&mut bytes);
    bytes
}

/// Damages bytes: some are changed, cut out, doubled, or replaced by numbers that lie on an edge.
pub fn damage(rng: &mut Rng, bytes: &mut Vec<u8>, splice: &[&[u8]]) {
    for _ in 0..rng.usize(0..6) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.usize(0..bytes.len());
        match rng.u8(0..9) {
            0 => bytes[at] = rng.u8(..),
            1 => bytes[at] ^= 1 << rng.u8(0..8),
            2 => bytes.truncate(at),
            3 => {
                let end = (at + rng.usize(0..32)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let end = (at + rng.usize(0..64)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            5 => {
                let edges = [0, 1, u32::MAX, 1 << 31, i32::MAX.unsigned_abs(), 0xffff, 0x7fff, 125, 126, 127];
                let number = edges[rng.usize(0..edges.len())].to_ne_bytes();
                for (byte, new) in bytes[at..].iter_mut().zip(number) {
                    *byte = new;
                }
            }
            6 => {
                let piece = noise(rng, 16);
                bytes.splice(at..at, piece);
            }
            7 if !splice.is_empty() => {
                bytes.splice(at..at, splice[rng.usize(0..splice.len())].iter().copied());
            }
            _ => {
                let piece = [bytes[at]].repeat(rng.usize(1..200));
                bytes.splice(at..at, piece);
            }
        }
    }
}
