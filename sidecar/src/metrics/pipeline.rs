//! The meter provider and its readers: the page's, and a thread that exports over OTLP.
//!
//! A collector that is down or never answers costs that thread its time, and nobody else: readings are totals, so there is
//! no queue that could fill.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{
    Instrument as SdkInstrument, MeterProviderBuilder, PeriodicReader, SdkMeterProvider, Stream, Temporality,
};
use parking_lot::Mutex;
use prometheus::Registry;

use super::exemplars::Exemplars;
use super::instruments::Metrics;
use super::observed::{Ends, ExportCounts, Observed, Sources};
use super::page::Page;
use super::sweep::Standing;
use super::table;
use crate::driver::Housekeeping;
use crate::telemetry::environment::MetricsPlan;
use crate::telemetry::otlp;
use crate::telemetry::pipeline::PipelineError;

/// The pipeline of metrics, running.
pub struct MetricsPipeline {
    provider: SdkMeterProvider,
    metrics: Metrics,
    page: Option<Page>,
    exports: Arc<ExportCounts>,
    is_over: Arc<AtomicBool>,
}

impl MetricsPipeline {
    /// Starts what `plan` asks for. gRPC needs a tokio runtime around the call.
    ///
    /// # Errors
    /// [`PipelineError`] if an exporter cannot be built.
    pub fn start(plan: &MetricsPlan, resource: Resource, sources: Sources) -> Result<Self, PipelineError> {
        let exports = Arc::new(ExportCounts::default());
        let is_over = Arc::new(AtomicBool::new(false));
        let exemplars = Arc::new(Exemplars::default());
        let mut builder = SdkMeterProvider::builder().with_resource(resource);
        let mut page = None;
        if !plan.is_disabled {
            let registry = Registry::new();
            builder = with_registry(builder, &registry)?;
            page = Some(Page::new(registry, Arc::clone(&exemplars)));
            if let Some(otlp) = &plan.otlp {
                let exporter = CountedExporter {
                    inner: otlp::build_metrics(otlp)?,
                    counts: Arc::clone(&exports),
                    is_over: Arc::clone(&is_over),
                };
                builder = builder
                    .with_reader(PeriodicReader::builder(exporter).with_interval(plan.interval).build());
            }
        }
        let provider = builder.with_view(bounded).build();
        let metrics = instruments(&provider, sources, Arc::clone(&exports), exemplars);
        Ok(Self { provider, metrics, page, exports, is_over })
    }

    /// What records.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// The page; `None` where the SDK is disabled.
    #[must_use]
    pub fn page(&self) -> Option<Page> {
        self.page.clone()
    }

    /// Exports over OTLP that failed.
    #[must_use]
    pub fn failed_exports(&self) -> u64 {
        self.exports.failed.load(Ordering::Relaxed)
    }

    /// Exports the last totals, for at most `deadline`. It blocks: not for a thread that drives tasks.
    ///
    /// Returns whether they were exported in time; true where there is no OTLP.
    pub fn shut_down(&self, deadline: Duration) -> bool {
        let provider = self.provider.clone();
        let is_over = Arc::clone(&self.is_over);
        let (done, flushed) = sync_channel(1);
        // The SDK's own shutdown waits five seconds whatever it is told, and its flush without an end.
        let flushing = std::thread::Builder::new().name("ackbeat-metrics-end".to_owned()).spawn(move || {
            let is_exported = provider.force_flush().is_ok();
            // Its shutdown would export once more.
            is_over.store(true, Ordering::Release);
            // Nobody waits any more if that fails.
            let _ = done.send(is_exported);
            let _ = provider.shutdown();
        });
        flushing.is_ok() && flushed.recv_timeout(deadline) == Ok(true)
    }
}

/// Makes every instrument.
fn instruments(
    provider: &SdkMeterProvider,
    sources: Sources,
    exports: Arc<ExportCounts>,
    exemplars: Arc<Exemplars>,
) -> Metrics {
    let scope = InstrumentationScope::builder("ackbeat").with_version(env!("CARGO_PKG_VERSION")).build();
    let observed = Arc::new(Observed {
        sources,
        exports,
        ends: Ends::default(),
        standing: Standing::default(),
        house: Mutex::new(Housekeeping::default()),
        storms: Mutex::new(None),
        has_kernel_programs: AtomicBool::new(false),
        is_recording: AtomicBool::new(false),
        api: OnceLock::new(),
        sockets: Mutex::new(None),
        reaps: OnceLock::new(),
        reloads: OnceLock::new(),
        kubernetes: OnceLock::new(),
    });
    Metrics::new(&provider.meter_with_scope(scope), observed, exemplars)
}

/// Every instrument of a provider of one's own.
#[cfg(test)]
pub(super) fn instruments_of(provider: &SdkMeterProvider, sources: Sources) -> Metrics {
    instruments(provider, sources, Arc::default(), Arc::default())
}

fn with_registry(
    builder: MeterProviderBuilder,
    registry: &Registry,
) -> Result<MeterProviderBuilder, PipelineError> {
    opentelemetry_prometheus::exporter()
        .with_registry(registry.clone())
        // One scope, ackbeat's own: its labels would tell nothing.
        .scope_info_enabled(false)
        .build()
        .map(|reader| builder.with_reader(reader))
        .map_err(|error| PipelineError { step: "building the Prometheus page", cause: error.to_string() })
}

/// The SDK folds series beyond a limit into one with an attribute of its own. The table bounds them more tightly.
fn bounded(instrument: &SdkInstrument) -> Option<Stream> {
    let known = table::INSTRUMENTS.iter().find(|known| known.name == instrument.name())?;
    Stream::builder().with_cardinality_limit(known.series_max().max(1)).build().ok()
}

/// Counts exports.
struct CountedExporter<E> {
    inner: E,
    counts: Arc<ExportCounts>,
    is_over: Arc<AtomicBool>,
}

impl<E: PushMetricExporter> PushMetricExporter for CountedExporter<E> {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        if self.is_over.load(Ordering::Acquire) {
            return Ok(());
        }
        let result = self.inner.export(metrics).await;
        let outcome = if result.is_ok() { &self.counts.exported } else { &self.counts.failed };
        outcome.fetch_add(1, Ordering::Relaxed);
        result
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.inner.temporality()
    }
}
