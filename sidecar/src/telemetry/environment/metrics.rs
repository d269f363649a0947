//! What the variables ask for about metrics.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::reader::{Reader, Signal};
use super::{OtlpPlan, set};

/// Port of the Prometheus page, unless something else is said (OpenTelemetry specification, "Prometheus Exporter").
pub const PROMETHEUS_PORT_DEFAULT: u16 = 9464;
const INTERVAL_DEFAULT: Duration = Duration::from_secs(60);

/// What the variables ask for about metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsPlan {
    /// `OTEL_SDK_DISABLED`: nothing is measured.
    pub is_disabled: bool,
    /// Where metrics are pushed; nowhere without one.
    pub otlp: Option<OtlpPlan>,
    /// `OTEL_METRIC_EXPORT_INTERVAL`: between two pushes.
    pub interval: Duration,
    /// Where the Prometheus page is served, unless the setting `metrics.listen` says otherwise.
    pub prometheus: Option<SocketAddr>,
    /// What was ignored, and why.
    pub warnings: Vec<String>,
}

impl MetricsPlan {
    /// Reads the variables of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self::read(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Reads variables through `lookup`.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let lookup = set(lookup);
        let mut reader = Reader::new(Signal::Metrics, &lookup);
        let is_disabled = reader.is_disabled();
        let otlp = reader.otlp();
        let prometheus = prometheus(&mut reader);
        let names = reader.parsed("OTEL_METRICS_EXPORTER", "a list of otlp, prometheus, none", |value| {
            value
                .split(',')
                .map(str::trim)
                .map(|name| ["otlp", "prometheus", "none"].into_iter().find(|known| *known == name))
                .collect::<Option<Vec<_>>>()
        });
        let (otlp, prometheus) = match names {
            Some(names) if names.contains(&"none") => (None, None),
            Some(names) => (
                names
                    .contains(&"otlp")
                    .then(|| otlp.unwrap_or_else(|protocol| reader.otlp_to_default(protocol))),
                names.contains(&"prometheus").then_some(prometheus),
            ),
            // A page that nobody reads costs nothing; a collector that is not there would be a failure a minute.
            None => (otlp.ok(), Some(prometheus)),
        };
        reader.check_headers();
        let interval = reader.parsed(
            "OTEL_METRIC_EXPORT_INTERVAL",
            "a whole number of milliseconds of at least 1",
            |value| value.parse().ok().filter(|ms| *ms > 0).map(Duration::from_millis),
        );
        Self {
            is_disabled,
            otlp: otlp.filter(|_| !is_disabled),
            interval: interval.unwrap_or(INTERVAL_DEFAULT),
            prometheus: prometheus.filter(|_| !is_disabled),
            warnings: reader.warnings,
        }
    }
}

fn prometheus(reader: &mut Reader<'_>) -> SocketAddr {
    let host = reader.parsed("OTEL_EXPORTER_PROMETHEUS_HOST", "an IP address or localhost", |value| {
        if value == "localhost" {
            return Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        value.trim_start_matches('[').trim_end_matches(']').parse().ok()
    });
    let port =
        reader.parsed("OTEL_EXPORTER_PROMETHEUS_PORT", "a port from 0 to 65535", |value| value.parse().ok());
    SocketAddr::new(host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)), port.unwrap_or(PROMETHEUS_PORT_DEFAULT))
}

#[cfg(test)]
mod tests {
    use super::super::OtlpProtocol;
    use super::*;

    fn plan(variables: &[(&str, &str)]) -> MetricsPlan {
        MetricsPlan::read(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn page_at(text: &str) -> Option<SocketAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn without_variables_there_is_the_page_and_no_push() {
        let plan = plan(&[]);
        assert_eq!((plan.otlp, plan.prometheus), (None, page_at("127.0.0.1:9464")));
        assert_eq!(plan.interval, Duration::from_secs(60));
        assert_eq!(plan.warnings, [""; 0]);
    }

    #[test]
    fn an_endpoint_turns_the_push_on_beside_the_page() {
        let base = plan(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/")]);
        let otlp = base.otlp.unwrap();
        assert_eq!(
            (otlp.endpoint.as_str(), otlp.protocol),
            ("http://collector:4318/v1/metrics", OtlpProtocol::HttpProtobuf)
        );
        assert_eq!(base.prometheus, page_at("127.0.0.1:9464"));
        let own = plan(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "collector:4317"),
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1500"),
        ]);
        let otlp = own.otlp.unwrap();
        assert_eq!((otlp.endpoint.as_str(), otlp.protocol), ("http://collector:4317", OtlpProtocol::Grpc));
        assert_eq!(own.interval, Duration::from_millis(1_500));
        // An endpoint for traces says nothing about metrics.
        assert_eq!(plan(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4318/x")]).otlp, None);
    }

    #[test]
    fn the_list_of_exporters_is_obeyed() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318");
        let of = |names: &str| {
            let plan = plan(&[endpoint, ("OTEL_METRICS_EXPORTER", names)]);
            (plan.otlp.is_some(), plan.prometheus.is_some(), plan.warnings.len())
        };
        assert_eq!(of("otlp"), (true, false, 0));
        assert_eq!(of("prometheus"), (false, true, 0));
        assert_eq!(of("otlp, prometheus"), (true, true, 0));
        assert_eq!(of("none"), (false, false, 0));
        assert_eq!(of("console"), (true, true, 1));
        let alone = plan(&[("OTEL_METRICS_EXPORTER", "otlp")]);
        assert_eq!(alone.otlp.unwrap().endpoint, "http://localhost:4318/v1/metrics");
        let disabled = plan(&[endpoint, ("OTEL_SDK_DISABLED", "true")]);
        assert_eq!((disabled.is_disabled, disabled.otlp, disabled.prometheus), (true, None, None));
    }

    #[test]
    fn the_page_is_where_the_variables_say() {
        let of = |host: &str, port: &str| {
            plan(&[("OTEL_EXPORTER_PROMETHEUS_HOST", host), ("OTEL_EXPORTER_PROMETHEUS_PORT", port)])
        };
        assert_eq!(of("0.0.0.0", "9999").prometheus, page_at("0.0.0.0:9999"));
        assert_eq!(of("[::1]", "").prometheus, page_at("[::1]:9464"));
        assert_eq!(of("localhost", "1").prometheus, page_at("127.0.0.1:1"));
        let bad = of("metrics.example", "many");
        assert_eq!((bad.prometheus, bad.warnings.len()), (page_at("127.0.0.1:9464"), 2));
    }

    #[test]
    fn bad_values_are_warned_about_and_ignored() {
        let plan = plan(&[
            ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "nowhere"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "authorization"),
        ]);
        assert_eq!((plan.otlp, plan.interval), (None, Duration::from_secs(60)));
        assert_eq!(plan.warnings.len(), 3, "{:#?}", plan.warnings);
    }
}
