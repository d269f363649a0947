//! The description and the server say the same: every documented path and method answers, every answer that can be
//! provoked is documented and of its schema, and there is no other path.

use std::collections::{BTreeMap, BTreeSet};

use ackbeat::api::openapi::Description;

use ackbeat::driver::clock::{Clock as _, MonotonicClock};
use futures::StreamExt as _;
use serde_json::{Value, json};
use utoipa::OpenApi as _;

use crate::scene::*;

/// Of what form an answer of this route and status must be; `None` where it has none.
fn schema(document: &Value, method: &str, path: &str, status: u16, media_type: &str) -> Option<Value> {
    let answer = document
        .pointer(&format!("/paths/{}/{method}/responses/{status}", path.replace('/', "~1")))
        .unwrap_or_else(|| panic!("{method} {path} answers {status}, which is not documented"));
    let content = answer.get("content")?;
    let schema = content
        .get(media_type)
        .unwrap_or_else(|| panic!("{method} {path} {status} answers {media_type}, documented is {content}"));
    Some(schema["schema"].clone())
}

/// What is wrong with a value.
fn faults(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let whole = json!({ "allOf": [schema], "components": document["components"] });
    let validator = jsonschema::draft202012::new(&whole).unwrap();
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn is_of_schema(document: &Value, schema: &Value, value: &Value, what: &str) {
    let faults = faults(document, schema, value);
    assert!(faults.is_empty(), "{what}: {faults:#?}\n{value:#}");
}

struct Asked<'a> {
    document: &'a Value,
    seen: BTreeSet<(String, String, u16)>,
}

