//! Rank `namespaces`: spans and metrics received by two OTLP receivers that are not ours, over gRPC and over HTTP.

use std::time::Duration;

use ackbeat_tests::client::{Client, ClientOptions};
use ackbeat_tests::mux::{Host, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use anyhow::{Result, ensure};

mod arrival;
mod outage;
mod receivers;

/// The post-mortem's window, the export, and a busy machine.
const SPAN_DEADLINE: Duration = Duration::from_secs(60);

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
