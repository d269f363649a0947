//! Few Events for many happenings: each reason has a token bucket, and what has to wait is told together.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, Reference as _};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};

use super::reason::Reason;

/// How many Events there may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// For so long others of the same reason are waited for: what happens to many connections happens at once.
    pub(super) gather: Duration,
    /// Events of one reason, on and on.
    pub(super) quota: Quota,
}

impl Default for Rate {
    /// Three at once, then one a minute. client-go's own filter for Events (`EventSourceObjectSpamFilter`) is as strict in the
    /// long run, with 25 at once; these need fewer, since each stands for many.
    fn default() -> Self {
        Self {
            gather: Duration::from_millis(500),
            quota: Quota::per_minute(NonZeroU32::MIN).allow_burst(NonZeroU32::MIN.saturating_add(2)),
        }
    }
}

/// What one Event tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch<I> {
    pub(super) reason: Reason,
    /// The latest happening.
    pub(super) latest: String,
    /// How many there were.
    pub(super) count: u64,
    /// When the first came.
    pub(super) since: I,
}

/// What waits to be told, by reason.
pub(super) struct Aggregation<C: Clock> {
    clock: C,
    rate: Rate,
    slots: [Slot<C>; Reason::ALL.len()],
}

struct Slot<C: Clock> {
    limiter: RateLimiter<NotKeyed, InMemoryState, C, NoOpMiddleware<C::Instant>>,
    waiting: Option<Waiting<C::Instant>>,
}

struct Waiting<I> {
    batch: Batch<I>,
    not_before: I,
    /// The bucket has let it through; an attempt that failed needs no second token.
    is_admitted: bool,
}

impl<C: Clock + Clone> Aggregation<C> {
    pub(super) fn new(rate: Rate, clock: C) -> Self {
        let slots = Reason::ALL.map(|_| Slot {
            limiter: RateLimiter::direct_with_clock(rate.quota, clock.clone()),
            waiting: None,
        });
        Self { clock, rate, slots }
    }

    /// How long something has been waiting.
    pub(super) fn age(&self, since: C::Instant) -> Duration {
        self.clock.now().duration_since(since).into()
    }

    /// Something happened, `count` times.
    pub(super) fn add(&mut self, reason: Reason, latest: String, count: u64) {
        let now = self.clock.now();
        let batch = Batch { reason, latest, count, since: now };
        self.put(batch, now + Nanos::from(self.rate.gather), false);
    }

    /// A batch could not be told: it is due again after a pause, with what came meanwhile.
    pub(super) fn put_back(&mut self, batch: Batch<C::Instant>, pause: Duration) {
        let due = self.clock.now() + Nanos::from(pause);
        self.put(batch, due, true);
    }

    fn put(&mut self, batch: Batch<C::Instant>, due: C::Instant, is_admitted: bool) {
        let Some(slot) = self.slots.get_mut(batch.reason as usize) else { return };
        match &mut slot.waiting {
            None => slot.waiting = Some(Waiting { batch, not_before: due, is_admitted }),
            Some(waiting) => {
                waiting.batch.count = waiting.batch.count.saturating_add(batch.count);
                // What comes back is older than what came meanwhile.
                if is_admitted {
                    waiting.not_before = due;
                    waiting.is_admitted = true;
                } else {
                    waiting.batch.latest = batch.latest;
                }
                waiting.batch.since = waiting.batch.since.min(batch.since);
            }
        }
    }

    /// In how long something may be due; `None` while nothing waits.
    pub(super) fn wait(&self) -> Option<Duration> {
        let now = self.clock.now();
        self.slots
            .iter()
            .filter_map(|slot| slot.waiting.as_ref())
            .map(|waiting| Duration::from(waiting.not_before.duration_since(now)))
            .min()
    }

