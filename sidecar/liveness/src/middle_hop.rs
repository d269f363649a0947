//! Whether somebody in the middle acknowledges what the peer has not got.
//!
//! A Pong of a peer that ends its TCP connection itself comes with the acknowledgement of its Ping, or soon after. Behind a
//! proxy the Ping is acknowledged after the round trip to the proxy, and each Pong takes the rest of the way on top: never
//! less. An application that is busy is late, too, but not each time. So what is looked at is the *least* lag of several
//! heartbeats in a row: a single Pong that is prompt disproves the proxy, because nothing is faster than its way.
//!
//! An application that is always slow looks the same. So what is learned here says how far the evidence reaches, and never
//! that a peer is gone.

use crate::HeartbeatAnswered;

/// Pongs in a row that must lag. An application that is late half of the time is so eight times in a row once in 256.
const LAGGING_MIN: u8 = 8;
/// A Pong lags far more than the round trip if it takes this many of them longer …
const ROUND_TRIPS: u64 = 4;
/// … and this on top, in microseconds: a delayed acknowledgement takes 40 ms (`TCP_DELACK_MIN`), and is in the round-trip time
/// of the one kernel and in the lag of the other.
const SLACK_US: u64 = 50_000;

/// How many Pongs lagged in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PongLag {
    lagging: u8,
}

impl PongLag {
    /// A heartbeat was answered while the connection was called alive. (A Ping that waits behind data, or before an
    /// application that is behind, says nothing about the way.) `srtt_us` is the latest smoothed round-trip time.
    pub(crate) fn on_answered(&mut self, answered: &HeartbeatAnswered, srtt_us: Option<u32>) {
        let Some(srtt_us) = srtt_us.map(u64::from) else { return };
        // Without a reading between them the acknowledgement came a round trip after the Ping, as far as is known.
        let lag_us =
            answered.ack_to_pong_us.unwrap_or_else(|| answered.ping_to_pong_us.saturating_sub(srtt_us));
        if lag_us > srtt_us.saturating_mul(ROUND_TRIPS).saturating_add(SLACK_US) {
            self.lagging = self.lagging.saturating_add(1);
        } else {
            self.lagging = 0;
        }
    }

    /// Whether they lag as those from behind a proxy do.
    pub(crate) fn is_of_a_proxy(self) -> bool {
        self.lagging >= LAGGING_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::PongLag;
    use crate::{ConnectionId, HeartbeatAnswered, HeartbeatProfile, Timestamp};

    fn answered(ping_to_pong_us: u64, ack_to_pong_us: Option<u64>) -> HeartbeatAnswered {
        HeartbeatAnswered {
            connection: ConnectionId(1),
            at: Timestamp::from_ms(0),
            profile: HeartbeatProfile::Rfc6455,
            ping_to_pong_us,
            ping_to_ack_us: None,
            ack_to_pong_us,
        }
    }

    fn after(lags: &[(u64, Option<u64>)], srtt_us: Option<u32>) -> bool {
        let mut lag = PongLag::default();
        for (ping_to_pong_us, ack_to_pong_us) in lags {
            lag.on_answered(&answered(*ping_to_pong_us, *ack_to_pong_us), srtt_us);
        }
        lag.is_of_a_proxy()
    }

    #[test]
    fn eight_in_a_row_are_needed_and_one_prompt_pong_disproves() {
        let late = (80_000, None);
        assert!(!after(&[late; 7], Some(300)));
        assert!(after(&[late; 8], Some(300)));
        assert!(after(&[(90_000, Some(80_000)); 8], Some(300)));
        let mut busy = [late; 20];
        for index in (0..busy.len()).step_by(7) {
            busy[index] = (400, None);
        }
        assert!(!after(&busy, Some(300)));
    }

    #[test]
    fn a_long_way_is_no_proxy_and_an_unknown_one_proves_nothing() {
        assert!(!after(&[(205_000, None); 50], Some(200_000)));
        assert!(!after(&[(45_000, Some(44_000)); 50], Some(300)), "a delayed acknowledgement");
        assert!(!after(&[(900_000, None); 50], None));
    }
}
