//! Exemplars: the trace of the latest close of each series of the two counters of closes.
//!
//! OpenTelemetry's SDK for Rust (0.33) collects none, and neither the `prometheus` crate (0.14) nor the text format that
//! it writes has a place for them. So they are kept here, and go out in the OpenMetrics form of the page only
//! ([`super::page`]). They are bounded like the series are.

use std::collections::HashMap;
use std::time::SystemTime;

use opentelemetry::KeyValue;
use opentelemetry::trace::SpanContext;
use parking_lot::Mutex;

use super::table::Instrument;

/// The values of a series' attributes, in the order of the table.
type Values = Vec<String>;

/// A close's trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exemplar {
    /// 32 hexadecimal digits.
    pub(super) trace_id: String,
    /// 16 hexadecimal digits.
    pub(super) span_id: String,
    /// When the close was told.
    pub(super) at: SystemTime,
}

/// The latest one of each series.
#[derive(Debug, Default)]
pub(super) struct Exemplars {
    latest: Mutex<HashMap<(&'static str, Values), Exemplar>>,
}

impl Exemplars {
    /// A close of the series of `instrument` that `attributes` name was told in `span`. A span that is not sampled is
    /// nowhere to be found, and is no exemplar.
    pub(super) fn set(
        &self,
        instrument: &Instrument,
        attributes: &[KeyValue],
        span: &SpanContext,
        at: SystemTime,
    ) {
        if !span.is_valid() || !span.is_sampled() {
            return;
        }
        let values = instrument
            .attributes
            .iter()
            .filter_map(|attribute| attributes.iter().find(|pair| pair.key.as_str() == attribute.key))
            .map(|pair| pair.value.as_str().into_owned())
            .collect();
        let exemplar =
            Exemplar { trace_id: span.trace_id().to_string(), span_id: span.span_id().to_string(), at };
        self.latest.lock().insert((instrument.name, values), exemplar);
    }

    /// That of the series of `instrument` with these values, in the order of the table.
    pub(super) fn of(&self, instrument: &Instrument, values: Values) -> Option<Exemplar> {
        self.latest.lock().get(&(instrument.name, values)).cloned()
    }
}