    /// Takes what may be told now.
    pub(super) fn take_due(&mut self) -> Option<Batch<C::Instant>> {
        let now = self.clock.now();
        for slot in &mut self.slots {
            let Some(waiting) = &mut slot.waiting else { continue };
            if waiting.not_before > now {
                continue;
            }
            if !waiting.is_admitted
                && let Err(not_until) = slot.limiter.check()
            {
                // A little later than the bucket says, so that rounding costs no second look.
                let wait = not_until.wait_time_from(now) + Duration::from_millis(1);
                waiting.not_before = now + Nanos::from(wait);
                continue;
            }
            return slot.waiting.take().map(|waiting| waiting.batch);
        }
        None
    }

    /// Takes what waits, whether it is due or not.
    pub(super) fn take_any(&mut self) -> Option<Batch<C::Instant>> {
        self.slots.iter_mut().find_map(|slot| slot.waiting.take()).map(|waiting| waiting.batch)
    }
}

#[cfg(test)]
mod tests {
    use governor::clock::FakeRelativeClock;

    use super::*;

    fn aggregation() -> (Aggregation<FakeRelativeClock>, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        (Aggregation::new(Rate::default(), clock.clone()), clock)
    }

    #[test]
    fn a_storm_of_10_000_kills_is_a_few_events_and_each_one_counted() {
        let (mut waiting, clock) = aggregation();
        let (mut events, mut told) = (Vec::new(), 0);
        // 10,000 kills within ten minutes, and ten minutes of quiet.
        for step in 0..12_000_u32 {
            if step < 6_000 {
                for _ in 0..2 - step % 3 % 2 {
                    waiting.add(Reason::FalseKill, format!("kill {step}"), 1);
                }
            }
            while let Some(batch) = waiting.take_due() {
                told += batch.count;
                events.push((step, batch.count, batch.latest));
            }
            clock.advance(Duration::from_millis(100));
        }
        assert_eq!(told, 10_000);
        assert!((11..=14).contains(&events.len()), "{events:?}");
        assert_eq!(events.last().map(|event| event.2.as_str()), Some("kill 5999"));
        assert_eq!(waiting.wait(), None);
    }

    #[test]
    fn a_single_one_is_told_soon_and_reasons_do_not_hold_each_other_up() {
        let (mut waiting, clock) = aggregation();
        for _ in 0..9 {
            waiting.add(Reason::FalseKill, "x".to_owned(), 1);
            clock.advance(Duration::from_secs(1));
            waiting.take_due();
        }
        waiting.add(Reason::LeakSuspected, "leak".to_owned(), 1);
        assert_eq!(waiting.take_due(), None, "others are waited for");
        assert_eq!(waiting.wait(), Some(Duration::from_millis(500)));
        clock.advance(Duration::from_millis(500));
        let batch = waiting.take_due().unwrap();
        assert_eq!((batch.reason, batch.count, batch.latest.as_str()), (Reason::LeakSuspected, 1, "leak"));
        assert_eq!(waiting.take_due(), None, "the bucket of kills is empty");
        assert!(waiting.wait().is_some_and(|wait| wait > Duration::from_secs(30)));
        assert_eq!(waiting.take_any().map(|batch| batch.count), Some(6));
    }

    #[test]
    fn what_failed_is_due_after_its_pause_with_what_came_meanwhile() {
        let (mut waiting, clock) = aggregation();
        waiting.add(Reason::FalseKill, "first".to_owned(), 3);
        clock.advance(Duration::from_secs(1));
        let batch = waiting.take_due().unwrap();
        waiting.add(Reason::FalseKill, "second".to_owned(), 1);
        waiting.put_back(batch, Duration::from_secs(8));
        waiting.add(Reason::FalseKill, "third".to_owned(), 1);
        clock.advance(Duration::from_secs(7));
        assert_eq!(waiting.take_due(), None);
        clock.advance(Duration::from_secs(1));
        let batch = waiting.take_due().unwrap();
        assert_eq!((batch.count, batch.latest.as_str()), (5, "third"));
        assert_eq!(waiting.age(batch.since), Duration::from_secs(9));
    }
}
