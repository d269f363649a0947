//! One listening port: its arrivals, its storms and its resonance.

use std::collections::{HashSet, VecDeque};
use std::net::IpAddr;

use ackbeat_liveness::{ConnectionId, Timestamp};

use crate::outage::Reach;
use crate::rate::{Bin, RATE_BINS, Rates, is_out};
use crate::resonance::Detector;
use crate::{Outage, Resonance, Settings};

/// Closes that a storm names at most.
pub const CAUSES_MAX: usize = 32;
/// Addresses of peers that a storm tells apart at most.
pub const PEERS_MAX: usize = 4_096;
/// Bins that are open at once: what is reported out of order still finds its own.
const OPEN_BINS: usize = 4;

/// A storm began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StormBegan {
    /// The listening port.
    pub local_port: u16,
    /// When: the beginning of the second that was out of what is usual.
    pub at: Timestamp,
    /// Arrivals in that second.
    pub arrivals_per_second: u32,
    /// What is usual there.
    pub baseline_per_second: f64,
    /// Closes in the burst before.
    pub closes: u32,
}

/// Why a storm is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StormEnd {
    /// The arrivals are back at their baseline.
    Calm,
    /// It went on for so long that it is the port's new baseline.
    NewBaseline,
    /// The sidecar stopped first.
    StillOn,
}

impl StormEnd {
    /// The stable word for it, as spans and logs show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::NewBaseline => "new_baseline",
            Self::StillOn => "still_on",
        }
    }
}

/// A reconnect storm that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Storm {
    /// The listening port.
    pub local_port: u16,
    /// The beginning of the first second that was out of what is usual.
    pub began_at: Timestamp,
    /// The end of the last second that was above what is usual.
    pub ended_at: Timestamp,
    /// Why it is over.
    pub end: StormEnd,
    /// Most arrivals within a second.
    pub peak_per_second: u32,
    /// Arrivals per second that are usual there.
    pub baseline_per_second: f64,
    /// Arrivals in it.
    pub arrivals: u64,
    /// Different addresses that they came from, [`PEERS_MAX`] at most. Behind a proxy that is the proxy.
    pub peers: u32,
    /// Closes in the burst that set it off.
    pub closes: u64,
    /// Of them the latest, oldest first; at most [`CAUSES_MAX`].
    pub set_off_by: Vec<ConnectionId>,
    /// The period at which clients of this port come back, as far as is known by now.
    pub resonance: Option<Resonance>,
}

/// How a listening port stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PortArrivals {
    /// The listening port.
    pub local_port: u16,
    /// Arrivals since the start.
    pub arrivals: u64,
    /// Arrivals in the last whole second; `None` where something of it is not known.
    pub arrivals_per_second: Option<u32>,
    /// What is usual; `None` before anything is.
    pub baseline_per_second: f64,
    /// Since when there is a storm.
    pub storm_since: Option<Timestamp>,
    /// Storms since the start.
    pub storms: u64,
    /// The period at which clients come back.
    pub resonance: Option<Resonance>,
    /// Bursts of closes (or parts of long ones) that one was looked for in, at most the latest 16. Below
    /// [`WINDOWS_MIN`](crate::WINDOWS_MIN) it cannot be told whether there is one.
    pub windows: u32,
    /// The outage that lasts.
    pub outage: Option<Outage>,
}

#[derive(Debug)]
struct OngoingStorm {
    began_at: Timestamp,
    /// End of the last bin that was above what is usual.
    busy_until: Timestamp,
    peak: u32,
    baseline: f64,
    arrivals: u64,
    peers: HashSet<IpAddr>,
    closes: u64,
    set_off_by: Vec<ConnectionId>,
}

/// What a port has to say.
#[derive(Debug)]
pub(crate) enum Said {
    Began(StormBegan),
    Ended(Box<Storm>),
}

