//! Rank `namespaces`: the main story, on real sockets, against both hosts.
//!
//! `ACKBEAT_STORY_RUNS` says how often each story is played in a row (once if it is not set).

use std::time::Duration;

use ackbeat_tests::client::{Client, ClientOptions};
use ackbeat_tests::expectations::Expectations;
use ackbeat_tests::mux::{Host, HostOptions};
use ackbeat_tests::namespace::Namespace;
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::{node, spans, story, story_spans};
use anyhow::{Context, Result};

/// The post-mortem's window, the export, and a busy machine.
const SPAN_DEADLINE: Duration = Duration::from_secs(60);

/// How a host is started.
type StartHost = fn(&Namespace, std::net::IpAddr) -> Result<Host>;

fn rust_host(namespace: &Namespace, address: std::net::IpAddr) -> Result<Host> {
    Host::start(Some(namespace), HostOptions::new(address))
}

fn node_host(namespace: &Namespace, address: std::net::IpAddr) -> Result<Host> {
    node::start(Some(namespace), address)
}

fn sidecar(network: &Network, host: &Host) -> Result<Sidecar> {
    let options = SidecarOptions::port(host.address().port()).variable("OTEL_BSP_SCHEDULE_DELAY", "200");
    Sidecar::start(&network.host, &options)
}

fn runs() -> Result<u32> {
    match std::env::var("ACKBEAT_STORY_RUNS") {
        Ok(text) => text.parse().context("ACKBEAT_STORY_RUNS is no number"),
        Err(_) => Ok(1),
    }
}

fn with_siblings(start_host: StartHost, version: IpVersion) -> Result<()> {
    let network = Network::create()?;
    let host = start_host(&network.host, network.host_address(version))?;
    let sidecar = sidecar(&network, &host)?;
    let cast = story::play(&network, &host, |_| {})?;
    let ends = story_spans::collect(sidecar, &cast)?;
    ends.check(host.pid(), 1_950..=2_050)
}

fn without_sibling(start_host: StartHost) -> Result<()> {
    let network = Network::create()?;
    let host = start_host(&network.host, network.host_address(IpVersion::V4))?;
    let sidecar = sidecar(&network, &host)?;
    // The burst is asked for long before the host's first tick after it, whenever that is; with nobody else on the
    // port there is no tick to wait for.
    let slow = story::burst(&network, &host, story::slow_reader(&host))?;
    host.wait_for_kill(slow.port(), SPAN_DEADLINE)?;
    let close = sidecar.wait_for_host_close(slow.port(), SPAN_DEADLINE)?;
    let all = sidecar.stop()?;
    Expectations::of(&close)
        .text("ackbeat.close.kind", &["abort"])
        .text("ackbeat.close.initiator", &["host"])
        .text("ackbeat.close.ws_frame", &["none"])
        .absent("ackbeat.heartbeat.interval_ms")
        .absent("ackbeat.heartbeat.missed")
        .text("ackbeat.heartbeat.source", &["none"])
        // With no heartbeat known, only the kernel's evidence speaks; it never speaks against this client.
        .text("ackbeat.verdict", &["alive", "congested", "stalled"])
        .text("ackbeat.postmortem", &["app_progress", "answered"])
        .text("ackbeat.kill.assessment", &["false_kill"])
        .flag("ackbeat.false_kill", true)
        .error(true)
        .check("the slow reader without siblings")
        .with_context(|| spans::tree(&all, slow.port()))
}

/// The request's own trace shows why the socket died.
fn in_the_requests_trace(start_host: StartHost) -> Result<()> {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PARENT: &str = "00f067aa0ba902b7";
    let network = Network::create()?;
    let host = start_host(&network.host, network.host_address(IpVersion::V4))?;
    let sidecar = sidecar(&network, &host)?;
    let options = ClientOptions {
        mute: true,
        traceparent: Some(format!("00-{TRACE}-{PARENT}-01")),
        ..ClientOptions::new(host.address())
    };
    let client = Client::connect(Some(&network.client), options)?;
    host.wait_for_kill(client.port(), SPAN_DEADLINE)?;
    let close = sidecar.wait_for_host_close(client.port(), SPAN_DEADLINE)?;
    let connection = sidecar.wait_for_connection(client.port(), SPAN_DEADLINE)?;
    anyhow::ensure!(close.trace_id == TRACE && connection.trace_id == TRACE, "{}", connection.trace_id);
    anyhow::ensure!(connection.parent_span_id.as_deref() == Some(PARENT), "{:?}", connection.parent_span_id);
    sidecar.stop().map(drop)
}

fn repeatedly(play: impl Fn() -> Result<()>) -> Result<()> {
    for run in 1..=runs()? {
        play().with_context(|| format!("run {run}"))?;
    }
    Ok(())
}

#[test]
fn node_with_siblings() -> Result<()> {
    repeatedly(|| with_siblings(node_host, IpVersion::V4))
}

#[test]
fn node_without_sibling() -> Result<()> {
    repeatedly(|| without_sibling(node_host))
}

#[test]
fn rust_with_siblings() -> Result<()> {
    repeatedly(|| with_siblings(rust_host, IpVersion::V4))
}

#[test]
fn rust_with_siblings_over_ipv6() -> Result<()> {
    repeatedly(|| with_siblings(rust_host, IpVersion::V6))
}

#[test]
fn rust_without_sibling() -> Result<()> {
    repeatedly(|| without_sibling(rust_host))
}

#[test]
fn a_kill_is_part_of_the_requests_trace() -> Result<()> {
    in_the_requests_trace(node_host)
}
