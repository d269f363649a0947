//! An OTLP receiver that is not ours: the agent of the `PyPI` package `rotel`, which prints every metric that it receives.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Instant;

use ackbeat::metrics::table::INSTRUMENTS;
use ackbeat_tests::otlp_receiver::{OtlpPorts, OtlpReceiver};
use anyhow::{Result, ensure};

use crate::{DEADLINE, page_of, running, wait_until};

/// Names of the metrics that were received.
fn names(receiver: &OtlpReceiver) -> BTreeSet<String> {
    receiver.points().into_iter().map(|point| point.name).collect()
}

async fn arrive_over(protocol: &str, path: &str) -> Result<()> {
    let ports = OtlpPorts::free(None)?;
    let receiver = tokio::task::block_in_place(|| OtlpReceiver::start(None, ports))?;
    let running = running::start(&[
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", format!("{}{path}", ports.endpoint(protocol))),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", protocol.to_owned()),
        // Longer than the test: what arrives is the last export, at the end.
        ("OTEL_METRIC_EXPORT_INTERVAL", "3600000".to_owned()),
    ])
    .await?;
    page_of(&running).await?;
    ensure!(running.stop(DEADLINE).await?, "the last totals were not exported: {}", receiver.last_words());
    // There is no API here and no Kubernetes, no configuration is read anew, nothing is recorded, no socket is counted or reaped, nobody
    // comes back again and again, and whether a verdict changed is up to the clock.
    const ABSENT: [&str; 6] = [
        "ackbeat.config.reloads",
        "ackbeat.leak.reaps",
        "ackbeat.reconnect.period",
        "ackbeat.recording.lost_lines",
        "ackbeat.sockets",
        "ackbeat.verdict.changes",
    ];
    let absent = |name: &str| {
        name.starts_with("ackbeat.api.") || name.starts_with("ackbeat.kubernetes.") || ABSENT.contains(&name)
    };
    let expected: BTreeSet<String> = INSTRUMENTS
        .iter()
        .map(|instrument| instrument.name.to_owned())
        .filter(|name| !absent(name))
        .collect();
    wait_until("every metric", || {
        Ok((
            names(&receiver).into_iter().filter(|name| !absent(name)).collect::<BTreeSet<_>>() == expected,
            format!("{:?}", receiver.points()),
        ))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_arrives_over_grpc() -> Result<()> {
    arrive_over("grpc", "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_arrives_over_http() -> Result<()> {
    arrive_over("http/protobuf", "/v1/metrics").await
}

/// A receiver that takes connections and never answers costs nobody more than the deadline of the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_never_answers_holds_up_nothing() -> Result<()> {
    let hole = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let running = running::start(&[
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", format!("http://{}/v1/metrics", hole.local_addr()?)),
        ("OTEL_METRIC_EXPORT_INTERVAL", "20".to_owned()),
    ])
    .await?;
    // Closes are told and the page is read meanwhile.
    page_of(&running).await?;
    let start = Instant::now();
    ensure!(!running.stop(std::time::Duration::from_millis(300)).await?, "nobody took the last totals");
    // One export alone would take its ten seconds.
    ensure!(start.elapsed() < std::time::Duration::from_secs(8), "the end took {:?}", start.elapsed());
    Ok(())
}
