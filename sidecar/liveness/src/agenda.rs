//! Which connection is due first.
//!
//! A heap with four children to a node, in one vector, and a table of who stands where. A connection's moment moves with
//! almost every event, so moving it must neither allocate (a tree's nodes do) nor leave an old entry behind (a plain
//! heap's would pile up).

use alloc::vec::Vec;

use crate::{ConnectionId, Timestamp};

/// Children of a node: half as many levels as with two, and a node's children share a cache line or two.
const CHILDREN: usize = 4;
/// Not on the agenda.
const NOWHERE: u32 = u32::MAX;

/// A small number that a connection has as long as it is tracked; it is given to another one afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot(u32);

/// Hands out [`Slot`]s, the smallest numbers that it can.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    returned: Vec<Slot>,
    used: u32,
}

impl Slots {
    pub(crate) fn take(&mut self) -> Slot {
        self.returned.pop().unwrap_or_else(|| {
            let slot = Slot(self.used);
            self.used = self.used.saturating_add(1);
            slot
        })
    }

    pub(crate) fn give_back(&mut self, slot: Slot) {
        self.returned.push(slot);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Timestamp,
    connection: ConnectionId,
    slot: Slot,
}

impl Entry {
    /// Connections that are due at the same moment take turns in the order of their cookies.
    fn precedes(&self, other: &Self) -> bool {
        (self.at, self.connection) < (other.at, other.connection)
    }
}

/// At most one moment for each connection, and the first of them.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: Vec<Entry>,
    /// Where a slot's entry stands in the heap.
    places: Vec<u32>,
}

impl Agenda {
    /// The first moment, and whose it is.
    pub(crate) fn first(&self) -> Option<(Timestamp, ConnectionId)> {
        self.heap.first().map(|entry| (entry.at, entry.connection))
    }

    /// The moment of one connection.
    pub(crate) fn of(&self, slot: Slot) -> Option<Timestamp> {
        Some(self.heap.get(self.place(slot)?)?.at)
    }

    /// Enters, moves or strikes out the moment of one connection.
    pub(crate) fn set(&mut self, slot: Slot, connection: ConnectionId, at: Option<Timestamp>) {
        match (self.place(slot), at) {
            (None, None) => {}
            (None, Some(at)) => {
                let entry = Entry { at, connection, slot };
                if self.places.len() <= slot.0 as usize {
                    self.places.resize(slot.0 as usize + 1, NOWHERE);
                }
                self.heap.push(entry);
                self.rise(self.heap.len() - 1, entry);
            }
            (Some(place), Some(at)) => self.settle(place, Entry { at, connection, slot }),
            (Some(place), None) => {
                self.note(slot, None);
                if let Some(last) = self.heap.pop()
                    && last.slot != slot
                {
                    self.settle(place, last);
                }
            }
        }
    }

    fn place(&self, slot: Slot) -> Option<usize> {
        self.places.get(slot.0 as usize).filter(|place| **place != NOWHERE).map(|place| *place as usize)
    }

    fn note(&mut self, slot: Slot, place: Option<usize>) {
        if let Some(known) = self.places.get_mut(slot.0 as usize) {
            *known = place.and_then(|place| u32::try_from(place).ok()).unwrap_or(NOWHERE);
        }
    }

    fn put(&mut self, place: usize, entry: Entry) {
        if let Some(room) = self.heap.get_mut(place) {
            *room = entry;
            self.note(entry.slot, Some(place));
        }
    }

    /// Finds the place of an entry that takes the room at `place`.
    fn settle(&mut self, place: usize, entry: Entry) {
        let parent = place.checked_sub(1).and_then(|before| self.heap.get(before / CHILDREN));
        if parent.is_some_and(|parent| entry.precedes(parent)) {
            self.rise(place, entry);
        } else {
            self.sink(place, entry);
        }
    }

    fn rise(&mut self, mut place: usize, entry: Entry) {
        while let Some(above) = place.checked_sub(1).map(|before| before / CHILDREN)
            && let Some(parent) = self.heap.get(above).copied()
            && entry.precedes(&parent)
        {
            self.put(place, parent);
            place = above;
        }
        self.put(place, entry);
    }

    fn sink(&mut self, mut place: usize, entry: Entry) {
        loop {
            let start = place * CHILDREN + 1;
            let end = self.heap.len().min(start + CHILDREN);
            let children = self.heap.get(start..end).unwrap_or_default();
            let mut first: Option<(usize, Entry)> = None;
            for (index, child) in children.iter().enumerate() {
                if first.is_none_or(|(_, first)| child.precedes(&first)) {
                    first = Some((start + index, *child));
                }
            }
            match first {
                Some((index, child)) if child.precedes(&entry) => {
                    self.put(place, child);
                    place = index;
                }
                _ => break,
            }
        }
        self.put(place, entry);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{Agenda, Slots};
    use crate::{ConnectionId, Timestamp};

    proptest! {
        /// It orders as a sorted set does, whatever is entered, moved and struck out.
        #[test]
        fn the_first_is_the_first_of_a_sorted_set(
            steps in proptest::collection::vec((0usize..40, proptest::option::of(0u64..50)), 0..400),
        ) {
            let mut slots = Slots::default();
            let taken: Vec<_> = (0..40).map(|_| slots.take()).collect();
            let (mut agenda, mut set) = (Agenda::default(), BTreeSet::new());
            for (number, at) in steps {
                let (slot, connection) = (taken[number], ConnectionId(1_000 - number as u64));
                let at = at.map(Timestamp::from_ms);
                if let Some(before) = agenda.of(slot) {
                    prop_assert!(set.remove(&(before, connection)));
                }
                set.extend(at.map(|at| (at, connection)));
                agenda.set(slot, connection, at);
                prop_assert_eq!(agenda.of(slot), at);
                prop_assert_eq!(agenda.first(), set.first().copied());
                prop_assert_eq!(agenda.heap.len(), set.len());
            }
        }
    }

    #[test]
    fn slots_are_used_again() {
        let mut slots = Slots::default();
        let (first, second) = (slots.take(), slots.take());
        slots.give_back(first);
        assert_eq!(slots.take(), first);
        assert_ne!(slots.take(), second);
        assert_eq!(slots.used, 3);
    }
}
