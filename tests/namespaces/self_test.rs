//! At its start the sidecar makes a connection of its own, and says which hook did not see it.

use std::process::{Command, Stdio};
use std::time::Duration;

use ackbeat_tests::api::ApiClient;
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::Sidecar;
use ackbeat_tests::{sockets, spans, tools};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::scene::{pair, watching};

/// Tells a debug build which programs to load without attaching them.
const UNATTACHED: &str = "ACKBEAT_TEST_UNATTACHED";
/// The post-mortem's window, the export, and a busy machine.
const SPAN_DEADLINE: Duration = Duration::from_secs(60);

/// What a sidecar says of itself, and what it logged, where these programs are blind.
fn start_blind(programs: &str) -> Result<(Value, Vec<String>)> {
    let network = Network::create()?;
    let address = network.host_address(IpVersion::V4);
    let (listener, address) = network.host.run(|| sockets::listen(address))??;
    let sidecar = Sidecar::start(&network.host, &watching(address.port()).variable(UNATTACHED, programs))?;
    let body = ApiClient::of(&network.host)?.wait_until_ready()?;
    // Whatever is blind, the app's own connections are still watched.
    let pair = pair(&network, &listener, address)?;
    let port = pair.client_port;
    let peer = std::net::SocketAddr::new(network.client_address(IpVersion::V4), port);
    let api = ApiClient::of(&network.host)?;
    wait_until("the app's connection", SPAN_DEADLINE, || Ok(api.verdict(peer).is_ok()))?;
    drop(pair.client);
    drop(pair.host);
    sidecar.wait_for_connection(port, SPAN_DEADLINE)?;
    let (all, log) = sidecar.stop_with_log()?;
    ensure!(
        all.iter().all(|span| span.local_port() == Some(address.port())),
        "the self-test's own connections are reported: {all:?}"
    );
    ensure!(spans::connection(&all, port).is_some(), "the app's connection is not");
    Ok((serde_json::from_str(&body).with_context(|| format!("/readyz: {body}"))?, log))
}

#[test]
fn every_hook_sees_the_self_test_here() -> Result<()> {
    let (readiness, log) = start_blind("")?;
    ensure!(readiness == json!({ "ready": true, "mode": "ebpf", "missing_signals": [] }), "{readiness}");
    for words in ["unavailable", "were not tested at start"] {
        ensure!(!log.iter().any(|line| line.contains(words)), "{log:?}");
    }
    Ok(())
}

#[test]
fn check_runs_the_self_test() -> Result<()> {
    let network = Network::create()?;
    let mut command = Command::new(tools::ackbeat()?);
    command.arg("check").stdin(Stdio::null());
    let check = network.host.run(move || command.output())?.context("starting ackbeat failed")?;
    let table = String::from_utf8_lossy(&check.stdout).into_owned();
    let is_good = |line: &str| line.starts_with("ok ") && line.contains("self-test");
    ensure!(table.lines().any(is_good), "{table}");
    ensure!(check.status.success(), "{table}");
    Ok(())
}

#[test]
fn check_says_why_a_self_test_could_not_run() -> Result<()> {
    let network = Network::create()?;
    ackbeat_tests::process::run(Some(&network.host), "ip", &["link", "set", "lo", "down"])?;
    let mut command = Command::new(tools::ackbeat()?);
    command.arg("check").stdin(Stdio::null());
    let check = network.host.run(move || command.output())?.context("starting ackbeat failed")?;
    let table = String::from_utf8_lossy(&check.stdout).into_owned();
    let says_why = |line: &str| line.starts_with("without ") && line.contains("self-test");
    ensure!(table.lines().any(says_why), "{table}");
    ensure!(table.contains("loopback interface"), "{table}");
    Ok(())
}

#[test]
fn a_blind_hook_is_a_missing_signal() -> Result<()> {
    let (readiness, log) = start_blind("send_reset")?;
    ensure!(
        readiness == json!({ "ready": true, "mode": "ebpf", "missing_signals": ["resets_sent"] }),
        "{readiness}"
    );
    let says_so = |line: &String| line.contains("unavailable") && line.contains("send_reset is attached");
    ensure!(log.iter().any(says_so), "{log:?}");
    Ok(())
}

#[test]
fn half_a_wire_parser_is_taken_off() -> Result<()> {
    for program in ["wire_ingress", "wire_egress"] {
        let (readiness, log) = start_blind(program)?;
        ensure!(
            readiness == json!({ "ready": true, "mode": "ebpf", "missing_signals": ["heartbeats"] }),
            "{program}: {readiness}"
        );
        let says_so = |line: &String| {
            line.contains("unavailable")
                && line.contains(&format!("{program} is attached to the loopback interface"))
        };
        ensure!(log.iter().any(says_so), "{program}: {log:?}");
    }
    Ok(())
}

#[test]
fn without_the_lifecycle_hook_it_goes_on_with_sock_diag() -> Result<()> {
    let (readiness, log) = start_blind("lifecycle")?;
    ensure!(readiness["mode"] == "sock_diag", "{readiness}");
    let says_why = |line: &String| line.contains("kernel program lifecycle is attached but did not see");
    ensure!(log.iter().any(says_why), "{log:?}");
    Ok(())
}
