//! Plain TCP connections whose end each test decides.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{Backlog, setsockopt, sockopt};

use crate::journal::wait_until;

/// Reads and writes of a test's own sockets must end within this time.
pub const SOCKET_DEADLINE: Duration = Duration::from_secs(20);

/// Listens on a port that the kernel chooses.
///
/// # Errors
/// If the address cannot be bound.
pub fn listen(address: IpAddr) -> Result<(TcpListener, SocketAddr)> {
    let listener =
        TcpListener::bind((address, 0)).with_context(|| format!("listening on {address} failed"))?;
    // A second call sets the backlog anew. With the standard library's 128 a burst of clients loses SYNs, and each
    // lost one costs its client a second.
    let backlog = Backlog::new(4_096).context("a backlog of 4096 is refused")?;
    nix::sys::socket::listen(&listener, backlog).context("raising the backlog failed")?;
    let address = listener.local_addr().context("reading a listener's address failed")?;
    Ok((listener, address))
}

/// Connects.
///
/// # Errors
/// If nothing answers in time.
pub fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, SOCKET_DEADLINE)
        .with_context(|| format!("connecting to {address} failed"))?;
    bound(&stream)?;
    Ok(stream)
}

/// Accepts one connection.
///
/// # Errors
/// If the kernel refuses.
pub fn accept(listener: &TcpListener) -> Result<TcpStream> {
    let (stream, _) = listener.accept().context("accepting failed")?;
    bound(&stream)?;
    Ok(stream)
}

fn bound(stream: &TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(SOCKET_DEADLINE)).context("bounding reads failed")?;
    stream.set_write_timeout(Some(SOCKET_DEADLINE)).context("bounding writes failed")
}

/// Makes the next close a reset (`SO_LINGER` with 0 seconds).
///
/// # Errors
/// If the kernel refuses.
pub fn reset_on_close(stream: &TcpStream) -> Result<()> {
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(stream, sockopt::Linger, &linger).context("setting SO_LINGER failed")
}

/// Lets the kernel give up data that is unacknowledged for this long (`TCP_USER_TIMEOUT`).
///
/// # Errors
/// If the kernel refuses.
pub fn set_user_timeout(stream: &TcpStream, timeout_ms: u32) -> Result<()> {
    setsockopt(stream, sockopt::TcpUserTimeout, &timeout_ms).context("setting TCP_USER_TIMEOUT failed")
}

/// Waits until at least `count` bytes lie unread in the receive queue.
///
/// # Errors
/// If they do not come in time.
pub fn wait_for_unread(stream: &TcpStream, count: usize) -> Result<()> {
    let mut buffer = vec![0; count];
    wait_until("bytes in the receive queue", SOCKET_DEADLINE, || {
        Ok(stream.peek(&mut buffer).context("peeking failed")? >= count)
    })
}

/// Reads until the peer's FIN and returns how many bytes came.
///
/// # Errors
/// If it does not come in time, or a reset comes.
pub fn read_to_end(stream: &mut TcpStream) -> Result<usize> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).context("reading to the peer's FIN failed")
}
