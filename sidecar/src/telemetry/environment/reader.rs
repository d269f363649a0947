//! Single variables, and those of the OTLP exporter, which every signal has.

use std::path::PathBuf;
use std::time::Duration;

use super::{OtlpPlan, OtlpProtocol};

const DEFAULT_TIMEOUT_MS: u64 = 10_000;

/// A signal of OpenTelemetry: it has variables of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    const fn in_variables(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
        }
    }

    const fn in_paths(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
        }
    }

    /// What bounds one export, retries included.
    const fn export_timeout(self) -> &'static str {
        match self {
            Self::Traces => "OTEL_BSP_EXPORT_TIMEOUT",
            Self::Metrics => "OTEL_METRIC_EXPORT_TIMEOUT",
        }
    }
}

/// Reads variables, and collects what is to be said about them.
pub(super) struct Reader<'a> {
    signal: Signal,
    lookup: &'a dyn Fn(&str) -> Option<String>,
    pub(super) warnings: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(signal: Signal, lookup: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { signal, lookup, warnings: Vec::new() }
    }

    pub(super) fn is_disabled(&mut self) -> bool {
        self.parsed("OTEL_SDK_DISABLED", "true or false", |value| match value.to_ascii_lowercase().as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        })
        .unwrap_or(false)
    }

    pub(super) fn parsed<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let value = (self.lookup)(name)?;
        let parsed = parse(&value);
        if parsed.is_none() {
            self.warnings.push(format!("{name}={value:?} is ignored: it is not {expected}"));
        }
        parsed
    }

    pub(super) fn count(&mut self, name: &str) -> Option<usize> {
        self.parsed(name, "a whole number from 1 to 1000000", |value| {
            value.parse().ok().filter(|count| (1..=1_000_000).contains(count))
        })
    }

    pub(super) fn milliseconds(&mut self, name: &str) -> Option<Duration> {
        self.parsed(name, "a whole number of milliseconds", |value| {
            value.parse().ok().map(Duration::from_millis)
        })
    }

    /// The variable for this signal, or else the one for every signal.
    fn signal<T>(
        &mut self,
        suffix: &str,
        mut parse: impl FnMut(&mut Self, &str) -> Option<T>,
    ) -> Option<(T, bool)> {
        let signal = self.signal.in_variables();
        let specific =
            parse(self, &format!("OTEL_EXPORTER_OTLP_{signal}_{suffix}")).map(|value| (value, true));
        specific.or_else(|| parse(self, &format!("OTEL_EXPORTER_OTLP_{suffix}")).map(|value| (value, false)))
    }

    /// The OTLP exporter, if an endpoint is set; else the protocol alone.
    pub(super) fn otlp(&mut self) -> Result<OtlpPlan, OtlpProtocol> {
        let protocol = self
            .signal("PROTOCOL", |reader, name| {
                reader.parsed(name, "grpc or http/protobuf", |value| match value {
                    "grpc" => Some(OtlpProtocol::Grpc),
                    "http/protobuf" => Some(OtlpProtocol::HttpProtobuf),
                    _ => None,
                })
            })
            .map_or(OtlpProtocol::HttpProtobuf, |(protocol, _)| protocol);
        let endpoint = self.signal("ENDPOINT", |reader, name| {
            reader.parsed(name, "a URL like http://host:4318", |value| {
                // gRPC alone may be named by host and port.
                let url = if value.contains("://") || protocol == OtlpProtocol::HttpProtobuf {
                    value.to_owned()
                } else {
                    format!("http://{value}")
                };
                let parsed = reqwest::Url::parse(&url).ok()?;
                (matches!(parsed.scheme(), "http" | "https") && parsed.has_host()).then_some(url)
            })
        });
        let Some((endpoint, is_specific)) = endpoint else {
            return Err(protocol);
        };
        // The variable for every signal names a base, the one for a signal the whole URL.
        let endpoint = if is_specific || protocol == OtlpProtocol::Grpc {
            endpoint
        } else {
            format!("{}/v1/{}", endpoint.trim_end_matches('/'), self.signal.in_paths())
        };
        Ok(self.otlp_to(protocol, endpoint))
    }

    pub(super) fn otlp_to_default(&mut self, protocol: OtlpProtocol) -> OtlpPlan {
        let endpoint = match protocol {
            OtlpProtocol::Grpc => "http://localhost:4317".to_owned(),
            OtlpProtocol::HttpProtobuf => format!("http://localhost:4318/v1/{}", self.signal.in_paths()),
        };
        self.otlp_to(protocol, endpoint)
    }

    fn otlp_to(&mut self, protocol: OtlpProtocol, endpoint: String) -> OtlpPlan {
        let timeout = self.signal("TIMEOUT", Self::milliseconds).map(|(timeout, _)| timeout);
        let bound = self.milliseconds(self.signal.export_timeout()).unwrap_or(Duration::from_secs(30));
        let certificate = self
            .signal("CERTIFICATE", |reader, name| {
                reader.parsed(name, "a file of certificates that can be read", |value| {
                    let path = PathBuf::from(value);
                    std::fs::File::open(&path).is_ok().then_some(path)
                })
            })
            .map(|(path, _)| path);
        OtlpPlan {
            protocol,
            endpoint,
            timeout: timeout.unwrap_or(Duration::from_millis(DEFAULT_TIMEOUT_MS)).min(bound),
            certificate,
        }
    }

    /// [`Self::check_pairs`] for the headers.
    pub(super) fn check_headers(&mut self) {
        self.check_pairs("OTEL_EXPORTER_OTLP_HEADERS");
        self.check_pairs(&format!("OTEL_EXPORTER_OTLP_{}_HEADERS", self.signal.in_variables()));
    }

    /// The SDK reads `name=value,…` itself and leaves out what is malformed: here that is said. Values may be secret.
    pub(super) fn check_pairs(&mut self, name: &str) {
        let Some(text) = (self.lookup)(name) else { return };
        let malformed = text
            .split(',')
            .filter(|pair| !pair.trim().is_empty())
            .filter(|pair| pair.split_once('=').is_none_or(|(key, _)| key.trim().is_empty()))
            .count();
        if malformed > 0 {
            self.warnings.push(format!("{name}: {malformed} of its parts ignored, they are not name=value"));
        }
    }
}
