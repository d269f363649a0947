//! Every setting, in one place: command line over environment over file over default.
//!
//! `sidecar/CONFIGURATION.md` is the reference; [`reference::render`] writes it from the table
//! [`reference::SETTINGS`], and tests hold the table, the structs here and that page together.

mod assignment;
mod environment;
mod file;
mod heartbeat;
mod layer;
mod leaks;
mod reasons;
pub mod reference;
mod sources;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ackbeat_liveness::leak::LeakSettings;
use ackbeat_liveness::{Deployment, FINAL_CODES_DEFAULT, PeerIsProxy, Policy, WindowProbes};

pub use environment::Environment;
pub use file::parse as parse_yaml;
pub(crate) use file::says_nothing;
pub use heartbeat::{AskedByChoice, CustomLayer, HeartbeatLayer, MatchChoice, ProfileChoice};
pub use layer::{
    ApiLayer, CloseLayer, ExportLayer, KubernetesLayer, Layer, LeaksLayer, LogLayer, MetricsLayer,
    OutOfRange, ProbeLayer, RecordingLayer, SecurityLayer, ShutdownLayer, ThresholdsLayer,
};
pub use leaks::ReapChoice;
pub use sources::{LayerChange, Sources, takes_effect_at_once};

use crate::heartbeat::Selection;
use crate::source::Ports;

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] #[value(name = $word)] $variant),+
        }
        impl $name {
            /// The word for it in settings.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
            /// Every word.
            pub const WORDS: &[&str] = &[$($word),+];
        }
    };
}
use words;

words! {
    /// How evidence is to be gathered.
    ModeChoice {
        /// eBPF; netlink sock_diag instead where this kernel cannot do it. A missing privilege is an error.
        Auto = "auto",
        /// eBPF; netlink sock_diag wherever that cannot start. A missing privilege is a warning.
        BestEffort = "best-effort",
        /// eBPF or nothing.
        Ebpf = "ebpf",
        /// Netlink sock_diag only: needs no capability.
        SockDiag = "sock-diag",
    }
}

words! {
    /// Whether whatever terminates TCP on the other end only speaks for the peer.
    ProxyChoice {
        /// A forwarding header, or Pongs that lag.
        Auto = "auto",
        /// Always.
        Yes = "yes",
        /// Never.
        No = "no",
    }
}

impl From<ProxyChoice> for PeerIsProxy {
    fn from(choice: ProxyChoice) -> Self {
        match choice {
            ProxyChoice::Auto => Self::Auto,
            ProxyChoice::Yes => Self::Yes,
            ProxyChoice::No => Self::No,
        }
    }
}

words! {
    /// A set of thresholds.
    PolicyName {
        /// Prefers to keep a connection.
        Default = "default",
        /// Prefers to know first: an outage of some seconds may end a connection.
        Fast = "fast",
    }
}

impl PolicyName {
    /// The thresholds of this name.
    #[must_use]
    pub const fn policy(self) -> Policy {
        match self {
            Self::Default => Policy::default_policy(),
            Self::Fast => Policy::fast_policy(),
        }
    }
}

words! {
    /// Whether something is tried that others may refuse.
    AttemptChoice {
        /// It is tried, and goes on without where it is refused.
        Auto = "auto",
        /// It is not tried.
        Off = "off",
    }
}

words! {
    /// Whose addresses are resolved to names.
    PeersChoice {
        /// Nobody's.
        Off = "off",
        /// Those of pods and Services of the own namespace.
        Namespace = "namespace",
        /// Those of all namespaces.
        Cluster = "cluster",
    }
}

words! {
    /// How log lines look.
    LogFormat {
        /// For people.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

words! {
    /// How much is logged.
    LogLevel {
        /// Nothing.
        Off = "off",
        /// Errors.
        Error = "error",
        /// And warnings.
        Warn = "warn",
        /// And one line for each close.
        Info = "info",
        /// And every verdict change.
        Debug = "debug",
        /// And everything.
        Trace = "trace",
    }
}

/// Every setting, resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Which ports are watched.
    pub ports: Ports,
    /// How evidence is to be gathered.
    pub mode: ModeChoice,
    /// Name of the thresholds.
    pub policy_name: PolicyName,
    /// The thresholds, single ones overridden.
    pub policy: Policy,
    /// What stands between the host and its peers, and what its close codes mean.
    pub deployment: Deployment,
    /// Which text heartbeats are looked for.
    pub heartbeats: Selection,
    /// Own window probes; `None` where none are sent.
    pub window_probes: Option<WindowProbes>,
    /// Censuses, what makes a leak, and reaping.
    pub leaks: LeakSettings,
    /// Where the API listens.
    pub api: ApiSettings,
    /// Where the page of metrics is.
    pub metrics: MetricsSettings,
    /// What is said to Kubernetes.
    pub kubernetes: KubernetesSettings,
    /// Where and how much is recorded.
    pub recording: RecordingSettings,
    /// Logging.
    pub log: LogSettings,
    /// Export of spans; the rest comes from the standard `OTEL_*` variables.
    pub export: ExportSettings,
    /// What it gives up.
    pub security: SecuritySettings,
    /// How it stops.
    pub shutdown: ShutdownSettings,
}

/// Where the API listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiSettings {
    /// Over TCP; `None` where it does not.
    pub listen: Option<SocketAddr>,
    /// On a Unix socket; `None` where it does not.
    pub socket: Option<PathBuf>,
}

