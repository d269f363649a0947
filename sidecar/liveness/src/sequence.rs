//! TCP sequence numbers, which wrap.

/// A TCP sequence number (RFC 9293 section 3.4). Comparisons wrap; there is deliberately no `Ord`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Seq(pub u32);

impl Seq {
    /// Whether this number lies at or after `other`, within half the number space.
    #[must_use]
    pub const fn reached(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0) < 1 << 31
    }

    /// Whether this number lies after `other`, within half the number space.
    #[must_use]
    pub const fn after(self, other: Self) -> bool {
        self.0 != other.0 && self.reached(other)
    }

    /// Bytes from `earlier` to this number; 0 if `earlier` lies after it.
    #[must_use]
    pub const fn bytes_since(self, earlier: Self) -> u32 {
        if self.reached(earlier) { self.0.wrapping_sub(earlier.0) } else { 0 }
    }

    /// The number this many bytes further on.
    #[must_use]
    pub const fn plus(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// The number this many bytes before.
    #[must_use]
    pub const fn minus(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::Seq;

    #[test]
    fn comparisons_wrap() {
        let before = Seq(u32::MAX - 4);
        let after = before.plus(10);
        assert_eq!(after, Seq(5));
        assert!(after.reached(before) && after.after(before) && !before.reached(after));
        assert_eq!((after.bytes_since(before), before.bytes_since(after)), (10, 0));
        assert!(before.reached(before) && !before.after(before));
        assert_eq!((after.minus(10), Seq(0).minus(1)), (before, Seq(u32::MAX)));
    }
}
