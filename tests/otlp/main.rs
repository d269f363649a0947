//! Rank `namespaces`: spans received by an OTLP receiver that is not ours, over gRPC and over HTTP.

use std::time::Duration;

use ackbeat_tests::client::{Client, ClientOptions};
use ackbeat_tests::mux::{Host, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::otlp_receiver::OtlpReceiver;
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use anyhow::{Context, Result, ensure};

/// The post-mortem's window, the export, and a busy machine.
const SPAN_DEADLINE: Duration = Duration::from_secs(60);

/// Kills a mute client in front of a sidecar that exports over `protocol`.
fn received_over(protocol: &str, endpoint: fn(&OtlpReceiver) -> String) -> Result<()> {
    let network = Network::create()?;
    let receiver = OtlpReceiver::start(&network.host)?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let options = SidecarOptions::port(host.address().port())
        .variable("OTEL_TRACES_EXPORTER", "otlp")
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint(&receiver))
        .variable("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        .variable("OTEL_SERVICE_NAME", "remote-mux")
        .variable("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        .variable("OTEL_BSP_SCHEDULE_DELAY", "200");
    let sidecar = Sidecar::start(&network.host, &options)?;
    let mute = ClientOptions { mute: true, ..ClientOptions::new(host.address()) };
    let client = Client::connect(Some(&network.client), mute)?;
    host.wait_for_kill(client.port(), SPAN_DEADLINE)?;
    client.wait_for_end(SPAN_DEADLINE)?;
    let port = client.port();
    drop(client);

    let peer_port = format!("Int({port})");
    let (connection, close) = receiver.wait_for("both spans of the kill", SPAN_DEADLINE, |spans| {
        let of = |name: &str| {
            spans.iter().find(|span| {
                span.name == name && span.attributes.get("network.peer.port") == Some(&peer_port)
            })
        };
        Some((of("websocket.connection")?.clone(), of("websocket.host_close")?.clone()))
    })?;
    let printed = sidecar.stop()?;
    ensure!(printed.is_empty(), "spans that go to a receiver are not printed");

    ensure!(close.parent_span_id == connection.span_id && close.trace_id == connection.trace_id, "{close:?}");
    ensure!(close.start_unix_ns <= close.end_unix_ns && close.start_unix_ns > 0, "{close:?}");
    ensure!(close.resource.get("service.name").map(String::as_str) == Some("Str(remote-mux)"), "{close:?}");
    ensure!(
        close.resource.get("deployment.environment.name").map(String::as_str) == Some("Str(test)"),
        "{close:?}"
    );
    let address = network.host_address(IpVersion::V4);
    for (key, wanted) in [
        ("network.transport", "Str(tcp)".to_owned()),
        ("network.type", "Str(ipv4)".to_owned()),
        ("network.local.address", format!("Str({address})")),
        ("network.local.port", format!("Int({})", host.address().port())),
        ("process.pid", format!("Int({})", host.pid())),
        ("process.executable.name", "Str(mux-host)".to_owned()),
        ("ackbeat.close.kind", "Str(heartbeat_kill)".to_owned()),
        ("ackbeat.close.initiator", "Str(host)".to_owned()),
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
fn spans_arrive_over_grpc() -> Result<()> {
    received_over("grpc", OtlpReceiver::grpc_endpoint)
}

#[test]
fn spans_arrive_over_http() -> Result<()> {
    received_over("http/protobuf", OtlpReceiver::http_endpoint)
}

/// A receiver that is not there blocks neither the start nor the stop.
#[test]
fn a_receiver_that_is_not_there_blocks_nothing() -> Result<()> {
    let network = Network::create()?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let options = SidecarOptions::port(host.address().port())
        .variable("OTEL_TRACES_EXPORTER", "otlp")
        // An address of the path's own subnet that nobody has.
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", "http://10.87.1.200:4317")
        .variable("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let sidecar = Sidecar::start(&network.host, &options)?;
    let client = Client::connect(Some(&network.client), ClientOptions::new(host.address()))?;
    host.wait_for_pongs(client.port(), 1, SPAN_DEADLINE)?;
    client.close(1000, "");
    client.wait_for_end(SPAN_DEADLINE)?;
    let began = std::time::Instant::now();
    sidecar.stop()?;
    ensure!(began.elapsed() < Duration::from_secs(15), "the drain took {:?}", began.elapsed());
    Ok(())
}
