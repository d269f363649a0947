//! Every query of the dashboard, asked of a Prometheus that read a sidecar's page while the main story was played.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use ackbeat_tests::http_get::free_port;
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::mux::{Host, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::prometheus::{Prometheus, SCRAPE_INTERVAL, Series, Target};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::story;
use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::dashboard::{Choice, label_variables, load, panels};

/// The post-mortem's window, the next scrape, and a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
const NAMESPACE: &str = "shop";
const POD: &str = "remote-mux-0";

/// A dashboard that somebody looks at.
struct Viewer<'a> {
    prometheus: &'a Prometheus<'a>,
    dashboard: &'a Value,
    start: SystemTime,
    end: SystemTime,
    choice: Choice,
}

impl Viewer<'_> {
    /// The answers to the queries of a panel, in their order.
    fn panel(&self, panel: &Value) -> Result<Vec<Vec<Series>>> {
        let targets = panel["targets"].as_array().context("a panel without queries")?;
        targets
            .iter()
            .map(|target| {
                let expression = target["expr"].as_str().context("a query without an expression")?;
                let query = self.choice.substitute(self.dashboard, expression)?;
                let answer = if target["instant"] == true {
                    self.prometheus.query(&query)
                } else {
                    self.prometheus.query_range(&query, self.start, self.end, self.choice.interval)
                };
                answer.with_context(|| format!("{}: {query}", panel["title"]))
            })
            .collect()
    }

    fn titled(&self, title: &str) -> Result<Vec<Vec<Series>>> {
        let panel = panels(self.dashboard).into_iter().find(|panel| panel["title"] == title);
        self.panel(panel.with_context(|| format!("no panel is called {title}"))?)
    }

    /// The one number of a panel.
    fn number(&self, title: &str) -> Result<f64> {
        let answers = self.titled(title)?;
        match answers.as_slice() {
            [series] if series.len() == 1 => series[0].last().context("a series has a value"),
            other => anyhow::bail!("{title} is not one number: {other:?}"),
        }
    }
}

fn near(value: f64, wanted: f64, tolerance: f64) -> bool {
    (value - wanted).abs() <= tolerance
}

fn has_data(series: &[Series]) -> bool {
    series.iter().any(|one| one.values.iter().any(|value| !value.is_nan()))
}

