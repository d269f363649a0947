//! Planned restarts against kills and crashes, and what a kill costs the peer that comes back.

use std::process::Command;
use std::time::{Duration, Instant};

use ackbeat_tests::client::{Client, ClientOptions};
use ackbeat_tests::expectations::Expectations;
use ackbeat_tests::metrics_page::MetricsPage;
use ackbeat_tests::mux::{Ask, Host, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::spans::Span;
use ackbeat_tests::{node, story};
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use super::scene::{Ended, SPAN_DEADLINE, end_by_signal, watching};

const DEADLINE: Duration = Duration::from_secs(60);

fn says_goodbye(network: &Network, host: &Host) -> Result<()> {
    let sidecar = Sidecar::start(&network.host, &watching(host.address().port()))?;
    for (code, reason, kind, is_final) in [
        (1001, "", "planned_restart", false),
        (1012, "deploying", "planned_restart", false),
        (4001, "server_restart", "planned_restart", false),
        (4001, "logged out", "graceful", true),
        (1008, "", "graceful", true),
        (1000, "", "graceful", false),
    ] {
        let client = Client::connect(Some(&network.client), ClientOptions::new(host.address()))?;
        client.ask(&Ask::Leave { code, reason: reason.to_owned() });
        client.wait_for_end(DEADLINE)?;
        let close = sidecar.wait_for_host_close(client.port(), SPAN_DEADLINE)?;
        Expectations::of(&close)
            .text("ackbeat.close.kind", &[kind])
            .text("ackbeat.close.initiator", &["host"])
            .number("ackbeat.close.ws_code", i64::from(code)..=i64::from(code))
            .flag("ackbeat.close.final", is_final)
            .flag("ackbeat.false_kill", false)
            .absent("ackbeat.kill.assessment")
            .error(false)
            .check(&format!("a close with {code} {reason}"))?;
    }
    sidecar.stop().map(drop)
}

#[test]
fn a_host_that_says_that_it_restarts_kills_nobody() -> Result<()> {
    let network = Network::create()?;
    let address = network.host_address(IpVersion::V4);
    says_goodbye(&network, &Host::start(Some(&network.host), HostOptions::new(address))?)
}

#[test]
fn a_host_on_node_that_says_that_it_restarts_kills_nobody() -> Result<()> {
    let network = Network::create()?;
    let host = node::start(Some(&network.host), network.host_address(IpVersion::V4))?;
    says_goodbye(&network, &host)
}

const TIMES: usize = 5;
/// Where the sidecar's page is, in its own namespace.
const METRICS: &str = "127.0.0.1:9464";

/// A process that holds connections and ends by a signal that it does not handle: what the sidecar says of each.
fn ends_by(signal: Signal, wrapped: bool) -> Result<(Vec<Span>, MetricsPage)> {
    let network = Network::create()?;
    let address = network.host_address(IpVersion::V4);
    let program = env!("CARGO_BIN_EXE_holder");
    let mut command = Command::new(if wrapped { "sh" } else { program });
    if wrapped {
        // A shell that waits: whoever stops the pod stops this one, and it stops its child by another signal.
        let script = "\"$1\" \"$2\" & child=$!; trap 'kill -KILL $child' TERM; wait $child; wait";
        command.args(["-c", script, "sh", program]);
    }
    command.arg(address.to_string());
    let Ended { closes, sidecar, .. } = end_by_signal(&network, command, TIMES, signal)?;
    let page = MetricsPage::read(&network.host, METRICS.parse()?)?;
    sidecar.stop()?;
    Ok((closes, page))
}

/// Closes by the host of this kind; a series that has no event is not there.
fn host_closes(page: &MetricsPage, kind: &str) -> u64 {
    page.count("ackbeat_host_closes_total", Some(("ackbeat_close_kind", kind))).unwrap_or(0)
}

#[test]
fn a_host_that_is_told_to_stop_and_exits_at_once_restarts() -> Result<()> {
    for wrapped in [false, true] {
        let (spans, page) = ends_by(Signal::SIGTERM, wrapped)?;
        for span in &spans {
            Expectations::of(span)
                .text("ackbeat.close.kind", &["planned_restart"])
                .text("ackbeat.close.initiator", &["host"])
                .text("process.executable.name", &["holder"])
                .absent("ackbeat.kill.assessment")
                .flag("ackbeat.false_kill", false)
                .check(&format!("a stop (behind a shell: {wrapped})"))?;
        }
        // Closes of this side, and in no count of kills.
        ensure!(host_closes(&page, "planned_restart") == TIMES as u64, "{page:?}");
        ensure!(page.count("ackbeat_false_kills_total", None)? == 0, "{page:?}");
        for share in ["ackbeat_false_kill_share_ratio", "ackbeat_heartbeat_kill_share_ratio"] {
            let sample = page.samples.iter().find(|sample| sample.name == share);
            ensure!(sample.context("no share")?.value.abs() < f64::EPSILON, "{page:?}");
        }
    }
    Ok(())
}

#[test]
fn a_host_that_crashes_exits() -> Result<()> {
    let (spans, page) = ends_by(Signal::SIGKILL, false)?;
    for span in &spans {
        Expectations::of(span)
            .text("ackbeat.close.kind", &["process_exit"])
            .text("process.executable.name", &["holder"])
            .text("ackbeat.kill.assessment", &["false_kill", "premature", "justified", "unknown"])
            .check("a crash")?;
    }
    ensure!(host_closes(&page, "process_exit") == TIMES as u64, "{page:?}");
    ensure!(host_closes(&page, "planned_restart") == 0, "{page:?}");
    Ok(())
}

/// The sidecar is told first, as in a pod whose containers are all told at once.
#[test]
fn what_closes_after_the_sidecar_was_told_to_stop_restarts() -> Result<()> {
    let network = Network::create()?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let options = watching(host.address().port()).variable("ACKBEAT_SHUTDOWN_DRAIN_MS", "30000");
    let mut sidecar = Sidecar::start(&network.host, &options)?;
    let client = Client::connect(Some(&network.client), ClientOptions::new(host.address()))?;
    sidecar.signal(Signal::SIGTERM)?;
    ackbeat_tests::journal::wait_until("the drain", DEADLINE, || {
        Ok(sidecar.log().iter().any(|line| line.contains("stopping: what is open")))
    })?;
    client.ask(&Ask::Leave { code: 1000, reason: String::new() });
    client.wait_for_end(DEADLINE)?;
    let close = sidecar.wait_for_host_close(client.port(), SPAN_DEADLINE)?;
    Expectations::of(&close)
        .text("ackbeat.close.kind", &["planned_restart"])
        .absent("ackbeat.kill.assessment")
        .check("a close during the drain")
}

fn killed_and_back(options: &SidecarOptions, forwarded_for: Option<&str>) -> Result<(Span, Span, Duration)> {
    let network = Network::create()?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let mut all = options.clone();
    all.ports = vec![host.address().port()];
    let sidecar = Sidecar::start(&network.host, &all)?;
    let healthy = Client::connect(Some(&network.client), ClientOptions::new(host.address()))?;
    host.wait_for_pongs(healthy.port(), story::LEARNING_PONGS, DEADLINE)?;
    let slow = ClientOptions { forwarded_for: forwarded_for.map(str::to_owned), ..story::slow_reader(&host) };
    let slow = story::burst(&network, &host, slow)?;
    host.wait_for_kill(slow.port(), DEADLINE)?;
    let killed = Instant::now();
    // Its post-mortem is over, and everything about it told, before anybody is back.
    let close = sidecar.wait_for_host_close(slow.port(), SPAN_DEADLINE)?;
    let back = Client::connect(
        Some(&network.client),
        ClientOptions {
            forwarded_for: forwarded_for.map(str::to_owned),
            ..ClientOptions::new(host.address())
        },
    )?;
    let after = killed.elapsed();
    back.close(1000, "");
    let root = sidecar.wait_for_connection(back.port(), SPAN_DEADLINE)?;
    sidecar.stop()?;
    Ok((close, root, after))
}

#[test]
fn a_peer_that_comes_back_after_a_false_kill_links_to_it() -> Result<()> {
    let (close, root, after) = killed_and_back(&watching(0), None)?;
    ensure!(close.flag("ackbeat.false_kill") == Some(true), "{close:?}");
    let after_ms = root.number("ackbeat.reconnect.after_ms").context("the peer is not known again")?;
    let told = Duration::from_millis(u64::try_from(after_ms)?);
    println!("told {told:?}, took {after:?}");
    // Both measure the same, up to what a busy machine adds to one of them.
    let apart = told.abs_diff(after);
    ensure!(apart < after / 5 + Duration::from_secs(1), "told {told:?}, took {after:?}");
    ensure!(
        root.text("ackbeat.reconnect.close_kind") == close.text("ackbeat.close.kind"),
        "{root:?}\n{close:?}"
    );
    ensure!(root.links.len() == 1, "{root:?}");
    let link = &root.links[0];
    ensure!(
        link["trace_id"] == close.trace_id.as_str() && link["span_id"] == close.span_id.as_str(),
        "{link} is not {close:?}"
    );
    ensure!(link["attributes"]["ackbeat.kill.assessment"] == "false_kill", "{link}");
    Ok(())
}

/// What is seen of both is the proxy's address.
#[test]
fn nobody_is_known_again_behind_a_proxy() -> Result<()> {
    let (close, root, _) = killed_and_back(&watching(0), Some("10.9.8.7"))?;
    ensure!(close.text("ackbeat.evidence.scope") == Some("next_hop"), "{close:?}");
    ensure!(root.number("ackbeat.reconnect.after_ms").is_none() && root.links.is_empty(), "{root:?}");
    Ok(())
}
