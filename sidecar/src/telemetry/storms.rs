//! From a [`Storm`] to its span, and from storms and outages to log lines.

use ackbeat_storms::{Storm, StormEvent};
use opentelemetry::Context;
use opentelemetry::trace::{Span as _, SpanBuilder, SpanContext, SpanKind, Tracer};
use opentelemetry_semantic_conventions::attribute as semconv;
use tracing::{info, warn};

use super::attributes::{self, Attributes};
use super::end_spans::EndSpans;
use super::wall_clock::WallClock;
use crate::source::Mode;

/// Name of a storm's span.
pub const STORM_NAME: &str = "reconnect.storm";
/// Hands the span of a storm to `tracer`, in a trace of its own. It never blocks.
pub(super) fn emit<T: Tracer>(
    tracer: &T,
    storm: &Storm,
    ends: &EndSpans,
    mode: Mode,
    clock: &WallClock,
) -> SpanContext
where
    T::Span: Send + Sync + 'static,
{
    let mut of_storm = Attributes::default();
    of_storm.set(semconv::NETWORK_TRANSPORT, "tcp");
    of_storm.set(semconv::NETWORK_LOCAL_PORT, i64::from(storm.local_port));
    of_storm.set(attributes::STORM_PEAK_PER_SECOND, i64::from(storm.peak_per_second));
    of_storm.set(attributes::STORM_BASELINE_PER_SECOND, storm.baseline_per_second);
    of_storm.count(attributes::STORM_ARRIVALS, Some(storm.arrivals));
    of_storm.set(attributes::STORM_PEERS, i64::from(storm.peers));
    of_storm.count(attributes::STORM_CLOSES, Some(storm.closes));
    of_storm.set(attributes::STORM_END, storm.end.as_str());
    of_storm.known(attributes::STORM_PERIOD_MS, storm.resonance.map(|resonance| resonance.period_ms.round()));
    of_storm.known(attributes::STORM_STRENGTH, storm.resonance.map(|resonance| resonance.strength));
    of_storm.set(attributes::MODE, mode.as_str());
    let mut span = SpanBuilder::from_name(STORM_NAME)
        .with_kind(SpanKind::Internal)
        .with_start_time(clock.time_of(storm.began_at))
        .with_attributes(of_storm.0)
        .with_links(ends.links(&storm.set_off_by))
        .start_with_context(tracer, &Context::new());
    span.end_with_timestamp(clock.time_of(storm.ended_at));
    span.span_context().clone()
}

/// Says it in the log. `span` is that of a storm that is over.
pub(super) fn log(event: &StormEvent, span: Option<&SpanContext>) {
    match event {
        StormEvent::Began(began) => warn!(
            target: "ackbeat::storm",
            local_port = began.local_port,
            arrivals_per_second = began.arrivals_per_second,
            baseline_per_second = rounded(began.baseline_per_second),
            closes = began.closes,
            "a reconnect storm began"
        ),
        StormEvent::Ended(storm) => warn!(
            target: "ackbeat::storm",
            local_port = storm.local_port,
            lasted_ms = storm.ended_at.ms_since(storm.began_at),
            end = storm.end.as_str(),
            peak_per_second = storm.peak_per_second,
            arrivals = storm.arrivals,
            peers = storm.peers,
            closes = storm.closes,
            period_ms = storm.resonance.map(|resonance| resonance.period_ms.round()),
            strength = storm.resonance.map(|resonance| rounded(resonance.strength)),
            trace_id = span.map(|span| span.trace_id().to_string()),
            span_id = span.map(|span| span.span_id().to_string()),
            "a reconnect storm is over"
        ),
        StormEvent::OutageBegan(outage) => warn!(
            target: "ackbeat::storm",
            local_port = outage.local_port,
            peers = outage.peers,
            "an outage: nothing comes from any peer of this port"
        ),
        StormEvent::OutageEnded(outage) => info!(
            target: "ackbeat::storm",
            local_port = outage.local_port,
            peers = outage.peers,
            lasted_ms = outage.ended_at.map(|ended_at| ended_at.ms_since(outage.began_at)),
            "an outage is over"
        ),
    }
}

/// Two digits are enough for people.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