/// Where the page of metrics is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsSettings {
    /// `None` leaves it to OpenTelemetry's variables, `Some(None)` is nowhere.
    pub listen: Option<Option<SocketAddr>>,
}

impl MetricsSettings {
    /// Where the page is, if OpenTelemetry's variables say `by_variables`.
    #[must_use]
    pub fn page_at(&self, by_variables: Option<SocketAddr>) -> Option<SocketAddr> {
        self.listen.unwrap_or(by_variables)
    }
}

/// What is said to Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubernetesSettings {
    /// Whether Events about the own pod are published.
    pub events: AttemptChoice,
    /// Whose addresses are resolved to names.
    pub peers: PeersChoice,
    /// Whether the own pod is watched for its deletion.
    pub own_pod: AttemptChoice,
}

/// Where and how much is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingSettings {
    /// The file; nothing is recorded without one.
    pub file: Option<PathBuf>,
    /// What its segments take together at most, in bytes.
    pub max_bytes: u64,
}

/// Logging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// How much; `None` leaves it to `RUST_LOG`, `OTEL_LOG_LEVEL` and the default, `info`.
    pub level: Option<LogLevel>,
    /// How the lines look.
    pub format: LogFormat,
}

/// Export of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportSettings {
    /// ackbeat's own work is traced too (start, discovery, drain).
    pub own_spans: bool,
}

/// What it gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecuritySettings {
    /// Capabilities, and system calls that it never makes.
    pub sandbox: bool,
}

/// How it stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownSettings {
    /// How long closes that are being watched may still be watched.
    pub drain: Duration,
    /// How long the last spans may take to be exported.
    pub flush: Duration,
}

/// A setting is wrong. The message names it.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("config file {path}: {cause}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The file is not YAML, has an unknown key, or a value of the wrong kind.
    #[error("config file {path}{place}: {message}")]
    File {
        /// The file.
        path: PathBuf,
        /// `, line 3, column 5`, where known.
        place: String,
        /// What is wrong, with the key's name.
        message: String,
    },
    /// An `ACKBEAT_` variable that means nothing.
    #[error("unknown environment variable {name}{suggestion}; CONFIGURATION.md lists every setting")]
    UnknownVariable {
        /// Its name.
        name: String,
        /// ` (did you mean …?)`, or nothing.
        suggestion: String,
    },
    /// No threshold has this name.
    #[error("no threshold is named {name:?}; there are {known}")]
    UnknownThreshold {
        /// The name.
        name: String,
        /// All names.
        known: String,
    },
    /// A threshold out of its range.
    #[error(transparent)]
    Threshold(#[from] OutOfRange),
    /// A value that does not fit its setting.
    #[error("{name}: {value:?} is not {expected}")]
    Value {
        /// The setting, as the user wrote it: key, flag or variable.
        name: String,
        /// The value.
        value: String,
        /// What it must be.
        expected: String,
    },
}

impl Settings {
    /// Resolves every setting.
    ///
    /// `config_file` is the file that the command line names; without one `ACKBEAT_CONFIG` is looked up.
    ///
    /// # Errors
    /// [`ConfigError`], which names the setting.
    pub fn load(
        command_line: Layer,
        config_file: Option<&Path>,
        environment: &Environment,
    ) -> Result<Self, ConfigError> {
        Self::resolve(Sources::new(command_line, config_file, environment.clone()).layer()?)
    }

