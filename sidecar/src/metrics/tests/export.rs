//! What the code exports, held against the table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use opentelemetry::{Key, Value};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData, ResourceMetrics, ScopeMetrics};
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};

use super::super::page::Form;
use super::super::table::{INSTRUMENTS, Instrument, Kind};
use super::*;

/// Families of a page in the text format, each with its type and its series: labels without `le`.
fn families(page: &str) -> BTreeMap<String, (String, BTreeSet<BTreeMap<String, String>>)> {
    let mut families: BTreeMap<String, (String, BTreeSet<_>)> = BTreeMap::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            let before = families.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
            assert!(before.is_none(), "{name} stands twice");
        } else if !line.starts_with('#') {
            let end = line.find(['{', ' ']).unwrap();
            let sample = &line[..end];
            let family = families
                .keys()
                .find(|name| {
                    *name == sample
                        || ["_bucket", "_sum", "_count"]
                            .iter()
                            .any(|suffix| sample.strip_suffix(suffix) == Some(name.as_str()))
                })
                .unwrap_or_else(|| panic!("a sample without a family: {line}"))
                .clone();
            let labels = line[end..]
                .strip_prefix('{')
                .and_then(|rest| rest.split_once('}'))
                .map_or("", |(labels, _)| labels);
            let labels = labels
                .split(',')
                .filter(|label| !label.is_empty())
                .map(|label| {
                    let (name, value) = label.split_once('=').unwrap();
                    (name.to_owned(), value.trim_matches('"').to_owned())
                })
                .filter(|(name, _)| name != "le")
                .collect();
            families.get_mut(&family).unwrap().1.insert(labels);
        }
    }
    families
}

fn check_series(instrument: &Instrument, series: &BTreeSet<BTreeMap<String, String>>) {
    for labels in series {
        let expected: BTreeSet<String> =
            instrument.attributes.iter().map(super::super::table::Attribute::label).collect();
        assert_eq!(labels.keys().cloned().collect::<BTreeSet<_>>(), expected, "{}", instrument.name);
        for attribute in instrument.attributes {
            let value = &labels[&attribute.label()];
            assert!(attribute.allows(value), "{}: {}={value}", instrument.name, attribute.key);
        }
    }
    if instrument.from_start {
        assert_eq!(series.len(), instrument.series_max(), "{} is not whole from the start", instrument.name);
    }
}

#[test]
fn every_family_is_in_the_table_and_the_other_way_round() {
    let pipeline = start(&plan(&[]));
    record_everything(&pipeline.metrics());
    let page = pipeline.page().unwrap().render(Form::Text).unwrap();
    let mut families = families(&page);
    let (kind, target) = families.remove("target_info").unwrap();
    assert_eq!((kind.as_str(), target.len()), ("gauge", 1));
    let exported: BTreeSet<_> = families.keys().cloned().collect();
    let table: BTreeSet<_> = INSTRUMENTS.iter().map(Instrument::prometheus_name).collect();
    assert_eq!(exported, table);
    for instrument in INSTRUMENTS {
        let (kind, series) = &families[&instrument.prometheus_name()];
        assert_eq!(kind, instrument.kind.prometheus(), "{}", instrument.name);
        check_series(instrument, series);
        let help = format!("# HELP {} {}\n", instrument.prometheus_name(), instrument.meaning);
        assert!(page.contains(&help), "{help}");
    }
    for word in ["10.0.0.2", "10.0.0.1", "40001", "8080", "/mux", "node", "2001:db8", "/x/"] {
        assert!(!page.contains(word), "{word} is in the page:\n{page}");
    }
}

