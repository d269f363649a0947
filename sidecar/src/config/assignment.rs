//! Single thresholds as people write them: `silent_after=30s`.

use super::reference::{SETTINGS, Setting, ValueKind};
use super::{ConfigError, ThresholdsLayer};

const SECTION: &str = "thresholds.";

impl ThresholdsLayer {
    /// Thresholds from `name=value`, with the names of the settings (`silent_after_ms=30000`). A name may leave its
    /// unit out, and a time may have one: `silent_after=30s` (`ms`, `s`, `min`).
    ///
    /// # Errors
    /// [`ConfigError::UnknownThreshold`] for a name that means nothing, [`ConfigError::Value`] for a value that does not
    /// fit.
    pub fn from_assignments<'a>(assignments: impl IntoIterator<Item = &'a str>) -> Result<Self, ConfigError> {
        let mut values = serde_json::Map::new();
        for assignment in assignments {
            let (name, value) = assignment.split_once('=').unwrap_or((assignment, ""));
            let setting = setting(name.trim())?;
            let refused = || ConfigError::Value {
                name: name.trim().to_owned(),
                value: value.to_owned(),
                expected: setting.expected(),
            };
            let number = number(setting.kind, value.trim()).ok_or_else(refused)?;
            let number = serde_json::Value::from(number);
            if !setting.accepts(&number) {
                return Err(refused());
            }
            values.insert(setting.key.trim_start_matches(SECTION).to_owned(), number);
        }
        serde_json::from_value(serde_json::Value::Object(values)).map_err(|error| ConfigError::Value {
            name: "thresholds".to_owned(),
            value: String::new(),
            expected: error.to_string(),
        })
    }
}

/// The threshold of this name.
fn setting(name: &str) -> Result<&'static Setting, ConfigError> {
    let name = name.trim_start_matches(SECTION);
    let names = || SETTINGS.iter().filter_map(|setting| Some((setting, setting.key.strip_prefix(SECTION)?)));
    names()
        .find(|(_, key)| {
            *key == name || ["_ms", "_bytes"].iter().any(|unit| key.strip_suffix(unit) == Some(name))
        })
        .map(|(setting, _)| setting)
        .ok_or_else(|| ConfigError::UnknownThreshold {
            name: name.to_owned(),
            known: names().map(|(_, key)| key).collect::<Vec<_>>().join(", "),
        })
}

fn number(kind: ValueKind, text: &str) -> Option<u64> {
    if kind == ValueKind::Milliseconds {
        for (unit, ms) in [("ms", 1), ("min", 60_000), ("s", 1_000)] {
            if let Some(count) = text.strip_suffix(unit) {
                return count.trim_end().parse::<u64>().ok()?.checked_mul(ms);
            }
        }
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::ThresholdsLayer;

    #[test]
    fn names_and_units_are_those_that_people_write() {
        let layer = ThresholdsLayer::from_assignments([
            "silent_after=30s",
            "stalled_after_ms=45000",
            "thresholds.progress_window = 2min",
            "unreachable_retransmits=4",
            "min_progress=2048",
        ])
        .unwrap();
        assert_eq!(
            layer,
            ThresholdsLayer {
                silent_after_ms: Some(30_000),
                stalled_after_ms: Some(45_000),
                progress_window_ms: Some(120_000),
                unreachable_retransmits: Some(4),
                min_progress_bytes: Some(2_048),
                ..ThresholdsLayer::default()
            }
        );
        assert_eq!(ThresholdsLayer::from_assignments([]).unwrap(), ThresholdsLayer::default());
    }

    #[test]
    fn what_means_nothing_is_refused_by_name() {
        for (text, named) in [
            ("patience=3", "silent_after_ms"),
            ("silent_after", "silent_after"),
            ("silent_after=soon", "soon"),
            ("silent_after=3h", "3h"),
            ("fresh=0ms", "from 1"),
            ("unreachable_retransmits=3s", "3s"),
            ("silent_after=999999999999min", "86400000"),
        ] {
            let message = ThresholdsLayer::from_assignments([text]).unwrap_err().to_string();
            assert!(message.contains(named), "{text}: {message}");
        }
    }
}
