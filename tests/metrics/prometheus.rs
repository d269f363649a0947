//! Prometheus's own tools.

use std::io::Write as _;
use std::process::{Command, Stdio};

use ackbeat_tests::prometheus::{Prometheus, Series, Target};
use anyhow::{Context as _, Result, ensure};

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
    // The pod's own listening ports are few, and known; nobody else's port or address is a label.
    let arrivals = format!("ackbeat_arrivals_total{{network_local_port=\"{}\"}} 6\n", running::LOCAL_PORT);
    ensure!(page.contains(&arrivals), "{page}");
    let page = page.replace(&arrivals, "");
    for word in [
        running::PEER.to_string(),
        running::PEER_PORT.to_string(),
        running::LOCAL_PORT.to_string(),
        "story-host".to_owned(),
        "secret-path".to_owned(),
    ] {
        ensure!(!page.contains(&word), "{word} is in the page:\n{page}");
    }
    running.stop(crate::DEADLINE).await?;
    Ok(())
}

/// The value of an answer with one series.
fn number(series: &[Series]) -> Option<f64> {
    series.first()?.last()
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_scrapes_it_and_keeps_the_exemplars() -> Result<()> {
    let running = running::start(&[]).await?;
    page_of(&running).await?;
    let target = Target { address: running.address, namespace: "shop".to_owned(), pod: "web-0".to_owned() };
    let prometheus = tokio::task::block_in_place(|| Prometheus::start(None, &[target]))?;
    wait_until("a scrape", || {
        let up = prometheus.query("sum(ackbeat_false_kills_total)")?;
        Ok((number(&up) == Some(3.0), format!("{up:?}")))
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
        ensure!(number(&found).is_some_and(|value| (value - expected).abs() < 1e-9), "{query}: {found:?}");
    }
    // Prometheus chose the form that has them by itself.
    for query in ["ackbeat_false_kills_total", "ackbeat_host_closes_total"] {
        let found = prometheus.exemplars(query)?;
        let (_, exemplar) = found.first().with_context(|| format!("{query} has no exemplar"))?;
        let trace_id = exemplar["trace_id"].as_str().unwrap_or_default();
        ensure!(
            trace_id.len() == 32 && trace_id.chars().all(|digit| digit.is_ascii_hexdigit()),
            "{query}: {found:?}"
        );
    }
    running.stop(crate::DEADLINE).await?;
    Ok(())
}
