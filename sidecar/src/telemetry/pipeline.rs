//! The pipeline of spans: a bounded queue, a thread that exports, counters.
//!
//! Ending a span never waits. The queue holds `OTEL_BSP_MAX_QUEUE_SIZE` spans. When it is full the oldest detail is dropped
//! and counted; the span of a close by this side only once there is nothing else ([`super::span_queue`]). A collector that is
//! down or never answers costs the exporting thread its time, and nobody else: the spans wait in the queue
//! ([`super::outage`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanExporter};

use super::batches::{BatchOptions, BatchProcessor};
use super::console::ConsoleExporter;
use super::environment::{ExporterPlan, Plan};
use super::otlp;
use super::outage::Stopping;

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

    /// A span ended.
    pub(super) fn end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// It waits.
    pub(super) fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// It did not even wait.
    pub(super) fn refuse(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// One that waited found no room.
    pub(super) fn give_up(&self) {
        self.refuse();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Some were delivered.
    pub(super) fn export(&self, count: usize) {
        self.exported.fetch_add(count as u64, Ordering::Relaxed);
        self.waiting.fetch_sub(count, Ordering::Relaxed);
    }

    /// Some were not.
    pub(super) fn fail(&self, count: usize) {
        self.failed.fetch_add(count as u64, Ordering::Relaxed);
        self.waiting.fetch_sub(count, Ordering::Relaxed);
    }
}

/// The pipeline, running.
#[derive(Debug)]
pub struct Pipeline {
    provider: SdkTracerProvider,
    counts: Arc<SpanCounts>,
    stopping: Arc<Stopping>,
}

impl Pipeline {
    /// Starts the exporters of `plan`. gRPC needs a tokio runtime around the call.
    ///
    /// # Errors
    /// [`PipelineError`] if an exporter cannot be built.
    pub fn start(plan: &Plan, resource: Resource) -> Result<Self, PipelineError> {
        let mut parts = Parts::default();
        for exporter in &plan.exporters {
            match exporter {
                // People watch the console: it is written often.
                ExporterPlan::Console => {
                    parts.add(ConsoleExporter::new(io::stdout()), plan, Duration::from_millis(200))?;
                }
                ExporterPlan::Otlp(otlp) => parts.add(otlp::build(otlp)?, plan, Duration::from_secs(5))?,
            }
        }
        Ok(parts.into_pipeline(resource))
    }

    /// A pipeline around an exporter of one's own.
    ///
    /// # Errors
    /// [`PipelineError`] if the system has no thread for it.
    pub fn with_exporter<E: SpanExporter + 'static>(
        plan: &Plan,
        resource: Resource,
        exporter: E,
    ) -> Result<Self, PipelineError> {
        let mut parts = Parts::default();
        parts.add(exporter, plan, Duration::from_millis(200))?;
        Ok(parts.into_pipeline(resource))
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
        self.stopping.set();
        let in_time = self.provider.shutdown_with_timeout(deadline).is_ok();
        let totals = self.counts.totals();
        in_time && totals.waiting == 0
    }
}

/// A pipeline that is being put together.
#[derive(Debug, Default)]
struct Parts {
    processors: Vec<BatchProcessor>,
    counts: Arc<SpanCounts>,
    stopping: Arc<Stopping>,
}

impl Parts {
    fn add<E: SpanExporter + 'static>(
        &mut self,
        exporter: E,
        plan: &Plan,
        default_delay: Duration,
    ) -> Result<(), PipelineError> {
        let options = BatchOptions {
            max_queue_size: plan.max_queue_size,
            max_export_batch_size: plan.max_export_batch_size,
            schedule_delay: plan.schedule_delay.unwrap_or(default_delay),
        };
        let (counts, stopping) = (Arc::clone(&self.counts), Arc::clone(&self.stopping));
        self.processors.push(BatchProcessor::start(exporter, options, counts, stopping)?);
        Ok(())
    }

    fn into_pipeline(self, resource: Resource) -> Pipeline {
        let mut builder = SdkTracerProvider::builder().with_resource(resource);
        for processor in self.processors {
            builder = builder.with_span_processor(processor);
        }
        Pipeline { provider: builder.build(), counts: self.counts, stopping: self.stopping }
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
