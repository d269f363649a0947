//! What is read when somebody collects: totals that others keep.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ackbeat_liveness::leak::LeakSign;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use opentelemetry::{KeyValue, Value};
use parking_lot::Mutex;

use super::process;
use super::sweep::Standing;
use super::table::{self, Instrument};
use crate::api::counters::{ApiCounters, HeartbeatOutcome};
use crate::census::control::ReapControl;
use crate::connections::Storms;
use crate::driver::Housekeeping;
use crate::kubernetes::KubernetesCounters;
use crate::reload::ReloadState;
use crate::telemetry::pipeline::SpanCounts;

/// Totals that others keep.
pub struct Sources {
    /// What became of spans.
    pub spans: Arc<SpanCounts>,
    /// Log lines that were lost.
    pub lost_log_lines: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// What became of exports of all metrics.
#[derive(Debug, Default)]
pub(super) struct ExportCounts {
    pub(super) exported: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// Ends of connections, for the shares.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) all: AtomicU64,
    pub(super) heartbeat_kills: AtomicU64,
    pub(super) false_kills: AtomicU64,
}

/// What callbacks read.
pub(super) struct Observed {
    pub(super) sources: Sources,
    pub(super) exports: Arc<ExportCounts>,
    pub(super) ends: Ends,
    pub(super) standing: Standing,
    pub(super) house: Mutex<Housekeeping>,
    /// How the listening ports stand; `None` before the first pass.
    pub(super) storms: Mutex<Option<Storms>>,
    /// There are kernel programs; without them their totals would be made up.
    pub(super) has_kernel_programs: AtomicBool,
    /// What the API counts of itself, where it listens.
    pub(super) api: OnceLock<Arc<ApiCounters>>,
    /// There is a recording.
    pub(super) is_recording: AtomicBool,
    /// Sockets by state; `None` before the first census.
    pub(super) sockets: Mutex<Option<SocketCounts>>,
    /// What became of sockets that were to be destroyed.
    pub(super) reaps: OnceLock<Arc<ReapControl>>,
    /// What became of readings of the configuration file.
    pub(super) reloads: OnceLock<Arc<ReloadState>>,
    /// What became of what was said to Kubernetes.
    pub(super) kubernetes: OnceLock<Arc<KubernetesCounters>>,
}

/// Sockets by state, in the order of [`TcpState::ALL`](ackbeat_liveness::TcpState::ALL).
pub(super) type SocketCounts = [u64; table::TCP_STATES.len()];

impl Observed {
    fn house(&self) -> Housekeeping {
        self.house.lock().clone()
    }
}

/// Registers one callback for each instrument that is read.
pub(super) fn register(meter: &Meter, observed: &Arc<Observed>) {
    standing(meter, observed);
    shares(meter, observed);
    kernel(meter, observed);
    engine(meter, observed);
    leaks(meter, observed);
    storms(meter, observed);
    exports(meter, observed);
    api(meter, observed);
    own(meter, observed);
}

/// Makes a callback that sees `observed`.
fn reading<T, F>(
    observed: &Arc<Observed>,
    read: F,
) -> impl Fn(&dyn AsyncInstrument<T>) + Send + Sync + 'static
where
    F: Fn(&Observed, &dyn AsyncInstrument<T>) + Send + Sync + 'static,
{
    let observed = Arc::clone(observed);
    move |instrument| read(&observed, instrument)
}

fn counter<F>(meter: &Meter, instrument: &Instrument, observed: &Arc<Observed>, read: F)
where
    F: Fn(&Observed, &dyn AsyncInstrument<u64>) + Send + Sync + 'static,
{
    meter
        .u64_observable_counter(instrument.name)
        .with_unit(instrument.unit)
        .with_description(instrument.meaning)
        .with_callback(reading(observed, read))
        .build();
}

fn up_down_counter<F>(meter: &Meter, instrument: &Instrument, observed: &Arc<Observed>, read: F)
where
    F: Fn(&Observed, &dyn AsyncInstrument<i64>) + Send + Sync + 'static,
{
    meter
        .i64_observable_up_down_counter(instrument.name)
        .with_unit(instrument.unit)
        .with_description(instrument.meaning)
        .with_callback(reading(observed, read))
        .build();
}

fn outcomes(counts: &[(&'static str, u64)], instrument: &dyn AsyncInstrument<u64>) {
    for (outcome, count) in counts {
        instrument.observe(*count, &[KeyValue::new(table::OUTCOME, *outcome)]);
    }
}

/// OTLP has signed integers only; what does not fit is shown as the largest.
fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn standing(meter: &Meter, observed: &Arc<Observed>) {
    up_down_counter(meter, &table::CONNECTIONS, observed, |observed, instrument| {
        for (verdict, count) in observed.standing.counts().into_iter().flatten() {
            instrument.observe(
                signed(count),
                &[KeyValue::new(crate::telemetry::attributes::VERDICT, verdict.as_str())],
            );
        }
    });
}

fn shares(meter: &Meter, observed: &Arc<Observed>) {
    type Part = fn(&Ends) -> &AtomicU64;
    let parts: [(&Instrument, Part); 2] = [
        (&table::FALSE_KILL_SHARE, |ends| &ends.false_kills),
        (&table::HEARTBEAT_KILL_SHARE, |ends| &ends.heartbeat_kills),
    ];
    for (instrument, part) in parts {
        meter
            .f64_observable_gauge(instrument.name)
            .with_unit(instrument.unit)
            .with_description(instrument.meaning)
            .with_callback(reading(observed, move |observed, instrument| {
                // The part first: it is counted last, so that no share is ever above 1.
                let part = part(&observed.ends).load(Ordering::Acquire);
                let all = observed.ends.all.load(Ordering::Acquire);
                if all > 0 {
                    instrument.observe(share(part, all), &[]);
                }
            }))
            .build();
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no more digits than a double has")]
fn share(part: u64, all: u64) -> f64 {
    part as f64 / all as f64
}

fn kernel(meter: &Meter, observed: &Arc<Observed>) {
    counter(meter, &table::KERNEL_RECORDS, observed, |observed, instrument| {
        if observed.has_kernel_programs.load(Ordering::Relaxed) {
            let source = observed.house().source;
            outcomes(
                &[
                    ("seen", source.records_seen),
                    ("dropped", source.records_dropped),
                    ("rejected", source.records_rejected),
                ],
                instrument,
            );
        }
    });
    counter(meter, &table::WIRE_TEXT_FRAMES, observed, |observed, instrument| {
        if observed.has_kernel_programs.load(Ordering::Relaxed) {
            let source = observed.house().source;
            outcomes(
                &[
                    ("unmatched", source.wire_text_frames.saturating_sub(source.wire_text_matches)),
                    ("heartbeat", source.text_frames_seen.saturating_sub(source.text_frames_refused)),
                    ("refused", source.text_frames_refused),
                ],
                instrument,
            );
        }
    });
    type Total = fn(&Housekeeping) -> u64;
    let totals: [(&Instrument, Total); 4] = [
        (&table::KERNEL_FLOWS_REJECTED, |house| house.source.flows_rejected),
        (&table::WIRE_CONTROL_FRAMES, |house| house.source.wire_control_frames),
        (&table::WIRE_LOSSES, |house| house.source.wire_losses),
        (&table::WIRE_RECOVERIES, |house| house.source.wire_recoveries),
    ];
    for (instrument, total) in totals {
        counter(meter, instrument, observed, move |observed, instrument| {
            if observed.has_kernel_programs.load(Ordering::Relaxed) {
                instrument.observe(total(&observed.house()), &[]);
            }
        });
    }
}

fn engine(meter: &Meter, observed: &Arc<Observed>) {
    type Total = fn(&Housekeeping) -> u64;
    let totals: [(&Instrument, Total); 3] = [
        (&table::SAMPLER_PASSES, |house| house.source.sampler_passes),
        (&table::CONNECTIONS_REFUSED, |house| house.engine.connections_refused),
        (&table::LATE_TICKS, |house| house.engine.late_ticks),
    ];
    for (instrument, total) in totals {
        counter(meter, instrument, observed, move |observed, instrument| {
            instrument.observe(total(&observed.house()), &[]);
        });
    }
    counter(meter, &table::PROBES, observed, |observed, instrument| {
        let house = observed.house();
        outcomes(
            &[
                ("sent", house.probes.sent),
                ("failed", house.probes.failed),
                ("stale", house.probes.stale),
                ("dropped", house.probes.dropped),
                ("refused", house.engine.probes_refused),
            ],
            instrument,
        );
    });
}

fn leaks(meter: &Meter, observed: &Arc<Observed>) {
    up_down_counter(meter, &table::SOCKETS, observed, |observed, instrument| {
        let counts = *observed.sockets.lock();
        for (state, count) in counts.into_iter().flat_map(|counts| table::TCP_STATES.into_iter().zip(counts))
        {
            instrument.observe(signed(count), &[KeyValue::new(table::TCP_STATE, state)]);
        }
    });
    let signs = |counts: [u64; 3]| {
        LeakSign::ALL
            .iter()
            .zip(counts)
            .map(|(sign, count)| (count, KeyValue::new(crate::telemetry::leaks::SIGN, sign.as_str())))
    };
    up_down_counter(meter, &table::LEAKS_SUSPECTED, observed, move |observed, instrument| {
        for (count, sign) in signs(observed.house().leaks.suspected_now) {
            instrument.observe(signed(count), &[sign]);
        }
    });
    counter(meter, &table::LEAKS, observed, move |observed, instrument| {
        for (count, sign) in signs(observed.house().leaks.suspected) {
            instrument.observe(count, &[sign]);
        }
    });
    counter(meter, &table::LEAK_REAPS, observed, |observed, instrument| {
        if let Some(reaps) = observed.reaps.get() {
            outcomes(&reaps.totals().map(|(outcome, count)| (outcome.as_str(), count)), instrument);
        }
    });
    counter(meter, &table::CENSUSES, observed, |observed, instrument| {
        instrument.observe(observed.house().leaks.censuses, &[]);
    });
    counter(meter, &table::CENSUS_LEFT_OUT, observed, |observed, instrument| {
        let leaks = observed.house().leaks;
        for (of, count) in [
            ("sockets", leaks.sockets_left_out),
            ("ports", leaks.groups_left_out),
            ("closes", leaks.closes_left_out),
        ] {
            instrument.observe(count, &[KeyValue::new(table::LEFT_OUT_OF, of)]);
        }
    });
}

fn storms(meter: &Meter, observed: &Arc<Observed>) {
    let of_port = |port: u16| [KeyValue::new(table::LOCAL_PORT_KEY, port.to_string())];
    counter(meter, &table::ARRIVALS, observed, move |observed, instrument| {
        let Some(storms) = &*observed.storms.lock() else { return };
        for port in &storms.ports {
            instrument.observe(port.arrivals, &of_port(port.local_port));
        }
        if storms.totals.arrivals_unwatched > 0 {
            instrument.observe(
                storms.totals.arrivals_unwatched,
                &[KeyValue::new(table::LOCAL_PORT_KEY, table::OTHER)],
            );
        }
    });
    counter(meter, &table::STORMS, observed, |observed, instrument| {
        instrument.observe(observed.storms.lock().as_ref().map_or(0, |storms| storms.totals.storms), &[]);
    });
    counter(meter, &table::OUTAGES, observed, |observed, instrument| {
        instrument.observe(observed.storms.lock().as_ref().map_or(0, |storms| storms.totals.outages), &[]);
    });
    up_down_counter(meter, &table::STORMS_ACTIVE, observed, |observed, instrument| {
        let active = |storms: &Storms| storms.ports.iter().filter(|port| port.storm_since.is_some()).count();
        instrument.observe(signed(observed.storms.lock().as_ref().map_or(0, active) as u64), &[]);
    });
    up_down_counter(meter, &table::OUTAGES_ACTIVE, observed, |observed, instrument| {
        let active = |storms: &Storms| storms.ports.iter().filter(|port| port.outage.is_some()).count();
        instrument.observe(signed(observed.storms.lock().as_ref().map_or(0, active) as u64), &[]);
    });
    let period = &table::RECONNECT_PERIOD;
    meter
        .f64_observable_gauge(period.name)
        .with_unit(period.unit)
        .with_description(period.meaning)
        .with_callback(reading(observed, move |observed, instrument| {
            let Some(storms) = &*observed.storms.lock() else { return };
            for port in &storms.ports {
                if let Some(resonance) = port.resonance {
                    instrument.observe(resonance.period_ms / 1_000.0, &of_port(port.local_port));
                }
            }
        }))
        .build();
}

fn exports(meter: &Meter, observed: &Arc<Observed>) {
    counter(meter, &table::EXPORT_SPANS, observed, |observed, instrument| {
        let totals = observed.sources.spans.totals();
        outcomes(
            &[("exported", totals.exported), ("failed", totals.failed), ("dropped", totals.dropped)],
            instrument,
        );
    });
    up_down_counter(meter, &table::EXPORT_WAITING, observed, |observed, instrument| {
        instrument.observe(signed(observed.sources.spans.totals().waiting), &[]);
    });
    counter(meter, &table::EXPORT_METRICS, observed, |observed, instrument| {
        outcomes(
            &[
                ("exported", observed.exports.exported.load(Ordering::Relaxed)),
                ("failed", observed.exports.failed.load(Ordering::Relaxed)),
            ],
            instrument,
        );
    });
    counter(meter, &table::RECORDING_LOST_LINES, observed, |observed, instrument| {
        if observed.is_recording.load(Ordering::Relaxed) {
            instrument.observe(observed.house().recording_lost, &[]);
        }
    });
    counter(meter, &table::LOG_LOST_LINES, observed, |observed, instrument| {
        instrument.observe((observed.sources.lost_log_lines)(), &[]);
    });
}

fn api(meter: &Meter, observed: &Arc<Observed>) {
    counter(meter, &table::API_REQUESTS, observed, |observed, instrument| {
        let Some(counters) = observed.api.get() else { return };
        let mut requests: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for (route, status, count) in counters.requests() {
            *requests.entry((table::route(route), table::status(status))).or_default() += count;
        }
        for ((route, status), count) in requests {
            let status = status.parse().map_or_else(|_| Value::from(status), Value::I64);
            instrument.observe(
                count,
                &[
                    KeyValue::new(table::HTTP_ROUTE, route),
                    KeyValue::new(table::HTTP_RESPONSE_STATUS_CODE, status),
                ],
            );
        }
    });
    type Total = fn(&ApiCounters) -> u64;
    let totals: [(&Instrument, Total); 3] = [
        (&table::API_CONNECTIONS_REFUSED, ApiCounters::connections_refused),
        (&table::API_EVENTS_DROPPED, ApiCounters::events_dropped),
        (&table::API_READERS_DROPPED, ApiCounters::readers_dropped),
    ];
    for (instrument, total) in totals {
        counter(meter, instrument, observed, move |observed, instrument| {
            if let Some(counters) = observed.api.get() {
                instrument.observe(total(counters), &[]);
            }
        });
    }
    counter(meter, &table::API_HEARTBEATS, observed, |observed, instrument| {
        if let Some(counters) = observed.api.get() {
            outcomes(
                &HeartbeatOutcome::ALL.map(|outcome| (outcome.as_str(), counters.heartbeats(outcome))),
                instrument,
            );
        }
    });
}

fn own(meter: &Meter, observed: &Arc<Observed>) {
    counter(meter, &table::KUBERNETES_EVENTS, observed, |observed, instrument| {
        if let Some(events) = observed.kubernetes.get().and_then(|counters| counters.events()) {
            outcomes(&events.map(|(outcome, count)| (outcome.as_str(), count)), instrument);
        }
    });
    up_down_counter(meter, &table::KUBERNETES_PEERS, observed, |observed, instrument| {
        for (kind, count) in
            observed.kubernetes.get().and_then(|counters| counters.peers()).into_iter().flatten()
        {
            instrument.observe(signed(count), &[KeyValue::new(table::KIND, kind.as_str())]);
        }
    });
    counter(meter, &table::KUBERNETES_PEERS_LEFT_OUT, observed, |observed, instrument| {
        if let Some(count) = observed.kubernetes.get().and_then(|counters| counters.peers_left_out()) {
            instrument.observe(count, &[]);
        }
    });
    counter(meter, &table::CONFIG_RELOADS, observed, |observed, instrument| {
        if let Some(reloads) = observed.reloads.get() {
            outcomes(&reloads.totals().map(|(outcome, count)| (outcome.as_str(), count)), instrument);
        }
    });
    let instrument = &table::PROCESS_CPU_TIME;
    meter
        .f64_observable_counter(instrument.name)
        .with_unit(instrument.unit)
        .with_description(instrument.meaning)
        .with_callback(|instrument| {
            if let Some(time) = process::cpu_time() {
                for (mode, spent) in [("user", time.user), ("system", time.system)] {
                    instrument.observe(spent.as_secs_f64(), &[KeyValue::new(table::CPU_MODE, mode)]);
                }
            }
        })
        .build();
    up_down_counter(meter, &table::PROCESS_MEMORY_USAGE, observed, |_, instrument| {
        if let Some(bytes) = process::resident_bytes() {
            instrument.observe(signed(bytes), &[]);
        }
    });
}
