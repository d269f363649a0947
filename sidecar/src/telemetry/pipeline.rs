//! The pipeline of spans: a bounded queue, a thread that exports, counters.
//!
//! Ending a span never waits. The queue holds `OTEL_BSP_MAX_QUEUE_SIZE` spans; what finds no room is dropped and
//! counted; its last quarter is for the spans of connections that this side closed. A collector that is down or never
//! answers costs the exporting thread its time, and nobody else: the spans wait in the queue ([`super::outage`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ackbeat_liveness::CloseInitiator;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider, Span, SpanData, SpanExporter,
    SpanProcessor,
};

use super::console::ConsoleExporter;
use super::environment::{ExporterPlan, Plan};
use super::outage::Outage;
use super::{attributes, otlp};

/// The pipeline could not be built.
#[derive(Debug, thiserror::Error)]
#[error("{step} failed: {cause}; check the OTEL_EXPORTER_OTLP_ variables")]
pub struct PipelineError {
    /// The step that failed, as a noun phrase.
    pub step: &'static str,
    /// Why.
    pub cause: String,
}

/// What became of spans. `ended = exported + failed + dropped + waiting`, for each exporter.
#[derive(Debug, Default)]
pub struct SpanCounts {
    ended: AtomicU64,
    exported: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
    waiting: AtomicUsize,
}

/// [`SpanCounts`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanTotals {
    /// Spans that ended.
    pub ended: u64,
    /// Spans that an exporter took.
    pub exported: u64,
    /// Spans that an exporter failed to deliver: refused, or not taken by a collector that was away at the end.
    pub failed: u64,
    /// Spans that found no room in the queue.
    pub dropped: u64,
    /// Spans that wait or are being exported.
    pub waiting: u64,
}

impl SpanCounts {
    /// The totals now.
    #[must_use]
    pub fn totals(&self) -> SpanTotals {
        SpanTotals {
            ended: self.ended.load(Ordering::Relaxed),
            exported: self.exported.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed) as u64,
        }
    }
}

/// The pipeline, running.
#[derive(Debug)]
pub struct Pipeline {
    provider: SdkTracerProvider,
    counts: Arc<SpanCounts>,
    outage: Arc<Outage>,
}

impl Pipeline {
    /// Starts the exporters of `plan`. gRPC needs a tokio runtime around the call.
    ///
    /// # Errors
    /// [`PipelineError`] if an exporter cannot be built.
    pub fn start(plan: &Plan, resource: Resource) -> Result<Self, PipelineError> {
        let mut processors = Vec::new();
        let (counts, outage) = (Arc::new(SpanCounts::default()), Arc::new(Outage::default()));
        for exporter in &plan.exporters {
            processors.push(match exporter {
                // People watch the console: it is written often.
                ExporterPlan::Console => {
                    let exporter = ConsoleExporter::new(io::stdout());
                    processor(exporter, plan, Duration::from_millis(200), &counts, &outage)
                }
                ExporterPlan::Otlp(otlp) => {
                    processor(otlp::build(otlp)?, plan, Duration::from_secs(5), &counts, &outage)
                }
            });
        }
        Ok(Self::of(processors, resource, counts, outage))
    }

    /// A pipeline around an exporter of one's own.
    #[must_use]
    pub fn with_exporter<E: SpanExporter + 'static>(plan: &Plan, resource: Resource, exporter: E) -> Self {
        let (counts, outage) = (Arc::new(SpanCounts::default()), Arc::new(Outage::default()));
        let processor = processor(exporter, plan, Duration::from_millis(200), &counts, &outage);
        Self::of(vec![processor], resource, counts, outage)
    }

    fn of(
        processors: Vec<CountedProcessor>,
        resource: Resource,
        counts: Arc<SpanCounts>,
        outage: Arc<Outage>,
    ) -> Self {
        let mut builder = SdkTracerProvider::builder().with_resource(resource);
        for processor in processors {
            builder = builder.with_span_processor(processor);
        }
        Self { provider: builder.build(), counts, outage }
    }

    /// What builds spans.
    #[must_use]
    pub fn tracer(&self) -> SdkTracer {
        let scope = InstrumentationScope::builder("ackbeat").with_version(env!("CARGO_PKG_VERSION")).build();
        self.provider.tracer_with_scope(scope)
    }

    /// What became of spans.
    #[must_use]
    pub fn counts(&self) -> Arc<SpanCounts> {
        Arc::clone(&self.counts)
    }

    /// Exports what waits, for at most `deadline`. It blocks: not for a thread that drives tasks. A collector that is
    /// away gets one more try; what it does not take then has failed.
    ///
    /// Returns whether everything was exported in time.
    pub fn shut_down(&self, deadline: Duration) -> bool {
        self.outage.stop();
        let in_time = self.provider.shutdown_with_timeout(deadline).is_ok();
        let totals = self.counts.totals();
        in_time && totals.waiting == 0
    }
}