impl Asked<'_> {
    async fn ask(&mut self, scene: &Scene, method: &str, path: &str, body: Option<&str>) -> u16 {
        self.ask_as(scene, method, path, body, "application/json").await
    }

    async fn ask_as(
        &mut self,
        scene: &Scene,
        method: &str,
        path: &str,
        body: Option<&str>,
        media_type: &str,
    ) -> u16 {
        let url = scene.url(path);
        let request = if method == "post" {
            scene
                .client
                .post(url)
                .header("content-type", media_type)
                .body(body.unwrap_or_default().to_owned())
        } else {
            scene.client.get(url)
        };
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let route = path.split('?').next().unwrap();
        let media_type =
            response.headers()["content-type"].to_str().unwrap().split(';').next().unwrap().to_owned();
        let text = response.text().await.unwrap();
        if let Some(schema) = schema(self.document, method, route, status, &media_type) {
            let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            is_of_schema(self.document, &schema, &value, &format!("{method} {path} {status}"));
        }
        self.seen.insert((method.to_owned(), route.to_owned(), status));
        status
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_and_the_server_say_the_same() {
    let scene = Scene::start();
    scene.ready().await;
    let (status, document) = scene.get("/v1/openapi.json").await;
    assert_eq!(status, 200);
    let mut asked = Asked { document: &document, seen: BTreeSet::new() };

    let mut events =
        tokio_tungstenite::connect_async(format!("ws://{}/v1/events", scene.address)).await.unwrap().0;
    asked.seen.insert(("get".to_owned(), "/v1/events".to_owned(), 101));
    let now = MonotonicClock.now();
    scene.open(silent(5, "10.0.0.9:1")).await;
    scene
        .open(vec![
            opened(1, "10.0.0.7:1", "10.0.0.1:80", now),
            opened(2, "10.0.0.7:1", "10.0.0.1:81", now),
            opened(6, "10.0.0.8:1", LOCAL, now),
        ])
        .await;
    scene.feed(closed(6)).await;
    let long = format!("{{\"heartbeats\":[]{}}}", " ".repeat(64 * 1024));
    for (path, expected) in [
        ("/v1/verdict?peer=10.0.0.9:1", 200),
        ("/v1/verdict?peer=10.0.0.7:1", 409),
        ("/v1/verdict?peer=10.0.0.7:2", 404),
        ("/v1/verdict", 400),
        ("/v1/connections?sort=-age_ms", 200),
        ("/v1/connections?limit=x", 400),
        ("/v1/status", 200),
        ("/v1/status?x=1", 400),
        ("/v1/storms", 200),
        ("/v1/storms?x=1", 400),
        ("/healthz", 200),
        ("/healthz?x=1", 400),
        ("/readyz", 200),
        ("/readyz?x=1", 400),
        ("/metrics", 200),
        ("/metrics?x=1", 400),
        ("/v1/openapi.json", 200),
        ("/v1/openapi.json?x=1", 400),
        ("/v1/leaks", 200),
        ("/v1/leaks?x=1", 400),
        ("/v1/events", 426),
        ("/v1/events?x=1", 400),
    ] {
        assert_eq!(asked.ask(&scene, "get", path, None).await, expected, "{path}");
    }
    for (body, expected) in [
        (r#"{"heartbeats":[{"peer":"10.0.0.8:9","kind":"ping"}]}"#, 202),
        (r#"{"heartbeats":[{"peer":"10.0.0.7:1","kind":"ping"}]}"#, 409),
        ("{}", 400),
        (long.as_str(), 413),
    ] {
        assert_eq!(asked.ask(&scene, "post", "/v1/heartbeats", Some(body)).await, expected);
    }
    assert_eq!(asked.ask_as(&scene, "post", "/v1/heartbeats", Some("{}"), "text/plain").await, 415);

    for (body, expected) in [
        (r#"{"mode":"off"}"#, 200),
        (r#"{"mode":"on"}"#, 409),
        (r#"{"mode":"maybe"}"#, 400),
        ("[]", 400),
        (long.as_str(), 413),
    ] {
        assert_eq!(asked.ask(&scene, "post", "/v1/reap", Some(body)).await, expected, "{body:.40}");
    }
    assert_eq!(asked.ask_as(&scene, "post", "/v1/reap", Some("{}"), "text/plain").await, 415);

    // Messages of the stream too: a change of verdict, and a close.
    let of_events = document.pointer("/components/schemas/Event").unwrap();
    let mut kinds = BTreeSet::new();
    while kinds.len() < 2 {
        let message =
            tokio::time::timeout(DEADLINE, events.next()).await.expect("an event").unwrap().unwrap();
        let event: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
        is_of_schema(&document, of_events, &event, "an event");
        kinds.insert(event["type"].as_str().unwrap().to_owned());
    }
    is_of_schema(&document, of_events, &json!({"type": "lagged", "events_dropped": 3}), "an event");
    scene.stop().await;

    // What only another scene answers.
    let scene = Scene::start_with(Differs { without_driver: true, ..Differs::default() });
    for path in ["/v1/verdict?peer=10.0.0.7:1", "/v1/connections", "/healthz", "/readyz"] {
        assert_eq!(asked.ask(&scene, "get", path, None).await, 503, "{path}");
    }
    assert_eq!(asked.ask(&scene, "post", "/v1/heartbeats", Some(r#"{"heartbeats":[]}"#)).await, 503);
    let scene = Scene::start_with(Differs { without_metrics: true, ..Differs::default() });
    assert_eq!(asked.ask(&scene, "get", "/metrics", None).await, 404);

    // Everything that is documented was seen, but for what takes ten seconds, or other readers and other origins.
    let elsewhere: BTreeSet<_> = [
        ("post", "/v1/heartbeats", 408),
        ("post", "/v1/reap", 408),
        ("get", "/v1/events", 403),
        ("get", "/v1/events", 503),
    ]
    .map(|(method, path, status)| (method.to_owned(), path.to_owned(), status))
    .into();
    let mut documented = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            for status in operation["responses"].as_object().unwrap().keys() {
                documented.insert((method.clone(), path.clone(), status.parse::<u16>().unwrap()));
            }
        }
    }
    let seen: BTreeSet<_> = asked.seen.union(&elsewhere).cloned().collect();
    assert_eq!(documented, seen);
}

/// A route that nobody documented would still be counted by its template.
#[test]
fn every_route_is_documented() {
    let document = serde_json::to_value(Description::openapi()).unwrap();
    let documented: BTreeSet<&str> =
        document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(documented, ackbeat::api::ROUTES.into_iter().collect());
}

/// The test's own judge is no rubber stamp.
#[test]
fn an_answer_of_another_form_is_refused() {
    let document = serde_json::to_value(Description::openapi()).unwrap();
    let of_close = json!({"$ref": "#/components/schemas/SuggestedClose"});
    assert!(faults(&document, &of_close, &json!({"code": 1011, "reason": "heartbeat timeout"})).is_empty());
    for wrong in [json!({"code": 1011}), json!({"code": "1011", "reason": ""}), json!([])] {
        assert!(!faults(&document, &of_close, &wrong).is_empty(), "{wrong}");
    }
    let of_tcp = json!({"$ref": "#/components/schemas/Tcp"});
    let mut unknown: BTreeMap<&str, Value> = document
        .pointer("/components/schemas/Tcp/required")
        .unwrap()
        .as_array()
        .unwrap()
        .iter()
        .map(|name| (name.as_str().unwrap(), Value::Null))
        .collect();
    assert_eq!(unknown.len(), 12, "{unknown:?}");
    assert_eq!(faults(&document, &of_tcp, &json!(unknown)), Vec::<String>::new());
    unknown.insert("state", "asleep".into());
    assert!(!faults(&document, &of_tcp, &json!(unknown)).is_empty());
}
