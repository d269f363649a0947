//! Spans that wait for their exporter: so many and no more, and who goes first when there is no room.
//!
//! Pure: no lock, no clock, no thread. [`super::batches`] has those.

use std::collections::VecDeque;

/// What a span is worth when there is no room for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    /// Everything else.
    Detail,
    /// A close that this side started: what somebody will look for. Its attributes tell all that its root span does.
    HostClose,
}

/// A span that waits, with its place in the order of arrival.
#[derive(Clone, Debug)]
pub(super) struct Waiting<T> {
    number: u64,
    rank: Rank,
    pub(super) span: T,
}

/// A bounded queue. The oldest detail makes room for whatever comes; a close by this side is given up only for another one, and
/// only once no detail waits.
#[derive(Debug)]
pub(super) struct SpanQueue<T> {
    closes: VecDeque<Waiting<T>>,
    details: VecDeque<Waiting<T>>,
    capacity: usize,
    /// Taken, and neither done nor given back.
    in_flight: usize,
    next_number: u64,
}

impl<T> SpanQueue<T> {
    /// A queue of at most `capacity` spans, those that are being exported among them.
    pub(super) const fn new(capacity: usize) -> Self {
        Self { closes: VecDeque::new(), details: VecDeque::new(), capacity, in_flight: 0, next_number: 0 }
    }

    /// Spans that wait.
    pub(super) fn len(&self) -> usize {
        self.closes.len() + self.details.len()
    }

    /// Puts a span at the end. Gives the one that found no room: an older one, or this one.
    pub(super) fn push(&mut self, rank: Rank, span: T) -> Option<T> {
        let mut given_up = None;
        if self.len() + self.in_flight >= self.capacity {
            given_up = match rank {
                _ if !self.details.is_empty() => self.details.pop_front(),
                Rank::HostClose => self.closes.pop_front(),
                Rank::Detail => None,
            };
            // What is being exported cannot be taken back.
            if given_up.is_none() {
                return Some(span);
            }
        }
        let waiting = Waiting { number: self.next_number, rank, span };
        self.next_number += 1;
        self.of(rank).push_back(waiting);
        given_up.map(|waiting| waiting.span)
    }

    /// Takes at most `limit` spans, in the order in which they came. They are in flight until [`Self::done`] or
    /// [`Self::give_back`].
    pub(super) fn take(&mut self, limit: usize) -> Vec<Waiting<T>> {
        let mut batch = Vec::with_capacity(limit.min(self.len()));
        while batch.len() < limit {
            let rank = match (self.closes.front(), self.details.front()) {
                (Some(close), Some(detail)) if close.number < detail.number => Rank::HostClose,
                (Some(_), None) => Rank::HostClose,
                _ => Rank::Detail,
            };
            let Some(waiting) = self.of(rank).pop_front() else { break };
            batch.push(waiting);
        }
        self.in_flight += batch.len();
        batch
    }

    /// This many of those that were taken are gone for good.
    pub(super) const fn done(&mut self, count: usize) {
        self.in_flight = self.in_flight.saturating_sub(count);
    }

    /// Puts a batch back where it was: it may make room for others again.
    pub(super) fn give_back(&mut self, batch: Vec<Waiting<T>>) {
        self.done(batch.len());
        for waiting in batch.into_iter().rev() {
            self.of(waiting.rank).push_front(waiting);
        }
    }

    const fn of(&mut self, rank: Rank) -> &mut VecDeque<Waiting<T>> {
        match rank {
            Rank::Detail => &mut self.details,
            Rank::HostClose => &mut self.closes,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spans(batch: &[Waiting<u32>]) -> Vec<u32> {
        batch.iter().map(|waiting| waiting.span).collect()
    }

    #[test]
    fn the_oldest_detail_goes_first_and_closes_go_last() {
        let mut queue = SpanQueue::new(4);
        for (rank, span) in [(Rank::Detail, 1), (Rank::HostClose, 2), (Rank::Detail, 3), (Rank::HostClose, 4)]
        {
            assert_eq!(queue.push(rank, span), None);
        }
        assert_eq!(queue.push(Rank::Detail, 5), Some(1), "the oldest detail");
        assert_eq!(queue.push(Rank::HostClose, 6), Some(3));
        assert_eq!(queue.push(Rank::HostClose, 7), Some(5));
        assert_eq!(queue.push(Rank::Detail, 8), Some(8), "a detail takes no close's place");
        assert_eq!(queue.push(Rank::HostClose, 9), Some(2), "among closes the oldest");
        assert_eq!(spans(&queue.take(9)), [4, 6, 7, 9]);
    }

    #[test]
    fn what_is_in_flight_takes_room_and_comes_back_to_its_place() {
        let mut queue = SpanQueue::new(3);
        for span in 1..=3 {
            queue.push(Rank::Detail, span);
        }
        let batch = queue.take(2);
        assert_eq!(spans(&batch), [1, 2]);
        assert_eq!(queue.push(Rank::HostClose, 4), Some(3), "in flight there is nothing to give up");
        assert_eq!(queue.push(Rank::Detail, 5), Some(5));
        queue.give_back(batch);
        assert_eq!(queue.push(Rank::HostClose, 6), Some(1), "now there is");
        let batch = queue.take(1);
        assert_eq!(spans(&batch), [2], "the order of arrival");
        queue.done(1);
        assert_eq!(queue.push(Rank::Detail, 7), None);
        assert_eq!(spans(&queue.take(9)), [4, 6, 7]);
    }

    proptest! {
        /// Whatever happens: the bound holds, nothing is lost uncounted, what is exported is in order, and no close is given
        /// up while a detail waits.
        #[test]
        fn the_bound_holds_and_everything_is_accounted_for(
            capacity in 1_usize..12,
            steps in prop::collection::vec((0_u8..5, 0_usize..6), 0..200),
        ) {
            let mut queue = SpanQueue::new(capacity);
            let (mut pushed, mut dropped, mut exported) = (0_u32, Vec::new(), Vec::new());
            for (what, limit) in steps {
                match what {
                    0 | 1 => {
                        let rank = if what == 0 { Rank::Detail } else { Rank::HostClose };
                        let details = queue.details.len();
                        let span = pushed * 2 + u32::from(what);
                        if let Some(lost) = queue.push(rank, span) {
                            prop_assert!(lost % 2 == 0 || details == 0, "a close was given up before a detail");
                            dropped.push(lost);
                        }
                        pushed += 1;
                    }
                    2 | 3 => {
                        let batch = queue.take(limit);
                        exported.extend(spans(&batch));
                        queue.done(batch.len());
                    }
                    _ => {
                        let batch = queue.take(limit);
                        queue.give_back(batch);
                    }
                }
                prop_assert!(queue.len() + queue.in_flight <= capacity);
                prop_assert_eq!(pushed as usize, dropped.len() + exported.len() + queue.len() + queue.in_flight);
            }
            prop_assert!(exported.is_sorted());
        }
    }
}
