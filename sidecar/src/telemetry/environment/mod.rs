//! The standard `OTEL_*` variables (OpenTelemetry specification, "Environment Variable Specification").
//!
//! A value that makes no sense is warned about and ignored, as the specification asks. The resource, the sampler, the
//! span limits and the OTLP headers are read by the SDK itself from the same variables.

mod metrics;
mod reader;

use std::path::PathBuf;
use std::time::Duration;

pub use metrics::{MetricsPlan, PROMETHEUS_PORT_DEFAULT};
use reader::{Reader, Signal};

/// What the variables ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where spans go; nowhere if empty.
    pub exporters: Vec<ExporterPlan>,
    /// `OTEL_BSP_SCHEDULE_DELAY`; `None` leaves it to the exporter.
    pub schedule_delay: Option<Duration>,
    /// `OTEL_BSP_MAX_QUEUE_SIZE`, in spans.
    pub max_queue_size: usize,
    /// `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`, in spans.
    pub max_export_batch_size: usize,
    /// What was ignored, and why.
    pub warnings: Vec<String>,
}

/// One exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExporterPlan {
    /// JSON lines on standard output.
    Console,
    /// OTLP.
    Otlp(OtlpPlan),
}

/// The OTLP exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpPlan {
    /// gRPC or HTTP.
    pub protocol: OtlpProtocol,
    /// The URL, with the path where the protocol has one.
    pub endpoint: String,
    /// For one export, retries included.
    pub timeout: Duration,
    /// File of trusted certificates.
    pub certificate: Option<PathBuf>,
}

/// How OTLP is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// `grpc`
    Grpc,
    /// `http/protobuf`
    HttpProtobuf,
}

/// More than the specification's 2048: a host that restarts closes thousands of connections within a moment, two spans
/// each. A span takes about 5 kB here.
const DEFAULT_QUEUE_SPANS: usize = 8_192;

impl Plan {
    /// Reads the variables of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::read(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Reads variables through `lookup`.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let lookup = set(lookup);
        let mut reader = Reader::new(Signal::Traces, &lookup);
        let exporters = if reader.is_disabled() { Vec::new() } else { exporters(&mut reader) };
        reader.check_pairs("OTEL_RESOURCE_ATTRIBUTES");
        reader.check_headers();
        let max_queue_size = reader.count("OTEL_BSP_MAX_QUEUE_SIZE").unwrap_or(DEFAULT_QUEUE_SPANS);
        let max_export_batch_size =
            reader.count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE").unwrap_or(512).min(max_queue_size);
        let schedule_delay = reader.milliseconds("OTEL_BSP_SCHEDULE_DELAY");
        Self { exporters, schedule_delay, max_queue_size, max_export_batch_size, warnings: reader.warnings }
    }
}

/// An empty variable counts as unset.
fn set(lookup: impl Fn(&str) -> Option<String>) -> impl Fn(&str) -> Option<String> {
    move |name| lookup(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn exporters(reader: &mut Reader<'_>) -> Vec<ExporterPlan> {
    let otlp = reader.otlp();
    let names = reader.parsed("OTEL_TRACES_EXPORTER", "a list of otlp, console, none", |value| {
        value
            .split(',')
            .map(str::trim)
            .map(|name| ["otlp", "console", "none"].into_iter().find(|known| *known == name))
            .collect::<Option<Vec<_>>>()
    });
    match names {
        Some(names) if names.contains(&"none") => Vec::new(),
        Some(names) => {
            let mut plans = Vec::new();
            if names.contains(&"otlp") {
                plans.push(ExporterPlan::Otlp(
                    otlp.unwrap_or_else(|protocol| reader.otlp_to_default(protocol)),
                ));
            }
            if names.contains(&"console") {
                plans.push(ExporterPlan::Console);
            }
            plans
        }
        None => vec![otlp.map_or(ExporterPlan::Console, ExporterPlan::Otlp)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(variables: &[(&str, &str)]) -> Plan {
        Plan::read(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn otlp(variables: &[(&str, &str)]) -> OtlpPlan {
        match plan(variables).exporters.as_slice() {
            [ExporterPlan::Otlp(otlp)] => otlp.clone(),
            other => panic!("no OTLP: {other:?}"),
        }
    }

    #[test]
    fn without_an_endpoint_spans_go_to_the_console() {
        let plan = plan(&[]);
        assert_eq!(plan.exporters, [ExporterPlan::Console]);
        assert_eq!(plan.warnings, [""; 0]);
    }

    #[test]
    fn the_base_endpoint_gets_a_path_and_the_specific_one_does_not() {
        let base = otlp(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/")]);
        assert_eq!(base.endpoint, "http://collector:4318/v1/traces");
        assert_eq!(base.protocol, OtlpProtocol::HttpProtobuf);
        let specific = otlp(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:1/x"),
        ]);
        assert_eq!(specific.endpoint, "http://traces:1/x");
        let grpc = otlp(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ]);
        assert_eq!((grpc.protocol, grpc.endpoint.as_str()), (OtlpProtocol::Grpc, "http://collector:4317"));
    }

    #[test]
    fn bad_values_are_warned_about_and_ignored() {
        let plan = plan(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "not a url"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
            ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
            ("OTEL_SDK_DISABLED", "perhaps"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization"),
        ]);
        assert_eq!(plan.exporters, [ExporterPlan::Console]);
        assert_eq!(plan.max_queue_size, DEFAULT_QUEUE_SPANS);
        assert_eq!(plan.warnings.len(), 7, "{:#?}", plan.warnings);
    }

    #[test]
    fn the_timeout_is_in_milliseconds_and_a_missing_certificate_is_ignored() {
        let otlp = otlp(&[
            ("OTEL_TRACES_EXPORTER", "otlp"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere/ca.pem"),
        ]);
        assert_eq!(otlp.timeout, Duration::from_millis(250));
        assert_eq!(otlp.certificate, None);
        assert_eq!(otlp.endpoint, "http://localhost:4318/v1/traces");
    }

    #[test]
    fn none_and_disabled_export_nothing() {
        assert_eq!(plan(&[("OTEL_TRACES_EXPORTER", "none")]).exporters, []);
        let disabled = [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")];
        assert_eq!(plan(&disabled).exporters, []);
        let both = plan(&[("OTEL_TRACES_EXPORTER", "otlp,console")]);
        assert_eq!(both.exporters.len(), 2);
    }
}
