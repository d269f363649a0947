//! Connections one after the other: TCP, upgrade, the client's close.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{Scene, accept, connect, websocket};

/// How connections are made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// The next when the last has its answer: as fast as two processors go, so whatever else runs there takes its share.
    Unbounded,
    /// So many a second, if they can be made.
    PerSecond(u32),
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetUps {
    /// Connections a second.
    pub(crate) per_second: f64,
    /// Median time from the first SYN to the answer of the upgrade, in nanoseconds.
    pub(crate) p50_ns: f64,
}

/// Makes connections for so long.
///
/// # Errors
/// A socket broke.
pub(crate) fn run(scene: &Scene, pace: Pace, duration: Duration) -> Result<SetUps> {
    let over = AtomicBool::new(false);
    scene.between(
        |listener| serve(listener, &over),
        |address| {
            let outcome = dial(address, pace, duration);
            over.store(true, Ordering::SeqCst);
            // One more that asks for nothing: the host is done.
            drop(connect(address)?);
            outcome
        },
    )
}

fn serve(listener: &TcpListener, over: &AtomicBool) -> Result<()> {
    loop {
        let mut stream = accept(listener)?;
        if let Err(error) = websocket::answer(&mut stream) {
            return if over.load(Ordering::SeqCst) { Ok(()) } else { Err(error) };
        }
        // The client closes first. Its end is an end of file, or a reset.
        let _ = stream.read(&mut [0; 16]);
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of thousands, times of microseconds")]
fn dial(address: SocketAddr, pace: Pace, duration: Duration) -> Result<SetUps> {
    let began = Instant::now();
    let mut times = Vec::new();
    while began.elapsed() < duration {
        if let Pace::PerSecond(rate) = pace {
            let due = Duration::from_secs_f64(times.len() as f64 / f64::from(rate.max(1)));
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
        let dialled = Instant::now();
        let mut stream = connect(address)?;
        websocket::upgrade(&mut stream)?;
        times.push(dialled.elapsed());
    }
    let per_second = times.len() as f64 / began.elapsed().as_secs_f64();
    times.sort_unstable();
    let median = times.get(times.len() / 2).context("no connection was made in time")?;
    Ok(SetUps { per_second, p50_ns: median.as_nanos() as f64 })
}
