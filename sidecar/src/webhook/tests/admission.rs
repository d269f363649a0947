//! Reviews in, answers out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ackbeat_injection::manifest::{Format, Verb, transform};
use ackbeat_injection::{Facts, ServerVersion, Settings, names};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::cluster::{Cluster, Shared};
use crate::webhook::Counters;
use crate::webhook::admission::Admissions;
use crate::webhook::events::Events;
use crate::webhook::surroundings::Surroundings;

fn settings() -> Settings {
    Settings { image: "registry.example/ackbeat:1".to_owned(), ..Settings::default() }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn started() -> (Arc<Admissions>, Arc<Counters>, Shared) {
    let (client, cluster) = Cluster::start();
    let counters = Arc::new(Counters::new().unwrap());
    let surroundings = Surroundings::watch(client.clone());
    let events = Events::start(client, Arc::clone(&counters));
    let admissions =
        Admissions::new(settings(), "tools".to_owned(), surroundings, Some(events), Arc::clone(&counters));
    until("ready", || admissions.is_ready()).await;
    (Arc::new(admissions), counters, cluster)
}

fn review(namespace: &str, pod: &Value, is_dry_run: bool) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "operation": "CREATE", "namespace": namespace, "dryRun": is_dry_run,
            "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": pod,
        },
    })
}

