//! Of one listening or one remote port: count, maximum, how long flat, how many idle.

use core::net::IpAddr;

use super::census::CensusSocket;
use super::output::LeakSign;
use crate::{Role, TcpState, Timestamp};

/// Whose port it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Side {
    /// The pod listens on it.
    Local,
    /// The pod dials it.
    Remote,
}

impl Side {
    /// Every value.
    pub const ALL: &[Self] = &[Self::Local, Self::Remote];

    /// The stable word for it, as spans and logs show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
        }
    }
}

/// An address and a port that connections have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct GroupKey {
    /// Whose port it is.
    pub side: Side,
    /// Its address; an IPv4 address is one, in whatever socket.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

impl GroupKey {
    pub(super) fn of(socket: &CensusSocket) -> Self {
        let ends = &socket.endpoints;
        let (side, address, port) = match socket.role {
            Role::Server => (Side::Local, ends.local_address, ends.local_port),
            Role::Client => (Side::Remote, ends.peer_address, ends.peer_port),
        };
        Self { side, address: address.to_canonical(), port }
    }
}

/// Upper bounds of the idle ages, in milliseconds; what is older is in one more bucket.
pub const IDLE_BOUNDARIES_MS: [u64; 6] = [10_000, 60_000, 180_000, 600_000, 1_800_000, 3_600_000];
/// Buckets of the idle ages.
pub const IDLE_BUCKETS: usize = IDLE_BOUNDARIES_MS.len() + 1;

/// Sockets in one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateAge {
    /// How many.
    pub count: u32,
    /// Since when the oldest has been in it, at the latest.
    pub oldest_since: Option<Timestamp>,
}

impl StateAge {
    fn add(&mut self, since: Timestamp) {
        self.count += 1;
        self.oldest_since = Some(self.oldest_since.map_or(since, |oldest| oldest.min(since)));
    }
}

/// What one census shows of a group.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) established: u32,
    /// Of them, those that were there at the census before: what is dialled and refused at once is not in it.
    pub(super) settled: u32,
    pub(super) idle: u32,
    /// The idle one that carried a byte last.
    pub(super) idle_since: Option<Timestamp>,
    pub(super) histogram: [u32; IDLE_BUCKETS],
    pub(super) idle_unknown: u32,
    pub(super) close_wait: StateAge,
    pub(super) fin_wait2: StateAge,
    /// Orphans that were passed over.
    pub(super) orphans: u32,
    pub(super) oldest_orphan: Option<Timestamp>,
    /// The only owner; `Some(None)` where there are several, or one is unknown.
    owner: Option<Option<u32>>,
}

impl Tally {
    pub(super) fn add_state(&mut self, state: TcpState, since: Timestamp) {
        match state {
            TcpState::CloseWait => self.close_wait.add(since),
            TcpState::FinWait2 => self.fin_wait2.add(since),
            _ => {}
        }
    }

    pub(super) fn add_owner(&mut self, pid: Option<u32>) {
        self.owner = match self.owner {
            None => Some(pid),
            Some(known) if known == pid => Some(known),
            Some(_) => Some(None),
        };
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.owner.flatten()
    }

    /// Files the idle age of an established socket.
    pub(super) fn add_idle(&mut self, idle_ms: Option<u64>) {
        match idle_ms {
            None => self.idle_unknown += 1,
            Some(idle_ms) => {
                let bucket = IDLE_BOUNDARIES_MS.iter().position(|bound| idle_ms <= *bound);
                if let Some(count) = self.histogram.get_mut(bucket.unwrap_or(IDLE_BUCKETS - 1)) {
                    *count += 1;
                }
            }
        }
    }
}

/// The largest count of the last hour.
#[derive(Clone, Copy, Debug, Default)]
struct Peaks {
    counts: [u32; Self::PARTS],
    part: u64,
}

impl Peaks {
    const PARTS: usize = 12;
    const PART_MS: u64 = 300_000;

