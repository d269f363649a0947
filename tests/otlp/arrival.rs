//! Everything arrives, and as it was: both receivers, both protocols, at the same time.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use ackbeat::metrics::table::INSTRUMENTS;
use ackbeat_tests::client::{Client, ClientOptions};
use ackbeat_tests::http_get::free_port;
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::metrics_page::MetricsPage;
use ackbeat_tests::mux::{Ask, Host, HostOptions};
use ackbeat_tests::namespace::Namespace;
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::otlp_receiver::{OtlpPorts, ReceivedSpan, typed, untyped};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::spans::Span;
use anyhow::{Context, Result, ensure};

use super::SPAN_DEADLINE;
use super::receivers::{Kind, PROTOCOLS, Receiver, Series, resource_of};

/// One sidecar, and where its telemetry goes.
struct Way<'a> {
    instance: String,
    receiver: Receiver<'a>,
    page: SocketAddr,
    sidecar: Sidecar,
}

/// The sidecar prints what it exports: what arrived must be the same.
fn check_span(printed: &Span, received: &ReceivedSpan) -> Result<()> {
    let error = printed.status.to_string().to_lowercase().contains("error");
    ensure!(received.name == printed.name, "{received:?}");
    ensure!(received.trace_id.eq_ignore_ascii_case(&printed.trace_id), "{received:?}");
    ensure!(
        received.parent_span_id.eq_ignore_ascii_case(printed.parent_span_id.as_deref().unwrap_or_default()),
        "{received:?}"
    );
    ensure!(
        (received.start_unix_ns, received.end_unix_ns) == (printed.start_unix_ns, printed.end_unix_ns),
        "{received:?}"
    );
    ensure!(received.status_code.to_lowercase().contains("error") == error, "{received:?} {printed:?}");
    let wanted: BTreeMap<String, String> =
        printed.attributes.iter().map(|(key, value)| (key.clone(), untyped(&typed(value)))).collect();
    ensure!(received.attributes == wanted, "{:#?} and not {wanted:#?}", received.attributes);
    let events: Vec<&str> = printed.events.iter().filter_map(|event| event["name"].as_str()).collect();
    ensure!(received.events == events, "{:?} and not {events:?}", received.events);
    for (key, wanted) in [("service.name", "remote-mux"), ("deployment.environment.name", "test")] {
        ensure!(received.resource.get(key).map(String::as_str) == Some(wanted), "{:?}", received.resource);
    }
    Ok(())
}

fn check_spans(way: &Way<'_>, printed: &[Span]) -> Result<()> {
    let mut received = Vec::new();
    wait_until("every span", SPAN_DEADLINE, || {
        received = way.receiver.spans_of(&way.instance)?;
        Ok(received.len() >= printed.len())
    })
    .with_context(|| format!("{} of {} spans arrived", received.len(), printed.len()))?;
    ensure!(received.len() == printed.len(), "{} spans, and {} were printed", received.len(), printed.len());
    for span in printed {
        let arrived = received.iter().find(|arrived| arrived.span_id.eq_ignore_ascii_case(&span.span_id));
        check_span(span, arrived.with_context(|| format!("no {} {}", span.name, span.span_id))?)?;
    }
    Ok(())
}

/// Metrics whose numbers no longer change once the last close is told.
const SETTLED: [&str; 4] =
    ["ackbeat.host.closes", "ackbeat.connection.closes", "ackbeat.false_kills", "ackbeat.verdict.changes"];

/// What the page has, the receiver has: each metric, and of those that no longer change each series with its value.
fn check_metrics(way: &Way<'_>, namespace: &Namespace) -> Result<()> {
    let page = MetricsPage::read(namespace, way.page)?;
    let names: Vec<&str> = INSTRUMENTS
        .iter()
        .filter(|instrument| page.names.contains(&instrument.prometheus_name()))
        .map(|instrument| instrument.name)
        .collect();
    ensure!(names.len() > 20, "only {names:?} are on the page");
    let settled = SETTLED.map(|name| {
        let on_page = format!("{}_total", name.replace('.', "_"));
        let samples = page.samples.iter().filter(|sample| sample.name == on_page);
        (name, samples.map(|sample| (sample.labels.clone(), sample.value)).collect::<Series>())
    });
    let labels = |attributes: &BTreeMap<String, String>| {
        attributes.iter().map(|(key, value)| (key.replace('.', "_"), value.clone())).collect()
    };
    let mut differs = String::new();
    let arrived = wait_until("every metric", SPAN_DEADLINE, || {
        let metrics = way.receiver.metrics_of(&way.instance)?;
        let missing: Vec<&&str> = names.iter().filter(|name| !metrics.contains_key(**name)).collect();
        differs = format!("missing: {missing:?}");
        for (name, wanted) in &settled {
            let found: Series = metrics
                .get(*name)
                .into_iter()
                .flatten()
                .map(|(attributes, value)| (labels(attributes), *value))
                .collect();
            if found != *wanted {
                differs = format!("{differs}\n{name}: {found:?} and not {wanted:?}");
            }
        }
        Ok(differs == "missing: []")
    });
    arrived.with_context(|| differs)
}

