//! When something is suspected, and what may be reaped.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use super::group::{GroupKey, Side};

/// Sockets that are asked to be destroyed with one census at most.
pub const REAPS_AT_ONCE: usize = 8;

/// Whether idle sockets of a full quota are destroyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum ReapMode {
    /// Nothing is destroyed, and nothing is looked at for it.
    #[default]
    Off,
    /// What would be destroyed is told.
    DryRun,
    /// It is destroyed.
    On,
}

impl ReapMode {
    /// Every value, the weakest first.
    pub const ALL: &[Self] = &[Self::Off, Self::DryRun, Self::On];

    /// The stable word for it, as spans and logs show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::DryRun => "dry-run",
            Self::On => "on",
        }
    }
}

/// How many connections a listening or a remote port allows, as somebody configured it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Quota {
    /// Whose port it is.
    pub side: Side,
    /// The port's address; every address of that port by itself if `None`.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
    /// Connections that it allows.
    pub limit: u32,
}

impl Quota {
    /// Whether it speaks of this group.
    #[must_use]
    pub fn fits(&self, key: &GroupKey) -> bool {
        self.side == key.side
            && self.port == key.port
            && self.address.is_none_or(|address| address.to_canonical() == key.address)
    }
}

impl fmt::Display for Quota {
    /// As it is written: `remote:10.0.0.7:8080=64`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:", self.side.as_str())?;
        match self.address {
            Some(address) => write!(formatter, "{}", core::net::SocketAddr::new(address, self.port))?,
            None => write!(formatter, "{}", self.port)?,
        }
        write!(formatter, "={}", self.limit)
    }
}

/// A text is no [`Quota`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaError {
    /// The text.
    pub text: String,
}

impl fmt::Display for QuotaError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?} is no quota: write remote:PORT=LIMIT, remote:ADDRESS:PORT=LIMIT or local:PORT=LIMIT",
            self.text
        )
    }
}

impl core::error::Error for QuotaError {}

impl FromStr for Quota {
    type Err = QuotaError;

    /// `remote:8080=64`, `remote:10.0.0.7:8080=64`, `remote:[fd00::7]:8080=64`, `local:9000=100`.
    fn from_str(text: &str) -> Result<Self, QuotaError> {
        let parsed = || {
            let (side, rest) = text.trim().split_once(':')?;
            let side = match side {
                "remote" => Side::Remote,
                "local" => Side::Local,
                _ => return None,
            };
            let (place, limit) = rest.split_once('=')?;
            let limit = limit.trim().parse().ok().filter(|limit| *limit > 0)?;
            let (address, port) = match place.trim().rsplit_once(':') {
                None => (None, place.trim()),
                Some((address, port)) => {
                    let address = address.trim_start_matches('[').trim_end_matches(']');
                    (Some(address.parse().ok()?), port)
                }
            };
            let port = port.parse().ok().filter(|port| *port > 0)?;
            Some(Self { side, address, port, limit })
        };
        parsed().ok_or_else(|| QuotaError { text: text.to_string() })
    }
}

/// Thresholds for leaks. All times in milliseconds of monotonic time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields, default)
)]
pub struct LeakSettings {
    /// How far apart censuses are; 0 where none are taken. One that comes much later opens new windows.
    pub census_interval_ms: u64,
    /// A socket that carried no byte either way for this long is idle.
    pub idle_after_ms: u64,
    /// A count is suspicious once it has been flat, and its sockets idle, for this long.
    pub flat_after_ms: u64,
    /// Fewer connections than this make no suspicious count.
    pub count_min: u8,
    /// A socket that the host left in `CLOSE_WAIT` for this long is a leak.
    pub close_wait_after_ms: u64,
    /// A dialled socket that outlives the connection that it served by this is an orphan.
    pub orphan_after_ms: u64,
    /// What ports allow.
    pub quotas: Vec<Quota>,
    /// Whether idle sockets of a full quota are destroyed.
    pub reap: ReapMode,
    /// Of them, only those that are at least this old …
    pub reap_min_age_ms: u64,
    /// … and carried no byte either way for this long.
    pub reap_min_idle_ms: u64,
}

impl Default for LeakSettings {
    fn default() -> Self {
        Self {
            census_interval_ms: 10_000,
            // Report D: three samples, three minutes apart, showed the same count.
            idle_after_ms: 180_000,
            flat_after_ms: 180_000,
            count_min: 16,
            // A host that reads sees the end at once, and closes within its own shutdown deadline: seconds.
            close_wait_after_ms: 60_000,
            orphan_after_ms: 30_000,
            quotas: Vec::new(),
            reap: ReapMode::Off,
            reap_min_age_ms: 600_000,
            reap_min_idle_ms: 300_000,
        }
    }
}

impl LeakSettings {
    /// The quota that is configured for this group: the one that names its address before the one that does not.
    #[must_use]
    pub fn quota(&self, key: &GroupKey) -> Option<u32> {
        let fitting = || self.quotas.iter().filter(|quota| quota.fits(key));
        fitting().find(|quota| quota.address.is_some()).or_else(|| fitting().next()).map(|quota| quota.limit)
    }
}
