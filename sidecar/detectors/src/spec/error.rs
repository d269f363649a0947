//! Why a text names no detector.

use super::definitions::Definition;
use super::{PARAMETER_MAX, Spec};

/// A text that names no detector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// There is no detector of that name.
    #[error("there is no detector `{name}`; there are: {existing}")]
    UnknownDetector {
        /// What was read.
        name: String,
        /// The names that exist.
        existing: String,
    },
    /// The detector has no such parameter.
    #[error("the detector `{detector}` has no parameter `{key}`; it has: {existing}")]
    UnknownParameter {
        /// The detector.
        detector: &'static str,
        /// What was read.
        key: String,
        /// The parameters that it has.
        existing: String,
    },
    /// Not of the form `key=value`.
    #[error(
        "`{text}` is no parameter of the detector `{detector}`: write `key=value`, with one of: {existing}"
    )]
    NotAParameter {
        /// The detector.
        detector: &'static str,
        /// What was read.
        text: String,
        /// The parameters that it has.
        existing: String,
    },
    /// The value is no whole number in range.
    #[error(
        "`{value}` is no value for `{key}` of the detector `{detector}`: write a whole number from 1 to {PARAMETER_MAX}"
    )]
    BadValue {
        /// The detector.
        detector: &'static str,
        /// The parameter.
        key: String,
        /// What was read.
        value: String,
    },
}

impl SpecError {
    pub(super) fn unknown_detector(name: &str) -> Self {
        let existing: Vec<&str> = Spec::names().collect();
        Self::UnknownDetector { name: name.to_owned(), existing: existing.join(", ") }
    }

    pub(super) fn unknown_parameter(definition: &Definition, key: &str) -> Self {
        Self::UnknownParameter {
            detector: definition.name,
            key: key.to_owned(),
            existing: parameters(definition),
        }
    }

    pub(super) fn not_a_parameter(definition: &Definition, text: &str) -> Self {
        Self::NotAParameter {
            detector: definition.name,
            text: text.to_owned(),
            existing: parameters(definition),
        }
    }

    pub(super) fn bad_value(definition: &Definition, key: &str, value: &str) -> Self {
        Self::BadValue { detector: definition.name, key: key.to_owned(), value: value.to_owned() }
    }
}

fn parameters(definition: &Definition) -> String {
    let names: Vec<&str> = definition.parameters.iter().map(|parameter| parameter.name).collect();
    names.join(", ")
}
