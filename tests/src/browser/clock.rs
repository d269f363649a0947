//! The page's clock against ours.

/// What `performance.now()` read when `CLOCK_MONOTONIC` was 0, as well as it is known.
///
/// A page's reading reaches us late, never early, so the pair with the smallest difference is the best.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PageClock {
    difference_ns: Option<i128>,
}

fn nanoseconds(page_ms: f64) -> i128 {
    i128::from(
        std::time::Duration::try_from_secs_f64(page_ms / 1_000.0)
            .map_or(0, |time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)),
    )
}

impl PageClock {
    /// The page read `page_ms`, and we had it at `received_ns`.
    pub(super) fn reading(&mut self, page_ms: f64, received_ns: u64) {
        let difference_ns = i128::from(received_ns) - nanoseconds(page_ms);
        self.difference_ns = Some(self.difference_ns.map_or(difference_ns, |best| best.min(difference_ns)));
    }

    /// The page's time in nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) fn monotonic_ns(&self, page_ms: f64) -> u64 {
        let time_ns = nanoseconds(page_ms) + self.difference_ns.unwrap_or(0);
        u64::try_from(time_ns).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_delayed_reading_decides() {
        let mut clock = PageClock::default();
        clock.reading(10.0, 1_012_000_000);
        clock.reading(20.0, 1_020_500_000);
        clock.reading(30.0, 5_000_000_000);
        assert_eq!(clock.monotonic_ns(20.0), 1_020_500_000);
        assert_eq!(clock.monotonic_ns(5_000.25), 6_000_750_000);
    }
}
