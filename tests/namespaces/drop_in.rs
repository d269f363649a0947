//! Ask before you kill: the main story on hosts whose heartbeat asks the sidecar first, with the clients of `sidecar/clients`.
//!
//! Where the watchdog that counts kills the slow reader after three ticks, nobody kills it here; the client whose path is cut is
//! closed all the same, once the policy justifies it.

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

use ackbeat_liveness::Policy;
use ackbeat_tests::client::{Client, ClientOptions, Seen};
use ackbeat_tests::clock::{elapsed_ms, monotonic_ns};
use ackbeat_tests::expectations::Expectations;
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::mux::{Host, HostAction, WATCHDOG_INTERVAL};
use ackbeat_tests::namespace::Namespace;
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::process::Process;
use ackbeat_tests::sidecar::Sidecar;
use ackbeat_tests::{spans, story, tools};
use anyhow::{Context, Result};

use crate::scene::{SPAN_DEADLINE, watching};

/// Kills, closes and Pongs are waited for this long, on a busy machine too.
const DEADLINE: Duration = Duration::from_secs(60);
/// What the watchdog that counts needs to kill.
const NAIVE_KILL: Duration = WATCHDOG_INTERVAL.saturating_mul(3);
/// Code and reason of a kill (RFC 6455 section 7.4.1).
const CODE: u16 = 1011;
const REASON: &str = "heartbeat timeout";

/// How a host is started.
type StartHost = fn(&Namespace, IpAddr) -> Result<Host>;

fn start(command: Command, namespace: &Namespace, address: IpAddr) -> Result<Host> {
    let mut command = command;
    command.arg(address.to_string());
    Host::from_process(Process::spawn("the host that asks", Some(namespace), command)?, address)
}

fn node(program: &str, namespace: &Namespace, address: IpAddr) -> Result<Host> {
    let mut command = Command::new("node");
    command.current_dir(tools::node_directory()?).arg(tools::source("node").join(program));
    start(command, namespace, address)
}

fn node_package(namespace: &Namespace, address: IpAddr) -> Result<Host> {
    node("drop-in-host.mjs", namespace, address)
}

fn node_recipe(namespace: &Namespace, address: IpAddr) -> Result<Host> {
    node("recipe-host.mjs", namespace, address)
}

fn python(namespace: &Namespace, address: IpAddr) -> Result<Host> {
    let mut command = Command::new(tools::python()?);
    // Compiled files would be left beside the sources.
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(tools::source("python/drop-in-host.py"));
    start(command, namespace, address)
}

fn rust(namespace: &Namespace, address: IpAddr) -> Result<Host> {
    start(Command::new(tools::own_program("drop_in_host")?), namespace, address)
}

fn kills(host: &Host) -> Vec<u16> {
    host.events.read(|events| {
        let killed = events.iter().filter(|event| matches!(event.what, HostAction::Killed { .. }));
        killed.map(|event| event.peer_port).collect()
    })
}

/// Waits until the slow reader has read for as long as the watchdog that counts needs to kill it `times` times.
fn outlives_the_watchdog(slow: &Client, times: u32) -> Result<()> {
    let bytes = u64::from(story::SLOW_BYTES_PER_SECOND) * (times * NAIVE_KILL).as_secs();
    let from = slow.bytes_read();
    wait_until("bytes that the slow reader reads", times * NAIVE_KILL + DEADLINE, || {
        Ok(slow.bytes_read() >= from + bytes)
    })
}

fn is_open(client: &Client) -> bool {
    client.events.read(|seen| {
        let is_end = |what: &Seen| matches!(what, Seen::Ended { .. } | Seen::CloseFrame { .. });
        !seen.iter().any(|event| is_end(&event.what))
    })
}

