//! One connection as fast as it goes, from the host to the client, with a heartbeat in it if asked for.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{MsgFlags, recv};

use super::websocket::{self, BINARY, PING, PONG, PingFinder};
use super::{Scene, accept, connect};

/// Bytes of one write of the host: many frames, or a part of one.
const WRITE_BYTES: usize = 256 * 1024;
/// Bytes of one read of the client.
const READ_BYTES: usize = 256 * 1024;
/// The connection runs this long before its bytes count: its window has grown by then.
const WARM_UP: Duration = Duration::from_millis(300);
/// From one Ping to the next.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bulk {
    /// Payload of each message, in bytes.
    pub(crate) message_bytes: usize,
    /// Whether the host asks for a Pong once a second.
    pub(crate) with_heartbeat: bool,
    /// How long bytes are counted.
    pub(crate) duration: Duration,
}

/// Runs it, and gives bytes per second of payload and frames together, as the client read them. `at_edges` is called when
/// counting begins and when it ends.
///
/// # Errors
/// A socket broke.
pub(crate) fn run(scene: &Scene, bulk: Bulk, mut at_edges: impl FnMut() -> Result<()> + Send) -> Result<f64> {
    scene.between(|listener| send(listener, bulk), |address| receive(address, bulk.duration, &mut at_edges))
}

/// Sends until the client is gone.
fn send(listener: &TcpListener, bulk: Bulk) -> Result<()> {
    let mut stream = accept(listener)?;
    websocket::answer(&mut stream)?;
    let message = websocket::frame_to_client(BINARY, &vec![0x42; bulk.message_bytes]);
    let block = message.repeat((WRITE_BYTES / message.len()).max(1));
    let mut asked_at = Instant::now();
    loop {
        if bulk.with_heartbeat && asked_at.elapsed() >= PING_INTERVAL {
            asked_at = Instant::now();
            discard_pongs(&stream);
            if is_over(stream.write_all(&websocket::frame_to_client(PING, b"beat")))? {
                return Ok(());
            }
        }
        for part in block.chunks(WRITE_BYTES) {
            if is_over(stream.write_all(part))? {
                return Ok(());
            }
        }
    }
}

/// Reads what lies there, without waiting.
fn discard_pongs(stream: &TcpStream) {
    let mut buffer = [0; 4_096];
    while recv(stream.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT).is_ok_and(|read| read > 0) {}
}

/// Whether the client has gone, which is how it ends.
fn is_over(written: std::io::Result<()>) -> Result<bool> {
    match written {
        Ok(()) => Ok(false),
        Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => Ok(true),
        Err(error) => Err(error).context("sending a block failed"),
    }
}

fn receive(
    address: SocketAddr,
    duration: Duration,
    at_edges: &mut (impl FnMut() -> Result<()> + Send),
) -> Result<f64> {
    let mut stream = connect(address)?;
    let mut finder = PingFinder::default();
    let first = websocket::upgrade(&mut stream)?;
    let mut buffer = vec![0; READ_BYTES];
    answer(&mut stream, finder.look(&first)?)?;
    read_for(&mut stream, &mut finder, &mut buffer, WARM_UP)?;
    at_edges()?;
    let rate = read_for(&mut stream, &mut finder, &mut buffer, duration)?;
    at_edges()?;
    Ok(rate)
}

/// Reads for so long and gives bytes per second.
#[expect(clippy::cast_precision_loss, reason = "a rate of gigabytes")]
fn read_for(
    stream: &mut TcpStream,
    finder: &mut PingFinder,
    buffer: &mut [u8],
    duration: Duration,
) -> Result<f64> {
    let began = Instant::now();
    let mut bytes = 0_u64;
    while began.elapsed() < duration {
        let read = stream.read(buffer).context("reading a block failed")?;
        ensure!(read > 0, "the host ended the stream");
        bytes += read as u64;
        answer(stream, finder.look(buffer.get(..read).unwrap_or_default())?)?;
    }
    Ok(bytes as f64 / began.elapsed().as_secs_f64())
}

fn answer(stream: &mut TcpStream, pings: Vec<Vec<u8>>) -> Result<()> {
    for payload in pings {
        stream.write_all(&websocket::frame_to_host(PONG, &payload)).context("answering a Ping failed")?;
    }
    Ok(())
}
