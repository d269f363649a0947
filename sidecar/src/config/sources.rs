//! Where settings come from, so that they can be read again; and what changes when they are.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::reference::SETTINGS;
use super::{ConfigError, Environment, Layer, file};

/// Command line, environment and file.
#[derive(Clone, Debug)]
pub struct Sources {
    command_line: Layer,
    environment: Environment,
    config_file: Option<PathBuf>,
}

impl Sources {
    /// `config_file` is the file that the command line names; without one `ACKBEAT_CONFIG` is looked up.
    #[must_use]
    pub fn new(command_line: Layer, config_file: Option<&Path>, environment: Environment) -> Self {
        let config_file = config_file.map(Path::to_path_buf).or_else(|| environment.config_file());
        Self { command_line, environment, config_file }
    }

    /// The file, if there is one.
    #[must_use]
    pub fn config_file(&self) -> Option<&Path> {
        self.config_file.as_deref()
    }

    /// What the file says now; nothing if there is none.
    pub(crate) fn text(&self) -> Result<String, ConfigError> {
        self.config_file().map_or_else(|| Ok(String::new()), file::text)
    }

    /// What all of them say now: command line over environment over file.
    ///
    /// # Errors
    /// [`ConfigError`], which names the setting.
    pub fn layer(&self) -> Result<Layer, ConfigError> {
        let from_environment = self.environment.layer()?;
        let from_file = match self.config_file() {
            Some(path) => file::parse(&file::text(path)?, path)?,
            None => Layer::default(),
        };
        Ok(from_file.overridden_by(from_environment).overridden_by(self.command_line.clone()))
    }
}

/// Whether a setting takes effect as soon as the configuration is read anew. The others are needed before there is
/// anything to watch, or are a switch that nothing but a start may raise (`leaks.reap`).
#[must_use]
pub fn takes_effect_at_once(key: &str) -> bool {
    key.starts_with("thresholds.")
        || matches!(
            key,
            "policy"
                | "peer_is_proxy"
                | "close.final_codes"
                | "leaks.idle_after_ms"
                | "leaks.flat_after_ms"
                | "leaks.count_min"
                | "leaks.close_wait_after_ms"
                | "leaks.orphan_after_ms"
        )
}

/// What is another once a configuration is read anew.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerChange {
    /// What is in force then.
    pub in_force: Layer,
    /// Settings that take effect at once.
    pub at_once: Vec<&'static str>,
    /// Settings that take effect with the next start.
    pub later: Vec<&'static str>,
}

impl Layer {
    /// What changes from this layer to `new`.
    ///
    /// # Errors
    /// Never: what is put together was two layers before.
    pub fn changed_to(&self, new: &Self) -> Result<LayerChange, ConfigError> {
        let failed = |error: serde_json::Error| ConfigError::Value {
            name: "settings".to_owned(),
            value: String::new(),
            expected: error.to_string(),
        };
        let mut in_force = serde_json::to_value(self).map_err(failed)?;
        let new = serde_json::to_value(new).map_err(failed)?;
        let mut change = LayerChange::default();
        for setting in SETTINGS {
            let value = get(&new, setting.key);
            if get(&in_force, setting.key) == value {
                continue;
            }
            if takes_effect_at_once(setting.key) {
                let value = value.cloned().unwrap_or(Value::Null);
                put(&mut in_force, setting.key, value);
                change.at_once.push(setting.key);
            } else {
                change.later.push(setting.key);
            }
        }
        change.in_force = serde_json::from_value(in_force).map_err(failed)?;
        Ok(change)
    }
}

/// The value of a key, which is a path; `None` where it is not set.
fn get<'a>(tree: &'a Value, key: &str) -> Option<&'a Value> {
    key.split('.').try_fold(tree, |tree, part| tree.get(part)).filter(|value| !value.is_null())
}

fn put(tree: &mut Value, key: &str, value: Value) {
    let (part, rest) = key.split_once('.').map_or((key, None), |(part, rest)| (part, Some(rest)));
    if !tree.is_object() {
        *tree = Value::Object(Map::new());
    }
    let Value::Object(members) = tree else { return };
    match rest {
        None => {
            members.insert(part.to_owned(), value);
        }
        Some(rest) => put(members.entry(part).or_insert(Value::Null), rest, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(text: &str) -> Layer {
        file::parse(text, Path::new("ackbeat.yaml")).unwrap()
    }

    #[test]
    fn what_takes_effect_at_once_does_and_the_rest_stays() {
        let before = layer("mode: ebpf\npolicy: default\nleaks: {reap: dry-run, idle_after_ms: 5000}\n");
        let after = layer(
            "mode: sock-diag\npolicy: fast\nthresholds: {silent_after_ms: 9000}\nleaks: {reap: \"on\"}\nclose: {final_codes: [4005]}\n",
        );
        let change = before.changed_to(&after).unwrap();
        assert_eq!(
            change.at_once,
            ["policy", "thresholds.silent_after_ms", "close.final_codes", "leaks.idle_after_ms"]
        );
        assert_eq!(change.later, ["mode", "leaks.reap"]);
        assert_eq!(
            change.in_force,
            layer(
                "mode: ebpf\npolicy: fast\nthresholds: {silent_after_ms: 9000}\nleaks: {reap: dry-run}\nclose: {final_codes: [4005]}\n"
            )
        );
    }

    #[test]
    fn the_same_is_no_change() {
        let same = layer("policy: fast\nports: [80]\n");
        let change = same.changed_to(&same).unwrap();
        assert_eq!((change.at_once.len(), change.later.len()), (0, 0));
        assert_eq!(change.in_force, same);
    }
}
