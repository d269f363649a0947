//! Settings from `ACKBEAT_` variables.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use super::reference::{SETTINGS, ValueKind};
use super::{ConfigError, Layer};

const PREFIX: &str = "ACKBEAT_";
const CONFIG_FILE: &str = "ACKBEAT_CONFIG";

/// The process's environment, or a made one in tests. Only names that start with `ACKBEAT_` are kept.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    /// That of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::from_variables(std::env::vars_os().map(|(name, value)| (lossy(name), lossy(value))))
    }

    /// These variables.
    pub fn from_variables<N: Into<String>, V: Into<String>>(
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let variables = variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .filter(|(name, _)| name.starts_with(PREFIX))
            // An empty variable is as good as none, as in OpenTelemetry's specification.
            .filter(|(_, value)| !value.is_empty())
            .collect();
        Self { variables }
    }

    /// The file that `ACKBEAT_CONFIG` names.
    pub(super) fn config_file(&self) -> Option<PathBuf> {
        self.variables.get(CONFIG_FILE).map(PathBuf::from)
    }

    /// What the variables set.
    pub(super) fn layer(&self) -> Result<Layer, ConfigError> {
        let mut tree = serde_json::Map::new();
        for (name, value) in &self.variables {
            if name == CONFIG_FILE || is_service_link(name, value) || is_of_the_build(name) {
                continue;
            }
            let Some(setting) = SETTINGS.iter().find(|setting| setting.variable() == *name) else {
                return Err(ConfigError::UnknownVariable {
                    name: name.clone(),
                    suggestion: suggestion(name),
                });
            };
            let parsed =
                setting.kind.parse(value).filter(|parsed| setting.accepts(parsed)).ok_or_else(|| {
                    ConfigError::Value {
                        name: name.clone(),
                        value: value.clone(),
                        expected: setting.expected(),
                    }
                })?;
            insert(&mut tree, setting.key, parsed);
        }
        serde_json::from_value(serde_json::Value::Object(tree)).map_err(|error| ConfigError::Value {
            name: format!("{PREFIX}…"),
            value: String::new(),
            expected: error.to_string(),
        })
    }
}

fn lossy(text: OsString) -> String {
    text.into_string().unwrap_or_else(|text| text.to_string_lossy().into_owned())
}

/// Variables of ackbeat's own build and tests, which a shell may still hold.
fn is_of_the_build(name: &str) -> bool {
    matches!(name, "ACKBEAT_EBPF_OBJECT" | "ACKBEAT_BIN" | "ACKBEAT_RUSTUP_TOOLCHAIN")
        || name.starts_with("ACKBEAT_TEST_")
}

/// Kubernetes puts variables of every Service of the namespace into every container. A Service named `ackbeat` gives
/// `ACKBEAT_SERVICE_HOST`, `ACKBEAT_PORT_4317_TCP_ADDR` and the like: they are nobody's mistake.
fn is_service_link(name: &str, value: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        // `ACKBEAT_PORT=8080` is a misspelt `ACKBEAT_PORTS`; the link of a Service is an address.
        || name.ends_with("_PORT") && value.contains("://")
        || ["_TCP", "_UDP", "_SCTP"]
            .iter()
            .any(|transport| name.contains(&format!("{transport}_")) || name.ends_with(transport))
            && name.contains("_PORT_")
}

fn insert(tree: &mut serde_json::Map<String, serde_json::Value>, key: &str, value: serde_json::Value) {
    match key.split_once('.') {
        None => {
            tree.insert(key.to_owned(), value);
        }
        Some((section, rest)) => {
            let section =
                tree.entry(section).or_insert_with(|| serde_json::Value::Object(serde_json::Map::new()));
            if let serde_json::Value::Object(section) = section {
                insert(section, rest, value);
            }
        }
    }
}

fn suggestion(name: &str) -> String {
    let tail = |text: &str| text.trim_start_matches(PREFIX).replace('_', "");
    SETTINGS
        .iter()
        .map(super::reference::Setting::variable)
        .find(|known| {
            let (known, name) = (tail(known), tail(name));
            known.contains(&name) || name.contains(&known)
        })
        .map(|known| format!(" (did you mean {known}?)"))
        .unwrap_or_default()
}

impl ValueKind {
    fn parse(self, text: &str) -> Option<serde_json::Value> {
        if self == Self::Text {
            // Blanks may be part of it.
            return Some(serde_json::Value::from(text));
        }
        let text = text.trim();
        match self {
            Self::Ports => text
                .split(',')
                .map(|port| port.trim().parse::<u16>().ok().filter(|port| *port != 0))
                .collect::<Option<Vec<_>>>()
                .map(serde_json::Value::from),
            Self::CloseCodes => text
                .split(',')
                .map(|code| code.trim().parse::<u16>().ok())
                .collect::<Option<Vec<_>>>()
                .map(serde_json::Value::from),
            Self::Word(words) => words.contains(&text).then(|| serde_json::Value::from(text)),
            Self::Path | Self::Listen | Self::Profiles | Self::Text => Some(serde_json::Value::from(text)),
            Self::Quotas => {
                Some(text.split(',').map(|quota| serde_json::Value::from(quota.trim())).collect())
            }
            Self::Bool => text.parse::<bool>().ok().map(serde_json::Value::from),
            Self::Count8 => text.parse::<u8>().ok().map(serde_json::Value::from),
            Self::Milliseconds | Self::Bytes => text.parse::<u64>().ok().map(serde_json::Value::from),
        }
    }
}
