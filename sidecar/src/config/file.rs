//! Settings from a YAML file, and what is said about a file that is wrong.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use super::reference::SETTINGS;
use super::{ConfigError, Layer};

/// Largest file that is read, in bytes.
const FILE_MAX_BYTES: u64 = 1024 * 1024;

/// Reads a file.
pub(super) fn text(path: &Path) -> Result<String, ConfigError> {
    let failed = |cause| ConfigError::Read { path: path.to_path_buf(), cause };
    let mut text = String::new();
    // A device or a pipe may never end.
    File::open(path)
        .and_then(|file| file.take(FILE_MAX_BYTES + 1).read_to_string(&mut text))
        .map_err(failed)?;
    if text.len() as u64 > FILE_MAX_BYTES {
        return Err(ConfigError::File {
            path: path.to_path_buf(),
            place: String::new(),
            message: format!("it is longer than {FILE_MAX_BYTES} bytes; that is no file of settings"),
        });
    }
    Ok(text)
}

/// Reads YAML text; `path` is for the message.
///
/// # Errors
/// [`ConfigError::File`] names the key or the place.
pub fn parse(text: &str, path: &Path) -> Result<Layer, ConfigError> {
    if says_nothing(text) {
        return Ok(Layer::default());
    }
    serde_saphyr::from_str(text).map_err(|error| {
        let place = error
            .location()
            .map(|location| format!(", line {}, column {}", location.line(), location.column()))
            .unwrap_or_default();
        ConfigError::File { path: path.to_path_buf(), message: explain(text, &error, &place), place }
    })
}

/// Whether a file has comments alone: as YAML that is a document without a mapping.
pub(crate) fn says_nothing(text: &str) -> bool {
    text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#') || line == "---")
}

/// What is wrong, in the words of the table of settings.
fn explain(text: &str, error: &serde_saphyr::Error, place: &str) -> String {
    if let serde_saphyr::Error::DuplicateMappingKey { key, .. } = error.without_snippet() {
        return match key {
            Some(key) => format!("key {key:?} stands twice"),
            None => "a key stands twice".to_owned(),
        };
    }
    // YAML that is no YAML is best told by who reads it.
    serde_saphyr::from_str::<Value>(text).ok().and_then(|tree| fault(&tree)).unwrap_or_else(|| {
        let message = error.without_snippet().to_string();
        if message.starts_with("multiple YAML documents") {
            return "it has several documents (`---`); settings are one".to_owned();
        }
        let repeated = place.replacen(", ", " at ", 1);
        message.trim_end_matches(&repeated).to_owned()
    })
}

/// The first thing in a document that no setting allows.
fn fault(tree: &Value) -> Option<String> {
    let Value::Object(settings) = tree else {
        return Some("it is not a mapping of settings (`key: value`)".to_owned());
    };
    settings.iter().find_map(|(key, value)| dotted(key).or_else(|| fault_below(key, value)))
}

/// A setting by its whole name, as messages and CONFIGURATION.md write it.
fn dotted(key: &str) -> Option<String> {
    let (section, name) = key.split_once('.')?;
    let is_setting = SETTINGS.iter().any(|setting| setting.key == key);
    is_setting.then(|| {
        format!("key {key:?}: in a file `{section}:` is a section; write `{name}:` indented below it")
    })
}

/// The same for a key, which is a setting or a section of them.
fn fault_below(key: &str, value: &Value) -> Option<String> {
    let prefix = format!("{key}.");
    if !SETTINGS.iter().any(|setting| setting.key.starts_with(&prefix)) {
        return fault_of(key, value);
    }
    match value {
        Value::Null => None,
        Value::Object(settings) => {
            settings.iter().find_map(|(rest, value)| fault_below(&format!("{prefix}{rest}"), value))
        }
        _ => Some(format!("key {key:?}: {} is not a mapping of settings", shown(value))),
    }
}

fn fault_of(key: &str, value: &Value) -> Option<String> {
    let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
        return Some(format!("unknown key {key:?}; CONFIGURATION.md lists every setting"));
    };
    if value.is_null() || setting.accepts(value) {
        return None;
    }
    Some(format!("key {key:?}: {} is not {}", shown(value), setting.expected()))
}

/// A value as a message shows it; a long one is cut.
fn shown(value: &Value) -> String {
    const CHARACTERS_MAX: usize = 64;
    let text = value.to_string();
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
