//! The page `METRICS.md`, written from the table.

use std::fmt::Write as _;

use ackbeat_storms::PORTS_MAX;

use super::table::{INSTRUMENTS, Instrument, Kind};

/// The page `METRICS.md`.
#[must_use]
pub fn render() -> String {
    let mut page = String::from(INTRODUCTION);
    page.push_str("## All of them\n\n| OpenTelemetry | Prometheus | kind | unit |\n|---|---|---|---|\n");
    for instrument in INSTRUMENTS {
        // Writing to a string cannot fail.
        let _ = writeln!(
            page,
            "| [`{name}`](#{anchor}) | `{prometheus}` | {kind} | `{unit}` |",
            name = instrument.name,
            anchor = instrument.name.replace('.', ""),
            prometheus = instrument.prometheus_name(),
            kind = kind(instrument),
            unit = instrument.unit,
        );
    }
    for instrument in INSTRUMENTS {
        section(&mut page, instrument);
    }
    page
}

const INTRODUCTION: &str = "# Metrics of the sidecar\n\n\
    Metrics go two ways, which may both be on: as a page that Prometheus reads (`metrics.listen`, by default\n\
    `http://127.0.0.1:9464/metrics`; the API's listener has the same page), and pushed over OTLP where an endpoint is set\n\
    (`OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, every `OTEL_METRIC_EXPORT_INTERVAL`).\n\
    [CONFIGURATION.md](CONFIGURATION.md) has the settings.\n\n\
    This page is written from `src/metrics/table.rs`; tests hold the table, this page and what a running sidecar exports\n\
    together (`UPDATE_REFERENCE=1 cargo test -p ackbeat metrics` writes it anew).\n\n\
    - **Labels are bounded.** Each has the values listed here and no others. No metric has an address, a port, a path of an\n\
      upgrade request or anything else that a peer or a host chooses, but for the pod's own listening ports: 64 at most,\n\
      and `_OTHER` for those beyond.\n\
    - **What is unknown is absent**, and never 0: the shares before the first end of a connection, the kernel programs'\n\
      totals in mode `sock_diag`, the recording's where nothing is recorded, the API's where it does not listen. Where a label does not apply it is `none`,\n\
      where it was not seen `unknown`.\n\
    - **Rates.** A counter \"from the start\" has all its series from the start, as 0, so that `increase()` sees the first\n\
      event. The others appear with their first event; of those, `increase()` misses it. `ackbeat_false_kills_total` and\n\
      `ackbeat_connection_closes_total` are from the start for that reason.\n\
    - **Since the start** of the sidecar, everything that counts. A restart begins anew, as Prometheus and OTLP expect. OTLP\n\
      is cumulative unless `OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE` asks for `delta`.\n\
    - **Exemplars** link a close to its trace: `trace_id` and `span_id` of the latest close of each series of\n\
      `ackbeat_host_closes_total` and `ackbeat_false_kills_total`. They are in the OpenMetrics form of the page, which\n\
      Prometheus asks for by itself (it keeps them with `--enable-feature=exemplar-storage`). Over OTLP there are none:\n\
      OpenTelemetry's SDK for Rust (0.33) collects no exemplars and has no way to hand it any. A trace that is not sampled\n\
      is no exemplar.\n\
    - **Two forms of the page.** `text/plain; version=0.0.4` by default, `application/openmetrics-text; version=1.0.0` for\n\
      whoever prefers it in `Accept`. The names are the same in both. Upper bounds are written as `le=\"1024\"` in the first\n\
      and `le=\"1024.0\"` in the second; `histogram_quantile()` does not care.\n\
    - `target_info` has the resource (`service.name`, `OTEL_RESOURCE_ATTRIBUTES`) as labels, by OpenTelemetry's rules for\n\
      Prometheus.\n\
    - **A collector that is down** costs nothing but `ackbeat.export.metrics` with outcome `failed`: what is pushed is\n\
      totals, so the next push makes up for it. At the end the last totals get as long as the last spans\n\
      (`shutdown.flush_ms`).\n\n";

const fn kind(instrument: &Instrument) -> &'static str {
    match instrument.kind {
        Kind::Counter => "counter",
        Kind::UpDownCounter => "updowncounter (a gauge in Prometheus)",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    }
}

fn section(page: &mut String, instrument: &Instrument) {
    let _ = write!(
        page,
        "\n## `{}`\n\nPrometheus: `{}`. Kind: {}. Unit: `{}`.{}\n\n{}.\n",
        instrument.name,
        instrument.prometheus_name(),
        kind(instrument),
        instrument.unit,
        if instrument.from_start { " From the start." } else { "" },
        instrument.meaning,
    );
    if !instrument.attributes.is_empty() {
        page.push_str("\n| attribute | label | values |\n|---|---|---|\n");
        for attribute in instrument.attributes {
            let mut values: Vec<String> =
                (attribute.values)().iter().map(|value| format!("`{value}`")).collect();
            if attribute.is_local_port() {
                values.insert(0, format!("a listening port of the pod, {PORTS_MAX} at most"));
            }
            let _ =
                writeln!(page, "| `{}` | `{}` | {} |", attribute.key, attribute.label(), values.join(", "));
        }
    }
    if let Kind::Histogram(boundaries) = instrument.kind {
        let bounds: Vec<String> = boundaries.iter().map(ToString::to_string).collect();
        let _ = writeln!(page, "\nUpper bounds: {}.", bounds.join(", "));
    }
}
