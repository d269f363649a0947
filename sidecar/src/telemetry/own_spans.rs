//! Spans of ackbeat's own work (setting `export.own_spans`): here `tracing-opentelemetry` earns its place, because
//! these are made by code that runs now.

use opentelemetry_sdk::trace::SdkTracer;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

/// Target of these spans. Nothing else is exported.
pub const TARGET: &str = "ackbeat::own";

/// The layer that exports them.
pub(super) fn layer<S>(tracer: SdkTracer) -> impl Layer<S> + Send + Sync + use<S>
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(|metadata| metadata.is_span() && metadata.target() == TARGET))
}
