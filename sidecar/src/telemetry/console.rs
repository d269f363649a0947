//! The console exporter: one JSON object a line, on standard output.

use std::fmt::Debug;
use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

use opentelemetry::trace::{SpanId, SpanKind, Status};
use opentelemetry::{Array, KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use serde::Serialize;
use serde_json::Map;

use super::wall_clock::unix_ns;

/// Writes each span as one line.
///
/// A reader that went away (a broken pipe) fails the export; the spans are counted as failed and the sidecar goes on.
#[derive(Debug)]
pub struct ConsoleExporter<W> {
    writer: Mutex<W>,
    resource: Map<String, serde_json::Value>,
}

impl<W: Write + Send + Debug> ConsoleExporter<W> {
    /// An exporter that writes to `writer`.
    pub fn new(writer: W) -> Self {
        Self { writer: Mutex::new(writer), resource: Map::new() }
    }
}

/// The line. The order of the keys is the order of the fields.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    kind: &'static str,
    trace_id: String,
    span_id: String,
    parent_span_id: Option<String>,
    start_unix_ns: u64,
    end_unix_ns: u64,
    status: StatusLine<'a>,
    attributes: Map<String, serde_json::Value>,
    events: Vec<EventLine<'a>>,
    links: Vec<LinkLine>,
    resource: &'a Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct StatusLine<'a> {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
}

#[derive(Serialize)]
struct EventLine<'a> {
    name: &'a str,
    time_unix_ns: u64,
    attributes: Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct LinkLine {
    trace_id: String,
    span_id: String,
    attributes: Map<String, serde_json::Value>,
}

impl<W: Write + Send + Debug> SpanExporter for ConsoleExporter<W> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        // The whole batch in one write: a reader of the pipe never sees half a line because of us.
        let mut text = Vec::new();
        for span in &batch {
            serde_json::to_writer(&mut text, &line(span, &self.resource))
                .map_err(|error| OTelSdkError::InternalFailure(error.to_string()))?;
            text.push(b'\n');
        }
        let mut writer = match self.writer.lock() {
            Ok(writer) => writer,
            Err(poisoned) => poisoned.into_inner(),
        };
        writer
            .write_all(&text)
            .and_then(|()| writer.flush())
            .map_err(|error| OTelSdkError::InternalFailure(format!("standard output: {error}")))
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.iter().map(|(key, value)| (key.as_str().to_owned(), json(value))).collect();
    }
}

fn line<'a>(span: &'a SpanData, resource: &'a Map<String, serde_json::Value>) -> Line<'a> {
    Line {
        name: &span.name,
        kind: match span.span_kind {
            SpanKind::Client => "client",
            SpanKind::Server => "server",
            SpanKind::Producer => "producer",
            SpanKind::Consumer => "consumer",
            SpanKind::Internal => "internal",
        },
        trace_id: span.span_context.trace_id().to_string(),
        span_id: span.span_context.span_id().to_string(),
        parent_span_id: (span.parent_span_id != SpanId::INVALID).then(|| span.parent_span_id.to_string()),
        start_unix_ns: unix_ns(span.start_time),
        end_unix_ns: unix_ns(span.end_time),
        status: match &span.status {
            Status::Unset => StatusLine { code: "unset", description: None },
            Status::Ok => StatusLine { code: "ok", description: None },
            Status::Error { description } => {
                StatusLine { code: "error", description: Some(description.as_ref()) }
            }
        },
        attributes: flat(&span.attributes),
        events: span
            .events
            .iter()
            .map(|event| EventLine {
                name: &event.name,
                time_unix_ns: unix_ns(event.timestamp),
                attributes: flat(&event.attributes),
            })
            .collect(),
        links: span
            .links
            .iter()
            .map(|link| LinkLine {
                trace_id: link.span_context.trace_id().to_string(),
                span_id: link.span_context.span_id().to_string(),
                attributes: flat(&link.attributes),
            })
            .collect(),
        resource,
    }
}

fn flat(attributes: &[KeyValue]) -> Map<String, serde_json::Value> {
    attributes.iter().map(|pair| (pair.key.as_str().to_owned(), json(&pair.value))).collect()
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Bool(value) => (*value).into(),
        Value::I64(value) => (*value).into(),
        Value::F64(value) => (*value).into(),
        Value::String(value) => value.as_str().into(),
        Value::Array(Array::Bool(values)) => values.clone().into(),
        Value::Array(Array::I64(values)) => values.clone().into(),
        Value::Array(Array::F64(values)) => values.clone().into(),
        Value::Array(Array::String(values)) => {
            values.iter().map(|value| value.as_str().to_owned()).collect::<Vec<_>>().into()
        }
        // The two lists of kinds are open-ended.
        other => other.to_string().into(),
    }
}