/// The main story; the slow reader lives for `times` kills of the watchdog that counts. `tells` says whether the host tells the
/// sidecar of its Close frame.
fn plays_the_story(start_host: StartHost, version: IpVersion, times: u32, tells: bool) -> Result<()> {
    let network = Network::create()?;
    let host = start_host(&network.host, network.host_address(version))?;
    let sidecar = Sidecar::start(&network.host, &watching(host.address().port()))?;
    let connect = || Client::connect(Some(&network.client), ClientOptions::new(host.address()));
    let (healthy, cut) = (connect()?, connect()?);
    for client in [&healthy, &cut] {
        host.wait_for_pongs(client.port(), story::LEARNING_PONGS, DEADLINE)?;
    }
    let slow = story::burst(&network, &host, story::slow_reader(&host))?;
    network.cut(cut.port())?;
    let cut_at_ns = monotonic_ns();

    let killed = host.wait_for_kill(cut.port(), DEADLINE)?;
    let after_ms = elapsed_ms(cut_at_ns, killed.at_ns);
    // Nothing came since the cut; what had come before it, at most an interval before.
    let interval_ms = u64::try_from(WATCHDOG_INTERVAL.as_millis()).context("an interval fits")?;
    let policy_ms = Policy::default_policy().unreachable_after_ms;
    anyhow::ensure!(
        after_ms + interval_ms >= policy_ms,
        "killed {after_ms} ms after the cut, before the policy's time"
    );
    host.wait_for("Close frame", cut.port(), DEADLINE, |what| *what == HostAction::Closing { code: CODE })?;
    outlives_the_watchdog(&slow, times)?;
    let close = sidecar.wait_for_host_close(cut.port(), SPAN_DEADLINE)?;
    anyhow::ensure!(kills(&host) == [cut.port()], "killed: {:?}", kills(&host));
    anyhow::ensure!(is_open(&slow) && is_open(&healthy), "somebody was closed");
    let all = sidecar.stop()?;

    let expected = Expectations::of(&close)
        .text("ackbeat.close.initiator", &["host"])
        .text("ackbeat.verdict", &["unreachable"])
        .text("ackbeat.postmortem", &["no_answer"])
        .error(false);
    let expected = if tells {
        expected
            .number("ackbeat.close.ws_code", i64::from(CODE)..=i64::from(CODE))
            .text("ackbeat.close.ws_reason", &[REASON])
            .text("ackbeat.close.ws_frame", &["sent"])
            .text("ackbeat.close.kind", &["heartbeat_kill"])
            .text("ackbeat.kill.assessment", &["justified"])
    } else {
        // The frame stays in the send queue behind the Pings, and nobody but the host knows of it.
        expected.absent("ackbeat.close.ws_code").text("ackbeat.close.kind", &["heartbeat_kill", "abort"])
    };
    expected.check("the client whose path was cut").with_context(|| spans::tree(&all, cut.port()))?;
    for client in [&slow, &healthy] {
        anyhow::ensure!(
            spans::host_close(&all, client.port()).is_none(),
            "the host closed a client that is there: {}",
            spans::tree(&all, client.port())
        );
    }
    Ok(())
}

#[test]
fn node_with_the_package() -> Result<()> {
    plays_the_story(node_package, IpVersion::V4, 5, true)
}

#[test]
fn node_with_the_package_over_ipv6() -> Result<()> {
    plays_the_story(node_package, IpVersion::V6, 1, true)
}

#[test]
fn node_with_the_recipe() -> Result<()> {
    plays_the_story(node_recipe, IpVersion::V4, 1, false)
}

#[test]
fn python_with_the_example() -> Result<()> {
    plays_the_story(python, IpVersion::V4, 1, true)
}

#[test]
fn rust_with_the_package() -> Result<()> {
    plays_the_story(rust, IpVersion::V4, 1, true)
}

/// The sidecar goes in the middle of a burst and comes back: the plain window decides in between, and only then.
fn falls_back_and_comes_back(start_host: StartHost) -> Result<()> {
    let network = Network::create()?;
    let host = start_host(&network.host, network.host_address(IpVersion::V4))?;
    let sidecar = Sidecar::start(&network.host, &watching(host.address().port()))?;
    let healthy = Client::connect(Some(&network.client), ClientOptions::new(host.address()))?;
    host.wait_for_pongs(healthy.port(), story::LEARNING_PONGS, DEADLINE)?;
    let first = story::burst(&network, &host, story::slow_reader(&host))?;
    outlives_the_watchdog(&first, 2)?;
    anyhow::ensure!(kills(&host).is_empty(), "killed: {:?}", kills(&host));

    sidecar.stop()?;
    host.events.wait_for("the host's word that it decides alone", DEADLINE, |events| {
        events.iter().any(|event| matches!(event.what, HostAction::FellBack { .. })).then_some(())
    })?;
    // What it cannot know, it does not know: three intervals without a Pong are over long since.
    host.wait_for_kill(first.port(), DEADLINE)?;
    host.wait_for("Close frame", first.port(), DEADLINE, |what| *what == HostAction::Closing { code: CODE })?;
    host.wait_for_pongs(healthy.port(), 2 * story::LEARNING_PONGS, DEADLINE)?;

    let sidecar = Sidecar::start(&network.host, &watching(host.address().port()))?;
    let second = story::burst(&network, &host, story::slow_reader(&host))?;
    outlives_the_watchdog(&second, 2)?;
    anyhow::ensure!(kills(&host) == [first.port()], "killed: {:?}", kills(&host));
    anyhow::ensure!(is_open(&second) && is_open(&healthy), "somebody was closed");
    let told = host.events.read(|events| {
        let is_told = |what: &HostAction| matches!(what, HostAction::FellBack { .. } | HostAction::Recovered);
        events.iter().filter(|event| is_told(&event.what)).map(|event| event.what.clone()).collect::<Vec<_>>()
    });
    anyhow::ensure!(
        matches!(told.as_slice(), [HostAction::FellBack { .. }, HostAction::Recovered]),
        "told more than once, or not: {told:?}"
    );
    sidecar.stop().map(drop)
}

#[test]
fn node_without_the_sidecar_for_a_while() -> Result<()> {
    falls_back_and_comes_back(node_package)
}

#[test]
fn python_without_the_sidecar_for_a_while() -> Result<()> {
    falls_back_and_comes_back(python)
}
