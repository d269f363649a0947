//! What was counted, and what it amounts to.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::super::connect::milliseconds;
use super::super::heartbeats::Heartbeats;
use super::super::report::{Close, Line, Report, SlowRead, Who, WireResult};
use super::Described;

/// Gaps that are kept at most: the last ones.
const GAPS: usize = 1_024;

/// Counters of one probe.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pings: u64,
    last_ping_at: Option<Instant>,
    gaps: VecDeque<Duration>,
    /// Heartbeats that were sent.
    pub(super) pongs: u64,
    pub(super) last_pong_at: Option<Instant>,
    /// Heartbeats that were given to the writer.
    pub(super) queued: u64,
    pub(super) messages_dropped: u64,
    pub(super) first_unanswered_at: Option<Instant>,
    pub(super) text_frames: u64,
    pub(super) binary_frames: u64,
    pub(super) other_ping_frames: u64,
    pub(super) bytes_read: u64,
    pub(super) behind: Duration,
}

/// The moments that the report's times are between.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) open_at: Instant,
    pub(super) muted_at: Option<Instant>,
    /// The host's close.
    pub(super) closed_at: Option<Instant>,
    /// The host's close, or else the end of the probe.
    pub(super) ended_at: Instant,
}

/// From one moment to a later one, in milliseconds.
fn between(from: Option<Instant>, to: Option<Instant>) -> Option<u64> {
    Some(rounded_ms(to?.saturating_duration_since(from?)))
}

/// To the nearest millisecond.
fn rounded_ms(duration: Duration) -> u64 {
    milliseconds(duration + Duration::from_micros(500))
}

impl Counts {
    /// Heartbeats of the host came.
    pub(super) fn ping(&mut self, now: Instant, count: u64) {
        self.pings += count;
        if let Some(last) = self.last_ping_at.replace(now) {
            if self.gaps.len() == GAPS {
                self.gaps.pop_front();
            }
            self.gaps.push_back(now.duration_since(last));
        }
    }

    pub(super) const fn last_ping_at(&self) -> Option<Instant> {
        self.last_ping_at
    }

    pub(super) fn median_gap(&self) -> Option<Duration> {
        let mut sorted: Vec<Duration> = self.gaps.iter().copied().collect();
        sorted.sort_unstable();
        let upper = sorted.get(sorted.len() / 2)?;
        let lower = sorted.get(sorted.len().saturating_sub(1) / 2)?;
        Some((*upper + *lower) / 2)
    }

    pub(super) fn median_gap_ms(&self) -> Option<u64> {
        self.median_gap().map(rounded_ms)
    }

    pub(super) fn line(
        &self,
        times: Times,
        close_code: Option<u16>,
        result: WireResult,
        is_slow: bool,
    ) -> Line {
        let slow_read = is_slow.then(|| SlowRead {
            bytes_read: self.bytes_read,
            read_ms: rounded_ms(times.ended_at.saturating_duration_since(times.open_at)),
            behind_ms: rounded_ms(self.behind),
            pongs: self.pongs,
        });
        Line {
            pings: self.pings,
            median_gap_ms: self.median_gap_ms(),
            last_pong_to_close_ms: between(self.last_pong_at, times.closed_at),
            since_mute_ms: between(times.muted_at, Some(times.ended_at)),
            close_code,
            text_frames: self.text_frames,
            slow_read,
            result,
        }
    }

    pub(super) fn report(
        &self,
        line: Line,
        times: Times,
        opened: &Described,
        heartbeats: &Heartbeats,
        close: Option<Close>,
    ) -> Report {
        let announced = heartbeats.announced();
        Report {
            line,
            url: opened.url.clone(),
            address: opened.address.clone(),
            profile: heartbeats.profile(),
            asks: if heartbeats.own_interval().is_some() { Who::Client } else { Who::Host },
            pongs: self.pongs,
            messages_dropped: self.messages_dropped,
            first_unanswered_ping_to_close_ms: between(self.first_unanswered_at, times.closed_at),
            gap_min_ms: self.gaps.iter().min().copied().map(rounded_ms),
            gap_max_ms: self.gaps.iter().max().copied().map(rounded_ms),
            announced_interval_ms: announced.map(|announced| milliseconds(announced.interval)),
            announced_timeout_ms: announced.map(|announced| milliseconds(announced.timeout)),
            connect_ms: rounded_ms(opened.times.tcp),
            tls_ms: opened.times.tls.map(rounded_ms),
            handshake_ms: rounded_ms(opened.times.handshake),
            open_ms: rounded_ms(times.ended_at.saturating_duration_since(times.open_at)),
            close,
            bytes_read: self.bytes_read,
            binary_frames: self.binary_frames,
            other_ping_frames: self.other_ping_frames,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn median(gaps_ms: &[u64]) -> Option<u64> {
        let mut counts = Counts::default();
        let mut now = Instant::now();
        counts.ping(now, 1);
        for gap in gaps_ms {
            now += Duration::from_millis(*gap);
            counts.ping(now, 1);
        }
        counts.median_gap_ms()
    }

    #[test]
    fn the_median_is_of_the_gaps() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[2_000]), Some(2_000));
        assert_eq!(median(&[1, 2_001, 2_000]), Some(2_000));
        assert_eq!(median(&[10, 1_000, 1_002, 9_000]), Some(1_001));
    }

    #[test]
    fn a_host_that_asks_for_ever_takes_no_memory() {
        assert_eq!(median(&[7; 5_000]), Some(7));
        let mut counts = Counts::default();
        for _ in 0..5_000 {
            counts.ping(Instant::now(), 1);
        }
        assert_eq!((counts.pings, counts.gaps.len()), (5_000, GAPS));
    }
}