#[test]
fn every_panel_has_the_storys_data_and_the_false_kill_is_counted() -> Result<()> {
    let network = Network::create()?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let page = free_port(&network.host)?;
    let options = SidecarOptions::port(host.address().port())
        .variable("OTEL_EXPORTER_PROMETHEUS_PORT", page.to_string())
        .variable("OTEL_BSP_SCHEDULE_DELAY", "200");
    let sidecar = Sidecar::start(&network.host, &options)?;
    let target = Target {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, page)),
        namespace: NAMESPACE.into(),
        pod: POD.into(),
    };
    let prometheus = Prometheus::start(&network.host, &[target])?;
    wait_until("the first readings of the page", DEADLINE, || {
        Ok(prometheus.query("ackbeat_false_kills_total")?.iter().any(|series| series.last() == Some(0.0)))
    })?;
    let start = SystemTime::now();

    let cast = story::play(&network, &host, |_| {})?;
    let slow = sidecar.wait_for_host_close(cast.slow.port(), DEADLINE)?;
    for port in [cast.cut.port(), cast.polite.port()] {
        sidecar.wait_for_host_close(port, DEADLINE)?;
    }
    wait_until("three closes by the host in Prometheus", DEADLINE, || {
        let closes = prometheus.query("sum(ackbeat_host_closes_total)")?;
        Ok(closes.first().and_then(Series::last) == Some(3.0))
    })?;
    // Two readings of the last counts, so that rates have them.
    std::thread::sleep(2 * SCRAPE_INTERVAL);

    let dashboard = load()?;
    let end = SystemTime::now();
    let range = end.duration_since(start).context("the clock went back")? + Duration::from_secs(2);
    let choice =
        Choice { range, interval: 2 * SCRAPE_INTERVAL, scrape_interval: SCRAPE_INTERVAL, chosen: Vec::new() };
    let mut viewer = Viewer { prometheus: &prometheus, dashboard: &dashboard, start, end, choice };

    // Each question has an answer.
    for panel in panels(&dashboard) {
        for (number, series) in viewer.panel(panel)?.iter().enumerate() {
            ensure!(has_data(series), "{}, query {number}: no data: {series:?}", panel["title"]);
        }
    }

    // Are we killing live peers, how many, since when, which pods.
    let false_kills = viewer.number("False kills")?;
    ensure!(near(false_kills, 1.0, 0.0), "one false kill, not {false_kills}");
    let share = viewer.number("Share of ends that were false kills")?;
    ensure!(near(share, 1.0 / 3.0, 0.02), "one of three ends, not {share}");
    let share = viewer.number("Share of ends that were heartbeat kills")?;
    ensure!(near(share, 2.0 / 3.0, 0.02), "two of three ends, not {share}");
    let first_ms = viewer.number("First false kill")?;
    #[expect(clippy::cast_precision_loss, reason = "a time since 1970 in milliseconds has room")]
    let closed_ms = slow.end_unix_ns as f64 / 1e6;
    ensure!(near(first_ms, closed_ms, 10_000.0), "{first_ms} is not about {closed_ms}");
    let by_pod: Vec<(f64, Option<String>)> = viewer
        .titled("Which pods kill live peers")?
        .iter()
        .filter_map(|series| Some((series.first()?.last()?, series.first()?.label("pod").map(str::to_owned))))
        .collect();
    let pod = Some(POD.to_owned());
    ensure!(by_pod == [(1.0, pod.clone()), (2.0, pod.clone()), (3.0, pod)], "{by_pod:?}");
    let closes = viewer.titled("What the closes by this side were")?.concat();
    let accused = closes.iter().find(|series| series.label("ackbeat_kill_assessment") == Some("false_kill"));
    let accused = accused.with_context(|| format!("no false kill in the table: {closes:?}"))?;
    ensure!(
        accused.last() == Some(1.0)
            && accused.label("ackbeat_close_kind") == Some("heartbeat_kill")
            && accused.label("ackbeat_postmortem") == slow.text("ackbeat.postmortem"),
        "{accused:?}"
    );

    // Who is congested: the slow reader was.
    let verdicts = viewer.titled("Connections by verdict")?.concat();
    let most = |verdict: &str| {
        let series = verdicts.iter().find(|series| series.label("ackbeat_verdict") == Some(verdict));
        series.map_or(0.0, |series| series.values.iter().copied().fold(0.0, f64::max))
    };
    ensure!(most("congested") + most("stalled") >= 1.0 && most("alive") >= 1.0, "{verdicts:?}");

    // And ackbeat is well.
    for (title, wanted) in [("Sidecars that report", 1.0), ("Evidence lost", 0.0), ("Spans lost", 0.0)] {
        let found = viewer.number(title)?;
        ensure!(near(found, wanted, 0.0), "{title}: {found}");
    }

    // The variables offer what there is, and choosing leaves out the rest.
    for variable in label_variables(&dashboard) {
        let query = variable["query"]["query"].as_str().context("a variable has a query")?;
        let query = viewer.choice.substitute(&dashboard, query)?;
        let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (selector, label) =
            inside.and_then(|inside| inside.rsplit_once(", ")).context("a query for label values")?;
        let wanted = match label {
            "namespace" => NAMESPACE,
            "pod" => POD,
            _ => "ackbeat",
        };
        let values = prometheus.label_values(selector, label)?;
        ensure!(values == [wanted], "{label}: {values:?}");
    }
    viewer.choice.chosen = vec![("namespace", NAMESPACE), ("pod", POD)];
    ensure!(near(viewer.number("False kills")?, 1.0, 0.0), "the pod is chosen");
    viewer.choice.chosen = vec![("namespace", "elsewhere")];
    ensure!(viewer.titled("False kills")?.concat().is_empty(), "nothing is known of another namespace");

    // From the number to its trace.
    let exemplars = prometheus.exemplars("ackbeat_false_kills_total")?;
    ensure!(
        exemplars.iter().any(|(_, labels)| labels["trace_id"] == slow.trace_id.as_str()),
        "no exemplar leads to {}: {exemplars:?}",
        slow.trace_id
    );
    sidecar.stop().map(drop)
}
