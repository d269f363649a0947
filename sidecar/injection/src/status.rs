//! The note in the pod that [`uninject`](crate::uninject) and updates go by: the annotation `ackbeat.dev/status`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What was added, so that taking it out leaves what was there before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Status {
    /// Version of ackbeat that wrote it.
    pub(crate) version: String,
    /// Places that did not exist before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) made: Vec<Place>,
    /// Places that were null before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) nulls: Vec<Place>,
    /// Names that were added to `imagePullSecrets`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pull_secrets: Vec<String>,
    /// What the label `ackbeat.dev/injected` was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) label_was: Option<Value>,
}

/// A place in a pod that may have to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// `metadata`
    #[serde(rename = "metadata")]
    Metadata,
    /// `metadata.annotations`
    #[serde(rename = "annotations")]
    Annotations,
    /// `metadata.labels`
    #[serde(rename = "labels")]
    Labels,
    /// `spec.initContainers`
    #[serde(rename = "initContainers")]
    InitContainers,
    /// `spec.imagePullSecrets`
    #[serde(rename = "imagePullSecrets")]
    ImagePullSecrets,
}

impl Place {
    /// As a path of keys.
    pub(crate) const fn path(self) -> &'static [&'static str] {
        match self {
            Self::Metadata => &["metadata"],
            Self::Annotations => &["metadata", "annotations"],
            Self::Labels => &["metadata", "labels"],
            Self::InitContainers => &["spec", "initContainers"],
            Self::ImagePullSecrets => &["spec", "imagePullSecrets"],
        }
    }

    /// What it is while nothing is in it.
    pub(crate) fn empty(self) -> Value {
        match self {
            Self::Metadata | Self::Annotations | Self::Labels => Value::Object(serde_json::Map::new()),
            Self::InitContainers | Self::ImagePullSecrets => Value::Array(Vec::new()),
        }
    }

    /// The innermost first: the order in which they are taken out again.
    pub(crate) const ALL: [Self; 5] =
        [Self::Annotations, Self::Labels, Self::InitContainers, Self::ImagePullSecrets, Self::Metadata];
}
