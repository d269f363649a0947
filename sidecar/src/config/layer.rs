//! One source of settings: everything in it may be missing.

use std::path::{Path, PathBuf};

use ackbeat_liveness::Policy;
use serde::{Deserialize, Serialize};

use super::{ConfigError, LogFormat, LogLevel, ModeChoice, PolicyName};

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
    /// `recording`
    pub recording: Option<RecordingLayer>,
    /// `log`
    pub log: Option<LogLayer>,
    /// `export`
    pub export: Option<ExportLayer>,
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
    /// `shutdown`
    ShutdownLayer {
        /// `shutdown.drain_ms`
        drain_ms: u64,
        /// `shutdown.flush_ms`
        flush_ms: u64,
    }
}

macro_rules! thresholds {
    ($($field:ident: $type:ty),+ $(,)?) => {
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
        }
    };
}

thresholds! {
    fresh_ms: u64,
    pong_budget_ms: u64,
    unreachable_retransmits: u8,
    unreachable_floor_ms: u64,
    unreachable_after_ms: u64,
    silent_after_ms: u64,
    stalled_after_ms: u64,
    min_progress_bytes: u64,
    progress_window_ms: u64,
    postmortem_window_ms: u64,
    sample_interval_ms: u64,
    late_tick_ms: u64,
}

fn section_overridden<T>(weaker: Option<T>, stronger: Option<T>, merge: fn(T, T) -> T) -> Option<T> {
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
            recording: section_overridden(self.recording, stronger.recording, RecordingLayer::overridden_by),
            log: section_overridden(self.log, stronger.log, LogLayer::overridden_by),
            export: section_overridden(self.export, stronger.export, ExportLayer::overridden_by),
            shutdown: section_overridden(self.shutdown, stronger.shutdown, ShutdownLayer::overridden_by),
        }
    }
}

/// Reads a YAML file.
pub(super) fn read_file(path: &Path) -> Result<Layer, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|cause| ConfigError::Read { path: path.to_path_buf(), cause })?;
    parse(&text, path)
}

/// Reads YAML text; `path` is for the message.
pub(super) fn parse(text: &str, path: &Path) -> Result<Layer, ConfigError> {
    // A file of comments alone is a document without a mapping.
    let empty =
        text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#') || line == "---");
    if empty {
        return Ok(Layer::default());
    }
    serde_saphyr::from_str(text).map_err(|error| {
        let message = error.without_snippet().to_string();
        let Some(location) = error.location() else {
            return ConfigError::File { path: path.to_path_buf(), place: String::new(), message };
        };
        let (line, column) = (location.line(), location.column());
        let key = key_at(text, usize::try_from(line).unwrap_or(usize::MAX));
        ConfigError::File {
            path: path.to_path_buf(),
            place: format!(", line {line}, column {column}, key {key:?}"),
            message: message.trim_end_matches(&format!(" at line {line}, column {column}")).to_owned(),
        }
    })
}

/// The key that a line (from 1) belongs to, with its sections: found by indentation, for messages only.
fn key_at(text: &str, line: usize) -> String {
    let mut keys = Vec::new();
    let mut indent = usize::MAX;
    for text in text.lines().take(line).collect::<Vec<_>>().into_iter().rev() {
        let trimmed = text.trim_start();
        let depth = text.len() - trimmed.len();
        if depth >= indent || trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        // An item of a list belongs to the key above it, which may stand at the same depth.
        if trimmed.starts_with('-') {
            indent = indent.min(depth + 1);
        } else if let Some((key, _)) = trimmed.split_once(':') {
            keys.push(key.trim());
            indent = depth;
        }
    }
    keys.reverse();
    keys.join(".")
}
