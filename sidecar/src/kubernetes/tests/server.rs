//! An API server that is played, on a real socket: it can refuse, hang, and go away and come back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Json, Response};
use axum::routing::post;
use futures::FutureExt as _;
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::kubernetes::OwnPod;
use crate::kubernetes::connection::Connection;

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// As by an API server.
    Properly,
    /// With this status.
    With(StatusCode),
    /// Never.
    Never,
}

/// What it holds, and what it was asked.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) answer: Answer,
    pub(super) events: Vec<Value>,
    /// Requests, whatever the answer was.
    pub(super) requests: usize,
}

pub(super) type Shared = Arc<Mutex<Cluster>>;

/// The server. Its connections end with it.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) cluster: Shared,
    runtime: Option<Runtime>,
}

impl Server {
    pub(super) fn start() -> Self {
        let cluster =
            Arc::new(Mutex::new(Cluster { answer: Answer::Properly, events: Vec::new(), requests: 0 }));
        let mut server = Self { address: ([127, 0, 0, 1], 0).into(), cluster, runtime: None };
        server.come_back();
        server
    }

    /// Listens, at the address of before if there was one.
    pub(super) fn come_back(&mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        // With SO_REUSEADDR, as std sets it: connections of before may be in TIME_WAIT.
        let listener = std::net::TcpListener::bind(self.address).unwrap();
        listener.set_nonblocking(true).unwrap();
        self.address = listener.local_addr().unwrap();
        let router = router(&self.cluster);
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
        self.runtime = Some(runtime);
    }

    /// Closes the listener and every connection.
    pub(super) async fn go_away(&mut self) {
        let runtime = self.runtime.take().unwrap();
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(30))).await.unwrap();
    }

    pub(super) fn connection(&self) -> Connection {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = Config::new(format!("http://{}", self.address).parse().unwrap());
        futures::future::ready(Client::try_from(config).unwrap()).boxed().shared()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub(super) fn own_pod() -> OwnPod {
    OwnPod { name: "web-0".to_owned(), namespace: "shop".to_owned(), uid: Some("u-web-0".to_owned()) }
}

/// Waits for a condition.
pub(super) async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn status(code: StatusCode) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(), "message": "events.events.k8s.io is forbidden",
        "reason": code.canonical_reason().unwrap_or_default(),
    });
    (code, Json(body)).into_response()
}

/// How this request is answered; `Ok` where it is answered properly.
async fn answer(cluster: &Shared) -> Result<(), Response> {
    let answer = {
        let mut cluster = cluster.lock();
        cluster.requests += 1;
        cluster.answer
    };
    match answer {
        Answer::Properly => Ok(()),
        Answer::With(code) => Err(status(code)),
        Answer::Never => std::future::pending().await,
    }
}

fn router(cluster: &Shared) -> Router {
    Router::new()
        .route("/apis/events.k8s.io/v1/namespaces/shop/events", post(create_event))
        .with_state(Arc::clone(cluster))
}

async fn create_event(State(cluster): State<Shared>, Json(event): Json<Value>) -> Response {
    if let Err(response) = answer(&cluster).await {
        return response;
    }
    cluster.lock().events.push(event.clone());
    (StatusCode::CREATED, Json(event)).into_response()
}
