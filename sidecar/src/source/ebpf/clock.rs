//! From the kernel's `jiffies` to the monotonic clock.

use ackbeat_liveness::Timestamp;
use nix::time::{ClockId, clock_getres, clock_gettime};

use super::error::{LoadError, MissingKind};

/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// How long the latest of the least late readings counts, in nanoseconds: a kernel that lost ticks for good is understood
/// again after it.
const READINGS_WINDOW_NS: u64 = 30 * SECOND_NS;

/// Converts time stamps that the kernel keeps in `jiffies`.
///
/// `jiffies` is never ahead of the monotonic clock, but late where the tick is: in a virtual machine that waits for a
/// processor by tens of milliseconds, then it catches up (`tick_do_update_jiffies64()` in kernel/time/tick-sched.c). One time
/// stamp read twice would then seem to have moved, as if something had come from the peer. So the least late of the readings
/// says where tick 0 lies, and the same time stamp is the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JiffiesClock {
    /// Ticks of a second (`CONFIG_HZ`).
    hz: u32,
    /// Length of a tick in nanoseconds (`TICK_NSEC`).
    tick_ns: u64,
    readings: Readings,
}

/// Where tick 0 lies on the monotonic clock, in nanoseconds, by the least late reading of this window and of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Readings {
    this_window: Option<(u64, i64)>,
    last_window: Option<i64>,
}

impl Readings {
    fn add(&mut self, now: Timestamp, origin_ns: i64) {
        match &mut self.this_window {
            Some((began_ns, least)) if now.as_ns().saturating_sub(*began_ns) < READINGS_WINDOW_NS => {
                *least = (*least).min(origin_ns);
            }
            this_window => {
                self.last_window = this_window.map(|(_, least)| least);
                *this_window = Some((now.as_ns(), origin_ns));
            }
        }
    }

    fn origin_ns(self) -> Option<i64> {
        let this_window = self.this_window.map(|(_, least)| least);
        this_window.into_iter().chain(self.last_window).min()
    }
}

impl JiffiesClock {
    /// Asks the running kernel for its tick.
    ///
    /// The resolution of `CLOCK_MONOTONIC_COARSE` is one tick: the kernel answers `KTIME_LOW_RES`, which is
    /// `TICK_NSEC` (`include/linux/hrtimer_defs.h`). So `CONFIG_HZ` need not be measured.
    ///
    /// # Errors
    /// [`LoadError::Preparation`] if the kernel does not say, or says something that is no tick.
    pub fn of_running_kernel() -> Result<Self, LoadError> {
        let resolution = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE)
            .map_err(|error| LoadError::preparation("asking for the length of the kernel's tick", &error))?;
        let tick_ns = u64::try_from(resolution.tv_nsec()).ok().filter(|_| resolution.tv_sec() == 0);
        tick_ns.and_then(Self::from_tick_ns).ok_or_else(|| LoadError::Preparation {
            step: "asking for the length of the kernel's tick",
            cause: format!("the resolution of CLOCK_MONOTONIC_COARSE is {resolution}"),
            fix: "report the kernel version and the value of CONFIG_HZ".to_owned(),
            kind: MissingKind::Feature,
        })
    }

    /// A clock of ticks that are this long; `None` for what no kernel has (fewer than 10 or more than 10,000 a second).
    #[must_use]
    pub fn from_tick_ns(tick_ns: u64) -> Option<Self> {
        let hz = SECOND_NS.checked_add(tick_ns / 2)?.checked_div(tick_ns)?;
        let hz = u32::try_from(hz).ok()?;
        (10..=10_000).contains(&hz).then_some(Self { hz, tick_ns, readings: Readings::default() })
    }

    /// Notes `jiffies` and the monotonic clock as they were read together.
    pub fn observe(&mut self, jiffies: u64, now: Timestamp) {
        if let Some(origin_ns) = self.origin_ns(jiffies, now) {
            self.readings.add(now, origin_ns);
        }
    }

    /// Where tick 0 would lie if `jiffies` were not late now. `None` for numbers that no kernel has.
    fn origin_ns(self, jiffies: u64, now: Timestamp) -> Option<i64> {
        let ticks_ns = i64::try_from(jiffies.checked_mul(self.tick_ns)?).ok()?;
        i64::try_from(now.as_ns()).ok()?.checked_sub(ticks_ns)
    }

    /// How late `jiffies` is, in nanoseconds, as far as the readings tell.
    fn late_ns(self, jiffies: u64, now: Timestamp) -> u64 {
        let late = self
            .origin_ns(jiffies, now)
            .zip(self.readings.origin_ns())
            .and_then(|(here, least)| u64::try_from(here.checked_sub(least)?).ok());
        late.unwrap_or(0)
    }

    /// Ticks of a second.
    #[must_use]
    pub const fn hz(self) -> u32 {
        self.hz
    }

    /// The moment of a time stamp.
    ///
    /// `stamp` holds the low 32 bits of `jiffies`; `now_jiffies` and `now` were read together and later. A stamp of 0 was
    /// never set. A stamp that seems to lie ahead was written between the two readings: it counts as now.
    #[must_use]
    pub fn moment(self, stamp: u32, now_jiffies: u64, now: Timestamp) -> Option<Timestamp> {
        if stamp == 0 {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "time stamps are the low 32 bits; the difference wraps"
        )]
        let age = (now_jiffies as u32).wrapping_sub(stamp);
        // Half the number space: 248 days at 100 ticks a second.
        let age = if age > u32::MAX / 2 { 0 } else { age };
        let age_ns = u64::from(age) * SECOND_NS / u64::from(self.hz) + self.late_ns(now_jiffies, now);
        Some(Timestamp::from_ns(now.as_ns().saturating_sub(age_ns)))
    }

    /// Milliseconds that so many ticks take.
    #[must_use]
    pub fn milliseconds(self, jiffies: u32) -> u32 {
        u32::try_from(u64::from(jiffies) * 1000 / u64::from(self.hz)).unwrap_or(u32::MAX)
    }
}

