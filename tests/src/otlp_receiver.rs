//! An OTLP receiver that is not ours: the agent of the `PyPI` package `rotel`, which prints every span and every metric
//! that it receives.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::http_get::free_port;
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

/// A data point of a metric, as a receiver tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedPoint {
    /// Name of the metric.
    pub name: String,
    /// Attributes; values are text without their type.
    pub attributes: BTreeMap<String, String>,
    /// Its value; the number of readings of a histogram.
    pub value: f64,
    /// Attributes of the resource, like those of the point.
    pub resource: BTreeMap<String, String>,
}

/// Where a receiver listens, on the loopback.
#[derive(Clone, Copy, Debug)]
pub struct OtlpPorts {
    /// For `grpc`.
    pub grpc: u16,
    /// For `http/protobuf`.
    pub http: u16,
}

impl OtlpPorts {
    /// Unused ones.
    ///
    /// # Errors
    /// If the kernel has none.
    pub fn free<'a>(namespace: impl Into<Option<&'a Namespace>>) -> Result<Self> {
        let namespace = namespace.into();
        Ok(Self { grpc: free_port(namespace)?, http: free_port(namespace)? })
    }

    /// The endpoint for `protocol` (`grpc` or `http/protobuf`), without a signal's path.
    #[must_use]
    pub fn endpoint(&self, protocol: &str) -> String {
        format!("http://127.0.0.1:{}", if protocol == "grpc" { self.grpc } else { self.http })
    }
}

/// A running receiver. Dropping it kills it.
pub struct OtlpReceiver {
    process: Process,
}

impl OtlpReceiver {
    /// Starts it on the loopback (of `namespace`, if there is one).
    ///
    /// # Errors
    /// If it is not installed or does not listen.
    pub fn start<'a>(namespace: impl Into<Option<&'a Namespace>>, ports: OtlpPorts) -> Result<Self> {
        Self::start_at(namespace, "127.0.0.1", ports)
    }

    /// Starts it at an address of its own (of `namespace`, if there is one).
    ///
    /// # Errors
    /// As [`OtlpReceiver::start`].
    pub fn start_at<'a>(
        namespace: impl Into<Option<&'a Namespace>>,
        address: &str,
        ports: OtlpPorts,
    ) -> Result<Self> {
        let namespace = namespace.into();
        let OtlpPorts { grpc: grpc_port, http: http_port } = ports;
        let mut command = Command::new(tools::rotel_agent()?);
        command
            .arg("start")
            .args(["--otlp-grpc-endpoint", &format!("{address}:{grpc_port}")])
            .args(["--otlp-http-endpoint", &format!("{address}:{http_port}")])
            .args(["--exporter", "blackhole", "--log-format", "json"])
            .args(["--debug-log", "traces", "--debug-log", "metrics", "--debug-log-verbosity", "detailed"]);
        let mut process = Process::spawn("rotel", namespace, command)?;
        wait_until("the OTLP receiver's two ports", START_DEADLINE, || {
            if let Some(status) = process.try_wait()? {
                anyhow::bail!("the OTLP receiver ended with {status}: {}", process.last_words());
            }
            Ok(Namespace::run_in(namespace, || {
                [grpc_port, http_port]
                    .iter()
                    .all(|port| std::net::TcpStream::connect((address, *port)).is_ok())
            })?)
        })?;
        Ok(Self { process })
    }

    /// The last lines that it printed, for a message.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.process.last_words()
    }

    /// What it has received so far. The last span may not be whole yet.
    #[must_use]
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.process.stdout.read(parse)
    }

    /// The data points that it has received so far, oldest first. The last may not be whole yet.
    #[must_use]
    pub fn points(&self) -> Vec<ReceivedPoint> {
        self.process.stdout.read(parse_points)
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
        Ok(self.process.stdout.wait_for(what, deadline, |lines| pick(&parse(lines)))?)
    }
}

