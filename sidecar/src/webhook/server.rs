//! HTTPS for the API server, HTTP for probes and Prometheus.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Json, Response};
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::admission::Admissions;
use super::certificates::{Certificates, TlsError};
use super::{Counters, WebhookError};
use crate::listening::serve_each;

/// Connections at once at most, of each listener. The next ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 256;
/// From the connection to the end of the handshake.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);
/// Without a request's head. API servers keep connections for 90 s: the one who calls must be the one who closes, else a review
/// may be sent into a connection that is being closed.
const IDLE_MAX: Duration = Duration::from_secs(120);
/// Largest review, in bytes: the API server takes objects of up to 3 MiB, and sends the old one along.
const REVIEW_MAX_BYTES: usize = 8 << 20;

/// Listens.
pub(super) async fn bind(address: SocketAddr) -> Result<TcpListener, WebhookError> {
    TcpListener::bind(address).await.map_err(|cause| WebhookError::Listen { address, cause })
}

/// Both listeners at work.
pub(super) struct Serving {
    is_stopping: Arc<AtomicBool>,
}

struct Plain {
    admissions: Arc<Admissions>,
    certificates: Arc<Certificates>,
    counters: Arc<Counters>,
    is_stopping: Arc<AtomicBool>,
}

impl Serving {
    pub(super) fn start(
        http: TcpListener,
        https: TcpListener,
        admissions: &Arc<Admissions>,
        certificates: &Arc<Certificates>,
        counters: &Arc<Counters>,
    ) -> Result<Self, TlsError> {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let plain = Plain {
            admissions: Arc::clone(admissions),
            certificates: Arc::clone(certificates),
            counters: Arc::clone(counters),
            is_stopping: Arc::clone(&is_stopping),
        };
        let acceptor = acceptor(Arc::clone(certificates))?;
        tokio::spawn(serve(http, None, plain_routes(plain)));
        tokio::spawn(serve(https, Some(acceptor), routes(Arc::clone(admissions))));
        Ok(Self { is_stopping })
    }

    /// From now on `/readyz` says no.
    pub(super) fn stop_being_ready(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }
}

/// What the API server calls.
pub(super) fn routes(admissions: Arc<Admissions>) -> Router {
    Router::new()
        .route("/mutate", post(mutate))
        .layer(DefaultBodyLimit::max(REVIEW_MAX_BYTES))
        .with_state(admissions)
}

async fn mutate(State(admissions): State<Arc<Admissions>>, body: Bytes) -> Response {
    match serde_json::from_slice::<Value>(&body) {
        Ok(review) => Json(admissions.answer(review).await).into_response(),
        // The API server ignores it and goes on without us.
        Err(error) => (StatusCode::BAD_REQUEST, format!("no AdmissionReview: {error}")).into_response(),
    }
}

fn plain_routes(plain: Plain) -> Router {
    Router::new()
        .route("/healthz", get(|| std::future::ready("works\n")))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(plain))
}

async fn readyz(State(plain): State<Arc<Plain>>) -> (StatusCode, &'static str) {
    if plain.is_stopping.load(Ordering::Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping\n")
    } else if !plain.certificates.is_ready() {
        (StatusCode::SERVICE_UNAVAILABLE, "no certificate yet\n")
    } else if !plain.admissions.is_ready() {
        (StatusCode::SERVICE_UNAVAILABLE, "namespaces or the server's version are not known yet\n")
    } else {
        (StatusCode::OK, "ready\n")
    }
}

async fn metrics(State(plain): State<Arc<Plain>>) -> Response {
    ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], plain.counters.page()).into_response()
}

fn acceptor(certificates: Arc<Certificates>) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve(listener: TcpListener, acceptor: Option<TlsAcceptor>, routes: Router) {
    let connected = |stream| connection(stream, acceptor.clone(), routes.clone());
    serve_each(listener, CONNECTIONS_MAX, connected).await;
}

async fn connection(stream: TcpStream, acceptor: Option<TlsAcceptor>, routes: Router) {
    // Whatever breaks a connection, its caller calls again.
    let _ = stream.set_nodelay(true);
    match acceptor {
        None => speak(stream, routes).await,
        Some(acceptor) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_DEADLINE, acceptor.accept(stream)).await {
                speak(stream, routes).await;
            }
        }
    }
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, routes: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let _ = connection.await;
}
