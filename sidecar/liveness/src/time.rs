//! Monotonic time.

use core::cmp::Ordering;
use core::fmt;
use core::num::NonZeroU64;

/// A moment, in nanoseconds of `CLOCK_MONOTONIC`. Wall-clock time never enters the engine.
///
/// An `Option` of it takes no more room than itself, and every connection has dozens. So its bits are kept inverted: zero,
/// which means `None`, is then the last moment of all, after 584 years, and not the first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timestamp(NonZeroU64);

impl Timestamp {
    /// The moment this many nanoseconds after the clock's zero; `u64::MAX` is taken for the moment before.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        match NonZeroU64::new(!ns) {
            Some(inverted) => Self(inverted),
            None => Self(NonZeroU64::MIN),
        }
    }

    /// The moment this many milliseconds after the clock's zero.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self::from_ns(ms.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the clock's zero.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        !self.0.get()
    }

    /// Nanoseconds from `earlier` to here; 0 if `earlier` is later.
    #[must_use]
    pub const fn ns_since(self, earlier: Self) -> u64 {
        self.as_ns().saturating_sub(earlier.as_ns())
    }

    /// Whole milliseconds from `earlier` to here; 0 if `earlier` is later.
    #[must_use]
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.ns_since(earlier) / 1_000_000
    }

    /// The moment this many milliseconds later.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self::from_ns(self.as_ns().saturating_add(ms.saturating_mul(1_000_000)))
    }

    /// The moment this many nanoseconds later.
    #[must_use]
    pub(crate) const fn plus_ns(self, ns: u64) -> Self {
        Self::from_ns(self.as_ns().saturating_add(ns))
    }

    /// The moment this many milliseconds earlier.
    #[must_use]
    pub const fn minus_ms(self, ms: u64) -> Self {
        Self::from_ns(self.as_ns().saturating_sub(ms.saturating_mul(1_000_000)))
    }
}

impl Default for Timestamp {
    fn default() -> Self {
        Self::from_ns(0)
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_ns().cmp(&other.as_ns())
    }
}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Timestamp").field(&self.as_ns()).finish()
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.as_ns())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <u64 as serde::Deserialize>::deserialize(deserializer).map(Self::from_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn no_moment_takes_no_room_and_moments_keep_their_order() {
        assert_eq!(size_of::<Option<Timestamp>>(), 8);
        let moments = [0, 1, 5, u64::MAX - 2, u64::MAX - 1].map(Timestamp::from_ns);
        assert!(moments.is_sorted_by(|earlier, later| earlier < later));
        assert_eq!(moments.map(Timestamp::as_ns), [0, 1, 5, u64::MAX - 2, u64::MAX - 1]);
        assert_eq!(Timestamp::default(), Timestamp::from_ns(0));
        assert_eq!(Timestamp::from_ns(u64::MAX), Timestamp::from_ns(u64::MAX - 1));
        assert_eq!(alloc::format!("{:?}", Timestamp::from_ms(2)), "Timestamp(2000000)");
    }
}
