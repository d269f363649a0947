//! Reconnect storms and outages of real connections, and the experiment that `ackbeat storm-lab` plays.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ackbeat::api::types::Storms;
use ackbeat::storm_lab::{FleetReport, Report};
use ackbeat_tests::api::ApiClient;
use ackbeat_tests::metrics_page::MetricsPage;
use ackbeat_tests::network::IpVersion;
use ackbeat_tests::process::Process;
use ackbeat_tests::sidecar::Sidecar;
use ackbeat_tests::tools;
use anyhow::{Context, Result, ensure};

use crate::scene::{SPAN_DEADLINE, Scene, watching};

/// Clients that lose their connection at once.
const CLIENTS: usize = 30;
/// Before this nothing is known to be usual.
const WARM_UP: Duration = Duration::from_secs(21);

/// Where the second sidecar's API listens.
const SECOND_API: &str = "127.0.0.1:9475";

/// The same storm in both modes, by a sidecar each.
#[test]
fn those_who_come_back_at_once_are_a_storm_with_the_closes_that_set_it_off() -> Result<()> {
    let scene = Scene::new(IpVersion::V4)?;
    let second = watching(scene.address.port())
        .argument("--mode", "sock-diag")
        .variable("ACKBEAT_API_LISTEN", SECOND_API)
        .variable("ACKBEAT_METRICS_LISTEN", "off");
    let second = Sidecar::start(&scene.network.host, &second)?;
    let began = Instant::now();
    let first = scene.pair()?;
    let pairs = scene.pairs(CLIENTS - 1)?;
    let ports: Vec<u16> = pairs.iter().map(|pair| pair.client_port).collect();
    // The time is part of the scenario: a port whose usual rate is not known has no storms.
    std::thread::sleep(WARM_UP.saturating_sub(began.elapsed()));
    drop(pairs);
    drop(first);
    let closes = scene.ends(&ports)?;
    // Without kernel programs a close is seen by the next pass, and what comes back before it hides nothing.
    let again = scene.pairs(CLIENTS)?;
    let all = scene.sidecar.wait_for("the storm's span", SPAN_DEADLINE, |all| {
        all.iter().any(|span| span.name == "reconnect.storm").then(|| all.to_vec())
    })?;
    let storms: Vec<_> = all.iter().filter(|span| span.name == "reconnect.storm").collect();
    ensure!(storms.len() == 1, "{storms:?}");
    let storm = storms.first().context("there is one")?;
    ensure!(storm.local_port() == Some(scene.address.port()), "{storm:?}");
    let number = |key| storm.number(key).unwrap_or_default();
    let came_back = i64::try_from(CLIENTS)?;
    ensure!(number("ackbeat.storm.arrivals") == came_back, "{storm:?}");
    ensure!((5..=came_back).contains(&number("ackbeat.storm.peak_per_second")), "{storm:?}");
    ensure!(number("ackbeat.storm.closes") == came_back, "{storm:?}");
    ensure!(number("ackbeat.storm.peers") == 1, "all come from one address: {storm:?}");
    ensure!(storm.text("ackbeat.storm.end") == Some("calm"), "{storm:?}");
    ensure!(!storm.attributes.contains_key("ackbeat.storm.period_ms"), "one crowd has no period: {storm:?}");
    // The links lead to the closes' own spans.
    let linked: Vec<&str> = storm.links.iter().filter_map(|link| link["span_id"].as_str()).collect();
    ensure!(linked.len() >= CLIENTS - 2, "{} links", linked.len());
    ensure!(linked.iter().all(|id| all.iter().any(|span| span.span_id == *id)), "{linked:?}");
    let known = closes.iter().filter(|close| linked.contains(&close.span_id.as_str())).count();
    ensure!(known >= CLIENTS - 2, "{known} of {} closes are linked", closes.len());
    // The API and the metrics say the same.
    let (status, body) = ApiClient::of(&scene.network.host)?.get("/v1/storms")?;
    ensure!(status == 200, "{status}: {body}");
    let told: Storms = serde_json::from_str(&body)?;
    let port = told.ports.first().context("the port is told of")?;
    ensure!((port.port, port.storms) == (scene.address.port(), 1), "{port:?}");
    ensure!(port.arrivals == 2 * CLIENTS as u64, "{port:?}");
    ensure!(told.recent.len() == 1 && told.recent[0].arrivals == CLIENTS as u64, "{:?}", told.recent);
    let page = SocketAddr::from(([127, 0, 0, 1], 9_464));
    let page = MetricsPage::read(&scene.network.host, page)?;
    let value = |name: &str| page.samples.iter().find(|sample| sample.name == name);
    let storms = value("ackbeat_reconnect_storms_total").context("storms are counted")?;
    ensure!((storms.value - 1.0).abs() < f64::EPSILON, "{storms:?}");
    let arrivals = value("ackbeat_arrivals_total").context("arrivals are counted")?;
    let label = arrivals.labels.get("network_local_port").map(String::as_str);
    ensure!(label == Some(scene.address.port().to_string().as_str()), "{arrivals:?}");
    without_kernel_programs(&scene, &second)?;
    drop(again);
    second.stop()?;
    scene.sidecar.stop()?;
    Ok(())
}