fn pod(metadata: &Value, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

fn plain() -> Value {
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-6d5f", "uid": "u-rs", "controller": true}]);
    pod(
        &json!({"generateName": "shop-6d5f-", "labels": {"pod-template-hash": "6d5f"}, "ownerReferences": owner}),
        &json!({"containers": [{"name": "web", "image": "shop:7"}]}),
    )
}

/// The pod with the answer's patch.
fn patched(pod: &Value, answer: &Value) -> Value {
    assert_eq!(answer["response"]["allowed"], true, "{answer}");
    assert_eq!(answer["response"]["uid"], "u-1");
    let mut after = pod.clone();
    if let Some(patch) = answer["response"]["patch"].as_str() {
        assert_eq!(answer["response"]["patchType"], "JSONPatch");
        let patch: json_patch::Patch = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
        json_patch::patch(&mut after, &patch).unwrap();
    }
    after
}

#[tokio::test]
async fn the_webhook_and_the_command_come_to_the_same() {
    let (admissions, _, _) = started().await;
    let spec = json!({"containers": [{"name": "web", "image": "shop:7"}]});
    let facts = Facts { server: ServerVersion::from_text("1.29"), is_wanted: true, ..Facts::default() };
    let settings = settings();
    let mut injected = 0;
    for pod in [
        plain(),
        pod(&json!({"name": "bare"}), &spec),
        pod(
            &json!({"name": "a", "annotations": {names::PORTS: "8080", names::MODE: "sock-diag", "x": "y"}}),
            &spec,
        ),
        pod(&json!({"name": "b", "annotations": {names::PORTS: "no"}}), &spec),
        pod(&json!({"name": "c", "annotations": {names::INJECT: "disabled"}}), &spec),
        pod(&json!({"name": "d"}), &json!({"hostNetwork": true, "containers": [{"name": "web"}]})),
        pod(
            &json!({"name": "e", "labels": null}),
            &json!({"containers": [{"name": "istio-proxy"}, {"name": "web", "unknown": [1.5]}]}),
        ),
    ] {
        let answer = Arc::clone(&admissions).answer(review("shop", &pod, true)).await;
        let by_webhook = patched(&pod, &answer);
        let text = serde_json::to_string(&pod).unwrap();
        let verb = Verb::Inject { facts: &facts, settings: &settings };
        let by_command = transform(&text, verb, Format::Json).unwrap();
        assert_eq!(by_webhook, serde_json::from_str::<Value>(&by_command.text).unwrap());
        // A second call, when another webhook has changed the pod, changes nothing more.
        let again = Arc::clone(&admissions).answer(review("shop", &by_webhook, true)).await;
        assert_eq!(patched(&by_webhook, &again), by_webhook);
        injected += usize::from(by_webhook != pod);
    }
    assert_eq!(injected, 4);
}

#[tokio::test]
async fn events_are_on_the_owner_and_none_on_dry_runs() {
    let (admissions, counters, cluster) = started().await;
    let ask = |pod: Value, is_dry_run| {
        let admissions = Arc::clone(&admissions);
        async move { admissions.answer(review("shop", &pod, is_dry_run)).await }
    };
    ask(plain(), true).await;
    ask(plain(), false).await;
    let mut host = plain();
    host["spec"]["hostNetwork"] = json!(true);
    let answer = ask(host, false).await;
    assert!(
        answer["response"]["warnings"][0].as_str().unwrap().starts_with("ackbeat: no sidecar: hostNetwork"),
        "{answer}"
    );
    until("two events", || cluster.lock().events.len() == 2).await;
    let events = cluster.lock().events.clone();
    let facts: Vec<Value> = events
        .iter()
        .map(|event| {
            json!([
                event["reason"],
                event["type"],
                event["regarding"]["kind"],
                event["regarding"]["name"],
                event["regarding"]["uid"]
            ])
        })
        .collect();
    assert_eq!(
        json!(facts),
        json!([
            ["Injected", "Normal", "Deployment", "shop", "u-deployment"],
            ["InjectionSkipped", "Warning", "Deployment", "shop", "u-deployment"],
        ])
    );
    cluster.lock().events_status = StatusCode::FORBIDDEN;
    let mut other = plain();
    other["metadata"]["ownerReferences"][0]["name"] = json!("other-6d5f");
    ask(other, false).await;
    until("a refusal", || counters.page().contains("ackbeat_webhook_events_total{outcome=\"refused\"} 1"))
        .await;
    let page = counters.page();
    assert!(page.contains("ackbeat_webhook_admissions_total{outcome=\"injected\"} 3"), "{page}");
    assert!(page.contains("ackbeat_webhook_skipped_total{reason=\"host_network\"} 1"), "{page}");
}

#[tokio::test]
async fn who_is_served_and_how() {
    let (admissions, _, _) = started().await;
    let ask = |namespace: &'static str, pod: Value| {
        let admissions = Arc::clone(&admissions);
        async move { admissions.answer(review(namespace, &pod, true)).await }
    };
    let has_patch = |answer: &Value| answer["response"].get("patch").is_some();
    let mut asking = plain();
    asking["metadata"]["annotations"] = json!({names::INJECT: "enabled"});
    assert!(has_patch(&ask("shop", plain()).await));
    assert!(!has_patch(&ask("silent", plain()).await));
    assert!(has_patch(&ask("silent", asking.clone()).await));
    for namespace in ["kube-system", "tools"] {
        assert!(!has_patch(&ask(namespace, asking.clone()).await), "{namespace}");
    }
    let answer = ask("unheard-of", asking).await;
    assert_eq!(answer["response"]["warnings"][0], "ackbeat: namespace unheard-of is not known: no sidecar");

    let strict = patched(&plain(), &ask("strict", plain()).await);
    assert_eq!(strict["spec"]["initContainers"][0]["securityContext"]["runAsNonRoot"], true);

    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "nightly-28471230", "uid": "u", "controller": true}]);
    let job = pod(
        &json!({"name": "j", "ownerReferences": owner}),
        &json!({"restartPolicy": "Never", "containers": [{"name": "web"}]}),
    );
    let after = patched(&job, &ask("shop", job.clone()).await);
    let variables = after["spec"]["initContainers"][0]["env"].as_array().unwrap().clone();
    let name = variables.iter().find(|variable| variable["name"] == "OTEL_SERVICE_NAME").unwrap();
    assert_eq!(name["value"], "nightly");
}

#[tokio::test]
async fn whatever_comes_is_allowed() {
    let (admissions, counters, _) = started().await;
    let strange = [
        json!(null),
        json!({"request": {"uid": "u-1", "operation": "CREATE", "kind": {"kind": "Pod"}, "object": "x"}}),
        json!({"request": {"uid": "u-1", "operation": "DELETE", "kind": {"kind": "Pod"}, "object": {}}}),
        review("shop", &json!({"metadata": [], "spec": 7}), false),
    ];
    for review in strange {
        let answer = Arc::clone(&admissions).answer(review).await;
        assert_eq!(answer["response"]["allowed"], true, "{answer}");
        assert!(
            answer["response"].get("patch").is_none() && answer["response"].get("warnings").is_some(),
            "{answer}"
        );
    }
    assert!(counters.page().contains("ackbeat_webhook_admissions_total{outcome=\"failed\"} 3"));
}
