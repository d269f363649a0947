//! The scenarios, by what is wrong in them.

mod closed;
mod gone;
mod healthy;
mod hostile;
mod hung;
mod leaks;
mod local;
mod many;
mod middle;
mod outage;
mod page;
mod path;
mod slow;
mod stalled;

pub use leaks::CLOSE_WAIT_AFTER_MS;
pub use middle::INGRESS;

use super::row::Row;

/// Every scenario, in the order of its number.
pub const ROWS: &[Row] = &[
    healthy::IDLE,
    slow::READER_20_KB,
    slow::READER_200_KB,
    slow::READER_5_KB,
    stalled::BURST,
    page::BUSY_PAGE,
    slow::UPSTREAM_64_MB,
    slow::LINK_50_KBIT,
    stalled::PAUSED_READER,
    hung::STOPPED,
    hung::STOPPED_WITH_FULL_WINDOW,
    stalled::COLLECTOR,
    local::HOST_BLOCKED,
    local::SIDECAR_STOPPED,
    hung::NO_PONG_BUT_DATA,
    hung::DEAF,
    outage::OUTAGE,
    path::LOSS,
    path::LONG_PATH_IN_BULK,
    gone::BLACKHOLE_WITH_PING,
    gone::BLACKHOLE_IN_BULK,
    gone::BLACKHOLE_WHILE_IDLE,
    gone::BLACKHOLE_BEHIND_CLOSED_WINDOW,
    gone::BLACKHOLE_ON_LONG_PATH,
    gone::UNREACHABLE_BY_ICMP,
    closed::REBOOTED,
    closed::KILLED,
    middle::DEAF_RELAY,
    leaks::HALF_CLOSED,
    leaks::CLOSE_WAIT,
    leaks::IDLE_AT_QUOTA,
    hostile::TRICKLER,
    many::CROWD_OUTAGE,
    many::RECONNECT_STORM,
];

/// The scenario of that number.
#[must_use]
pub fn row(number: u8) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ascend_and_every_row_has_a_variant() {
        for pair in ROWS.windows(2) {
            assert!(pair[0].number < pair[1].number);
        }
        for row in ROWS {
            assert!(!row.variants.is_empty() && row.subjects > 0 && row.weight > 0, "row {}", row.number);
            assert!(row.quick.is_none_or(|name| row.variant(name).is_some()), "row {}", row.number);
        }
    }
}
