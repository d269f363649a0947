//! Who takes part, by name.

use std::str::FromStr;

use ackbeat_detectors::{NotJudged, Spec, SpecError};
use ackbeat_liveness::Policy;

use crate::config::{ConfigError, PolicyName, ThresholdsLayer};

/// Names of the engine under the two named policies.
const POLICIES: [(&str, PolicyName); 2] =
    [("ackbeat", PolicyName::Default), ("ackbeat-fast", PolicyName::Fast)];

/// Somebody who judges a recording.
#[derive(Clone, Debug, PartialEq)]
pub enum Contestant {
    /// A detector that people use today.
    Detector(Spec),
    /// The engine under a policy.
    Policy {
        /// Its name; any that is not taken.
        name: String,
        /// Its thresholds.
        policy: Policy,
    },
}

/// A contestant that does not exist.
#[derive(Debug, thiserror::Error)]
pub enum ContestantError {
    /// No detector and no policy has this name.
    #[error("nobody is named {name:?}; there are: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Every name.
        known: String,
    },
    /// The parameters of a detector make no sense.
    #[error("{name:?}: {cause}")]
    Detector {
        /// What was asked for.
        name: String,
        /// Why it is none.
        cause: SpecError,
    },
    /// A threshold of a policy is wrong.
    #[error("{name:?}: {cause}")]
    Threshold {
        /// What was asked for.
        name: String,
        /// Why it is none.
        cause: ConfigError,
    },
}

impl Contestant {
    /// Its name: `ackbeat`, `ws-2:interval_ms=30000`.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Detector(spec) => spec.to_string(),
            Self::Policy { name, .. } => name.clone(),
        }
    }

    /// The engine under both named policies, and every detector.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let policies =
            POLICIES.map(|(name, policy)| Self::Policy { name: name.to_owned(), policy: policy.policy() });
        policies.into_iter().chain(Spec::all().into_iter().map(Self::Detector)).collect()
    }

    /// Contestants from a list: `ws-2,ws-2:interval_ms=30000,missed=3,ackbeat:silent_after=30s`, or `all`. A comma
    /// before `name=value` goes on with the parameters.
    ///
    /// # Errors
    /// [`ContestantError`] for one that does not exist.
    pub fn list(text: &str) -> Result<Vec<Self>, ContestantError> {
        let mut pieces: Vec<String> = Vec::new();
        for piece in text.split(',').map(str::trim).filter(|piece| !piece.is_empty()) {
            let is_parameter = piece.contains('=') && !piece.contains(':');
            match pieces.last_mut() {
                Some(last) if is_parameter => {
                    last.push(if last.contains(':') { ',' } else { ':' });
                    last.push_str(piece);
                }
                _ => pieces.push(piece.to_owned()),
            }
        }
        let mut contestants = Vec::new();
        for piece in pieces {
            if piece == "all" {
                contestants.extend(Self::all());
            } else {
                contestants.push(piece.parse()?);
            }
        }
        Ok(contestants)
    }

    /// Every name, for people.
    #[must_use]
    pub fn known() -> String {
        let names: Vec<String> = Self::all().iter().map(Self::name).collect();
        format!("{}, all", names.join(", "))
    }
}

impl FromStr for Contestant {
    type Err = ContestantError;

    fn from_str(text: &str) -> Result<Self, ContestantError> {
        let (name, parameters) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        if let Some((_, base)) = POLICIES.iter().find(|(known, _)| *known == name) {
            let assignments = parameters.into_iter().flat_map(|list| list.split(','));
            let policy = ThresholdsLayer::from_assignments(assignments)
                .map(|thresholds| thresholds.applied_to(base.policy()))
                .map_err(|cause| ContestantError::Threshold { name: text.to_owned(), cause })?;
            return Ok(Self::Policy { name: policy_name(&policy), policy });
        }
        text.parse().map(Self::Detector).map_err(|error: SpecError| match error {
            SpecError::UnknownDetector { .. } => {
                ContestantError::Unknown { name: text.to_owned(), known: Self::known() }
            }
            cause => ContestantError::Detector { name: text.to_owned(), cause },
        })
    }
}

/// A name for any thresholds: that of the nearer named policy, and what differs (`ackbeat:silent_after_ms=30000`).
#[must_use]
pub fn policy_name(policy: &Policy) -> String {
    let differences = |base: PolicyName| {
        let values = |policy: &Policy| match serde_json::to_value(policy) {
            Ok(serde_json::Value::Object(values)) => values,
            _ => serde_json::Map::new(),
        };
        let base = values(&base.policy());
        let differing = values(policy).into_iter().filter(|(name, value)| base.get(name) != Some(value));
        differing.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    let candidates = POLICIES.map(|(name, base)| (name, differences(base)));
    let nearest = candidates.iter().min_by_key(|(_, differences)| differences.len());
    match nearest {
        Some((name, differences)) if differences.is_empty() => (*name).to_owned(),
        Some((name, differences)) => format!("{name}:{}", differences.join(",")),
        None => String::new(),
    }
}

/// Why a detector did not decide, in words.
pub(super) fn doubt(why: &NotJudged) -> String {
    match why {
        NotJudged::Missing(need) => format!("needs {need}"),
        other => other.to_string(),
    }
}
