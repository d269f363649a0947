//! `heartbeat`: which text heartbeats are looked for.

use std::fmt;

use ackbeat_liveness::HeartbeatProfile;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::ConfigError;
use super::layer::section_overridden;
use super::reference::ValueKind;
use crate::heartbeat::{AskedBy, BUILT_IN, Custom, Match, Selection};

/// `heartbeat`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatLayer {
    /// `heartbeat.profiles`
    pub profiles: Option<ProfileChoice>,
    /// `heartbeat.custom`
    pub custom: Option<CustomLayer>,
}

/// `heartbeat.custom`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomLayer {
    /// `heartbeat.custom.question`
    pub question: Option<String>,
    /// `heartbeat.custom.answer`
    pub answer: Option<String>,
    /// `heartbeat.custom.match`
    #[serde(rename = "match")]
    pub matching: Option<MatchChoice>,
    /// `heartbeat.custom.asked_by`
    pub asked_by: Option<AskedByChoice>,
}

super::words! {
    /// How a text of `heartbeat.custom` is compared.
    MatchChoice {
        /// A message is this text.
        Exact = "exact",
        /// A message begins with it.
        Prefix = "prefix",
    }
}

super::words! {
    /// Who asks the question of `heartbeat.custom`.
    AskedByChoice {
        /// The host.
        Host = "host",
        /// Its peer.
        Peer = "peer",
        /// Either.
        Either = "either",
    }
}

/// The word for no profile.
const OFF: &str = super::reference::OFF;
/// The word for every built-in profile, each after evidence.
const AUTO: &str = "auto";

/// Which profiles are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileChoice {
    /// None.
    Off,
    /// Every built-in one, each after evidence.
    Auto,
    /// These.
    Listed(Vec<HeartbeatProfile>),
}

impl ProfileChoice {
    /// Reads `off`, `auto`, or names separated by commas.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            OFF => Some(Self::Off),
            AUTO => Some(Self::Auto),
            names => Self::listed(names.split(',')),
        }
    }

    /// These names.
    pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let profiles: Option<Vec<_>> =
            names.into_iter().map(|name| named().find(|profile| profile.as_str() == name.trim())).collect();
        profiles.filter(|profiles| !profiles.is_empty()).map(Self::Listed)
    }
}

/// Profiles that can be named.
fn named() -> impl Iterator<Item = HeartbeatProfile> {
    BUILT_IN.into_iter().chain([HeartbeatProfile::Custom])
}

/// The names of all profiles, for messages.
pub(super) fn names() -> String {
    named().map(HeartbeatProfile::as_str).collect::<Vec<_>>().join(", ")
}

impl Serialize for ProfileChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str(OFF),
            Self::Auto => serializer.serialize_str(AUTO),
            Self::Listed(profiles) => profiles.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ProfileChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = ProfileChoice;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&ValueKind::Profiles.expected())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                ProfileChoice::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }

            /// YAML 1.1 reads a bare `off` as false.
            fn visit_bool<E: de::Error>(self, on: bool) -> Result<Self::Value, E> {
                if on {
                    return Err(E::invalid_value(de::Unexpected::Bool(on), &self));
                }
                Ok(ProfileChoice::Off)
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
                let mut names: Vec<String> = Vec::new();
                while let Some(name) = sequence.next_element()? {
                    names.push(name);
                }
                ProfileChoice::listed(names.iter().map(String::as_str))
                    .ok_or_else(|| de::Error::invalid_value(de::Unexpected::Seq, &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl HeartbeatLayer {
    pub(super) fn overridden_by(self, stronger: Self) -> Self {
        Self {
            profiles: stronger.profiles.or(self.profiles),
            custom: section_overridden(self.custom, stronger.custom, |weaker, stronger| CustomLayer {
                question: stronger.question.or(weaker.question),
                answer: stronger.answer.or(weaker.answer),
                matching: stronger.matching.or(weaker.matching),
                asked_by: stronger.asked_by.or(weaker.asked_by),
            }),
        }
    }

    /// What is looked for.
    ///
    /// # Errors
    /// [`ConfigError::Value`] for a text that is empty or too long, and for settings that contradict each other.
    pub(super) fn resolve(self) -> Result<Selection, ConfigError> {
        let custom = self.custom.unwrap_or_default().resolve()?;
        let choice = self.profiles.unwrap_or(ProfileChoice::Off);
        let wants_custom = match &choice {
            ProfileChoice::Off => false,
            ProfileChoice::Auto => custom.is_some(),
            ProfileChoice::Listed(profiles) => profiles.contains(&HeartbeatProfile::Custom),
        };
        match (&custom, wants_custom) {
            (None, true) => return Err(wrong(QUESTION, "", "set, though `heartbeat.profiles` names custom")),
            (Some(custom), false) => {
                let expected = "of use unless `heartbeat.profiles` names custom or is auto";
                return Err(wrong(QUESTION, &custom.question, expected));
            }
            _ => {}
        }
        Ok(match choice {
            ProfileChoice::Off => Selection::off(),
            ProfileChoice::Auto => Selection::auto(custom),
            ProfileChoice::Listed(profiles) => Selection::listed(&profiles, custom),
        })
    }
}

const QUESTION: &str = "heartbeat.custom.question";
const ANSWER: &str = "heartbeat.custom.answer";

fn wrong(name: &str, value: &str, expected: &str) -> ConfigError {
    ConfigError::Value { name: name.to_owned(), value: value.to_owned(), expected: expected.to_owned() }
}

impl CustomLayer {
    fn resolve(self) -> Result<Option<Custom>, ConfigError> {
        for (name, text) in [(QUESTION, &self.question), (ANSWER, &self.answer)] {
            if let Some(text) = text.as_ref().filter(|text| !is_text(text)) {
                return Err(wrong(name, text, &ValueKind::Text.expected()));
            }
        }
        let Some(question) = self.question else {
            let more = self.answer.is_some() || self.matching.is_some() || self.asked_by.is_some();
            if more {
                return Err(wrong(QUESTION, "", "set, though other settings of heartbeat.custom are"));
            }
            return Ok(None);
        };
        let custom = Custom {
            question,
            answer: self.answer,
            matching: match self.matching {
                None | Some(MatchChoice::Exact) => Match::Exact,
                Some(MatchChoice::Prefix) => Match::Prefix,
            },
            asked_by: match self.asked_by {
                None | Some(AskedByChoice::Either) => AskedBy::Either,
                Some(AskedByChoice::Host) => AskedBy::Host,
                Some(AskedByChoice::Peer) => AskedBy::Peer,
            },
        };
        if custom.is_ambiguous() {
            let answer = custom.answer.as_deref().unwrap_or_default();
            let expected =
                "another text than the question; set heartbeat.custom.asked_by where they are the same";
            return Err(wrong(ANSWER, answer, expected));
        }
        Ok(Some(custom))
    }
}

/// Whether a text fits into a frame that the kernel hands over.
pub(super) fn is_text(text: &str) -> bool {
    (1..=ackbeat_abi::CONTROL_PAYLOAD_MAX_BYTES).contains(&text.len())
}