/// Now, on the clock that the kernel programs use (`bpf_ktime_get_ns`).
pub(super) fn now() -> Timestamp {
    let elapsed =
        clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or_else(|_| nix::sys::time::TimeSpec::new(0, 0));
    let seconds = u64::try_from(elapsed.tv_sec()).unwrap_or(0);
    let nanoseconds = u64::try_from(elapsed.tv_nsec()).unwrap_or(0);
    Timestamp::from_ns(seconds.saturating_mul(SECOND_NS).saturating_add(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn common_ticks_are_recognized() {
        for (tick_ns, hz) in [(10_000_000, 100), (4_000_000, 250), (3_333_333, 300), (1_000_000, 1000)] {
            assert_eq!(JiffiesClock::from_tick_ns(tick_ns).unwrap().hz(), hz);
        }
        assert_eq!(JiffiesClock::from_tick_ns(0), None);
        assert_eq!(JiffiesClock::from_tick_ns(1), None);
    }

    #[test]
    fn the_running_kernel_has_a_tick() {
        assert!(JiffiesClock::of_running_kernel().unwrap().hz() >= 100);
    }

    fn of_hz(hz: u32) -> JiffiesClock {
        JiffiesClock::from_tick_ns(SECOND_NS / u64::from(hz)).unwrap()
    }

    #[test]
    fn a_late_tick_moves_no_time_stamp() {
        let mut clock = of_hz(250);
        let began = Timestamp::from_ms(1_000_000);
        clock.observe(5_000, began);
        let stamp = clock.moment(4_000, 5_000, began);
        assert_eq!(stamp, Some(Timestamp::from_ms(1_000_000 - 4_000)));
        // 100 ms later only 5 ticks were counted: 80 ms are still to come.
        let late = Timestamp::from_ms(1_000_100);
        assert_eq!(of_hz(250).moment(4_000, 5_005, late), Some(Timestamp::from_ms(1_000_100 - 4_020)));
        clock.observe(5_005, late);
        assert_eq!(clock.moment(4_000, 5_005, late), stamp);
        // It has caught up.
        let caught_up = Timestamp::from_ms(1_000_200);
        clock.observe(5_050, caught_up);
        assert_eq!(clock.moment(4_000, 5_050, caught_up), stamp);
    }

    #[test]
    fn ticks_that_are_lost_for_good_are_forgotten() {
        let mut clock = of_hz(250);
        clock.observe(5_000, Timestamp::from_ms(1_000_000));
        let mut ms = 1_000_000;
        let mut jiffies = 5_000;
        for _ in 0..100 {
            ms += 1_000;
            // One second passed; 20 ms of it were lost, once.
            jiffies += if jiffies == 5_000 { 245 } else { 250 };
            clock.observe(jiffies, Timestamp::from_ms(ms));
        }
        assert_eq!(
            clock.moment(u32::try_from(jiffies).unwrap(), jiffies, Timestamp::from_ms(ms)),
            Some(Timestamp::from_ms(ms))
        );
    }

    #[test]
    fn stamps_wrap_and_zero_is_none() {
        let clock = of_hz(250);
        let now = Timestamp::from_ms(1_000_000);
        assert_eq!(clock.moment(0, 77, now), None);
        assert_eq!(
            clock.moment(u32::MAX - 4, (7 << 32) + 245, now),
            Some(Timestamp::from_ms(1_000_000 - 1000))
        );
        assert_eq!(clock.moment(101, 100, now), Some(now));
    }

    proptest! {
        #[test]
        fn a_moment_is_never_later_than_now(hz in 100_u32..=1000, stamp: u32, jiffies: u64, now_ns: u64) {
            let now = Timestamp::from_ns(now_ns);
            let mut clock = of_hz(hz);
            clock.observe(jiffies.wrapping_sub(1_000), now);
            clock.observe(jiffies, now);
            prop_assert!(clock.moment(stamp, jiffies, now).is_none_or(|moment| moment <= now));
            if let Some(moment) = of_hz(hz).moment(stamp, jiffies, now) {
                prop_assert!(moment <= now);
            }
        }
    }
}
