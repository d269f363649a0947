//! The two receivers as one thing: what they have received from one sidecar.

use std::collections::BTreeMap;

use ackbeat_tests::namespace::Namespace;
use ackbeat_tests::otelite::Otelite;
use ackbeat_tests::otlp_receiver::{OtlpPorts, OtlpReceiver, ReceivedSpan, untyped};
use anyhow::Result;

/// Attribute of the resource that tells the sidecars apart (OpenTelemetry semantic conventions, "Service").
const INSTANCE: &str = "service.instance.id";
/// Both protocols.
pub(crate) const PROTOCOLS: [&str; 2] = ["grpc", "http/protobuf"];

/// Values of one metric, by attributes.
pub(crate) type Series = BTreeMap<BTreeMap<String, String>, f64>;

/// Which receiver it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From `PyPI`.
    Rotel,
    /// From crates.io.
    Otelite,
}

impl Kind {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Rotel, Self::Otelite];

    /// Starts it.
    pub(crate) fn start(self, namespace: &Namespace, ports: OtlpPorts) -> Result<Receiver<'_>> {
        Ok(match self {
            Self::Rotel => Receiver::Rotel(OtlpReceiver::start(namespace, ports)?),
            Self::Otelite => Receiver::Otelite(Otelite::start(namespace, ports)?),
        })
    }
}

/// One of the two, running.
pub(crate) enum Receiver<'a> {
    /// It prints.
    Rotel(OtlpReceiver),
    /// It is asked.
    Otelite(Otelite<'a>),
}

impl Receiver<'_> {
    /// The spans of the sidecar called `instance`; values are text without their type.
    pub(crate) fn spans_of(&self, instance: &str) -> Result<Vec<ReceivedSpan>> {
        let mut spans = match self {
            Self::Rotel(rotel) => {
                let mut spans = rotel.spans();
                for span in &mut spans {
                    for value in span.attributes.values_mut().chain(span.resource.values_mut()) {
                        *value = untyped(value);
                    }
                }
                spans
            }
            Self::Otelite(otelite) => otelite.spans()?,
        };
        spans.retain(|span| span.resource.get(INSTANCE).map(String::as_str) == Some(instance));
        Ok(spans)
    }

    /// The latest values of the sidecar called `instance`: by name, then by attributes.
    pub(crate) fn metrics_of(&self, instance: &str) -> Result<BTreeMap<String, Series>> {
        let points = match self {
            Self::Rotel(rotel) => rotel.points(),
            Self::Otelite(otelite) => otelite.points()?,
        };
        let mut metrics: BTreeMap<String, Series> = BTreeMap::new();
        for point in points {
            if point.resource.get(INSTANCE).map(String::as_str) == Some(instance) {
                // Later points take the place of earlier ones.
                metrics.entry(point.name).or_default().insert(point.attributes, point.value);
            }
        }
        Ok(metrics)
    }
}

/// The variable that gives a sidecar its name.
pub(crate) fn resource_of(instance: &str) -> String {
    format!("{INSTANCE}={instance},deployment.environment.name=test")
}
