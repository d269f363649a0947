//! When something last came: the kernel tells ages, and a pass does not know to the millisecond when it told them.
//!
//! An age was true at some moment between the begin and the end of the pass. Where the sidecar is kept from running in
//! between (a CPU quota, a busy machine), the date that follows from the pass's end is late by as much, and would look like
//! something new from a peer that is gone. The age itself is counted in jiffies, and where a virtual machine gets its timer
//! interrupts late they lag behind the clock by a varying time. So a date moves only where it must have moved.

use ackbeat_liveness::{Snapshot, Timestamp};

/// How far jiffies may lag behind the clock. An ACK within this time of the one before keeps that one's date.
const LAG_MS: u64 = 100;

/// What is known of one connection's dates.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dates {
    /// The last ACK lies between these.
    ack: Option<(Timestamp, Timestamp)>,
    /// The last payload, and how many bytes had come with it.
    inbound: Option<(Timestamp, u64)>,
}

impl Dates {
    /// Puts right what a pass that began at `began_at` says.
    pub(super) fn settle(&mut self, snapshot: &mut Snapshot, began_at: Timestamp) {
        let pass_ms = snapshot.at.ms_since(began_at);
        if let Some(found) = snapshot.last_ack_at {
            let at_least = found.minus_ms(pass_ms + LAG_MS);
            let (earliest, latest) = match self.ack {
                // The same ACK can explain both readings.
                Some((earliest, latest)) if at_least <= latest && found >= earliest => {
                    (earliest.max(at_least), latest.min(found))
                }
                _ => (at_least, found),
            };
            self.ack = Some((earliest, latest));
            snapshot.last_ack_at = Some(latest);
        }
        if let (Some(found), Some(bytes)) = (snapshot.last_inbound_at, snapshot.bytes_received) {
            // Whatever sets the date is counted (`tcp_event_data_recv()` and `tcp_rcv_nxt_update()`, net/ipv4/tcp_input.c).
            let inbound = match self.inbound {
                Some((before, same)) if same == bytes => (before.min(found), bytes),
                _ => (found, bytes),
            };
            self.inbound = Some(inbound);
            snapshot.last_inbound_at = Some(inbound.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sock_diag::Row;
    use ackbeat_liveness::{ConnectionId, TcpState};

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    /// A pass from `began_ms` to `ended_ms` whose ages were told at its begin.
    fn pass(
        dates: &mut Dates,
        began_ms: u64,
        ended_ms: u64,
        came_ms: u64,
        bytes: u64,
    ) -> (Timestamp, Timestamp) {
        let mut snapshot = Row::made(ConnectionId(1), TcpState::Established, 80).snapshot(at(ended_ms));
        let date = at(ended_ms - (began_ms - came_ms));
        snapshot.last_ack_at = Some(date);
        snapshot.last_inbound_at = Some(date);
        snapshot.bytes_received = Some(bytes);
        dates.settle(&mut snapshot, at(began_ms));
        (snapshot.last_ack_at.expect("known"), snapshot.last_inbound_at.expect("known"))
    }

    #[test]
    fn a_pass_that_was_held_up_makes_nothing_new() {
        let mut dates = Dates::default();
        assert_eq!(pass(&mut dates, 2_000, 2_000, 1_000, 7), (at(1_000), at(1_000)));
        assert_eq!(pass(&mut dates, 3_000, 3_300, 1_000, 7), (at(1_000), at(1_000)));
        assert_eq!(pass(&mut dates, 4_000, 4_001, 3_900, 8), (at(3_901), at(3_901)));
    }

    #[test]
    fn jiffies_that_lag_make_nothing_new() {
        let mut dates = Dates::default();
        assert_eq!(pass(&mut dates, 2_000, 2_000, 1_000, 7).0, at(1_000));
        assert_eq!(pass(&mut dates, 3_000, 3_000, 1_090, 7).0, at(1_000));
        assert_eq!(pass(&mut dates, 4_000, 4_000, 1_101, 7).0, at(1_101));
    }

    #[test]
    fn a_date_that_was_late_is_put_right_by_the_next_pass() {
        let mut dates = Dates::default();
        assert_eq!(pass(&mut dates, 2_000, 2_300, 1_000, 7), (at(1_300), at(1_300)));
        assert_eq!(pass(&mut dates, 3_000, 3_000, 1_000, 7), (at(1_000), at(1_000)));
        // Between two held-up passes something came.
        assert_eq!(pass(&mut dates, 4_000, 4_200, 3_500, 9), (at(3_700), at(3_700)));
    }

    #[test]
    fn what_is_not_told_stays_unknown() {
        let mut snapshot = Row::made(ConnectionId(1), TcpState::TimeWait, 80).snapshot(at(5));
        Dates::default().settle(&mut snapshot, at(1));
        assert_eq!((snapshot.last_ack_at, snapshot.last_inbound_at), (None, None));
    }
}
