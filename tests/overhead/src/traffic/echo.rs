//! Small messages to the host and back, one at a time.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::websocket::{self, BINARY};
use super::{Scene, accept, connect};

/// Payload of a message, in bytes.
const MESSAGE_BYTES: usize = 64;
/// Round trips before they count.
const WARM_UP_ROUNDS: usize = 500;

/// Latencies of the round trips of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latencies {
    /// Median, in nanoseconds.
    pub(crate) p50_ns: f64,
    /// The 99th percentile, in nanoseconds.
    pub(crate) p99_ns: f64,
}

/// Measures round trips for so long.
///
/// # Errors
/// A socket broke.
pub(crate) fn run(scene: &Scene, duration: Duration) -> Result<Latencies> {
    scene.between(echo, |address| ask(address, duration))
}

/// Sends each message back until the client is gone.
fn echo(listener: &TcpListener) -> Result<()> {
    let mut stream = accept(listener)?;
    websocket::answer(&mut stream)?;
    let mut message = vec![0; websocket::frame_to_host(BINARY, &[0; MESSAGE_BYTES]).len()];
    let answer = websocket::frame_to_client(BINARY, &[0x42; MESSAGE_BYTES]);
    // It ends with the client's stream, wherever that is.
    while stream.read_exact(&mut message).is_ok() {
        if stream.write_all(&answer).is_err() {
            break;
        }
    }
    Ok(())
}

fn ask(address: SocketAddr, duration: Duration) -> Result<Latencies> {
    let mut stream = connect(address)?;
    websocket::upgrade(&mut stream)?;
    let message = websocket::frame_to_host(BINARY, &[0x42; MESSAGE_BYTES]);
    let mut answer = vec![0; websocket::frame_to_client(BINARY, &[0; MESSAGE_BYTES]).len()];
    let mut round = || -> Result<Duration> {
        let began = Instant::now();
        stream.write_all(&message).context("sending a message failed")?;
        stream.read_exact(&mut answer).context("reading an echo failed")?;
        Ok(began.elapsed())
    };
    for _ in 0..WARM_UP_ROUNDS {
        round()?;
    }
    let began = Instant::now();
    let mut latencies = Vec::new();
    while began.elapsed() < duration {
        latencies.push(round()?);
    }
    latencies.sort_unstable();
    Ok(Latencies { p50_ns: percentile_ns(&latencies, 50)?, p99_ns: percentile_ns(&latencies, 99)? })
}

#[expect(clippy::cast_precision_loss, reason = "latencies of microseconds")]
fn percentile_ns(sorted: &[Duration], percent: usize) -> Result<f64> {
    let place = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(place).map(|latency| latency.as_nanos() as f64).context("no message came back in time")
}
