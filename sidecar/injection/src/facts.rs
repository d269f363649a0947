//! What is known of a pod's surroundings.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::settings::words;

words! {
    /// A level of the Pod Security Standards, from the namespace's label `pod-security.kubernetes.io/enforce`.
    PodSecurity {
        /// Everything is allowed.
        Privileged = "privileged",
        /// No added capabilities but a few, none of which is of use here.
        Baseline = "baseline",
        /// And no root.
        Restricted = "restricted",
    }
}

/// Version of an API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerVersion {
    /// 1.
    pub major: u32,
    /// 29 of 1.29.
    pub minor: u32,
}

impl ServerVersion {
    /// The first with native sidecars on by default.
    pub const NATIVE_SIDECARS: Self = Self { major: 1, minor: 29 };

    /// From `/version`'s two texts; a minor version may end in a sign (`29+`), as some providers write it.
    #[must_use]
    pub fn from_parts(major: &str, minor: &str) -> Option<Self> {
        let digits = |text: &str| {
            let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
            text.get(..end)?.parse().ok()
        };
        Some(Self { major: digits(major)?, minor: digits(minor)? })
    }

    /// From a text as `1.29`, `v1.29.3` or `1.29+`.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let (major, rest) = text.strip_prefix('v').unwrap_or(text).split_once('.')?;
        Self::from_parts(major, rest)
    }

    pub(crate) fn has_native_sidecars(self) -> bool {
        self.cmp(&Self::NATIVE_SIDECARS) != Ordering::Less
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// Whoever made a pod, or made who made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `Deployment`, `ReplicaSet`, …
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// What is known of a pod's surroundings.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The pod's namespace; `None` where nobody knows.
    pub namespace: Option<Namespace>,
    /// Who owns what owns the pod, beyond the pod's own references: the CronJob of a Job.
    pub further_owners: Vec<Owner>,
    /// The server that the pod is for; `None` where nobody knows.
    pub server: Option<ServerVersion>,
    /// Whether the pod counts as wanted where neither it nor its namespace say: somebody asked for just this pod.
    pub is_wanted: bool,
}

/// The pod's owner as its own references tell it, and the Deployment behind a ReplicaSet: a ReplicaSet of a Deployment is
/// named after it and the template's hash, which the pods have as a label.
pub(crate) fn owners_of(metadata: Option<&Value>) -> Vec<Owner> {
    let Some(metadata) = metadata else { return Vec::new() };
    let references = metadata.get("ownerReferences").and_then(Value::as_array);
    let controller = references
        .into_iter()
        .flatten()
        .find(|reference| reference.get("controller").and_then(Value::as_bool) == Some(true));
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let Some((kind, name)) =
        controller.and_then(|controller| Some((text(controller, "kind")?, text(controller, "name")?)))
    else {
        return Vec::new();
    };
    let hash = metadata
        .get("labels")
        .and_then(|labels| text(labels, "pod-template-hash"))
        .filter(|hash| !hash.is_empty());
    let deployment = (kind == "ReplicaSet")
        .then(|| name.strip_suffix(&hash?)?.strip_suffix('-').map(str::to_owned))
        .flatten()
        .filter(|name| !name.is_empty())
        .map(|name| Owner { kind: "Deployment".to_owned(), name });
    std::iter::once(Owner { kind, name }).chain(deployment).collect()
}
