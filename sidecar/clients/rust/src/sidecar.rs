//! The sidecar's API, as far as a server needs it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;

use crate::CloseFrame;

/// Questions under way at the same time.
const IN_FLIGHT_MAX: usize = 4;
/// An answer may take this long, connecting included.
const TIMEOUT: Duration = Duration::from_millis(500);
/// An answer of `/v1/verdict` has about 1.5 kB. More than this is from somebody else.
const ANSWER_MAX_BYTES: usize = 64 * 1024;

/// Neither an `http://` URL nor a path.
#[derive(Debug, thiserror::Error)]
#[error(
    "reading the sidecar's address {0:?} failed: give http://ADDRESS:PORT, or unix: and an absolute path"
)]
pub struct AddressError(String);

/// Why the sidecar said nothing that a server could use.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// Nobody listens there, or the connection broke.
    #[error("asking the sidecar failed: {0}; is it running, and is its address right?")]
    NotThere(String),
    /// It took longer than half a second.
    #[error("asking the sidecar failed: no answer within {} ms", TIMEOUT.as_millis())]
    Late,
    /// It is there, and does not know this connection (404), or not which one is meant (409). Others may be known to it.
    #[error(
        "the sidecar does not know this connection (status {0}): is its port among those that it watches?"
    )]
    NotKnown(StatusCode),
    /// Another status; 503 while it starts.
    #[error("asking the sidecar failed: it answered with the status {0}")]
    Status(StatusCode),
    /// Another connection found a moment ago that it cannot be asked; nobody asked again.
    #[error("asking the sidecar failed a moment ago; it is asked again soon")]
    Out,
    /// No answer of the sidecar's.
    #[error("reading the sidecar's answer failed: {0}; does somebody else listen there?")]
    NotUnderstood(String),
}

/// What the sidecar knows of a connection (`GET /v1/verdict`); its OpenAPI document has every member.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Verdict {
    /// What the evidence adds up to: `alive`, `congested`, `stalled`, `silent`, `unreachable`, `closed` or `unknown`.
    pub verdict: String,
    /// Whether the policy justifies a kill.
    pub kill_justified: bool,
    /// What to close with, where a kill is justified.
    #[serde(default)]
    pub suggested_close: Option<CloseFrame>,
}

#[derive(Clone, Debug)]
enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// The sidecar. A server has one for all its connections: what one of them finds out about the sidecar, all know.
#[derive(Debug)]
pub struct Sidecar {
    address: Address,
    slots: Semaphore,
    /// When the last question found no sidecar.
    out_since: Mutex<Option<Instant>>,
}

impl Sidecar {
    /// Where it listens unless told otherwise.
    pub const ADDRESS_DEFAULT: &str = "http://127.0.0.1:9465";

    /// The sidecar at `http://ADDRESS:PORT` or `unix:/PATH`. Nothing is connected yet.
    ///
    /// # Errors
    /// If it is neither.
    pub fn at(address: &str) -> Result<Self, AddressError> {
        let refused = || AddressError(address.to_owned());
        let address = if let Some(path) = address.strip_prefix("unix:") {
            Some(PathBuf::from(path)).filter(|path| path.is_absolute()).map(Address::Unix)
        } else {
            let authority = address.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
            authority.and_then(|authority| authority.parse().ok()).map(Address::Tcp)
        };
        let address = address.ok_or_else(refused)?;
        Ok(Self { address, slots: Semaphore::new(IN_FLIGHT_MAX), out_since: Mutex::new(None) })
    }

    /// Whether the last question found no sidecar.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.out_since.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// While it is out, one question every half a second finds out whether it is back: a thousand would only keep each other
    /// from being asked.
    fn may_ask(&self) -> bool {
        let mut out_since = self.out_since.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *out_since {
            Some(since) if since.elapsed() < TIMEOUT => false,
            Some(since) => {
                *since = Instant::now();
                true
            }
            None => true,
        }
    }

    /// What it knows of the connection between `local`, this side, and `peer`. At most four questions are under way at the same
    /// time, the others wait.
    ///
    /// # Errors
    /// If it is not there or gives no usable answer within half a second.
    pub async fn verdict(&self, peer: SocketAddr, local: SocketAddr) -> Result<Verdict, NoAnswer> {
        let was_out = self.is_out();
        if !self.may_ask() {
            return Err(NoAnswer::Out);
        }
        // It is never closed.
        let _slot = self.slots.acquire().await.map_err(|error| NoAnswer::NotThere(error.to_string()))?;
        if self.is_out() && !was_out {
            return Err(NoAnswer::Out);
        }
        let path = format!("/v1/verdict?peer={}&local={}", endpoint(peer), endpoint(local));
        let answer = self.exchange(Method::GET, &path, String::new()).await;
        let verdict = answer.and_then(|body| {
            serde_json::from_slice(&body).map_err(|error| NoAnswer::NotUnderstood(error.to_string()))
        });
        // A sidecar that does not know one connection is there all the same.
        let is_there = matches!(&verdict, Ok(_) | Err(NoAnswer::NotKnown(_)));
        let mut out_since = self.out_since.lock().unwrap_or_else(PoisonError::into_inner);
        *out_since = if is_there { None } else { Some(Instant::now()) };
        verdict
    }

