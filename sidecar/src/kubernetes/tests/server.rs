//! An API server that is played, on a real socket: it can refuse, hang, and go away and come back.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Json, Response};
use axum::routing::{get, post};
use futures::FutureExt as _;
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::broadcast;

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
    pub(super) pods: Vec<Value>,
    pub(super) services: Vec<Value>,
    /// Watches that were begun.
    pub(super) watches: usize,
    /// Paths with queries of lists.
    pub(super) lists: Vec<String>,
    changes: broadcast::Sender<Value>,
}

impl Cluster {
    /// Tells everybody who watches: `ADDED`, `MODIFIED` or `DELETED`.
    pub(super) fn change(&mut self, kind: &str, object: &Value) {
        let same = |other: &Value| other["metadata"]["uid"] == object["metadata"]["uid"];
        let of_kind = if object["kind"] == "Pod" { &mut self.pods } else { &mut self.services };
        of_kind.retain(|other| !same(other));
        if kind != "DELETED" {
            of_kind.push(object.clone());
        }
        // Nobody may be watching.
        let _ = self.changes.send(json!({"type": kind, "object": object}));
    }
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
        let cluster = Arc::new(Mutex::new(Cluster {
            answer: Answer::Properly,
            events: Vec::new(),
            requests: 0,
            pods: Vec::new(),
            services: Vec::new(),
            watches: 0,
            lists: Vec::new(),
            changes: broadcast::channel(64).0,
        }));
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
        .route("/api/v1/namespaces/shop/pods", get(objects))
        .route("/api/v1/namespaces/shop/services", get(objects))
        .route("/api/v1/pods", get(objects))
        .route("/api/v1/services", get(objects))
        .with_state(Arc::clone(cluster))
}

async fn create_event(State(cluster): State<Shared>, Json(event): Json<Value>) -> Response {
    if let Err(response) = answer(&cluster).await {
        return response;
    }
    cluster.lock().events.push(event.clone());
    (StatusCode::CREATED, Json(event)).into_response()
}

/// A list, page by page, or a watch.
async fn objects(
    State(cluster): State<Shared>,
    uri: Uri,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    if let Err(response) = answer(&cluster).await {
        return response;
    }
    let kind = if uri.path().ends_with("pods") { "Pod" } else { "Service" };
    let scope = uri.path().contains("/namespaces/").then_some("shop");
    let name =
        query.get("fieldSelector").and_then(|text| text.strip_prefix("metadata.name=")).map(str::to_owned);
    let is_meant = move |object: &Value| {
        object["kind"] == kind
            && scope.is_none_or(|scope| object["metadata"]["namespace"] == scope)
            && name.as_ref().is_none_or(|name| object["metadata"]["name"] == name.as_str())
    };
    if query.get("watch").is_some_and(|value| value == "true") {
        let changes = {
            let mut cluster = cluster.lock();
            cluster.watches += 1;
            cluster.changes.subscribe()
        };
        let lines = futures::stream::unfold((changes, is_meant), |(mut changes, is_meant)| async {
            loop {
                let change = changes.recv().await.ok()?;
                if is_meant(&change["object"]) {
                    return Some((Ok::<_, std::io::Error>(format!("{change}\n")), (changes, is_meant)));
                }
            }
        });
        return Body::from_stream(lines).into_response();
    }
    let mut cluster = cluster.lock();
    cluster.lists.push(uri.to_string());
    let all = if kind == "Pod" { &cluster.pods } else { &cluster.services };
    let number = |key: &str, default| query.get(key).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (from, limit) = (number("continue", 0_usize), number("limit", usize::MAX));
    let meant: Vec<&Value> = all.iter().filter(|object| is_meant(object)).collect();
    let items: Vec<&Value> = meant.iter().copied().skip(from).take(limit).collect();
    let next = from + items.len();
    let mut metadata = json!({"resourceVersion": "1"});
    if next < meant.len() {
        metadata["continue"] = json!(next.to_string());
    }
    let list =
        json!({"apiVersion": "v1", "kind": format!("{kind}List"), "metadata": metadata, "items": items});
    Json(list).into_response()
}

/// A pod with an address.
pub(super) fn pod(namespace: &str, name: &str, uid: &str, address: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "1"},
        "spec": {"nodeName": "n1", "containers": [{"name": "web", "image": "shop:7"}]},
        "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "qosClass": "Burstable"},
    })
}