#[derive(Debug)]
pub(crate) struct Port {
    local_port: u16,
    pub(crate) reach: Reach,
    rates: Rates,
    /// The bins that are not over, the oldest first; the first begins at `begins_at`.
    open: VecDeque<Bin>,
    begins_at: Timestamp,
    /// Peers that came in the bins of one rate and those that are open.
    recent: VecDeque<(Timestamp, IpAddr)>,
    causes: VecDeque<(Timestamp, ConnectionId)>,
    /// The latest moment of a burst of closes, and its first.
    burst_at: Option<Timestamp>,
    burst_since: Option<Timestamp>,
    burst_closes: u32,
    window_at: Option<Timestamp>,
    is_window_whole: bool,
    detector: Detector,
    resonance: Option<Resonance>,
    storm: Option<OngoingStorm>,
    arrivals: u64,
    storms: u64,
}

/// Peers of arrivals that are remembered until it is known whether a storm began with them.
const RECENT_MAX: usize = 1_024;

impl Port {
    pub(crate) fn new(local_port: u16, at: Timestamp, settings: &Settings) -> Self {
        // Bins of all ports begin at the same moments: those at which time is passed to them.
        let bin_ns = settings.bin_ms * 1_000_000;
        let at = Timestamp::from_ns(at.as_ns() / bin_ns * bin_ns);
        Self {
            local_port,
            reach: Reach::default(),
            rates: Rates::new(settings),
            open: VecDeque::from([Bin::default(); OPEN_BINS]),
            begins_at: at,
            recent: VecDeque::new(),
            causes: VecDeque::with_capacity(CAUSES_MAX),
            burst_at: None,
            burst_since: None,
            burst_closes: 0,
            window_at: None,
            is_window_whole: true,
            detector: Detector::new(settings),
            resonance: None,
            storm: None,
            arrivals: 0,
            storms: 0,
        }
    }

    fn bin_at(&mut self, at: Timestamp, settings: &Settings) -> Option<&mut Bin> {
        if at < self.begins_at {
            return None;
        }
        let place = at.ms_since(self.begins_at) / settings.bin_ms;
        self.open.get_mut(usize::try_from(place).ok()?)
    }

    /// A peer arrived. Bins must be over up to its time.
    pub(crate) fn arrived(&mut self, at: Timestamp, peer: IpAddr, settings: &Settings) {
        self.arrivals = self.arrivals.saturating_add(1);
        let Some(bin) = self.bin_at(at, settings) else {
            // So late that its second is over: it is not known when so many came.
            return;
        };
        bin.arrivals = bin.arrivals.saturating_add(1);
        if let Some(storm) = &mut self.storm {
            storm.arrivals += 1;
            if storm.peers.len() < PEERS_MAX {
                storm.peers.insert(peer);
            }
        } else {
            if self.recent.len() == RECENT_MAX {
                self.recent.pop_front();
            }
            self.recent.push_back((at, peer));
        }
        if let Some(window_at) = self.window_at.filter(|window_at| at >= *window_at) {
            self.detector.arrival(at.ms_since(window_at));
        }
    }

    /// A connection was closed.
    pub(crate) fn closed(&mut self, at: Timestamp, connection: ConnectionId, settings: &Settings) {
        // The engine tells of a close once it knows whose it is, which may be a second later. A burst is counted over ten:
        // what is late counts in the oldest bin that is not over.
        if let Some(bin) = self.bin_at(at.max(self.begins_at), settings) {
            bin.closes = bin.closes.saturating_add(1);
        }
        if self.causes.len() == CAUSES_MAX {
            self.causes.pop_front();
        }
        self.causes.push_back((at, connection));
    }

    /// Until now, something may have been missed.
    pub(crate) fn unknown(&mut self) {
        for bin in &mut self.open {
            bin.is_unknown = true;
        }
        self.is_window_whole = false;
    }

    /// Time has passed: bins that can get nothing more are over.
    pub(crate) fn pass(&mut self, now: Timestamp, settings: &Settings, said: &mut Vec<Said>) {
        let room = settings.bin_ms * (OPEN_BINS as u64);
        if now.ms_since(self.begins_at) < room {
            return;
        }
        // A long time of nothing changes nothing any more: at most what a storm needs to end, and the baseline to be learned.
        let behind = (now.ms_since(self.begins_at) - room) / settings.bin_ms + 1;
        let bound = settings.baseline_ms.max(settings.storm_max_ms) / settings.bin_ms + 1;
        for _ in 0..behind.min(bound) {
            self.end_bin(settings, said);
        }
        if behind > bound {
            self.begins_at = self.begins_at.plus_ms((behind - bound) * settings.bin_ms);
        }
    }

