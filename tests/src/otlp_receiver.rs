//! An OTLP receiver that is not ours: the agent of the `PyPI` package `rotel`, which prints every span that it receives.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::journal::wait_until;
use crate::namespace::Namespace;
use crate::process::Process;
use crate::tools;

/// The receiver must listen within this time.
const START_DEADLINE: Duration = Duration::from_secs(20);

/// A span as the receiver prints it; values stay text with their type (`Int(2)`, `Bool(true)`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedSpan {
    /// Its name.
    pub name: String,
    /// Trace it belongs to.
    pub trace_id: String,
    /// Its own id.
    pub span_id: String,
    /// Its parent's id; empty for a root.
    pub parent_span_id: String,
    /// Start, in nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// End, in nanoseconds since 1970.
    pub end_unix_ns: u64,
    /// Status, as `STATUS_CODE_ERROR`.
    pub status_code: String,
    /// Attributes, each with its type.
    pub attributes: BTreeMap<String, String>,
    /// Names of its events.
    pub events: Vec<String>,
    /// Attributes of the resource.
    pub resource: BTreeMap<String, String>,
}

/// A running receiver. Dropping it kills it.
pub struct OtlpReceiver {
    process: Process,
    grpc_port: u16,
    http_port: u16,
}

fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("finding a free port failed")?;
    Ok(listener.local_addr().context("reading a port failed")?.port())
}

impl OtlpReceiver {
    /// Starts it on the loopback of `namespace`.
    ///
    /// # Errors
    /// If it is not installed or does not listen.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        let (grpc_port, http_port) = namespace.run(|| (free_port(), free_port()))?;
        let (grpc_port, http_port) = (grpc_port?, http_port?);
        let mut command = Command::new(tools::rotel_agent()?);
        command
            .arg("start")
            .args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{grpc_port}")])
            .args(["--otlp-http-endpoint", &format!("127.0.0.1:{http_port}")])
            .args(["--exporter", "blackhole", "--log-format", "json"])
            .args(["--debug-log", "traces", "--debug-log-verbosity", "detailed"]);
        let mut process = Process::spawn("rotel", Some(namespace), command)?;
        wait_until("the OTLP receiver's two ports", START_DEADLINE, || {
            if let Some(status) = process.try_wait()? {
                anyhow::bail!("the OTLP receiver ended with {status}: {}", process.last_words());
            }
            namespace.run(|| {
                [grpc_port, http_port]
                    .iter()
                    .all(|port| std::net::TcpStream::connect(("127.0.0.1", *port)).is_ok())
            })
        })?;
        Ok(Self { process, grpc_port, http_port })
    }

    /// Endpoint for `grpc`.
    #[must_use]
    pub fn grpc_endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.grpc_port)
    }

    /// Endpoint for `http/protobuf`, without the signal's path.
    #[must_use]
    pub fn http_endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.http_port)
    }

    /// What it has received so far. The last span may not be whole yet.
    #[must_use]
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.process.stdout.read(parse)
    }

    /// Waits until `pick` finds what it looks for among the spans.
    ///
    /// # Errors
    /// Names `what` if it did not come within `deadline`.
    pub fn wait_for<R>(
        &self,
        what: &str,
        deadline: Duration,
        mut pick: impl FnMut(&[ReceivedSpan]) -> Option<R>,
    ) -> Result<R> {
        self.process.stdout.wait_for(what, deadline, |lines| pick(&parse(lines)))
    }
}

/// Reads the receiver's print: `key: value` and `key : value` lines, and attributes as `-> key: Type(value)`.
fn parse<S: AsRef<str>>(lines: &[S]) -> Vec<ReceivedSpan> {
    #[derive(PartialEq)]
    enum Section {
        Resource,
        Span,
        Event,
    }
    let mut spans: Vec<ReceivedSpan> = Vec::new();
    let mut resource = BTreeMap::new();
    let mut section = Section::Resource;
    for line in lines {
        let line = line.as_ref().trim();
        if line.starts_with("ResourceSpans #") {
            resource = BTreeMap::new();
            section = Section::Resource;
        } else if line.starts_with("Span #") {
            spans.push(ReceivedSpan { resource: resource.clone(), ..ReceivedSpan::default() });
            section = Section::Span;
        } else if line.starts_with("SpanEvent #") {
            section = Section::Event;
        } else if let Some((key, value)) = line.strip_prefix("-> ").and_then(|rest| rest.split_once(": ")) {
            match (&section, spans.last_mut()) {
                (Section::Resource, _) => drop(resource.insert(key.to_owned(), value.to_owned())),
                (Section::Span, Some(span)) => drop(span.attributes.insert(key.to_owned(), value.to_owned())),
                (Section::Event, Some(span)) if key == "Name" => span.events.push(value.to_owned()),
                _ => {}
            }
        } else if let (Some((key, value)), Some(span)) = (line.split_once(':'), spans.last_mut())
            && section == Section::Span
        {
            let value = value.trim().to_owned();
            match key.trim() {
                "Name" => span.name = value,
                "Trace ID" => span.trace_id = value,
                "ID" => span.span_id = value,
                "Parent ID" => span.parent_span_id = value,
                "Status code" => span.status_code = value,
                "Start time" => span.start_unix_ns = value.parse().unwrap_or(0),
                "End time" => span.end_unix_ns = value.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
    spans
}

/// A value of the console exporter in the words of the receiver.
#[must_use]
pub fn typed(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Bool(flag) => format!("Bool({flag})"),
        serde_json::Value::Number(number) if number.is_f64() => format!("Double({number})"),
        serde_json::Value::Number(number) => format!("Int({number})"),
        serde_json::Value::String(text) => format!("Str({text})"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_print_is_read() {
        let print = "ResourceSpans #0\nResource SchemaURL: \nResource attributes:\n     -> service.name: Str(x)\n\
            ScopeSpans #0\nScopeSpans SchemaURL: \nInstrumentationScope ackbeat \nSpan #0\n    Trace ID       : 0001\n\
            \x20   Parent ID      : 0809\n    ID             : 0002\n    Name           : websocket.host_close\n\
            \x20   Kind           : SPAN_KIND_INTERNAL\nStart time: 1700000000000000000\nEnd time: 1700000001000000000\n\
            \x20   Status code    : STATUS_CODE_ERROR\n    Status message : false kill\nAttributes:\n\
            \x20    -> ackbeat.heartbeat.missed: Int(2)\nEvents:\nSpanEvent #0\n     -> Name: verdict\n\
            \x20    -> Attributes::\n          -> to: Str(stalled)";
        let lines: Vec<&str> = print.lines().collect();
        let spans = parse(&lines);
        let [span] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!(span.name, "websocket.host_close");
        assert_eq!((span.span_id.as_str(), span.parent_span_id.as_str()), ("0002", "0809"));
        assert_eq!(span.start_unix_ns, 1_700_000_000_000_000_000);
        assert_eq!(span.attributes, BTreeMap::from([("ackbeat.heartbeat.missed".into(), "Int(2)".into())]));
        assert_eq!(span.resource, BTreeMap::from([("service.name".into(), "Str(x)".into())]));
        assert_eq!(span.events, ["verdict"]);
    }
}