/// An exporter that holds what it is given against the table.
#[derive(Clone, Default)]
struct Judge(Arc<Mutex<BTreeSet<&'static str>>>);

impl PushMetricExporter for Judge {
    async fn export(&self, collected: &ResourceMetrics) -> OTelSdkResult {
        for metric in collected.scope_metrics().flat_map(ScopeMetrics::metrics) {
            let instrument = INSTRUMENTS.iter().find(|known| known.name == metric.name());
            let instrument = instrument.unwrap_or_else(|| panic!("{} is not in the table", metric.name()));
            assert_eq!((metric.unit(), metric.description()), (instrument.unit, instrument.meaning));
            let points = match metric.data() {
                AggregatedMetrics::F64(data) => points(data, instrument),
                AggregatedMetrics::U64(data) => points(data, instrument),
                AggregatedMetrics::I64(data) => points(data, instrument),
            };
            check_series(instrument, &points);
            self.0.lock().unwrap().insert(instrument.name);
        }
        Ok(())
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}

#[test]
fn over_otlp_it_is_the_same_table() {
    let judge = Judge::default();
    let provider =
        SdkMeterProvider::builder().with_reader(PeriodicReader::builder(judge.clone()).build()).build();
    let metrics = super::super::pipeline::instruments_of(&provider, super::sources());
    record_everything(&metrics);
    provider.force_flush().unwrap();
    let seen = judge.0.lock().unwrap().clone();
    assert_eq!(seen, INSTRUMENTS.iter().map(|instrument| instrument.name).collect());
}

fn points<T: Copy>(data: &MetricData<T>, instrument: &Instrument) -> BTreeSet<BTreeMap<String, String>> {
    let labels = |pairs: Vec<(&Key, &Value)>| -> BTreeMap<String, String> {
        pairs.into_iter().map(|(key, value)| (key.as_str().replace('.', "_"), value.to_string())).collect()
    };
    macro_rules! of {
        ($points:expr) => {
            $points
                .map(|point| labels(point.attributes().map(|pair| (&pair.key, &pair.value)).collect()))
                .collect()
        };
    }
    match (data, instrument.kind) {
        (MetricData::Gauge(gauge), Kind::Gauge) => of!(gauge.data_points()),
        (MetricData::Sum(sum), Kind::Counter | Kind::UpDownCounter) => {
            assert_eq!(sum.is_monotonic(), instrument.kind == Kind::Counter, "{}", instrument.name);
            of!(sum.data_points())
        }
        (MetricData::Histogram(histogram), Kind::Histogram(boundaries)) => {
            for point in histogram.data_points() {
                assert_eq!(point.bounds().collect::<Vec<_>>(), boundaries, "{}", instrument.name);
            }
            of!(histogram.data_points())
        }
        _ => panic!("{} is of another kind", instrument.name),
    }
}

/// The value of a series.
fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn closes_are_counted_as_they_were() {
    let pipeline = start(&plan(&[]));
    let metrics = pipeline.metrics();
    let page = || pipeline.page().unwrap().render(Form::Text).unwrap();
    let before = page();
    // Absent, and not 0: there was no end yet.
    assert!(!before.contains("_share_ratio"), "{before}");
    assert!(!before.contains("ackbeat_kernel_records_total"), "no kernel programs, no totals of theirs");
    assert!(!before.contains("ackbeat_recording_lost_lines_total"), "nothing is recorded");
    assert!(!before.contains("ackbeat_connections{"), "nobody has looked yet");
    assert_eq!(
        value(&before, r#"ackbeat_false_kills_total{ackbeat_close_kind="heartbeat_kill"}"#),
        Some(0.0)
    );

    metrics.closed(&records::still_open(), &span(1));
    assert!(!page().contains("_share_ratio"), "the sidecar's own end is no end of a connection");
    for record in every_close() {
        metrics.closed(&record, &span(2));
    }
    let after = page();
    for (series, expected) in [
        (r#"ackbeat_false_kills_total{ackbeat_close_kind="heartbeat_kill"}"#, 1.0),
        (r#"ackbeat_false_kills_total{ackbeat_close_kind="abort"}"#, 0.0),
        ("ackbeat_false_kill_share_ratio", 1.0 / 9.0),
        ("ackbeat_heartbeat_kill_share_ratio", 2.0 / 9.0),
        // A planned restart is a close of this side, and no kill.
        (
            r#"ackbeat_host_closes_total{ackbeat_close_kind="planned_restart",ackbeat_close_method="fin",ackbeat_kill_assessment="none",ackbeat_postmortem="answered",ackbeat_verdict="alive"}"#,
            1.0,
        ),
        (
            r#"ackbeat_connection_closes_total{ackbeat_close_initiator="peer",ackbeat_close_kind="other"}"#,
            1.0,
        ),
        (
            r#"ackbeat_host_closes_total{ackbeat_close_kind="heartbeat_kill",ackbeat_close_method="fin",ackbeat_kill_assessment="false_kill",ackbeat_postmortem="app_progress",ackbeat_verdict="congested"}"#,
            1.0,
        ),
        // What does not apply is `none`, what was not seen `unknown`.
        (
            r#"ackbeat_host_closes_total{ackbeat_close_kind="kernel_timeout",ackbeat_close_method="none",ackbeat_kill_assessment="none",ackbeat_postmortem="none",ackbeat_verdict="unreachable"}"#,
            1.0,
        ),
        (
            r#"ackbeat_host_closes_total{ackbeat_close_kind="abort",ackbeat_close_method="unknown",ackbeat_kill_assessment="unknown",ackbeat_postmortem="unresolved",ackbeat_verdict="unknown"}"#,
            1.0,
        ),
    ] {
        assert_eq!(value(&after, series), Some(expected), "{series}\n{after}");
    }
    assert_eq!(after.matches("ackbeat_host_closes_total{").count(), 7, "{after}");
    assert!(!after.contains(r#"ackbeat_false_kills_total{ackbeat_close_kind="planned_restart"}"#), "{after}");
}

#[test]
fn a_sweep_counts_every_connection_and_each_reading_once() {
    let pipeline = start(&plan(&[]));
    let metrics = pipeline.metrics();
    let page = || pipeline.page().unwrap().render(Form::Text).unwrap();
    let mut feed = super::super::Feed::new(metrics);
    let engine = engine(3);
    for _ in 0..2 {
        feed.sweep(|look| engine.connections().for_each(|info| look(&info)));
    }
    let page = page();
    let standing: f64 = page
        .lines()
        .filter(|line| line.starts_with("ackbeat_connections{"))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
        .sum();
    assert!((standing - 3.0).abs() < f64::EPSILON, "{page}");
    assert_eq!(value(&page, "ackbeat_tcp_send_queue_bytes_count"), Some(3.0));
    assert_eq!(value(&page, "ackbeat_tcp_send_queue_bytes_sum"), Some(12_000.0));
    assert_eq!(value(&page, "ackbeat_tcp_unacked_bytes_sum"), Some(9_000.0));
    assert_eq!(value(&page, r#"ackbeat_tcp_send_queue_bytes_bucket{le="4096"}"#), Some(3.0));
    assert_eq!(value(&page, r#"ackbeat_tcp_rtt_seconds_bucket{le="0.001"}"#), Some(3.0));
    assert_eq!(value(&page, r#"ackbeat_tcp_rtt_seconds_bucket{le="0.0005"}"#), Some(0.0));
}

#[test]
fn what_is_disabled_measures_nothing() {
    let pipeline = start(&plan(&[("OTEL_SDK_DISABLED", "true")]));
    record_everything(&pipeline.metrics());
    assert!(pipeline.page().is_none());
    assert!(pipeline.shut_down(Duration::from_secs(30)));
}