    fn end_bin(&mut self, settings: &Settings, said: &mut Vec<Said>) {
        let Some(bin) = self.open.pop_front() else { return };
        self.open.push_back(Bin::default());
        let bin_began_at = self.begins_at;
        self.begins_at = self.begins_at.plus_ms(settings.bin_ms);
        let now = self.begins_at;
        self.rates.push(bin);
        self.reach.pass(now, settings);
        self.look_for_burst(now, settings);
        self.look_at_window(now, settings);
        if self.storm.is_some() {
            self.look_for_end(now, bin, settings, said);
        } else {
            let is_burst = self.burst_at.is_some_and(|at| now.ms_since(at) < settings.burst_ms);
            self.look_for_storm(now, bin_began_at, settings, said);
            if self.storm.is_none() && !is_burst {
                self.rates.learn(settings);
            }
        }
        let keep_from = bin_began_at.minus_ms(settings.bin_ms * (RATE_BINS as u64));
        while self.recent.front().is_some_and(|(at, _)| *at < keep_from) {
            self.recent.pop_front();
        }
    }

    fn bins_of(ms: u64, settings: &Settings) -> usize {
        usize::try_from(ms.div_ceil(settings.bin_ms)).unwrap_or(usize::MAX)
    }

    fn look_for_burst(&mut self, now: Timestamp, settings: &Settings) {
        let bins = Self::bins_of(settings.burst_ms, settings);
        let closes = self.rates.closes_in(bins);
        let is_burst = self.rates.is_known(settings)
            && is_out(closes, self.rates.closes.of_bins(bins), settings.burst_closes);
        if !is_burst {
            self.burst_since = None;
            return;
        }
        let since = *self.burst_since.get_or_insert(now);
        if now.ms_since(since) > settings.after_burst_ms {
            // What goes on for so long is no burst, but usual from now on.
            #[expect(clippy::cast_precision_loss, reason = "some dozens of bins")]
            self.rates.closes.adopt(f64::from(closes) / bins as f64);
            self.burst_at = None;
            self.burst_since = None;
        } else {
            if self.burst_at.is_none_or(|at| now.ms_since(at) > settings.after_burst_ms) {
                self.burst_closes = 0;
            }
            self.burst_closes = self.burst_closes.max(closes);
            self.burst_at = Some(now);
        }
    }

    /// Windows begin with a burst, and follow each other as long as its consequences may come.
    fn look_at_window(&mut self, now: Timestamp, settings: &Settings) {
        if self.window_at.is_some_and(|at| now.ms_since(at) >= settings.window_ms) {
            self.detector.end_window(self.is_window_whole);
            self.window_at = None;
            self.resonance = self.detector.resonance();
        }
        let is_after_burst = self.burst_at.is_some_and(|at| now.ms_since(at) < settings.window_ms);
        if self.window_at.is_none() && (is_after_burst || self.storm.is_some()) {
            self.window_at = Some(now);
            self.is_window_whole = true;
            // What came in bins that are still open lies in it.
            let recent: Vec<Timestamp> =
                self.recent.iter().map(|(at, _)| *at).filter(|at| *at >= now).collect();
            for at in recent {
                self.detector.arrival(at.ms_since(now));
            }
        }
    }

    fn look_for_storm(
        &mut self,
        now: Timestamp,
        bin_began_at: Timestamp,
        settings: &Settings,
        said: &mut Vec<Said>,
    ) {
        let arrivals = self.rates.arrivals_in(RATE_BINS);
        let usual = self.rates.arrivals.of_bins(RATE_BINS);
        let is_after_burst = self.burst_at.is_some_and(|at| now.ms_since(at) <= settings.after_burst_ms);
        if !is_after_burst
            || self.rates.is_unknown(RATE_BINS)
            || !is_out(arrivals, usual, settings.storm_arrivals)
        {
            return;
        }
        let began_at = bin_began_at.minus_ms(settings.bin_ms * (RATE_BINS as u64 - 1));
        let oldest = began_at.minus_ms(settings.after_burst_ms);
        let causes = self.causes.iter().filter(|(at, _)| *at >= oldest && *at <= now);
        let baseline = self.per_second(usual, settings);
        self.storms += 1;
        self.storm = Some(OngoingStorm {
            began_at,
            busy_until: now,
            peak: arrivals,
            baseline,
            arrivals: self.recent.iter().filter(|(at, _)| *at >= began_at).count() as u64,
            peers: self.recent.iter().filter(|(at, _)| *at >= began_at).map(|(_, peer)| *peer).collect(),
            closes: u64::from(self.burst_closes),
            set_off_by: causes.map(|(_, connection)| *connection).collect(),
        });
        said.push(Said::Began(StormBegan {
            local_port: self.local_port,
            at: began_at,
            arrivals_per_second: arrivals,
            baseline_per_second: baseline,
            closes: self.burst_closes,
        }));
    }

