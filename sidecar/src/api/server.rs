//! Serves connections: how many, how long, how large.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

use super::counters::ApiCounters;
use super::listen::{Listeners, bind_tcp, bind_unix};
use crate::listening::{Listener as Place, Standing, try_again};

/// Connections at once, over TCP and the Unix socket together.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Bytes of a request's line and headers.
const HEAD_MAX_BYTES: usize = 16 * 1024;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// How long a client may take for a request's head; also how long an idle connection is kept.
const HEAD_DEADLINE: Duration = Duration::from_secs(30);
/// How long a client may read nothing of what is ready for it.
const STALL_DEADLINE: Duration = Duration::from_secs(15);
/// After `accept` failed, for want of file descriptors as a rule.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// To a client that is one too many.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/problem+json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 108\r\n\r\n\
    {\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,\
    \"detail\":\"too many connections to the API\"}";

/// A server that runs. When this is dropped it takes no new connections any more, and the Unix socket's file is gone; what
/// is open ends with the runtime.
#[derive(Debug)]
pub struct Serving {
    _tasks: tokio::task::JoinSet<()>,
    _file: Option<super::listen::SocketFile>,
}

impl Serving {
    /// Serves `router` on what is listened on. It needs a tokio runtime around the call.
    #[must_use]
    pub fn start(listeners: Listeners, router: &Router, counters: &Arc<ApiCounters>) -> Self {
        let mut tasks = tokio::task::JoinSet::new();
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        if let Some(listener) = listeners.tcp {
            tasks.spawn(accept(listener, router.clone(), Arc::clone(&places), Arc::clone(counters)));
        }
        if let Some(address) = listeners.busy {
            let (router, places, counters) = (router.clone(), Arc::clone(&places), Arc::clone(counters));
            let standings = Arc::clone(&listeners.standings);
            tasks.spawn(async move {
                let bind = || bind_tcp(address).map_err(|error| error.cause);
                let listener = try_again(Place::Api, address, bind).await;
                standings.listens_at(Place::Api, address.port());
                tracing::info!(%address, "the API listens by now");
                accept(listener, router, places, counters).await;
            });
        }
        if let Some(path) = listeners.busy_socket {
            let (router, places, counters) = (router.clone(), Arc::clone(&places), Arc::clone(counters));
            let standings = Arc::clone(&listeners.standings);
            tasks.spawn(async move {
                let bind = || bind_unix(&path).map_err(|error| error.cause);
                // The file goes when this task does.
                let (listener, _file) = try_again(Place::ApiSocket, path.display(), bind).await.into_parts();
                standings.set(Place::ApiSocket, Standing::Listening);
                tracing::info!(socket = %path.display(), "the API listens by now");
                accept(listener, router, places, counters).await;
            });
        }
        let mut file = None;
        if let Some(socket) = listeners.unix {
            let (listener, of_socket) = socket.into_parts();
            file = Some(of_socket);
            tasks.spawn(accept(listener, router.clone(), places, Arc::clone(counters)));
        }
        Self { _tasks: tasks, _file: file }
    }
}

/// What both kinds of listener have in common.
trait Listener: Send + 'static {
    type Stream: Stream;
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

/// What both kinds of stream have in common.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;
}

impl Listener for TcpListener {
    type Stream = TcpStream;
    async fn accept(&self) -> io::Result<TcpStream> {
        let (stream, _) = Self::accept(self).await?;
        // Answers are small, and whoever asks waits for them.
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;
    async fn accept(&self) -> io::Result<UnixStream> {
        Self::accept(self).await.map(|(stream, _)| stream)
    }
}

impl Stream for TcpStream {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Self::try_write(self, bytes)
    }
}

impl Stream for UnixStream {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Self::try_write(self, bytes)
    }
}

async fn accept<L: Listener>(
    listener: L,
    router: Router,
    places: Arc<Semaphore>,
    counters: Arc<ApiCounters>,
) {
    loop {
        let stream = match listener.accept().await {
            Ok(stream) => stream,
            Err(error) => {
                // A client that left again is its own affair.
                tracing::debug!(target: "ackbeat::api", %error, "accepting failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            counters.count_connection_refused();
            // Whether it is still there to read it is its own affair.
            let _ = stream.try_write(REFUSAL);
            continue;
        };
        let router = router.clone();
        tokio::spawn(async move {
            serve(stream, router).await;
            drop(place);
        });
    }
}

async fn serve<S: Stream>(stream: S, router: Router) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(STALL_DEADLINE));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(HEAD_MAX_BYTES)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router))
        .with_upgrades();
    if let Err(error) = connection.await {
        tracing::debug!(target: "ackbeat::api", %error, "a connection to the API ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::REFUSAL;

    #[test]
    fn the_refusal_is_as_long_as_it_says() {
        let text = std::str::from_utf8(REFUSAL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}: {head}", body.len());
        let problem: crate::api::types::Problem = serde_json::from_str(body).unwrap();
        assert_eq!(problem.status, 503);
    }
}