/// What mode sock-diag says of the same storm, and what it says that it misses.
fn without_kernel_programs(scene: &Scene, sidecar: &Sidecar) -> Result<()> {
    let storm = sidecar.wait_for("the storm's span in mode sock-diag", SPAN_DEADLINE, |all| {
        all.iter().find(|span| span.name == "reconnect.storm").cloned()
    })?;
    let number = |key| storm.number(key).unwrap_or_default();
    let came_back = i64::try_from(CLIENTS)?;
    ensure!(storm.text("ackbeat.mode") == Some("sock_diag"), "{storm:?}");
    ensure!(storm.local_port() == Some(scene.address.port()), "{storm:?}");
    ensure!(number("ackbeat.storm.arrivals") == came_back, "{storm:?}");
    ensure!(number("ackbeat.storm.peak_per_second") >= 5, "{storm:?}");
    ensure!(number("ackbeat.storm.closes") >= 1, "{storm:?}");
    let told: Storms = ApiClient::at(&scene.network.host, SECOND_API.parse()?).read("/v1/storms")?;
    ensure!(told.recent.len() == 1 && told.recent[0].arrivals == CLIENTS as u64, "{:?}", told.recent);
    let missing: Vec<&str> = told.missing.iter().map(|missing| missing.signal.as_str()).collect();
    for signal in ["openings", "short connections", "closing process", "reconnects"] {
        ensure!(missing.contains(&signal), "{missing:?}");
    }
    let with_programs: Storms = ApiClient::of(&scene.network.host)?.read("/v1/storms")?;
    ensure!(with_programs.missing.is_empty(), "{:?}", with_programs.missing);
    Ok(())
}

/// The experiment of report C, three times as fast and with less time between the outages.
#[test]
fn the_experiment_tells_the_fixed_interval_from_full_jitter() -> Result<()> {
    let mut command = std::process::Command::new(tools::ackbeat()?);
    command.args(["storm-lab", "--duration", "240s", "--every", "30s", "--time-compression", "3", "--json"]);
    let mut lab = Process::spawn("storm-lab", None, command)?;
    let status = lab.wait(Duration::from_secs(240))?;
    ensure!(status.success(), "{}", lab.last_words());
    let text = lab.stdout.read(|lines| lines.join("\n"));
    let report: Report = serde_json::from_str(&text).with_context(|| text.clone())?;
    let [fixed, jitter] = report.fleets.as_slice() else { anyhow::bail!("{text}") };
    ensure!(fixed.resonates_at_the_fixed_interval(), "{:?}", fixed.resonance);
    ensure!(jitter.resonance.is_none(), "{:?}", jitter.resonance);
    ensure!(fixed.can_tell_a_period(), "{text}");
    ensure!(fixed.storms > 0, "{text}");
    for fleet in &report.fleets {
        ensure!(fleet.successes > 0 && fleet.attempts > fleet.successes, "{text}");
        lossy_peers_are_not_accused(fleet)?;
        ensure!(fleet.outages.len() >= 5 && fleet.outages_made_up == 0, "{text}");
        for outage in fleet.outages.iter().filter(|outage| outage.seen) {
            ensure!(outage.is_right(), "{outage:?}: {text}");
        }
    }
    // Three times as fast, an outage leaves TCP's own timers just time enough to tell it, and of a fleet that backs off hardly
    // anybody may be connected when the next one begins.
    let seen = |fleet: &FleetReport| fleet.outages.iter().filter(|outage| outage.seen).count();
    ensure!(seen(fixed) + 1 >= fixed.outages.len(), "{text}");
    ensure!(seen(jitter) * 2 >= jitter.outages.len(), "{text}");
    Ok(())
}

/// Of their time, those who are lossy but alive are called unreachable or silent for this part at most.
const MISTAKEN_SHARE_MAX: f64 = 0.05;

/// No kill of anybody who is there is justified. Where every packet may be lost, whole round trips are lost in a row by chance:
/// that is said while it lasts, and taken back before it would justify anything.
fn lossy_peers_are_not_accused(fleet: &FleetReport) -> Result<()> {
    let (unreachable, silent) = (fleet.called_unreachable, fleet.called_silent);
    ensure!(fleet.watched_s > 0.0 && fleet.false_kills_justified == 0, "{fleet:?}");
    let mistaken_s = unreachable.total_s + silent.total_s;
    ensure!(mistaken_s <= MISTAKEN_SHARE_MAX * fleet.watched_s, "{mistaken_s} s of {fleet:?}");
    Ok(())
}

/// A client that has gone is no test: that both ends are there is what the storm is about.
#[test]
fn an_outage_of_all_peers_is_told_with_its_beginning_and_its_end() -> Result<()> {
    let scene = Scene::new(IpVersion::V4)?;
    let mut pairs = scene.pairs(8)?;
    let ports: Vec<u16> = pairs.iter().map(|pair| pair.client_port).collect();
    exchange(pairs.iter_mut().map(|pair| &mut pair.host))?;
    scene.network.cut_all(&ports)?;
    exchange(pairs.iter_mut().map(|pair| &mut pair.host))?;
    let api = ApiClient::of(&scene.network.host)?;
    let mut outage_age_ms = None;
    ackbeat_tests::journal::wait_until("the outage", Duration::from_secs(60), || {
        let told: Storms = serde_json::from_str(&api.get("/v1/storms")?.1)?;
        outage_age_ms = told.ports.first().and_then(|port| port.outage_age_ms);
        Ok(outage_age_ms.is_some())
    })?;
    ensure!(outage_age_ms.is_some_and(|age_ms| age_ms >= 1_000), "{outage_age_ms:?}");
    scene.network.heal_all(&ports)?;
    ackbeat_tests::journal::wait_until("its end", Duration::from_secs(60), || {
        let told: Storms = serde_json::from_str(&api.get("/v1/storms")?.1)?;
        Ok(told.ports.first().is_some_and(|port| port.outage_age_ms.is_none()))
    })?;
    scene.sidecar.stop()?;
    Ok(())
}

/// Something is written to every client.
fn exchange<'a>(hosts: impl Iterator<Item = &'a mut TcpStream>) -> Result<()> {
    use std::io::Write as _;
    for host in hosts {
        host.write_all(b"are you there?").context("writing to a client failed")?;
    }
    Ok(())
}
