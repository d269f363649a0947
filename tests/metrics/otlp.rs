//! An OTLP receiver that is not ours: the agent of the `PyPI` package `rotel`, which prints every metric that it receives.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Instant;

use ackbeat::metrics::table::INSTRUMENTS;
use ackbeat_tests::process::Process;
use ackbeat_tests::tools;
use anyhow::{Result, ensure};

use crate::{DEADLINE, page_of, running, wait_until};

struct Receiver {
    process: Process,
    grpc_port: u16,
    http_port: u16,
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

async fn receiver() -> Result<Receiver> {
    let (grpc_port, http_port) = (free_port()?, free_port()?);
    let mut command = Command::new(tools::rotel_agent()?);
    command
        .arg("start")
        .args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{grpc_port}")])
        .args(["--otlp-http-endpoint", &format!("127.0.0.1:{http_port}")])
        .args(["--exporter", "blackhole", "--log-format", "json"])
        .args(["--debug-log", "metrics", "--debug-log-verbosity", "detailed"]);
    let process = Process::spawn("rotel", None, command)?;
    wait_until("the receiver's two ports", || {
        let listens = |port: u16| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        Ok((listens(grpc_port) && listens(http_port), process.last_words()))
    })
    .await?;
    Ok(Receiver { process, grpc_port, http_port })
}

impl Receiver {
    /// Names of the metrics that were received.
    fn names(&self) -> BTreeSet<String> {
        self.process.stdout.read(|lines| {
            lines
                .iter()
                .filter_map(|line| {
                    line.trim().strip_prefix("-> Name: ").or_else(|| line.trim().strip_prefix("Name: "))
                })
                .map(str::to_owned)
                .collect()
        })
    }
}

async fn arrive_over(protocol: &str, endpoint: fn(&Receiver) -> String) -> Result<()> {
    let receiver = receiver().await?;
    let running = running::start(&[
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", endpoint(&receiver)),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", protocol.to_owned()),
        // Longer than the test: what arrives is the last export, at the end.
        ("OTEL_METRIC_EXPORT_INTERVAL", "3600000".to_owned()),
    ])
    .await?;
    page_of(&running).await?;
    ensure!(
        running.stop(DEADLINE).await?,
        "the last totals were not exported: {}",
        receiver.process.last_words()
    );
    // There is no API here, nothing is recorded, and whether a verdict changed is up to the clock.
    let absent = |name: &str| {
        name.starts_with("ackbeat.api.")
            || ["ackbeat.recording.lost_lines", "ackbeat.verdict.changes"].contains(&name)
    };
    let expected: BTreeSet<String> = INSTRUMENTS
        .iter()
        .map(|instrument| instrument.name.to_owned())
        .filter(|name| !absent(name))
        .collect();
    wait_until("every metric", || {
        Ok((
            receiver.names().into_iter().filter(|name| !absent(name)).collect::<BTreeSet<_>>() == expected,
            format!("{:?}", receiver.process.stdout.all()),
        ))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_arrives_over_grpc() -> Result<()> {
    arrive_over("grpc", |receiver| format!("http://127.0.0.1:{}", receiver.grpc_port)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_arrives_over_http() -> Result<()> {
    arrive_over("http/protobuf", |receiver| format!("http://127.0.0.1:{}/v1/metrics", receiver.http_port))
        .await
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
