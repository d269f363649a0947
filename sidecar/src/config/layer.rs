//! One source of settings: everything in it may be missing.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use ackbeat_liveness::Policy;
use serde::{Deserialize, Serialize};

use super::{
    AttemptChoice, HeartbeatLayer, LogFormat, LogLevel, ModeChoice, PeersChoice, PolicyName, ProxyChoice,
    ReapChoice,
};

/// The settings that one source gives. Its serialized form is the YAML file's form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// `ports`
    pub ports: Option<Vec<u16>>,
    /// `mode`
    pub mode: Option<ModeChoice>,
    /// `policy`
    pub policy: Option<PolicyName>,
    /// `thresholds`
    pub thresholds: Option<ThresholdsLayer>,
    /// `peer_is_proxy`
    pub peer_is_proxy: Option<ProxyChoice>,
    /// `close`
    pub close: Option<CloseLayer>,
    /// `heartbeat`
    pub heartbeat: Option<HeartbeatLayer>,
    /// `probe`
    pub probe: Option<ProbeLayer>,
    /// `leaks`
    pub leaks: Option<LeaksLayer>,
    /// `api`
    pub api: Option<ApiLayer>,
    /// `metrics`
    pub metrics: Option<MetricsLayer>,
    /// `kubernetes`
    pub kubernetes: Option<KubernetesLayer>,
    /// `recording`
    pub recording: Option<RecordingLayer>,
    /// `log`
    pub log: Option<LogLayer>,
    /// `export`
    pub export: Option<ExportLayer>,
    /// `security`
    pub security: Option<SecurityLayer>,
    /// `shutdown`
    pub shutdown: Option<ShutdownLayer>,
}

macro_rules! section {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: Option<$type>),+
        }
        impl $name {
            fn overridden_by(self, stronger: Self) -> Self {
                Self { $($field: stronger.$field.or(self.$field)),+ }
            }
        }
    };
}

section! {
    /// `close`
    CloseLayer {
        /// `close.final_codes`
        final_codes: Vec<u16>,
    }
}

section! {
    /// `probe`
    ProbeLayer {
        /// `probe.window`
        window: bool,
        /// `probe.interval_ms`
        interval_ms: u64,
    }
}

section! {
    /// `leaks`
    LeaksLayer {
        /// `leaks.census_interval_ms`
        census_interval_ms: u64,
        /// `leaks.idle_after_ms`
        idle_after_ms: u64,
        /// `leaks.flat_after_ms`
        flat_after_ms: u64,
        /// `leaks.count_min`
        count_min: u8,
        /// `leaks.close_wait_after_ms`
        close_wait_after_ms: u64,
        /// `leaks.orphan_after_ms`
        orphan_after_ms: u64,
        /// `leaks.reap`
        reap: ReapChoice,
        /// `leaks.reap_quota`
        reap_quota: Vec<String>,
        /// `leaks.reap_min_age_ms`
        reap_min_age_ms: u64,
        /// `leaks.reap_min_idle_ms`
        reap_min_idle_ms: u64,
    }
}

section! {
    /// `api`
    ApiLayer {
        /// `api.listen`
        listen: String,
        /// `api.socket`
        socket: PathBuf,
    }
}

section! {
    /// `metrics`
    MetricsLayer {
        /// `metrics.listen`
        listen: String,
    }
}

section! {
    /// `kubernetes`
    KubernetesLayer {
        /// `kubernetes.events`
        events: AttemptChoice,
        /// `kubernetes.peers`
        peers: PeersChoice,
        /// `kubernetes.own_pod`
        own_pod: AttemptChoice,
    }
}

section! {
    /// `recording`
    RecordingLayer {
        /// `recording.file`
        file: PathBuf,
        /// `recording.max_bytes`
        max_bytes: u64,
    }
}

section! {
    /// `log`
    LogLayer {
        /// `log.level`
        level: LogLevel,
        /// `log.format`
        format: LogFormat,
    }
}

section! {
    /// `export`
    ExportLayer {
        /// `export.own_spans`
        own_spans: bool,
    }
}

section! {
    /// `security`
    SecurityLayer {
        /// `security.sandbox`
        sandbox: bool,
    }
}

section! {
    /// `shutdown`
    ShutdownLayer {
        /// `shutdown.drain_ms`
        drain_ms: u64,
        /// `shutdown.flush_ms`
        flush_ms: u64,
    }
}

/// A day: no threshold in milliseconds is longer.
const DAY_MS: u64 = 86_400_000;

/// A threshold out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("thresholds.{name}: {value} is not {}", super::reference::from_to(range))]
pub struct OutOfRange {
    /// Its name.
    pub name: &'static str,
    /// The value.
    pub value: u64,
    /// What is allowed.
    pub range: RangeInclusive<u64>,
}

