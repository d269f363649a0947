//! The page that Prometheus reads, in two forms: its own text format, and OpenMetrics, which has exemplars.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Registry, TextEncoder};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType as OpenMetricsType;
use prometheus_client::metrics::exemplar::CounterWithExemplar;

use super::exemplars::{Exemplar, Exemplars};
use super::table::{self, Instrument};

/// A form of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Prometheus's text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Form {
    /// Its media type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The form that a client likes best, by its `Accept` header (RFC 9110 section 12.5.1). Whoever has no preference, or
    /// wants what is not there, gets the text.
    #[must_use]
    pub fn accepted(accept: Option<&str>) -> Self {
        let (mut text, mut open_metrics) = (Preference::default(), Preference::default());
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut version) = (1.0_f32, None);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                let value = value.trim().trim_matches('"');
                match name.trim().to_ascii_lowercase().as_str() {
                    "q" => quality = value.parse().unwrap_or(0.0),
                    "version" => version = Some(value),
                    _ => {}
                }
            }
            match (media.as_str(), version) {
                ("application/openmetrics-text", None | Some("1.0.0")) => open_metrics.exactly(quality),
                ("text/plain", None | Some("0.0.4")) => text.exactly(quality),
                ("application/*", _) => open_metrics.at_most(quality),
                ("text/*", _) => text.at_most(quality),
                // A client that takes anything has not asked for the form that fewer know.
                ("*/*", _) => text.at_most(quality),
                _ => {}
            }
        }
        if open_metrics.quality() > text.quality() { Self::OpenMetrics } else { Self::Text }
    }
}

/// How much a client likes a form. The range that names it counts more than one with a star.
#[derive(Default)]
struct Preference {
    exact: Option<f32>,
    by_star: f32,
}

impl Preference {
    fn exactly(&mut self, quality: f32) {
        self.exact = Some(self.exact.unwrap_or(0.0).max(quality));
    }

    const fn at_most(&mut self, quality: f32) {
        self.by_star = self.by_star.max(quality);
    }

    fn quality(&self) -> f32 {
        self.exact.unwrap_or(self.by_star)
    }
}

/// The page cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("writing the page of metrics failed: {cause}; this is a defect of ackbeat, please report it")]
pub struct PageError {
    /// Why.
    pub cause: String,
}

/// The page. A clone is the same page.
#[derive(Clone)]
pub struct Page {
    registry: Registry,
    exemplars: Arc<Exemplars>,
}

impl Page {
    pub(super) const fn new(registry: Registry, exemplars: Arc<Exemplars>) -> Self {
        Self { registry, exemplars }
    }

    /// Collects, and writes the page.
    ///
    /// # Errors
    /// [`PageError`] if something in it has no form. No reading leads there.
    pub fn render(&self, form: Form) -> Result<String, PageError> {
        let families = self.registry.gather();
        match form {
            Form::Text => TextEncoder::new()
                .encode_to_string(&families)
                .map_err(|error| PageError { cause: error.to_string() }),
            Form::OpenMetrics => {
                let mut registry = prometheus_client::registry::Registry::default();
                registry.register_collector(Box::new(Families {
                    families,
                    exemplars: Arc::clone(&self.exemplars),
                }));
                let mut page = String::new();
                prometheus_client::encoding::text::encode(&mut page, &registry)
                    .map_err(|error| PageError { cause: error.to_string() })?;
                Ok(page)
            }
        }
    }
}

/// What was collected, for the encoder of OpenMetrics.
#[derive(Debug)]
struct Families {
    families: Vec<MetricFamily>,
    exemplars: Arc<Exemplars>,
}