/// The resource of the spans: `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SERVICE_NAME`, the SDK's own attributes.
#[must_use]
pub fn resource() -> Resource {
    let resource = Resource::builder().build();
    let unnamed = resource
        .get(&opentelemetry::Key::from_static_str("service.name"))
        .is_none_or(|name| name.as_str().starts_with("unknown_service"));
    if unnamed {
        // The version belongs to the name: under somebody else's name it would be wrong.
        return Resource::builder()
            .with_attributes([
                KeyValue::new("service.name", "ackbeat"),
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            ])
            .build();
    }
    resource
}

fn processor<E: SpanExporter + 'static>(
    exporter: E,
    plan: &Plan,
    default_delay: Duration,
    counts: &Arc<SpanCounts>,
    outage: &Arc<Outage>,
) -> CountedProcessor {
    let config = BatchConfigBuilder::default()
        .with_max_queue_size(plan.max_queue_size)
        .with_max_export_batch_size(plan.max_export_batch_size)
        .with_scheduled_delay(plan.schedule_delay.unwrap_or(default_delay))
        .build();
    let waiting = Arc::new(AtomicUsize::new(0));
    let exporter = CountedExporter {
        inner: exporter,
        counts: Arc::clone(counts),
        waiting: Arc::clone(&waiting),
        outage: Arc::clone(outage),
    };
    CountedProcessor {
        inner: BatchSpanProcessor::builder(exporter).with_batch_config(config).build(),
        counts: Arc::clone(counts),
        waiting,
        max_waiting: plan.max_queue_size,
        max_waiting_of_others: plan.max_queue_size - plan.max_queue_size / 4,
    }
}

/// The SDK's processor drops what finds no room too, but keeps the number to itself. This gate stands before it.
#[derive(Debug)]
struct CountedProcessor {
    inner: BatchSpanProcessor,
    counts: Arc<SpanCounts>,
    waiting: Arc<AtomicUsize>,
    max_waiting: usize,
    /// For spans of connections that this side did not close: they leave room for those that it did.
    max_waiting_of_others: usize,
}

/// Whether the span is of a connection that this side closed.
fn is_of_host_close(span: &SpanData) -> bool {
    span.attributes.iter().any(|attribute| {
        attribute.key.as_str() == attributes::CLOSE_INITIATOR
            && attribute.value.as_str() == CloseInitiator::Host.as_str()
    })
}

impl SpanProcessor for CountedProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        self.counts.ended.fetch_add(1, Ordering::Relaxed);
        let max_waiting = if is_of_host_close(&span) { self.max_waiting } else { self.max_waiting_of_others };
        let room = self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| {
            (waiting < max_waiting).then_some(waiting + 1)
        });
        if room.is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        self.inner.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[derive(Debug)]
struct CountedExporter<E> {
    inner: E,
    counts: Arc<SpanCounts>,
    waiting: Arc<AtomicUsize>,
    outage: Arc<Outage>,
}

impl<E: SpanExporter> SpanExporter for CountedExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.outage.outlast(|| self.inner.export(batch.clone())).await;
        let outcome = if result.is_ok() { &self.counts.exported } else { &self.counts.failed };
        outcome.fetch_add(spans as u64, Ordering::Relaxed);
        self.counts.waiting.fetch_sub(spans, Ordering::Relaxed);
        self.waiting.fetch_sub(spans, Ordering::Relaxed);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
