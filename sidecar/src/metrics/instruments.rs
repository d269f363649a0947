//! The instruments, and who records what into them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use ackbeat_liveness::{
    Assessment, CloseInitiator, CloseKind, CloseMethod, CloseRecord, ConnectionInfo, HeartbeatAnswered,
    Postmortem, Reconnect, VerdictChange,
};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter};
use opentelemetry::trace::SpanContext;

use super::exemplars::Exemplars;
use super::observed::{self, Observed};
use super::sweep::{Standing, Sweep};
use super::table::{self, Instrument, Kind};
use crate::api::counters::ApiCounters;
use crate::census::control::ReapControl;
use crate::connections::Storms;
use crate::driver::Housekeeping;
use crate::kubernetes::KubernetesCounters;
use crate::reload::ReloadState;
use crate::source::Mode;
use crate::telemetry::attributes;

/// What is recorded as it happens. A clone records into the same instruments; nothing in it waits for anybody.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    host_closes: Counter<u64>,
    connection_closes: Counter<u64>,
    false_kills: Counter<u64>,
    verdict_changes: Counter<u64>,
    reconnect_after: Histogram<f64>,
    ping_to_pong: Histogram<f64>,
    ping_to_ack: Histogram<f64>,
    ack_to_pong: Histogram<f64>,
    sockets: Sockets,
    observed: Arc<Observed>,
    exemplars: Arc<Exemplars>,
}

/// Readings of sockets.
pub(super) struct Sockets {
    pub(super) send_queue: Histogram<u64>,
    pub(super) unacked: Histogram<u64>,
    pub(super) rtt: Histogram<f64>,
}

impl Metrics {
    /// Makes every instrument of the table.
    pub(super) fn new(meter: &Meter, observed: Arc<Observed>, exemplars: Arc<Exemplars>) -> Self {
        observed::register(meter, &observed);
        Self(Arc::new(Inner {
            host_closes: counter(meter, &table::HOST_CLOSES),
            connection_closes: counter(meter, &table::CONNECTION_CLOSES),
            false_kills: counter(meter, &table::FALSE_KILLS),
            verdict_changes: counter(meter, &table::VERDICT_CHANGES),
            reconnect_after: f64_histogram(meter, &table::RECONNECT_AFTER),
            ping_to_pong: f64_histogram(meter, &table::PING_TO_PONG),
            ping_to_ack: f64_histogram(meter, &table::PING_TO_ACK),
            ack_to_pong: f64_histogram(meter, &table::ACK_TO_PONG),
            sockets: Sockets {
                send_queue: u64_histogram(meter, &table::TCP_SEND_QUEUE),
                unacked: u64_histogram(meter, &table::TCP_UNACKED),
                rtt: f64_histogram(meter, &table::TCP_RTT),
            },
            observed,
            exemplars,
        }))
    }

    /// How evidence is gathered, and whether it is recorded: what there is not has no totals.
    pub fn source_is(&self, mode: Mode, is_recording: bool) {
        self.0.observed.has_kernel_programs.store(mode == Mode::Ebpf, Ordering::Relaxed);
        self.0.observed.is_recording.store(is_recording, Ordering::Relaxed);
    }

    /// A connection is over, and `span` tells of it.
    pub fn closed(&self, record: &CloseRecord, span: &SpanContext) {
        // The sidecar stopped first: that is no end of the connection.
        if record.still_open {
            return;
        }
        let now = SystemTime::now();
        let kind = KeyValue::new(attributes::CLOSE_KIND, record.kind.as_str());
        self.0
            .connection_closes
            .add(1, &[KeyValue::new(attributes::CLOSE_INITIATOR, record.initiator.as_str()), kind.clone()]);
        if attributes::is_host_close(record) {
            let of_close = [
                kind,
                KeyValue::new(attributes::CLOSE_METHOD, method(record)),
                KeyValue::new(attributes::VERDICT, record.assessed.verdict.as_str()),
                KeyValue::new(
                    attributes::KILL_ASSESSMENT,
                    record.assessment.map_or(table::NONE, Assessment::as_str),
                ),
                KeyValue::new(
                    attributes::POSTMORTEM,
                    record.postmortem.map_or(table::NONE, Postmortem::as_str),
                ),
            ];
            self.0.host_closes.add(1, &of_close);
            self.0.exemplars.set(&table::HOST_CLOSES, &of_close, span, now);
        }
        let ends = &self.0.observed.ends;
        // All before the parts: whoever reads in between sees no share above 1.
        ends.all.fetch_add(1, Ordering::Release);
        if record.kind == CloseKind::HeartbeatKill {
            ends.heartbeat_kills.fetch_add(1, Ordering::Release);
        }
        if record.assessment == Some(Assessment::FalseKill) {
            ends.false_kills.fetch_add(1, Ordering::Release);
            let kind = [KeyValue::new(attributes::CLOSE_KIND, record.kind.as_str())];
            self.0.false_kills.add(1, &kind);
            self.0.exemplars.set(&table::FALSE_KILLS, &kind, span, now);
        }
    }

    /// A verdict changed, or only what it justifies, which is not counted.
    pub fn verdict_changed(&self, change: &VerdictChange) {
        if !change.is_turn() {
            self.0.verdict_changes.add(
                1,
                &[
                    KeyValue::new(attributes::VERDICT_PREVIOUS, change.from.as_str()),
                    KeyValue::new(attributes::VERDICT, change.to.as_str()),
                ],
            );
        }
    }