type Labels = Vec<(String, String)>;

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for family in &self.families {
            let kind = match family.get_field_type() {
                MetricType::COUNTER => OpenMetricsType::Counter,
                // The resource's attributes are a gauge in the text format, which has no better word.
                MetricType::GAUGE if family.name() == "target_info" => OpenMetricsType::Info,
                MetricType::GAUGE => OpenMetricsType::Gauge,
                MetricType::HISTOGRAM => OpenMetricsType::Histogram,
                MetricType::SUMMARY | MetricType::UNTYPED => continue,
            };
            // In OpenMetrics the suffix belongs to the sample, and not to the family.
            let name = match kind {
                OpenMetricsType::Counter => family.name().trim_end_matches("_total"),
                OpenMetricsType::Info => family.name().trim_end_matches("_info"),
                _ => family.name(),
            };
            let instrument = table::INSTRUMENTS.iter().find(|known| known.prometheus_name() == family.name());
            let mut metrics = encoder.encode_descriptor(name, family.help(), None, kind)?;
            for metric in family.get_metric() {
                let labels: Labels = metric
                    .get_label()
                    .iter()
                    .map(|label| (label.name().to_owned(), label.value().to_owned()))
                    .collect();
                if kind == OpenMetricsType::Info {
                    metrics.encode_info(&labels)?;
                    continue;
                }
                let exemplar =
                    instrument.and_then(|instrument| self.exemplar(instrument, metric.get_label()));
                if labels.is_empty() {
                    encode_value(&mut metrics, kind, metric, exemplar)?;
                } else {
                    encode_value(&mut metrics.encode_family(&labels)?, kind, metric, exemplar)?;
                }
            }
        }
        Ok(())
    }
}

impl Families {
    fn exemplar(&self, instrument: &Instrument, labels: &[LabelPair]) -> Option<Exemplar> {
        let value = |name: &str| {
            labels.iter().find(|label| label.name() == name).map(|label| label.value().to_owned())
        };
        let values =
            instrument.attributes.iter().map(|attribute| value(&attribute.label())).collect::<Option<_>>()?;
        self.exemplars.of(instrument, values)
    }
}

fn encode_value(
    encoder: &mut MetricEncoder<'_>,
    kind: OpenMetricsType,
    metric: &Metric,
    exemplar: Option<Exemplar>,
) -> Result<(), std::fmt::Error> {
    match kind {
        OpenMetricsType::Counter => encode_counter(encoder, metric.get_counter().get_value(), exemplar),
        OpenMetricsType::Gauge => encoder.encode_gauge(&metric.get_gauge().get_value()),
        OpenMetricsType::Histogram => {
            let histogram = metric.get_histogram();
            let mut before = 0;
            let mut buckets = Vec::new();
            // Cumulative here, one by one there.
            for bucket in histogram.get_bucket() {
                let until = bucket.cumulative_count();
                buckets.push((bucket.upper_bound(), until.saturating_sub(before)));
                before = until;
            }
            buckets.push((f64::INFINITY, histogram.get_sample_count().saturating_sub(before)));
            encoder.encode_histogram::<NoLabelSet>(
                histogram.get_sample_sum(),
                histogram.get_sample_count(),
                &buckets,
                None,
            )
        }
        OpenMetricsType::Info | OpenMetricsType::Unknown => Ok(()),
    }
}

fn encode_counter(
    encoder: &mut MetricEncoder<'_>,
    value: f64,
    exemplar: Option<Exemplar>,
) -> Result<(), std::fmt::Error> {
    let Some(Exemplar { trace_id, span_id, at }) = exemplar else {
        return encoder.encode_counter::<NoLabelSet, f64, f64>(&value, None);
    };
    // Only a counter of the library's own can make an exemplar; it counted one event.
    let counter = CounterWithExemplar::<Labels, f64, AtomicU64>::default();
    counter.inc_by(value - 1.0, None, None);
    counter.inc_by(
        1.0,
        Some(vec![("trace_id".to_owned(), trace_id), ("span_id".to_owned(), span_id)]),
        Some(at),
    );
    let (value, exemplar) = counter.get();
    encoder.encode_counter(&value, exemplar.as_ref())
}
