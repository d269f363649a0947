//! An API server that is played: what the webhook asks for, and nothing else.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Json, Response};
use axum::routing::{get, post};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// What it holds.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) secret: Value,
    pub(super) configuration: Value,
    pub(super) events: Vec<Value>,
    /// Status of answers to new Events.
    pub(super) events_status: StatusCode,
    /// Writes of the Secret that find it changed meanwhile.
    pub(super) conflicts: usize,
    version: u64,
}

pub(super) type Shared = Arc<Mutex<Cluster>>;

fn status(code: StatusCode) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(), "message": "no"});
    (code, Json(body)).into_response()
}

fn namespace(name: &str, metadata: Value) -> Value {
    let mut metadata = metadata;
    metadata["name"] = json!(name);
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

fn namespaces() -> Value {
    json!([
        namespace("shop", json!({"labels": {"ackbeat.dev/inject": "enabled"}})),
        namespace(
            "strict",
            json!({"labels": {"ackbeat.dev/inject": "enabled", "pod-security.kubernetes.io/enforce": "restricted"}})
        ),
        namespace("silent", json!({})),
    ])
}

impl Cluster {
    pub(super) fn start() -> (Client, Shared) {
        let shared: Shared = Arc::new(Mutex::new(Self {
            secret: json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls", "namespace": "tools", "resourceVersion": "1"}}),
            configuration: json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "ackbeat"},
                "webhooks": [{"name": "pods.ackbeat.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {}}],
            }),
            events: Vec::new(),
            events_status: StatusCode::CREATED,
            conflicts: 0,
            version: 1,
        }));
        let router = Router::new()
            .route("/version", get(async || Json(json!({
                "major": "1", "minor": "29+", "gitVersion": "v1.29.0", "gitCommit": "", "gitTreeState": "", "buildDate": "",
                "goVersion": "", "compiler": "", "platform": "",
            }))))
            .route("/api/v1/namespaces", get(async |RawQuery(query): RawQuery| {
                if query.unwrap_or_default().contains("watch=true") {
                    return Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>()).into_response();
                }
                let list = json!({"apiVersion": "v1", "kind": "NamespaceList", "metadata": {"resourceVersion": "1"}, "items": namespaces()});
                Json(list).into_response()
            }))
            .route("/api/v1/namespaces/{name}", get(async || status(StatusCode::NOT_FOUND)))
            .route("/api/v1/namespaces/tools/secrets/tls", get(read_secret).put(write_secret))
            .route(
                "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/ackbeat",
                get(async |State(shared): State<Shared>| Json(shared.lock().configuration.clone())).patch(patch_configuration),
            )
            .route("/apis/apps/v1/namespaces/shop/replicasets/shop-6d5f", get(async || Json(json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": {"name": "shop-6d5f", "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop", "uid": "u-deployment", "controller": true},
                ]},
            }))))
            .route("/apis/batch/v1/namespaces/shop/jobs/{name}", get(async |Path(name): Path<String>| {
                if name != "nightly-28471230" {
                    return status(StatusCode::NOT_FOUND);
                }
                Json(json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                    "metadata": {"name": name, "ownerReferences": [
                        {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "u-cron", "controller": true},
                    ]},
                })).into_response()
            }))
            .route("/apis/events.k8s.io/v1/namespaces/{namespace}/events", post(async |State(shared): State<Shared>, Json(event): Json<Value>| {
                let mut cluster = shared.lock();
                if cluster.events_status != StatusCode::CREATED {
                    return status(cluster.events_status);
                }
                cluster.events.push(event.clone());
                (StatusCode::CREATED, Json(event)).into_response()
            }))
            .with_state(Arc::clone(&shared));
        (Client::new(router, "tools"), shared)
    }
}

async fn read_secret(State(shared): State<Shared>) -> Json<Value> {
    Json(shared.lock().secret.clone())
}

async fn write_secret(State(shared): State<Shared>, Json(secret): Json<Value>) -> Response {
    let mut cluster = shared.lock();
    let version = |secret: &Value| secret["metadata"]["resourceVersion"].clone();
    if cluster.conflicts > 0 || version(&secret) != version(&cluster.secret) {
        cluster.conflicts = cluster.conflicts.saturating_sub(1);
        return status(StatusCode::CONFLICT);
    }
    cluster.version += 1;
    cluster.secret = secret;
    cluster.secret["metadata"]["resourceVersion"] = json!(cluster.version.to_string());
    Json(cluster.secret.clone()).into_response()
}

async fn patch_configuration(State(shared): State<Shared>, Json(patch): Json<Value>) -> Json<Value> {
    let mut cluster = shared.lock();
    let bundle = patch["webhooks"][0]["clientConfig"]["caBundle"].clone();
    assert_eq!(patch["webhooks"][0]["name"], "pods.ackbeat.dev");
    cluster.configuration["webhooks"][0]["clientConfig"]["caBundle"] = bundle;
    Json(cluster.configuration.clone())
}
