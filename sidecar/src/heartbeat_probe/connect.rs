//! From a URL to an open WebSocket, whose frames nobody has read yet.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http::Request;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Error as WebSocketError;
use tokio_tungstenite::tungstenite::handshake::client::Response;

use super::head::Head;
use super::options::{HANDSHAKE_LIMIT, Options};
use super::{ProbeError, Target, tls};

/// Receive buffers of a slow reader, in bytes. The kernel doubles them for its own bookkeeping (socket(7), `SO_RCVBUF`)
/// and takes no less than 2304 (`SOCK_MIN_RCVBUF` in include/net/sock.h).
const SLOW_BUFFER_BYTES: std::ops::RangeInclusive<u64> = 4_096..=65_536;

/// A byte stream, with TLS or without.
pub(super) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// How long each step took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) tcp: Duration,
    pub(super) tls: Option<Duration>,
    pub(super) handshake: Duration,
}

impl Times {
    pub(super) fn total_ms(&self) -> u64 {
        milliseconds(self.tcp + self.tls.unwrap_or_default() + self.handshake)
    }
}

/// Whole milliseconds.
pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An open WebSocket.
pub(super) struct Opened {
    pub(super) stream: Box<dyn Transport>,
    /// Bytes of the first frames that came along with the answer.
    pub(super) first_bytes: Vec<u8>,
    pub(super) address: SocketAddr,
    pub(super) began_at: Instant,
    pub(super) times: Times,
    pub(super) target: Target,
}

/// Connects and shakes hands within [`HANDSHAKE_LIMIT`].
pub(super) async fn open(options: &Options) -> Result<Opened, ProbeError> {
    let limit = options.timeout.map_or(HANDSHAKE_LIMIT, |timeout| timeout.min(HANDSHAKE_LIMIT));
    tokio::time::timeout(limit, open_unlimited(options))
        .await
        .map_err(|_| ProbeError::HandshakeTime { limit })?
}

async fn open_unlimited(options: &Options) -> Result<Opened, ProbeError> {
    let handshake_failed = |error: WebSocketError| ProbeError::Handshake(Box::new(error));
    let target = options.target.completed_for(options.profile.named()).map_err(|error| {
        handshake_failed(WebSocketError::Io(io::Error::new(io::ErrorKind::InvalidInput, error)))
    })?;
    let request = target.request().map_err(handshake_failed)?;
    let connector = if target.is_secure() { Some(tls::connector(&options.trust)?) } else { None };

    let began_at = Instant::now();
    let (tcp_stream, address) = connect_tcp(&target, options.slow_read).await?;
    let tcp = began_at.elapsed();
    let Some(connector) = connector else {
        let (stream, first_bytes, handshake) = shake_hands(Box::new(tcp_stream), request).await?;
        let times = Times { tcp, tls: None, handshake };
        return Ok(Opened { stream, first_bytes, address, began_at, times, target });
    };
    let host = target.host().to_owned();
    let name = rustls::pki_types::ServerName::try_from(host.clone())
        .map_err(|error| ProbeError::Tls(format!("{host} can be in no certificate: {error}")))?;
    let tls_began = Instant::now();
    let tls_stream = connector
        .connect(name, tcp_stream)
        .await
        .map_err(|cause| ProbeError::TlsHandshake { host, cause })?;
    let tls = Some(tls_began.elapsed());
    let (stream, first_bytes, handshake) = shake_hands(Box::new(tls_stream), request).await?;
    Ok(Opened { stream, first_bytes, address, began_at, times: Times { tcp, tls, handshake }, target })
}

/// The buffer must be small before the connection is made: the window that it allows is announced with the SYN.
fn slow_buffer(bytes_per_second: u64) -> u32 {
    let bytes = (bytes_per_second / 10).clamp(*SLOW_BUFFER_BYTES.start(), *SLOW_BUFFER_BYTES.end());
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

async fn connect_tcp(target: &Target, slow_read: Option<u64>) -> Result<(TcpStream, SocketAddr), ProbeError> {
    let lookup = |cause| ProbeError::Lookup { host: target.host().to_owned(), cause };
    let addresses = lookup_host((target.host(), target.port())).await.map_err(lookup)?;
    let mut failed = lookup(io::Error::new(io::ErrorKind::NotFound, "no address"));
    for address in addresses {
        match connect_to(address, slow_read).await {
            Ok(stream) => return Ok((stream, address)),
            Err(cause) => failed = ProbeError::Connect { address: address.to_string(), cause },
        }
    }
    Err(failed)
}

async fn connect_to(address: SocketAddr, slow_read: Option<u64>) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(bytes_per_second) = slow_read {
        socket.set_recv_buffer_size(slow_buffer(bytes_per_second))?;
    }
    let stream = socket.connect(address).await?;
    // A Pong that waits for the ACK of the one before would be late by this side's fault (RFC 896).
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The handshake of RFC 6455 section 4.1.
async fn shake_hands(
    stream: Box<dyn Transport>,
    request: Request<()>,
) -> Result<(Box<dyn Transport>, Vec<u8>, Duration), ProbeError> {
    let began = Instant::now();
    let (socket, _) = client_async(request, Head::new(stream)).await.map_err(|error| match error {
        WebSocketError::Http(response) => refused(&response),
        other => ProbeError::Handshake(Box::new(other)),
    })?;
    let head = socket.into_inner();
    if !head.is_complete() {
        return Err(ProbeError::Protocol("the head of the host's answer has no end (RFC 9112 section 2.1)"));
    }
    let (stream, first_bytes) = head.into_parts();
    Ok((stream, first_bytes, began.elapsed()))
}

fn refused(response: &Response) -> ProbeError {
    let location = response.headers().get(http::header::LOCATION);
    let more = location.map_or_else(String::new, |to| {
        format!("; it names another URL, which is not followed: {}", String::from_utf8_lossy(to.as_bytes()))
    });
    ProbeError::Refused { status: response.status().to_string(), more }
}
