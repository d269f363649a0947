//! The webhook's metrics, as Prometheus reads them.

use std::time::Duration;

use prometheus::{Encoder as _, Gauge, Histogram, HistogramOpts, IntCounterVec, Opts, Registry, TextEncoder};

/// Bounds of the duration of an admission, in seconds: beyond 5 the API server no longer waits.
const DURATION_BOUNDS: [f64; 8] = [0.001, 0.0025, 0.01, 0.05, 0.25, 1.0, 2.5, 5.0];

/// What the webhook did.
pub struct Counters {
    registry: Registry,
    admissions: IntCounterVec,
    skipped: IntCounterVec,
    events: IntCounterVec,
    rotations: IntCounterVec,
    expiry: Gauge,
    duration: Histogram,
}

impl Counters {
    /// All at 0.
    ///
    /// # Errors
    /// A name is there twice.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, label: &str| {
            let counter = IntCounterVec::new(Opts::new(name, help), &[label])?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let admissions =
            counter("ackbeat_webhook_admissions_total", "Pods that the API server asked about", "outcome")?;
        let skipped = counter(
            "ackbeat_webhook_skipped_total",
            "Pods that wanted a sidecar and were left alone",
            "reason",
        )?;
        let events = counter("ackbeat_webhook_events_total", "Kubernetes Events about pods", "outcome")?;
        let rotations = counter(
            "ackbeat_webhook_certificate_rotations_total",
            "Certificates and authorities that were made",
            "what",
        )?;
        let expiry = Gauge::new(
            "ackbeat_webhook_certificate_expiry_timestamp_seconds",
            "When the certificate in use ends, in Unix time; 0 while there is none or a given one is used",
        )?;
        let duration = Histogram::with_opts(
            HistogramOpts::new("ackbeat_webhook_admission_duration_seconds", "From a review to its answer")
                .buckets(DURATION_BOUNDS.to_vec()),
        )?;
        registry.register(Box::new(expiry.clone()))?;
        registry.register(Box::new(duration.clone()))?;
        Ok(Self { registry, admissions, skipped, events, rotations, expiry, duration })
    }

    pub(super) fn admitted(&self, outcome: &str, took: Duration) {
        self.admissions.with_label_values(&[outcome]).inc();
        self.duration.observe(took.as_secs_f64());
    }

    pub(super) fn skipped(&self, reason: &str) {
        self.skipped.with_label_values(&[reason]).inc();
    }

    pub(super) fn event(&self, outcome: &str) {
        self.events.with_label_values(&[outcome]).inc();
    }

    pub(super) fn rotated(&self, what: &str) {
        self.rotations.with_label_values(&[what]).inc();
    }

    pub(super) fn expires_at(&self, unix_s: i64) {
        // Exact up to the year 285 million.
        #[expect(clippy::cast_precision_loss, reason = "seconds of this age are exact in an f64")]
        self.expiry.set(unix_s as f64);
    }

    /// The page for Prometheus.
    #[must_use]
    pub fn page(&self) -> String {
        let mut page = Vec::new();
        // Writing to memory does not fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut page);
        String::from_utf8(page).unwrap_or_default()
    }
}