/// Attributes keep their types: rotel shows them.
fn check_types(receiver: &Receiver<'_>, host: &Host) -> Result<()> {
    let Receiver::Rotel(rotel) = receiver else { return Ok(()) };
    let spans = rotel.spans();
    let close = spans.iter().find(|span| {
        span.name == "websocket.host_close"
            && span.attributes.get("ackbeat.close.kind").map(String::as_str) == Some("Str(heartbeat_kill)")
    });
    let close = close.context("no kill among the spans")?;
    for (key, wanted) in [
        ("network.transport", "Str(tcp)".to_owned()),
        ("network.local.port", format!("Int({})", host.address().port())),
        ("process.pid", format!("Int({})", host.pid())),
        ("process.executable.name", "Str(mux-host)".to_owned()),
        ("ackbeat.close.method", "Str(fin)".to_owned()),
        ("ackbeat.close.ws_frame", "Str(none)".to_owned()),
        ("ackbeat.heartbeat.source", "Str(wire)".to_owned()),
        ("ackbeat.heartbeat.missed", "Int(2)".to_owned()),
        ("ackbeat.heartbeat.ping_location", "Str(acked)".to_owned()),
        ("ackbeat.heartbeat.inferred", "Bool(false)".to_owned()),
        ("ackbeat.kill.justified", "Bool(false)".to_owned()),
        ("ackbeat.mode", "Str(ebpf)".to_owned()),
    ] {
        let found = close.attributes.get(key).with_context(|| format!("no {key}: {close:?}"))?;
        ensure!(*found == wanted, "{key} is {found}, not {wanted}");
    }
    Ok(())
}

#[test]
fn everything_arrives_at_both_receivers_over_both_protocols() -> Result<()> {
    let network = Network::create()?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let mut ways = Vec::new();
    for kind in Kind::ALL {
        for protocol in PROTOCOLS {
            // A receiver of its own: otelite keeps the latest point of each series, whoever sent it.
            let ports = OtlpPorts::free(&network.host)?;
            let receiver = kind.start(&network.host, ports)?;
            let instance = format!("{kind:?}-{}", protocol.replace('/', "-"));
            let page = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port(&network.host)?));
            let options = SidecarOptions::port(host.address().port())
                .variable("OTEL_TRACES_EXPORTER", "otlp,console")
                .variable("OTEL_EXPORTER_OTLP_ENDPOINT", ports.endpoint(protocol))
                .variable("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
                // Several sidecars share this loopback.
                .variable("ACKBEAT_API_LISTEN", "off")
                .variable("OTEL_EXPORTER_PROMETHEUS_PORT", page.port().to_string())
                .variable("OTEL_SERVICE_NAME", "remote-mux")
                .variable("OTEL_RESOURCE_ATTRIBUTES", resource_of(&instance))
                .variable("OTEL_METRIC_EXPORT_INTERVAL", "3000")
                .variable("OTEL_BSP_SCHEDULE_DELAY", "200");
            let sidecar = Sidecar::start(&network.host, &options)?;
            ways.push(Way { instance, receiver, page, sidecar });
        }
    }

    let polite = Client::connect(Some(&network.client), ClientOptions::new(host.address()))?;
    let mute = ClientOptions { mute: true, ..ClientOptions::new(host.address()) };
    let mute = Client::connect(Some(&network.client), mute)?;
    host.wait_for_kill(mute.port(), SPAN_DEADLINE)?;
    polite.ask(&Ask::Leave { code: 4001, reason: "server_restart".into() });
    mute.wait_for_end(SPAN_DEADLINE)?;
    polite.wait_for_end(SPAN_DEADLINE)?;
    for way in &ways {
        for port in [mute.port(), polite.port()] {
            way.sidecar.wait_for_host_close(port, SPAN_DEADLINE)?;
            way.sidecar.wait_for_connection(port, SPAN_DEADLINE)?;
        }
    }
    for way in &ways {
        check_spans(way, &way.sidecar.spans()?).with_context(|| way.instance.clone())?;
        check_metrics(way, &network.host).with_context(|| way.instance.clone())?;
    }
    for way in &ways {
        check_types(&way.receiver, &host).with_context(|| way.instance.clone())?;
    }
    for way in ways {
        way.sidecar.stop()?;
    }
    Ok(())
}
