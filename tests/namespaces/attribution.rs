//! Who closed first, how, and which process: each kind of end, twenty times.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::process::Command;

use ackbeat_tests::expectations::Expectations;
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sockets;
use ackbeat_tests::spans::Span;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use super::scene::{Ended, Pair, Scene, end_by_signal};

const TIMES: usize = 20;

/// Lets `end` end twenty connections, and lets `judge` look at what the sidecar said about each.
fn each_is_attributed(
    version: IpVersion,
    end: impl Fn(&Scene, Pair) -> Result<()>,
    judge: impl Fn(Expectations<'_>) -> Expectations<'_>,
) -> Result<()> {
    let scene = Scene::new(version)?;
    let pairs = scene.pairs(TIMES)?;
    let ports: Vec<u16> = pairs.iter().map(|pair| pair.client_port).collect();
    for pair in pairs {
        end(&scene, pair)?;
    }
    let ends = scene.ends(&ports)?;
    all_are(&ends, judge)?;
    scene.sidecar.stop().map(drop)
}

fn all_are(ends: &[Span], judge: impl Fn(Expectations<'_>) -> Expectations<'_>) -> Result<()> {
    ensure!(ends.len() == TIMES, "{} of {TIMES} ends were told", ends.len());
    let wrong: Vec<String> = ends
        .iter()
        .filter_map(|span| judge(Expectations::of(span)).check("a connection").err())
        .map(|error| error.to_string())
        .collect();
    ensure!(wrong.is_empty(), "{} of {TIMES} were attributed wrong: {wrong:#?}", wrong.len());
    Ok(())
}

/// The process is this one: the test holds the host's sockets.
fn by_this_process(expectations: Expectations<'_>) -> Expectations<'_> {
    let pid = i64::from(std::process::id());
    expectations.number("process.pid", pid..=pid)
}

fn reset_by_unread_data(version: IpVersion) -> Result<()> {
    each_is_attributed(
        version,
        |_, mut pair| {
            pair.client.write_all(b"unread").context("writing failed")?;
            sockets::wait_for_unread(&pair.host, 6)?;
            drop(pair.host);
            let reset = pair.client.read(&mut [0; 16]);
            ensure!(reset.is_err(), "the client was not reset");
            Ok(())
        },
        |span| {
            by_this_process(span)
                .text("ackbeat.close.initiator", &["host"])
                .text("ackbeat.close.method", &["rst"])
                .text("ackbeat.close.kind", &["abort"])
                .text("ackbeat.postmortem", &["unresolved"])
                .number("ackbeat.tcp.unread_bytes", 6..=6)
        },
    )
}

#[test]
fn a_reset_by_unread_data() -> Result<()> {
    reset_by_unread_data(IpVersion::V4)
}

#[test]
fn a_reset_by_unread_data_over_ipv6() -> Result<()> {
    reset_by_unread_data(IpVersion::V6)
}

#[test]
fn a_reset_by_linger_of_zero_seconds() -> Result<()> {
    each_is_attributed(
        IpVersion::V4,
        |_, pair| sockets::reset_on_close(&pair.host),
        |span| {
            by_this_process(span)
                .text("ackbeat.close.initiator", &["host"])
                .text("ackbeat.close.method", &["rst"])
                .text("ackbeat.close.kind", &["abort"])
        },
    )
}

#[test]
fn a_fin_of_the_host() -> Result<()> {
    each_is_attributed(
        IpVersion::V4,
        |_, pair| {
            let Pair { host, mut client, .. } = pair;
            drop(host);
            sockets::read_to_end(&mut client).map(drop)
        },
        |span| {
            by_this_process(span)
                .text("ackbeat.close.initiator", &["host"])
                .text("ackbeat.close.method", &["fin"])
                .text("ackbeat.close.kind", &["graceful"])
                .absent("ackbeat.kill.assessment")
        },
    )
}

fn fin_of_the_peer(version: IpVersion) -> Result<()> {
    each_is_attributed(
        version,
        |_, pair| {
            let Pair { mut host, client, .. } = pair;
            drop(client);
            sockets::read_to_end(&mut host).map(drop)
        },
        |span| {
            span.text("ackbeat.close.initiator", &["peer"])
                .text("ackbeat.close.method", &["fin"])
                .absent("ackbeat.kill.assessment")
                .absent("ackbeat.postmortem")
        },
    )
}

#[test]
fn a_fin_of_the_peer() -> Result<()> {
    fin_of_the_peer(IpVersion::V4)
}

#[test]
fn a_fin_of_the_peer_over_ipv6() -> Result<()> {
    fin_of_the_peer(IpVersion::V6)
}

#[test]
fn a_reset_of_the_peer() -> Result<()> {
    each_is_attributed(
        IpVersion::V4,
        |_, pair| {
            let Pair { mut host, client, .. } = pair;
            sockets::reset_on_close(&client)?;
            drop(client);
            ensure!(host.read(&mut [0; 16]).is_err(), "the host was not reset");
            Ok(())
        },
        |span| {
            span.text("ackbeat.close.initiator", &["peer"])
                .text("ackbeat.close.method", &["rst"])
                .absent("ackbeat.kill.assessment")
        },
    )
}

#[test]
fn a_half_close_of_the_host() -> Result<()> {
    each_is_attributed(
        IpVersion::V4,
        |_, pair| {
            let Pair { mut host, mut client, .. } = pair;
            host.shutdown(Shutdown::Write).context("half-closing failed")?;
            sockets::read_to_end(&mut client)?;
            client.write_all(b"the other half is open").context("writing failed")?;
            drop(client);
            ensure!(sockets::read_to_end(&mut host)? == 22, "the other half carries");
            Ok(())
        },
        |span| {
            by_this_process(span)
                .text("ackbeat.close.initiator", &["host"])
                .text("ackbeat.close.method", &["fin"])
        },
    )
}

#[test]
fn a_half_close_of_the_peer() -> Result<()> {
    each_is_attributed(
        IpVersion::V4,
        |_, pair| {
            let Pair { mut host, mut client, .. } = pair;
            client.shutdown(Shutdown::Write).context("half-closing failed")?;
            sockets::read_to_end(&mut host)?;
            host.write_all(b"the other half is open").context("writing failed")?;
            drop(host);
            ensure!(sockets::read_to_end(&mut client)? == 22, "the other half carries");
            Ok(())
        },
        |span| span.text("ackbeat.close.initiator", &["peer"]).text("ackbeat.close.method", &["fin"]),
    )
}

#[test]
fn a_timeout_of_the_kernel() -> Result<()> {
    let scene = Scene::new(IpVersion::V4)?;
    let mut pairs = scene.pairs(TIMES)?;
    let ports: Vec<u16> = pairs.iter().map(|pair| pair.client_port).collect();
    // All at once: each takes its time.
    for pair in &mut pairs {
        scene.network.cut(pair.client_port)?;
        sockets::set_user_timeout(&pair.host, 1_000)?;
        pair.host.write_all(b"nobody will answer").context("writing failed")?;
    }
    for pair in &mut pairs {
        let error = pair.host.read(&mut [0; 16]).err().context("the kernel did not give up")?;
        ensure!(error.kind() == std::io::ErrorKind::TimedOut, "{error}");
    }
    drop(pairs);
    let ends = scene.ends(&ports)?;
    all_are(&ends, |span| {
        span.text("ackbeat.close.initiator", &["kernel"])
            .text("ackbeat.close.kind", &["kernel_timeout"])
            .absent("process.pid")
    })?;
    scene.sidecar.stop().map(drop)
}

#[test]
fn a_process_that_is_killed() -> Result<()> {
    let network = Network::create()?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_holder"));
    command.arg(network.host_address(IpVersion::V4).to_string());
    let Ended { pid, closes: ends, sidecar } = end_by_signal(&network, command, TIMES, Signal::SIGKILL)?;
    let pid = i64::from(pid);
    all_are(&ends, |span| {
        span.text("ackbeat.close.initiator", &["host"])
            .text("ackbeat.close.kind", &["process_exit"])
            .text("process.executable.name", &["holder"])
            .number("process.pid", pid..=pid)
    })?;
    sidecar.stop().map(drop)
}
