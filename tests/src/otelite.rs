//! A second OTLP receiver that is not ours: the program `otelite` from crates.io, which stores what it receives and
//! answers questions about it over HTTP.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::http_get::{free_port, get, get_json};
use crate::journal::wait_until;
use crate::namespace::Namespace;
use crate::otlp_receiver::{OtlpPorts, ReceivedPoint, ReceivedSpan};
use crate::process::Process;
use crate::tools;

/// It must answer within this time.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// A running receiver. Dropping it kills it and removes what it stored.
pub struct Otelite<'a> {
    namespace: &'a Namespace,
    page: SocketAddr,
    // Before the folder: it must have ended when the folder goes.
    process: Process,
    _storage: tempfile::TempDir,
}

impl<'a> Otelite<'a> {
    /// Starts it on the loopback of `namespace`.
    ///
    /// # Errors
    /// If it is not installed or does not answer.
    pub fn start(namespace: &'a Namespace, ports: OtlpPorts) -> Result<Self> {
        let storage = tempfile::tempdir().context("making a folder failed")?;
        let page = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port(namespace)?));
        let mut command = Command::new(tools::otelite()?);
        command
            .arg("serve")
            .args(["--addr", &page.to_string()])
            .env("HOME", storage.path())
            .env("OTELITE_DATA_DIR", storage.path())
            .env("OTELITE_OTLP_GRPC_PORT", ports.grpc.to_string())
            .env("OTELITE_OTLP_HTTP_PORT", ports.http.to_string());
        let mut process = Process::spawn("otelite", Some(namespace), command)?;
        wait_until("otelite's word that it is well", START_DEADLINE, || {
            if let Some(status) = process.try_wait()? {
                bail!("otelite ended with {status}: {}", process.last_words());
            }
            let listens =
                |port| namespace.run(|| std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
            Ok(get(namespace, page, "/api/health").is_ok() && listens(ports.grpc)? && listens(ports.http)?)
        })?;
        Ok(Self { namespace, page, process, _storage: storage })
    }

    /// Where its page is.
    #[must_use]
    pub fn page(&self) -> SocketAddr {
        self.page
    }

    /// What it answers at `target`.
    ///
    /// # Errors
    /// If it does not answer with JSON.
    pub fn ask(&self, target: &str) -> Result<Value> {
        // It answers the same question from a cache for a while.
        static ASKED: AtomicU64 = AtomicU64::new(0);
        let sign = if target.contains('?') { '&' } else { '?' };
        let target = format!("{target}{sign}asked={}", ASKED.fetch_add(1, Ordering::Relaxed));
        get_json(self.namespace, self.page, &target).with_context(|| self.process.last_words())
    }

    /// The spans that it has received so far, up to ten thousand; values are text without their type.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn spans(&self) -> Result<Vec<ReceivedSpan>> {
        let spans = self.ask("/api/traces/export?format=json")?;
        Ok(spans.as_array().context("spans are a list")?.iter().map(span).collect())
    }

    /// The latest data point of each series that it has received so far, up to a thousand.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn points(&self) -> Result<Vec<ReceivedPoint>> {
        let points = self.ask("/api/metrics?limit=1000")?;
        let mut points: Vec<&Value> = points.as_array().context("data points are a list")?.iter().collect();
        points.sort_by_key(|point| point["timestamp"].as_i64());
        let value = |point: &Value| point["value"].as_f64().or_else(|| point["value"]["count"].as_f64());
        points
            .into_iter()
            .map(|point| {
                Some(ReceivedPoint {
                    name: text(&point["name"]),
                    attributes: texts(&point["attributes"]),
                    value: value(point)?,
                    resource: texts(&point["resource"]["attributes"]),
                })
            })
            .collect::<Option<_>>()
            .context("a data point has a value")
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The attributes that were sent: the receiver adds the instrumentation scope as `otel.scope.name` and `.version`.
fn texts(value: &Value) -> BTreeMap<String, String> {
    let all = value.as_object().into_iter().flatten();
    all.filter(|(key, _)| !key.starts_with("otel.scope."))
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

fn span(entry: &Value) -> ReceivedSpan {
    let time = |key: &str| entry[key].as_i64().and_then(|time| u64::try_from(time).ok()).unwrap_or(0);
    ReceivedSpan {
        name: text(&entry["name"]),
        trace_id: text(&entry["trace_id"]),
        span_id: text(&entry["span_id"]),
        parent_span_id: entry["parent_span_id"].as_str().unwrap_or_default().to_owned(),
        start_unix_ns: time("start_time"),
        end_unix_ns: time("end_time"),
        status_code: text(&entry["status"]["code"]),
        attributes: texts(&entry["attributes"]),
        events: entry["events"].as_array().into_iter().flatten().map(|event| text(&event["name"])).collect(),
        resource: texts(&entry["resource"]["attributes"]),
    }
}