    fn push(&mut self, at: Timestamp, count: u32) {
        let part = at.as_ns() / (Self::PART_MS * 1_000_000);
        let passed = part.saturating_sub(self.part);
        for step in 1..=passed.min(Self::PARTS as u64) {
            *self.of(self.part + step) = 0;
        }
        self.part = self.part.max(part);
        let peak = self.of(self.part);
        *peak = (*peak).max(count);
    }

    fn of(&mut self, part: u64) -> &mut u32 {
        #[expect(clippy::cast_possible_truncation, reason = "a remainder of 12")]
        let place = (part % Self::PARTS as u64) as usize;
        &mut self.counts[place]
    }

    fn max(&self) -> u32 {
        self.counts.iter().copied().max().unwrap_or(0)
    }
}

/// A suspicion that stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspicion {
    pub(super) since: Timestamp,
    pub(super) count: u32,
    /// Censuses in a row that spoke against it.
    pub(super) calm: u8,
}

/// What is known of a group over time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub(super) tally: Tally,
    peaks: Peaks,
    /// Since when the settled count has been what it is.
    pub(super) flat_since: Timestamp,
    pub(super) flat: Option<Suspicion>,
    pub(super) orphaned: Option<Suspicion>,
    /// When it last had a socket.
    pub(super) used_at: Timestamp,
}

impl Group {
    pub(super) fn new(at: Timestamp) -> Self {
        Self {
            tally: Tally::default(),
            peaks: Peaks::default(),
            flat_since: at,
            flat: None,
            orphaned: None,
            used_at: at,
        }
    }

    /// A census showed this. After a pause nothing is known of what was in between.
    pub(super) fn on_tally(&mut self, at: Timestamp, tally: Tally, is_after_pause: bool) {
        if tally.settled != self.tally.settled || is_after_pause {
            self.flat_since = at;
        }
        self.peaks.push(at, tally.settled);
        if tally.established > 0 || tally.close_wait.count > 0 || tally.fin_wait2.count > 0 {
            self.used_at = at;
        }
        self.tally = tally;
    }

    pub(super) fn maximum(&self) -> u32 {
        self.peaks.max()
    }

    /// Whether it has stood at its own maximum or at its quota, with hardly a byte, for long enough.
    pub(super) fn is_flat(
        &self,
        at: Timestamp,
        count_min: u32,
        flat_after_ms: u64,
        quota: Option<u32>,
    ) -> bool {
        let tally = &self.tally;
        let is_full = tally.settled >= self.maximum() || quota.is_some_and(|quota| tally.settled >= quota);
        tally.settled >= count_min.max(1)
            && is_full
            && at.ms_since(self.flat_since) >= flat_after_ms
            && is_share(tally.idle, tally.settled, 90)
    }
}

/// Whether `part` is at least so many hundredths of `whole`.
pub(super) fn is_share(part: u32, whole: u32, percent: u64) -> bool {
    u64::from(part) * 100 >= u64::from(whole) * percent
}

/// A group, for whoever lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// The port.
    pub key: GroupKey,
    /// Established connections.
    pub established: u32,
    /// Of them, those that were there at the census before.
    pub settled: u32,
    /// The largest such count of the last hour.
    pub maximum: u32,
    /// Since when that count has been what it is.
    pub flat_since: Timestamp,
    /// Established connections that carried no byte either way for long enough to be idle.
    pub idle: u32,
    /// Established connections by the time for which they carried no byte either way; see [`IDLE_BOUNDARIES_MS`].
    pub idle_histogram: [u32; IDLE_BUCKETS],
    /// Established connections of which the kernel does not say it.
    pub idle_unknown: u32,
    /// Sockets that the host has not closed although the peer has.
    pub close_wait: StateAge,
    /// Sockets that the host closed and the peer has not.
    pub fin_wait2: StateAge,
    /// Dialled sockets that outlive the connections that they served.
    pub orphans: u32,
    /// The configured quota, where there is one.
    pub quota: Option<u32>,
    /// The process that owns the sockets, where it is known and the only one.
    pub pid: Option<u32>,
    /// What is suspected now, and since when.
    pub suspected: alloc::vec::Vec<(LeakSign, Timestamp)>,
}
