//! The wall clock jumps by days, again and again: no verdict, no assessment and no duration moves.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ackbeat_tests::client::{Client, ClientOptions};
use ackbeat_tests::expectations::Expectations;
use ackbeat_tests::mux::{Host, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::process::run;
use ackbeat_tests::sidecar::Sidecar;
use ackbeat_tests::spans::Span;
use anyhow::{Context, Result, ensure};

use super::{DEADLINE, wrapped};
use crate::scene::{SPAN_DEADLINE, watching};

/// By how much the clock of `jumping_clock.c` is off, this way or that.
const OFF: Duration = Duration::from_secs(86_400);

/// Builds the clock with the C compiler that Rust links with.
fn jumping_clock(directory: &Path) -> Result<PathBuf> {
    let library = directory.join("libjumping_clock.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/namespaces/faults/jumping_clock.c");
    let output = library.display().to_string();
    run(None, "cc", &["-shared", "-fPIC", "-O1", "-o", &output, source])?;
    Ok(library)
}

/// How far a span's start is from now, and how long the span is.
fn distance_and_length(span: &Span) -> Result<(Duration, Duration)> {
    let start = UNIX_EPOCH + Duration::from_nanos(span.start_unix_ns);
    let now = SystemTime::now();
    let distance = now.duration_since(start).unwrap_or_else(|ahead| ahead.duration());
    let length = span.end_unix_ns.checked_sub(span.start_unix_ns).context("a span ends before it begins")?;
    Ok((distance, Duration::from_nanos(length)))
}

#[test]
fn a_wall_clock_that_jumps_moves_no_verdict() -> Result<()> {
    let network = Network::create()?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let directory = tempfile::tempdir().context("making a directory failed")?;
    let clock = jumping_clock(directory.path())?;
    let line = format!("exec env LD_PRELOAD='{}' \"$ACKBEAT\"", clock.display());
    let program = wrapped(directory.path(), &line)?;
    let sidecar = Sidecar::start_program(&program, &network.host, &watching(host.address().port()))?;

    let connect = |options| Client::connect(Some(&network.client), options);
    let healthy = connect(ClientOptions::new(host.address()))?;
    let mute = connect(ClientOptions { mute: true, ..ClientOptions::new(host.address()) })?;
    host.wait_for_kill(mute.port(), DEADLINE)?;
    host.wait_for_pongs(healthy.port(), 5, DEADLINE)?;
    healthy.close(1000, "");

    let killed = sidecar.wait_for_host_close(mute.port(), SPAN_DEADLINE)?;
    Expectations::of(&killed)
        .text("ackbeat.close.kind", &["heartbeat_kill"])
        .text("ackbeat.heartbeat.ping_location", &["acked"])
        .number("ackbeat.heartbeat.missed", 2..=2)
        .number("ackbeat.heartbeat.interval_ms", 1_500..=3_000)
        .number("ackbeat.connection.lifetime_ms", 3_500..=20_000)
        .flag("ackbeat.kill.justified", false)
        .check("the client that answers nothing")?;
    let left = sidecar.wait_for_connection(healthy.port(), SPAN_DEADLINE)?;
    Expectations::of(&left)
        .text("ackbeat.close.initiator", &["peer"])
        .only_verdict("alive")
        .check("the client that answers")?;
    for span in [&killed, &left] {
        let (distance, length) = distance_and_length(span)?;
        // Else the clock did not jump, and nothing was shown.
        ensure!(distance > OFF / 2, "{distance:?}: {span:?}");
        ensure!(length < 2 * DEADLINE, "{length:?}: {span:?}");
    }
    let (_, log) = sidecar.stop_with_log()?;
    ensure!(super::count(&log, &["stood still"]) == 0, "a jump was taken for a pause: {log:#?}");
    Ok(())
}
