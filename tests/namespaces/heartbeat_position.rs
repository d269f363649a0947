//! Where a Ping was when its host gave up waiting.

use std::time::Duration;

use ackbeat_tests::client::{Client, ClientOptions, Pace, Seen};
use ackbeat_tests::expectations::Expectations;
use ackbeat_tests::mux::{Ask, Block, Host, HostAction, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::Sidecar;
use ackbeat_tests::{spans, story};
use anyhow::{Context, Result, ensure};

use super::scene::{SPAN_DEADLINE, watching};

const KILL_DEADLINE: Duration = Duration::from_secs(40);

#[test]
fn a_pong_that_the_blocked_host_never_read_is_named() -> Result<()> {
    let network = Network::create()?;
    let block = Block { after_tick: 4, duration: Duration::from_millis(6_000) };
    let options = HostOptions { block: Some(block), ..HostOptions::new(network.host_address(IpVersion::V4)) };
    let host = Host::start(Some(&network.host), options)?;
    let sidecar = Sidecar::start(&network.host, &watching(host.address().port()))?;
    let client = Client::connect(Some(&network.client), ClientOptions::new(host.address()))?;
    host.wait_for_kill(client.port(), KILL_DEADLINE)?;
    let close = sidecar.wait_for_host_close(client.port(), SPAN_DEADLINE)?;
    let all = sidecar.stop()?;
    Expectations::of(&close)
        .text("ackbeat.heartbeat.ping_location", &["pong_unread"])
        .text("ackbeat.close.initiator", &["host"])
        .text("ackbeat.close.method", &["rst"])
        .number("ackbeat.tcp.unread_bytes", 1..=i64::MAX)
        .text("ackbeat.kill.assessment", &["false_kill"])
        .flag("ackbeat.false_kill", true)
        .check("the client whose Pong was never read")
        .with_context(|| spans::tree(&all, client.port()))
}

/// What may lie between the byte that the client's kernel acknowledged last and the byte that the client read last:
/// one receive buffer of a client that keeps reading.
const RECEIVE_BUFFER_BYTES: i64 = 128 * 1024;

/// A slow path and a wide window: the Ping is on the wire, behind hundreds of kilobytes that are on the wire too.
#[test]
fn the_bytes_ahead_of_a_ping_agree_with_what_the_client_has_read() -> Result<()> {
    let network = Network::create()?;
    // Buffers that take the whole message at once, and a window that grows with every ACK, whatever the delay.
    network.host.set_sysctl("ipv4/tcp_wmem", "4096 8388608 8388608")?;
    network.client.set_sysctl("ipv4/tcp_rmem", "4096 8388608 8388608")?;
    network.host.set_sysctl("ipv4/tcp_congestion_control", "reno")?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let sidecar = Sidecar::start(&network.host, &watching(host.address().port()))?;
    let pace = Pace::Slow { bytes_per_second: 100_000_000, read_bytes: 4 * 1024 };
    let client = Client::connect(Some(&network.client), ClientOptions::new(host.address()).paced(pace))?;
    host.wait_for_pongs(client.port(), story::LEARNING_PONGS, KILL_DEADLINE)?;
    network.slow_down(150, 8_000)?;
    story::wait_between_ticks(&host, client.port())?;
    let bytes = 1_300_000;
    client.ask(&Ask::Bytes { bytes });
    let killed = host.wait_for_kill(client.port(), KILL_DEADLINE)?;
    let read_at_kill = client.bytes_read();
    let HostAction::Killed { buffered_bytes, .. } = killed.what else { unreachable!() };
    ensure!(buffered_bytes == 0, "everything was handed to the kernel: {buffered_bytes}");
    let close = sidecar.wait_for_host_close(client.port(), SPAN_DEADLINE)?;
    // The host is gone, its kernel still delivers: the Ping comes right behind the message.
    let data = client.wait_for("message", SPAN_DEADLINE, |seen| matches!(seen, Seen::Data { .. }))?;
    let ping = client.events.wait_for("the Ping behind the message", SPAN_DEADLINE, |seen| {
        seen.iter().find(|event| event.what == Seen::Ping && event.at_ns >= data.at_ns).cloned()
    })?;
    let ahead = i64::try_from(ping.bytes_read)? - i64::try_from(read_at_kill)?;
    let all = sidecar.stop()?;
    let tree = || format!("the client was {ahead} bytes away:\n{}", spans::tree(&all, client.port()));
    ensure!(ahead > RECEIVE_BUFFER_BYTES, "{}", tree());
    Expectations::of(&close)
        .text("ackbeat.close.kind", &["heartbeat_kill"])
        .text("ackbeat.heartbeat.ping_location", &["in_flight"])
        .flag("ackbeat.heartbeat.inferred", false)
        .number("ackbeat.heartbeat.ping_bytes_ahead", ahead - RECEIVE_BUFFER_BYTES..=ahead + 4 * 1024)
        .text("ackbeat.verdict", &["congested"])
        .flag("ackbeat.false_kill", true)
        .check("the client on a slow path")
        .with_context(tree)
}