    /// Fills the defaults in and checks the ranges.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for a value out of its range.
    pub fn resolve(layer: Layer) -> Result<Self, ConfigError> {
        let ports = match layer.ports {
            None => Ports::Listening,
            Some(ports) => {
                if ports.is_empty() || ports.contains(&0) {
                    return Err(ConfigError::Value {
                        name: "ports".to_owned(),
                        value: format!("{ports:?}"),
                        expected:
                            "a list of ports from 1 to 65535 (leave it out to watch every listening port)"
                                .to_owned(),
                    });
                }
                Ports::Listed(ports)
            }
        };
        let policy_name = layer.policy.unwrap_or(PolicyName::Default);
        let policy = layer.thresholds.unwrap_or_default().applied_to(policy_name.policy());
        ThresholdsLayer::check(&policy)?;
        let recording = layer.recording.unwrap_or_default();
        let api = layer.api.unwrap_or_default();
        for (key, file) in [("recording.file", &recording.file), ("api.socket", &api.socket)] {
            if file.as_ref().is_some_and(|file| file.as_os_str().is_empty()) {
                return Err(ConfigError::Value {
                    name: key.to_owned(),
                    value: String::new(),
                    expected: reference::ValueKind::Path.expected(),
                });
            }
        }
        let metrics = layer.metrics.unwrap_or_default();
        let final_codes = layer.close.unwrap_or_default().final_codes;
        if let Some(code) = final_codes.iter().flatten().find(|code| !reference::CLOSE_CODES.contains(*code))
        {
            return Err(ConfigError::Value {
                name: "close.final_codes".to_owned(),
                value: code.to_string(),
                expected: reference::ValueKind::CloseCodes.expected(),
            });
        }
        let probe = layer.probe.unwrap_or_default();
        let kubernetes = layer.kubernetes.unwrap_or_default();
        let log = layer.log.unwrap_or_default();
        let export = layer.export.unwrap_or_default();
        let security = layer.security.unwrap_or_default();
        let shutdown = layer.shutdown.unwrap_or_default();
        for (key, value) in [
            ("probe.interval_ms", probe.interval_ms),
            ("recording.max_bytes", recording.max_bytes),
            ("shutdown.drain_ms", shutdown.drain_ms),
            ("shutdown.flush_ms", shutdown.flush_ms),
        ] {
            value.map_or(Ok(()), |value| in_range(key, value))?;
        }
        Ok(Self {
            ports,
            mode: layer.mode.unwrap_or(ModeChoice::Auto),
            policy_name,
            policy,
            deployment: Deployment {
                peer_is_proxy: layer.peer_is_proxy.map(PeerIsProxy::from).unwrap_or_default(),
                final_codes: final_codes.unwrap_or_else(|| FINAL_CODES_DEFAULT.to_vec()),
            },
            heartbeats: layer.heartbeat.unwrap_or_default().resolve()?,
            window_probes: probe.window.unwrap_or(false).then(|| {
                let default = WindowProbes::default();
                WindowProbes { interval_ms: probe.interval_ms.unwrap_or(default.interval_ms), ..default }
            }),
            leaks: layer.leaks.unwrap_or_default().resolve()?,
            api: ApiSettings {
                listen: listen("api.listen", api.listen, crate::api::types::ADDRESS_DEFAULT)?,
                socket: api.socket,
            },
            metrics: MetricsSettings {
                listen: metrics.listen.map(|value| listen("metrics.listen", Some(value), "")).transpose()?,
            },
            kubernetes: KubernetesSettings {
                events: kubernetes.events.unwrap_or(AttemptChoice::Auto),
                peers: kubernetes.peers.unwrap_or(PeersChoice::Off),
                own_pod: kubernetes.own_pod.unwrap_or(AttemptChoice::Auto),
            },
            recording: RecordingSettings {
                file: recording.file,
                max_bytes: recording.max_bytes.unwrap_or(256 * 1024 * 1024),
            },
            log: LogSettings { level: log.level, format: log.format.unwrap_or(LogFormat::Text) },
            export: ExportSettings { own_spans: export.own_spans.unwrap_or(false) },
            security: SecuritySettings { sandbox: security.sandbox.unwrap_or(true) },
            shutdown: ShutdownSettings {
                drain: Duration::from_millis(shutdown.drain_ms.unwrap_or(3_000)),
                flush: Duration::from_millis(shutdown.flush_ms.unwrap_or(5_000)),
            },
        })
    }
}

/// Where something listens; `None` where it does not.
fn listen(key: &str, value: Option<String>, default: &str) -> Result<Option<SocketAddr>, ConfigError> {
    let value = value.unwrap_or_else(|| default.to_owned());
    reference::listen_address(&value).ok_or_else(|| ConfigError::Value {
        name: key.to_owned(),
        expected: reference::ValueKind::Listen.expected(),
        value,
    })
}

/// Whether a number is in the range of its setting.
fn in_range(key: &str, value: u64) -> Result<(), ConfigError> {
    match layer::range(key) {
        Some(range) if !range.contains(&value) => Err(ConfigError::Value {
            name: key.to_owned(),
            value: value.to_string(),
            expected: reference::from_to(&range),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
