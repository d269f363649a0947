//! The spans that the sidecar's console exporter prints, one JSON object a line.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A span as the console exporter prints it. Unknown keys are refused: the line is an interface.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Trace it belongs to, 32 hexadecimal digits.
    pub trace_id: String,
    /// Its own id, 16 hexadecimal digits.
    pub span_id: String,
    /// Its parent's id; empty or null for a root.
    pub parent_span_id: Option<String>,
    /// Start, in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// End, in nanoseconds since 1970.
    pub end_unix_ns: u64,
    /// Status, as the exporter words it.
    pub status: Value,
    /// Attributes.
    pub attributes: Map<String, Value>,
    /// Events.
    pub events: Vec<Value>,
    /// Links.
    pub links: Vec<Value>,
    /// Resource.
    pub resource: Value,
}

impl Span {
    /// Reads one line of the console exporter.
    ///
    /// # Errors
    /// If the line is not exactly such an object.
    pub fn parse(line: &str) -> Result<Self> {
        serde_json::from_str(line).with_context(|| format!("this line of standard output is no span: {line}"))
    }

    /// An attribute as a string.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&str> {
        self.attributes.get(key)?.as_str()
    }

    /// An attribute as an integer.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<i64> {
        self.attributes.get(key)?.as_i64()
    }

    /// An attribute as a boolean.
    #[must_use]
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.attributes.get(key)?.as_bool()
    }

    /// Port of the other side.
    #[must_use]
    pub fn peer_port(&self) -> Option<u16> {
        u16::try_from(self.number("network.peer.port")?).ok()
    }

    /// Port of the pod's side.
    #[must_use]
    pub fn local_port(&self) -> Option<u16> {
        u16::try_from(self.number("network.local.port")?).ok()
    }

    /// It is the span of a close that the host started.
    #[must_use]
    pub fn is_host_close(&self) -> bool {
        self.name.ends_with(".host_close")
    }

    /// It is the span of a whole connection.
    #[must_use]
    pub fn is_connection(&self) -> bool {
        self.name.ends_with(".connection")
    }

    /// Verdicts that its events tell of (`ackbeat.verdict` of each event), in their order.
    #[must_use]
    pub fn event_verdicts(&self) -> Vec<String> {
        self.events
            .iter()
            .filter_map(|event| {
                let attributes = event.get("attributes").unwrap_or(event);
                Some(attributes.get("ackbeat.verdict")?.as_str()?.to_owned())
            })
            .collect()
    }

    /// Whether its status is `Error`.
    #[must_use]
    pub fn is_error(&self) -> bool {
        let word = self.status.get("code").unwrap_or(&self.status);
        word.as_str().is_some_and(|word| word.eq_ignore_ascii_case("error"))
    }
}

/// The span of the connection with this peer port.
#[must_use]
pub fn connection(spans: &[Span], peer_port: u16) -> Option<&Span> {
    spans.iter().find(|span| span.is_connection() && span.peer_port() == Some(peer_port))
}

/// The span of the host's close of the connection with this peer port.
#[must_use]
pub fn host_close(spans: &[Span], peer_port: u16) -> Option<&Span> {
    spans.iter().find(|span| span.is_host_close() && span.peer_port() == Some(peer_port))
}

/// An event with its time since the connection's start.
fn event_line(root: &Span, event: &Value) -> String {
    let name = event.get("name").and_then(Value::as_str).unwrap_or_default();
    let at_ns = event.get("time_unix_ns").and_then(Value::as_u64).unwrap_or(root.start_unix_ns);
    let since_ms = at_ns.saturating_sub(root.start_unix_ns) / 1_000_000;
    let attributes = event.get("attributes").and_then(Value::as_object);
    let pairs = attributes.into_iter().flatten().map(|(key, value)| format!("{key} = {value}"));
    format!("{since_ms} ms  {name}  {}", pairs.collect::<Vec<_>>().join(", "))
}

/// The connection span and its children, for people. A child shows only what its parent does not say.
#[must_use]
pub fn tree(spans: &[Span], peer_port: u16) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let Some(root) = connection(spans, peer_port) else { return text };
    let children = spans.iter().filter(|span| span.parent_span_id.as_deref() == Some(root.span_id.as_str()));
    for (depth, span) in std::iter::once((0, root)).chain(children.map(|child| (1, child))) {
        let margin = "   ".repeat(depth);
        let branch = if depth == 0 { "" } else { "└─ " };
        let outer = "   ".repeat(depth.saturating_sub(1));
        let duration_ms = span.end_unix_ns.saturating_sub(span.start_unix_ns) / 1_000_000;
        let error = if span.is_error() { "  [Error]" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{outer}{branch}{}  {duration_ms} ms{error}", span.name);
        for (key, value) in &span.attributes {
            if depth == 0 || root.attributes.get(key) != Some(value) {
                let _ = writeln!(text, "{margin}   {key} = {value}");
            }
        }
        if depth == 0 {
            for event in &span.events {
                let _ = writeln!(text, "{margin}   · {}", event_line(root, event));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_exporter_is_read() {
        let line = r#"{"name":"websocket.host_close","kind":"internal","trace_id":"0af7651916cd43dd8448eb211c80319c",
            "span_id":"b7ad6b7169203331","parent_span_id":"00f067aa0ba902b7","start_unix_ns":1,"end_unix_ns":2000001,
            "status":{"code":"error","description":"false kill"},"attributes":{"network.peer.port":4711,
            "ackbeat.false_kill":true},"events":[],"links":[],"resource":{}}"#;
        let span = Span::parse(line).unwrap();
        assert_eq!(span.peer_port(), Some(4711));
        assert_eq!(span.flag("ackbeat.false_kill"), Some(true));
        assert!(span.is_error());
        assert!(host_close(&[span], 4711).is_some());
    }

    #[test]
    fn anything_else_is_refused() {
        assert!(Span::parse("ready").is_err());
        assert!(Span::parse(r#"{"name":"x"}"#).is_err());
    }
}
