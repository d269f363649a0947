//! Prometheus's own tools.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};

use ackbeat_tests::process::Process;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::web::{get, percent_encoded};
use crate::{page_of, running, sum, wait_until};

/// `promtool check metrics` reads a page and says what is wrong with it.
fn promtool(page: &str) -> Result<()> {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting promtool failed: install Debian's package prometheus")?;
    promtool.stdin.take().context("promtool has no standard input")?.write_all(page.as_bytes())?;
    let answer = promtool.wait_with_output()?;
    let said =
        [answer.stdout, answer.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    ensure!(answer.status.success() && said.trim().is_empty(), "promtool: {}\n{said}\n{page}", answer.status);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn promtool_finds_nothing_wrong_with_the_page() -> Result<()> {
    let running = running::start(&[]).await?;
    let page = page_of(&running).await?;
    promtool(&page)?;
    // That it would find something is part of the proof.
    ensure!(promtool("# TYPE closes counter\ncloses 1\n").is_err(), "promtool takes anything");

    ensure!((sum(&page, "ackbeat_false_kills_total{") - 3.0).abs() < f64::EPSILON, "{page}");
    ensure!(page.contains("ackbeat_kernel_records_total{outcome=\"dropped\"} 3\n"), "{page}");
    ensure!(page.contains("ackbeat_heartbeat_ping_to_pong_seconds_count 1\n"), "{page}");
    ensure!(page.contains("ackbeat_connections{ackbeat_verdict=\"alive\"} 1\n"), "{page}");
    for word in [
        running::PEER.to_string(),
        running::PEER_PORT.to_string(),
        "48080".to_owned(),
        "story-host".to_owned(),
        "secret-path".to_owned(),
    ] {
        ensure!(!page.contains(&word), "{word} is in the page:\n{page}");
    }
    running.stop(crate::DEADLINE).await?;
    Ok(())
}

/// A Prometheus server of one's own.
struct Server {
    process: Process,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

fn server(target: SocketAddr) -> Result<Server> {
    let folder = tempfile::tempdir()?;
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let mut config = String::from("global:\n  scrape_interval: 1s\nscrape_configs:\n");
    write!(config, "- job_name: ackbeat\n  static_configs:\n  - targets: ['{target}']\n")?;
    let file = folder.path().join("prometheus.yml");
    std::fs::write(&file, config)?;
    let mut command = Command::new("prometheus");
    command
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .arg("--enable-feature=exemplar-storage");
    let process =
        Process::spawn("prometheus", None, command).context("install Debian's package prometheus")?;
    Ok(Server { process, address, _folder: folder })
}

impl Server {
    fn ask(&self, target: &str) -> Result<Value> {
        let (_, body) = get(self.address, target, "application/json")
            .with_context(|| format!("prometheus said: {}", self.process.last_words()))?;
        Ok(serde_json::from_str::<Value>(&body)?["data"].clone())
    }

    fn query(&self, query: &str) -> Result<Value> {
        self.ask(&format!("/api/v1/query?query={}", percent_encoded(query)))
    }
}

/// The value of a query with one answer.
fn number(data: &Value) -> Option<f64> {
    data["result"][0]["value"][1].as_str()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_scrapes_it_and_keeps_the_exemplars() -> Result<()> {
    let running = running::start(&[]).await?;
    page_of(&running).await?;
    let prometheus = server(running.address)?;
    wait_until("Prometheus", || {
        Ok((get(prometheus.address, "/-/ready", "*/*").is_ok(), prometheus.process.last_words()))
    })
    .await?;
    wait_until("a scrape", || {
        let up = prometheus.query("sum(ackbeat_false_kills_total)")?;
        Ok((number(&up) == Some(3.0), prometheus.ask("/api/v1/targets")?.to_string()))
    })
    .await?;
    for (query, expected) in [
        ("ackbeat_false_kill_share_ratio", 0.6),
        ("sum(ackbeat_connection_closes_total)", 5.0),
        ("histogram_quantile(0.5, sum by (le) (ackbeat_tcp_send_queue_bytes_bucket)) <= bool 16384", 1.0),
        ("count(target_info{service_name=\"ackbeat\"})", 1.0),
        ("sum by (job) (ackbeat_host_closes_total{ackbeat_kill_assessment=\"false_kill\"})", 3.0),
    ] {
        let found = prometheus.query(query)?;
        ensure!(number(&found).is_some_and(|value| (value - expected).abs() < 1e-9), "{query}: {found}");
    }
    // Prometheus chose the form that has them by itself.
    for query in ["ackbeat_false_kills_total", "ackbeat_host_closes_total"] {
        let target = format!("/api/v1/query_exemplars?query={query}&start=0&end=9999999999");
        let found = prometheus.ask(&target)?;
        let exemplar = &found[0]["exemplars"][0];
        let trace_id = exemplar["labels"]["trace_id"].as_str().unwrap_or_default();
        ensure!(
            trace_id.len() == 32 && trace_id.chars().all(|digit| digit.is_ascii_hexdigit()),
            "{query}: {found}"
        );
    }
    running.stop(crate::DEADLINE).await?;
    Ok(())
}
