//! The spans in a collector's log, as its exporter `debug` writes them with `verbosity: detailed`, and the one that is
//! waited for.
//!
//! ```text
//! ResourceSpans #0                       the first may stand behind a date and a level
//! Resource attributes:
//!      -> service.name: Str(ackbeat)
//! ScopeSpans #0
//! Span #0
//!     Name           : websocket.host_close
//! Attributes:
//!      -> ackbeat.false_kill: Bool(true)
//! Events:                                their attributes are further to the right
//! ```

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::manifests::{DEMO_DEPLOYMENTS, DEMO_NAMESPACE, RELEASE};

/// One span. Values are as in the log: `Str(…)`, `Int(…)`, `Bool(…)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) name: String,
    pub(super) resource: BTreeMap<String, String>,
    pub(super) attributes: BTreeMap<String, String>,
}

/// Whose attributes the next lines are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Resource,
    Span,
    Other,
}

/// Every span of a log. What is not of this form (the collector's own lines) is left out.
pub(super) fn parse(log: &str) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut resource = BTreeMap::new();
    let mut section = Section::Other;
    for line in log.lines() {
        if let Some((key, value)) = line.strip_prefix("     -> ").and_then(|entry| entry.split_once(": ")) {
            let attributes = match section {
                Section::Resource => Some(&mut resource),
                Section::Span => spans.last_mut().map(|span| &mut span.attributes),
                Section::Other => None,
            };
            if let Some(attributes) = attributes {
                attributes.insert(key.to_owned(), value.to_owned());
            }
        } else if let Some((key, value)) = line.strip_prefix("    ").and_then(|field| field.split_once(':')) {
            if let ("Name", Some(span)) = (key.trim_end(), spans.last_mut())
                && span.name.is_empty()
            {
                span.name = value.trim().to_owned();
            }
        } else if is_heading(line, "ResourceSpans #") {
            resource = BTreeMap::new();
            section = Section::Other;
        } else if is_heading(line, "Span #") && line.starts_with("Span #") {
            spans.push(Span { resource: resource.clone(), ..Span::default() });
            section = Section::Other;
        } else if line == "Resource attributes:" {
            section = Section::Resource;
        } else if line == "Attributes:" {
            section = Section::Span;
        } else if !line.starts_with(' ') {
            section = Section::Other;
        }
    }
    spans
}

/// Whether a line ends with a heading and its number.
fn is_heading(line: &str, heading: &str) -> bool {
    line.rsplit_once(heading)
        .is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What one attribute must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Value {
    Is(String),
    StartsWith(String),
}

impl Value {
    fn holds(&self, found: &str) -> bool {
        match self {
            Self::Is(value) => found == value,
            Self::StartsWith(start) => found.starts_with(start),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(value) => formatter.write_str(value),
            Self::StartsWith(start) => write!(formatter, "{start}…"),
        }
    }
}

/// The span that a log must have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct WantedSpan {
    name: &'static str,
    /// Attributes of its resource: who speaks.
    resource: BTreeMap<&'static str, Value>,
    /// Its own.
    attributes: BTreeMap<&'static str, Value>,
}

impl WantedSpan {
    /// The demo's host gave up a client that was there, and a sidecar in mode `ebpf` says so (`sidecar/TRACES.md`).
    pub(super) fn of_a_false_kill(cluster: &str) -> Self {
        let host = DEMO_DEPLOYMENTS[0];
        let string = |text: &str| Value::Is(format!("Str({text})"));
        Self {
            name: "websocket.host_close",
            resource: [
                // The label app.kubernetes.io/instance of the pod, which is the release.
                ("service.name", string(RELEASE)),
                ("k8s.cluster.name", string(cluster)),
                ("k8s.namespace.name", string(DEMO_NAMESPACE)),
                ("k8s.deployment.name", string(host)),
                ("k8s.pod.name", Value::StartsWith(format!("Str({host}-"))),
            ]
            .into(),
            attributes: [
                ("ackbeat.close.initiator", string("host")),
                ("ackbeat.kill.assessment", string("false_kill")),
                ("ackbeat.false_kill", Value::Is("Bool(true)".to_owned())),
                // The kernel programs run on the node.
                ("ackbeat.mode", string("ebpf")),
            ]
            .into(),
        }
    }

    /// What a span lacks, as `KEY is VALUE, not VALUE`.
    fn missing(&self, span: &Span) -> Vec<String> {
        let mut missing = Vec::new();
        if span.name != self.name {
            missing.push(format!("its name is {}, not {}", span.name, self.name));
        }
        for (wanted, found) in [(&self.resource, &span.resource), (&self.attributes, &span.attributes)] {
            for (key, value) in wanted {
                match found.get(*key) {
                    Some(found) if value.holds(found) => {}
                    Some(found) => missing.push(format!("{key} is {found}, not {value}")),
                    None => missing.push(format!("{key} is missing, not {value}")),
                }
            }
        }
        missing
    }

    /// Looks for it.
    ///
    /// # Errors
    /// It is not there; the message says how many spans are, and what the nearest lacks.
    pub(super) fn find(&self, log: &str) -> Result<(), String> {
        let spans = parse(log);
        let nearest = spans.iter().map(|span| self.missing(span)).min_by_key(Vec::len);
        match nearest {
            None => Err("no span has come".to_owned()),
            Some(missing) if missing.is_empty() => Ok(()),
            Some(missing) => {
                Err(format!("of {} spans none is it; of the nearest, {}", spans.len(), missing.join("; ")))
            }
        }
    }
}

impl fmt::Display for WantedSpan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a span {} with", self.name)?;
        for (key, value) in self.resource.iter().chain(&self.attributes) {
            write!(formatter, " {key}={value}")?;
        }
        Ok(())
    }
}
