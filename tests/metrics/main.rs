//! Rank `in-process`: the metrics of a running pipeline, read by programs that are not ours: promtool and Prometheus
//! (Debian's package `prometheus`), and an OTLP receiver (`rotel`, from PyPI).

mod otlp;
mod prometheus;
mod running;

use std::time::{Duration, Instant};

use ackbeat_tests::http_get;
use anyhow::Result;

/// Generous: the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// Asks again and again, until `condition` holds; `told` is what it saw last.
async fn wait_until(what: &str, mut condition: impl FnMut() -> Result<(bool, String)>) -> Result<()> {
    let start = Instant::now();
    loop {
        let (holds, told) = condition()?;
        if holds {
            return Ok(());
        }
        anyhow::ensure!(start.elapsed() < DEADLINE, "{what} did not come: {told}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The page, once every close of the story is in it, and a sweep that saw the one connection that is left.
async fn page_of(running: &running::Running) -> Result<String> {
    let read = || http_get::get(None, running.address, "/metrics");
    wait_until("the story's closes", || {
        let page = read()?;
        let closes: f64 = sum(&page, "ackbeat_connection_closes_total{");
        let is_one_left = (sum(&page, "ackbeat_connections{") - 1.0).abs() < f64::EPSILON;
        Ok((closes >= 5.0 && is_one_left, page))
    })
    .await?;
    read()
}

/// The sum of a family's series.
fn sum(page: &str, family: &str) -> f64 {
    page.lines()
        .filter(|line| line.starts_with(family))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}