/// Reads the receiver's print: `key: value` and `key : value` lines, and attributes as `-> key: Type(value)`.
fn parse<S: AsRef<str>>(lines: &[S]) -> Vec<ReceivedSpan> {
    #[derive(PartialEq)]
    enum Section {
        Resource,
        Span,
        Event,
        Other,
    }
    let mut spans: Vec<ReceivedSpan> = Vec::new();
    let mut resource = BTreeMap::new();
    let mut section = Section::Resource;
    for line in lines {
        let line = line.as_ref().trim();
        if line.starts_with("ResourceMetrics #") {
            section = Section::Other;
        } else if line.starts_with("ResourceSpans #") {
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

/// Reads the data points: `-> Name: …` below `Descriptor:`, attributes, then `Value: …` or, of a histogram, `Count: …`.
fn parse_points<S: AsRef<str>>(lines: &[S]) -> Vec<ReceivedPoint> {
    let mut points = Vec::new();
    let mut resource = BTreeMap::new();
    let mut name = None;
    // Where an attribute belongs: to the point if there is one, else to the resource until the first metric.
    let mut of_resource = false;
    let mut attributes = None;
    for line in lines {
        let line = line.as_ref().trim();
        if line.starts_with("ResourceMetrics #") {
            (of_resource, name, attributes) = (true, None, None);
            resource = BTreeMap::new();
        } else if line == "Descriptor:" || line.starts_with("ResourceSpans #") {
            (of_resource, name, attributes) = (false, None, None);
        } else if line.contains("DataPoints #") {
            attributes = Some(BTreeMap::new());
        } else if let Some((key, value)) = line.strip_prefix("-> ").and_then(|rest| rest.split_once(": ")) {
            match &mut attributes {
                Some(attributes) => drop(attributes.insert(key.to_owned(), untyped(value))),
                None if of_resource => drop(resource.insert(key.to_owned(), untyped(value))),
                None if key == "Name" => name = Some(value.to_owned()),
                None => {}
            }
        } else if let Some(value) = line.strip_prefix("Value: ").or_else(|| line.strip_prefix("Count: "))
            && let (Some(name), Ok(value)) = (&name, value.parse())
            && let Some(attributes) = attributes.take()
        {
            points.push(ReceivedPoint { name: name.clone(), attributes, value, resource: resource.clone() });
        }
    }
    points
}

/// `2` out of `Int(2)`.
#[must_use]
pub fn untyped(value: &str) -> String {
    let inside = value.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inside.unwrap_or(value).to_owned()
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

    #[test]
    fn data_points_are_read() {
        let print = "ResourceMetrics #0\nResource attributes:\n     -> service.name: Str(x)\nScopeMetrics #0\nMetric #0\n\
            Descriptor:\n     -> Name: ackbeat.false_kills\n     -> Unit: {close}\n     -> DataType: Sum\n\
            NumberDataPoints #0\nData point attributes:\n     -> ackbeat.close.kind: Str(abort)\nStartTimestamp: 0\n\
            Timestamp: 0\nValue: 3\nMetric #1\nDescriptor:\n     -> Name: h\nHistogramDataPoints #0\nTimestamp: 0\n\
            Count: 4\nSum: 2.5\nBuckets #0, Count: 1";
        let lines: Vec<&str> = print.lines().collect();
        let point = |name: &str, attributes: BTreeMap<String, String>, value: f64| ReceivedPoint {
            name: name.to_owned(),
            attributes,
            value,
            resource: BTreeMap::from([("service.name".into(), "x".into())]),
        };
        assert_eq!(
            parse_points(&lines),
            [
                point(
                    "ackbeat.false_kills",
                    BTreeMap::from([("ackbeat.close.kind".into(), "abort".into())]),
                    3.0
                ),
                point("h", BTreeMap::new(), 4.0)
            ]
        );
        assert!(parse(&lines).is_empty());
    }
}