    /// A rate is counted over [`RATE_BINS`]; by the default settings that is a second.
    fn per_second(&self, of_rate_bins: f64, settings: &Settings) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a second has a thousand milliseconds")]
        let bins_ms = (settings.bin_ms * RATE_BINS as u64) as f64;
        of_rate_bins * 1_000.0 / bins_ms
    }

    fn look_for_end(&mut self, now: Timestamp, bin: Bin, settings: &Settings, said: &mut Vec<Said>) {
        let bins = Self::bins_of(settings.calm_ms, settings);
        let (rate, in_calm) = (self.rates.arrivals_in(RATE_BINS), self.rates.arrivals_in(bins));
        let usual = self.rates.arrivals.of_bins(bins);
        let Some(storm) = &mut self.storm else { return };
        storm.peak = storm.peak.max(rate);
        // Hysteresis: what begins at three times the usual ends at half more than it.
        let above = f64::from(in_calm) > (1.5 * usual).max(2.0);
        if bin.arrivals > 0 && above {
            storm.busy_until = now;
        }
        let end = if now.ms_since(storm.began_at) >= settings.storm_max_ms {
            StormEnd::NewBaseline
        } else if !above
            && now.ms_since(storm.busy_until) >= settings.calm_ms.min(now.ms_since(storm.began_at)) / 2
        {
            StormEnd::Calm
        } else {
            return;
        };
        if end == StormEnd::NewBaseline {
            #[expect(clippy::cast_precision_loss, reason = "some thousand bins")]
            let per_bin =
                storm.arrivals as f64 / (now.ms_since(storm.began_at) / settings.bin_ms).max(1) as f64;
            self.rates.arrivals.adopt(per_bin);
        }
        self.end_storm(end, said);
    }

    fn end_storm(&mut self, end: StormEnd, said: &mut Vec<Said>) {
        let Some(storm) = self.storm.take() else { return };
        said.push(Said::Ended(Box::new(Storm {
            local_port: self.local_port,
            began_at: storm.began_at,
            ended_at: storm.busy_until,
            end,
            peak_per_second: storm.peak,
            baseline_per_second: storm.baseline,
            arrivals: storm.arrivals,
            peers: u32::try_from(storm.peers.len()).unwrap_or(u32::MAX),
            closes: storm.closes,
            set_off_by: storm.set_off_by,
            resonance: self.resonance,
        })));
    }

    /// The sidecar stops: a storm that is still on is told as it is.
    pub(crate) fn shut_down(&mut self, said: &mut Vec<Said>) {
        if self.window_at.take().is_some() {
            self.detector.end_window(self.is_window_whole);
            self.resonance = self.detector.resonance();
        }
        self.end_storm(StormEnd::StillOn, said);
    }

    pub(crate) fn standing(&self, settings: &Settings) -> PortArrivals {
        let known = !self.rates.is_unknown(RATE_BINS);
        PortArrivals {
            local_port: self.local_port,
            arrivals: self.arrivals,
            arrivals_per_second: known.then(|| self.rates.arrivals_in(RATE_BINS)),
            baseline_per_second: self.per_second(self.rates.arrivals.of_bins(RATE_BINS), settings),
            storm_since: self.storm.as_ref().map(|storm| storm.began_at),
            storms: self.storms,
            resonance: self.resonance,
            windows: self.detector.windows(),
            outage: self.reach.current(),
        }
    }

    /// Whether nothing is expected of it.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.storm.is_none()
            && self.reach.open == 0
            && self.reach.current().is_none()
            && self.window_at.is_none()
    }
}