    /// Tells it of the Close frame that a kill sends (`POST /v1/heartbeats`). Behind what a peer that is gone has not
    /// acknowledged, the frame may never leave the kernel: only this process knows of it.
    ///
    /// # Errors
    /// As [`Self::verdict`]. The close should go on whatever becomes of this.
    pub async fn report_close(
        &self,
        peer: SocketAddr,
        local: SocketAddr,
        frame: &CloseFrame,
    ) -> Result<(), NoAnswer> {
        let close = serde_json::json!({
            "peer": endpoint(peer), "local": endpoint(local), "kind": "close",
            "code": frame.code, "reason": frame.reason,
        });
        let body = serde_json::json!({ "heartbeats": [close] }).to_string();
        self.exchange(Method::POST, "/v1/heartbeats", body).await.map(drop)
    }

    async fn exchange(&self, method: Method, path: &str, body: String) -> Result<Bytes, NoAnswer> {
        let answer = async {
            match &self.address {
                Address::Tcp(address) => request(TcpStream::connect(address).await, method, path, body).await,
                Address::Unix(socket) => request(UnixStream::connect(socket).await, method, path, body).await,
            }
        };
        tokio::time::timeout(TIMEOUT, answer).await.unwrap_or(Err(NoAnswer::Late))
    }
}

/// One exchange on a connection of its own: on loopback that is cheaper than keeping one in order.
async fn request(
    stream: std::io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static>,
    method: Method,
    path: &str,
    body: String,
) -> Result<Bytes, NoAnswer> {
    let not_there = |error: &dyn std::error::Error| NoAnswer::NotThere(error.to_string());
    let stream = stream.map_err(|error| not_there(&error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| not_there(&error))?;
    let answer = async {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| not_there(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| not_there(&error))?;
        match answer.status() {
            status if status.is_success() => {}
            status @ (StatusCode::NOT_FOUND | StatusCode::CONFLICT) => {
                return Err(NoAnswer::NotKnown(status));
            }
            status => return Err(NoAnswer::Status(status)),
        }
        let body = Limited::new(answer.into_body(), ANSWER_MAX_BYTES).collect().await;
        Ok(body.map_err(|error| NoAnswer::NotUnderstood(error.to_string()))?.to_bytes())
    };
    // The connection must be driven while it is used, and ends with its use.
    let mut answer = pin!(answer);
    tokio::select! {
        answer = &mut answer => answer,
        end = connection => match end {
            Ok(()) => answer.await,
            Err(error) => Err(not_there(&error)),
        },
    }
}

/// `ADDRESS:PORT` as the sidecar writes it. An IPv4-mapped address is IPv4 on the wire (RFC 4291 section 2.5.5.2), and the scope
/// of a link-local address is this machine's own word.
fn endpoint(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_sidecar() {
        assert!(matches!(Sidecar::at(Sidecar::ADDRESS_DEFAULT).unwrap().address, Address::Tcp(_)));
        assert!(matches!(Sidecar::at("http://[::1]:9465/").unwrap().address, Address::Tcp(_)));
        assert!(matches!(Sidecar::at("unix:/run/ackbeat/api.sock").unwrap().address, Address::Unix(_)));
        for wrong in ["127.0.0.1:9465", "https://127.0.0.1:9465", "unix:api.sock", "http://sidecar"] {
            assert!(Sidecar::at(wrong).unwrap_err().to_string().contains(wrong));
        }
    }

    #[test]
    fn ends_are_written_as_the_sidecar_writes_them() {
        let written = |text: &str| endpoint(text.parse().unwrap()).to_string();
        assert_eq!(written("10.0.0.1:443"), "10.0.0.1:443");
        assert_eq!(written("[::ffff:10.0.0.1]:443"), "10.0.0.1:443");
        assert_eq!(written("[fd87:1::2]:443"), "[fd87:1::2]:443");
        assert_eq!(written("[fe80::1%3]:443"), "[fe80::1]:443");
    }
}