    /// A peer came back after an end that this side had begun.
    pub fn reconnected(&self, reconnect: &Reconnect) {
        if !matches!(reconnect.initiator, CloseInitiator::Host | CloseInitiator::Kernel) {
            return;
        }
        self.0.reconnect_after.record(
            Duration::from_millis(reconnect.after_ms).as_secs_f64(),
            &[
                KeyValue::new(attributes::CLOSE_KIND, reconnect.kind.as_str()),
                KeyValue::new(
                    attributes::KILL_ASSESSMENT,
                    reconnect.assessment.map_or(table::NONE, Assessment::as_str),
                ),
            ],
        );
    }

    /// A Pong answered.
    pub fn answered(&self, answered: &HeartbeatAnswered) {
        for (histogram, taken_us) in [
            (&self.0.ping_to_pong, answered.ping_to_pong_us),
            (&self.0.ping_to_ack, answered.ping_to_ack_us_max()),
            (&self.0.ack_to_pong, answered.ack_to_pong_us_max()),
        ] {
            histogram.record(Duration::from_micros(taken_us).as_secs_f64(), &[]);
        }
    }

    /// How things stand.
    pub fn keep_house(&self, now: &Housekeeping) {
        self.0.observed.house.lock().clone_from(now);
    }

    /// How the listening ports stand.
    pub fn storms(&self, now: Storms) {
        *self.0.observed.storms.lock() = Some(now);
    }

    /// The API listens, and these are its totals.
    pub fn api_is(&self, counters: Arc<ApiCounters>) {
        // There is one API; a second one would not be counted.
        let _ = self.0.observed.api.set(counters);
    }

    /// A census counted the sockets by state, in the order of [`TcpState::ALL`](ackbeat_liveness::TcpState::ALL).
    pub fn sockets_are(&self, by_state: [u64; table::TCP_STATES.len()]) {
        *self.0.observed.sockets.lock() = Some(by_state);
    }

    /// Sockets may be destroyed, and these are the totals.
    pub fn reaps_are(&self, control: Arc<ReapControl>) {
        // There is one; a second one would not be counted.
        let _ = self.0.observed.reaps.set(control);
    }

    /// The configuration may be read anew, and these are the totals.
    pub fn reloads_are(&self, reloads: Arc<ReloadState>) {
        // There is one; a second one would not be counted.
        let _ = self.0.observed.reloads.set(reloads);
    }

    /// Something is said to Kubernetes, and these are the totals.
    pub fn kubernetes_is(&self, counters: Arc<KubernetesCounters>) {
        // There is one; a second one would not be counted.
        let _ = self.0.observed.kubernetes.set(counters);
    }

    pub(super) fn standing(&self) -> &Standing {
        &self.0.observed.standing
    }

    pub(super) fn sockets(&self) -> &Sockets {
        &self.0.sockets
    }
}

/// What the driver's sink holds: the instruments, and where the last pass over the connections ended.
pub struct Feed {
    metrics: Metrics,
    sweep: Sweep,
}

impl Feed {
    /// Feeds `metrics`.
    #[must_use]
    pub fn new(metrics: Metrics) -> Self {
        Self { metrics, sweep: Sweep::default() }
    }

    /// The instruments.
    #[must_use]
    pub const fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// One pass over the engine's connections; `each` shows every one of them.
    pub fn sweep(&mut self, each: impl FnOnce(&mut dyn FnMut(&ConnectionInfo<'_>))) {
        self.sweep.pass(&self.metrics, each);
    }
}

/// FIN or RST. The kernel that gives up sends neither.
fn method(record: &CloseRecord) -> &'static str {
    match record.method {
        Some(method) => CloseMethod::as_str(method),
        None if record.initiator == CloseInitiator::Kernel => table::NONE,
        None => table::UNKNOWN,
    }
}

fn counter(meter: &Meter, instrument: &Instrument) -> Counter<u64> {
    let counter = meter
        .u64_counter(instrument.name)
        .with_unit(instrument.unit)
        .with_description(instrument.meaning)
        .build();
    if instrument.from_start {
        for series in every_series(instrument) {
            counter.add(0, &series);
        }
    }
    counter
}

/// Every combination of the attributes' values.
fn every_series(instrument: &Instrument) -> Vec<Vec<KeyValue>> {
    instrument.attributes.iter().fold(vec![Vec::new()], |series, attribute| {
        let with = |start: &Vec<KeyValue>, value: &'static str| {
            start.iter().cloned().chain([KeyValue::new(attribute.key, value)]).collect()
        };
        series
            .iter()
            .flat_map(|start| (attribute.values)().into_iter().map(move |value| with(start, value)))
            .collect()
    })
}

const fn boundaries(instrument: &Instrument) -> &'static [f64] {
    match instrument.kind {
        Kind::Histogram(boundaries) => boundaries,
        Kind::Counter | Kind::UpDownCounter | Kind::Gauge => &[],
    }
}

fn u64_histogram(meter: &Meter, instrument: &Instrument) -> Histogram<u64> {
    meter
        .u64_histogram(instrument.name)
        .with_unit(instrument.unit)
        .with_description(instrument.meaning)
        .with_boundaries(boundaries(instrument).to_vec())
        .build()
}

fn f64_histogram(meter: &Meter, instrument: &Instrument) -> Histogram<f64> {
    meter
        .f64_histogram(instrument.name)
        .with_unit(instrument.unit)
        .with_description(instrument.meaning)
        .with_boundaries(boundaries(instrument).to_vec())
        .build()
}