macro_rules! thresholds {
    ($($field:ident: $type:ty => $range:expr),+ $(,)?) => {
        section! {
            /// `thresholds`: single thresholds that replace those of the policy (see [`Policy`] for each one).
            ThresholdsLayer {
                $(
                    #[doc = concat!("`thresholds.", stringify!($field), "`")]
                    $field: $type
                ),+
            }
        }
        impl ThresholdsLayer {
            /// The policy with these thresholds in place of its own.
            #[must_use]
            pub fn applied_to(&self, policy: Policy) -> Policy {
                // Named field by field, so that a new threshold of the engine cannot be forgotten here.
                let Policy { $($field),+ } = policy;
                Policy { $($field: self.$field.unwrap_or($field)),+ }
            }

            /// What a threshold may be, by its name.
            #[must_use]
            pub fn range(name: &str) -> Option<RangeInclusive<u64>> {
                match name {
                    $(stringify!($field) => Some($range),)+
                    _ => None,
                }
            }

            /// Whether every threshold is in its range.
            ///
            /// # Errors
            /// [`OutOfRange`] for the first that is not.
            pub fn check(policy: &Policy) -> Result<(), OutOfRange> {
                $(
                    let (value, range) = (u64::from(policy.$field), $range);
                    if !range.contains(&value) {
                        return Err(OutOfRange { name: stringify!($field), value, range });
                    }
                )+
                Ok(())
            }
        }
    };
}

thresholds! {
    fresh_ms: u64 => 1..=DAY_MS,
    pong_budget_ms: u64 => 1..=DAY_MS,
    unreachable_retransmits: u8 => 1..=255,
    unreachable_floor_ms: u64 => 0..=DAY_MS,
    unreachable_after_ms: u64 => 0..=DAY_MS,
    lossy_after_ms: u64 => 0..=DAY_MS,
    silent_after_ms: u64 => 0..=DAY_MS,
    stalled_after_ms: u64 => 0..=DAY_MS,
    // As much as the largest receive window (RFC 7323 section 2.3).
    min_progress_bytes: u64 => 0..=1 << 30,
    progress_window_ms: u64 => 1..=DAY_MS,
    postmortem_window_ms: u64 => 1..=DAY_MS,
    // A pass of the sampler costs milliseconds: below this it would run without a break.
    sample_interval_ms: u64 => 20..=DAY_MS,
    late_tick_ms: u64 => 1..=DAY_MS,
}

/// What the other numbers may be, by key.
pub(super) fn range(key: &str) -> Option<RangeInclusive<u64>> {
    match key {
        // Linux answers such segments 500 ms apart at the least (`tcp_invalid_ratelimit`); after a minute the kernel's own
        // probes ask as often.
        "probe.interval_ms" => Some(ackbeat_liveness::INTERVAL_MIN_MS..=60_000),
        // 0 takes none; a census costs milliseconds.
        "leaks.census_interval_ms" => Some(0..=3_600_000),
        "leaks.count_min" => Some(1..=255),
        // Closer than this an idle socket cannot be told from one that waits for an answer.
        "leaks.reap_min_age_ms"
        | "leaks.reap_min_idle_ms"
        | "leaks.idle_after_ms"
        | "leaks.flat_after_ms"
        | "leaks.close_wait_after_ms"
        | "leaks.orphan_after_ms" => Some(100..=DAY_MS),
        // The first line must find room.
        "recording.max_bytes" => Some(4_096..=u64::MAX),
        "shutdown.drain_ms" | "shutdown.flush_ms" => Some(0..=DAY_MS),
        _ => ThresholdsLayer::range(key.strip_prefix("thresholds.")?),
    }
}

pub(super) fn section_overridden<T>(
    weaker: Option<T>,
    stronger: Option<T>,
    merge: fn(T, T) -> T,
) -> Option<T> {
    match (weaker, stronger) {
        (Some(weaker), Some(stronger)) => Some(merge(weaker, stronger)),
        (weaker, stronger) => stronger.or(weaker),
    }
}

impl Layer {
    /// This layer, with what `stronger` says in its place.
    #[must_use]
    pub fn overridden_by(self, stronger: Self) -> Self {
        Self {
            ports: stronger.ports.or(self.ports),
            mode: stronger.mode.or(self.mode),
            policy: stronger.policy.or(self.policy),
            thresholds: section_overridden(
                self.thresholds,
                stronger.thresholds,
                ThresholdsLayer::overridden_by,
            ),
            peer_is_proxy: stronger.peer_is_proxy.or(self.peer_is_proxy),
            close: section_overridden(self.close, stronger.close, CloseLayer::overridden_by),
            heartbeat: section_overridden(self.heartbeat, stronger.heartbeat, HeartbeatLayer::overridden_by),
            probe: section_overridden(self.probe, stronger.probe, ProbeLayer::overridden_by),
            leaks: section_overridden(self.leaks, stronger.leaks, LeaksLayer::overridden_by),
            api: section_overridden(self.api, stronger.api, ApiLayer::overridden_by),
            metrics: section_overridden(self.metrics, stronger.metrics, MetricsLayer::overridden_by),
            kubernetes: section_overridden(
                self.kubernetes,
                stronger.kubernetes,
                KubernetesLayer::overridden_by,
            ),
            recording: section_overridden(self.recording, stronger.recording, RecordingLayer::overridden_by),
            log: section_overridden(self.log, stronger.log, LogLayer::overridden_by),
            export: section_overridden(self.export, stronger.export, ExportLayer::overridden_by),
            security: section_overridden(self.security, stronger.security, SecurityLayer::overridden_by),
            shutdown: section_overridden(self.shutdown, stronger.shutdown, ShutdownLayer::overridden_by),
        }
    }
}
