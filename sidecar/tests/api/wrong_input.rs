//! Wrong input is told by the field's name. One table, one snapshot.

use std::fmt::Write as _;

use ackbeat::api::problem::MEDIA_TYPE;
use ackbeat::driver::clock::{Clock as _, MonotonicClock};

use crate::scene::*;

const QUERIES: &[&str] = &[
    "/v1/verdict",
    "/v1/verdict?peer=",
    "/v1/verdict?peer=10.0.0.7",
    "/v1/verdict?peer=10.0.0.7:0",
    "/v1/verdict?peer=10.0.0.7:70000",
    "/v1/verdict?peer=fd00::7:40000",
    "/v1/verdict?peer=localhost:80",
    "/v1/verdict?peer=10.0.0.7:1&peer=10.0.0.7:2",
    "/v1/verdict?peer=10.0.0.7:1&local=8080",
    "/v1/verdict?peer=10.0.0.7:1&lokal=10.0.0.1:80",
    "/v1/verdict?peer=10.0.0.7:2",
    "/v1/verdict?peer=10.0.0.7:1",
    "/v1/connections?verdict=dead",
    "/v1/connections?verdict=",
    "/v1/connections?local_port=0",
    "/v1/connections?local_port=http",
    "/v1/connections?peer=10.0.0.7:1",
    "/v1/connections?path=api",
    "/v1/connections?kill_justified=1",
    "/v1/connections?websocket=yes",
    "/v1/connections?sort=age",
    "/v1/connections?sort=age_ms,verdict",
    "/v1/connections?limit=-1",
    "/v1/connections?limit=100001",
    "/v1/connections?LIMIT=1",
    "/v1/status?x",
    "/v1/openapi.json?pretty=true",
    "/v1/events",
    "/v1/events?type=opened",
    "/v1/events?peer=10.0.0.7:1",
    "/v1/events?since=1",
    "/healthz?verbose",
    "/readyz?verbose",
    "/metrics?name=x",
    "/",
    "/v1/verdict/",
    "/v2/verdict",
];

const BODIES: &[&str] = &[
    "",
    "no json",
    "[]",
    "{}",
    r#"{"heartbeats":{}}"#,
    r#"{"heartbeats":[{}]}"#,
    r#"[[["10.0.0.7:2",null,"ping"]]]"#,
    r#"{"heartbeats":[["10.0.0.7:2",null,"ping"]]}"#,
    r#"{"heartbeats":[],"more":1}"#,
    r#"{"heartbeats":[]} {}"#,
    r#"{"heartbeats":[{"peer":"10.0.0.7:2","kind":"ping"},{"peer":"10.0.0.7:2","kind":"beat"}]}"#,
    r#"{"heartbeats":[{"peer":"10.0.0.7:2","kind":"ping"},{"peer":"10.0.0.7","kind":"pong"}]}"#,
    r#"{"heartbeats":[{"peer":17,"kind":"ping"}]}"#,
    r#"{"heartbeats":[{"peer":"10.0.0.7:2","local":"*","kind":"ping"}]}"#,
    r#"{"heartbeats":[{"peer":"10.0.0.7:2","kind":"ping","age_ms":-5}]}"#,
    r#"{"heartbeats":[{"peer":"10.0.0.7:2","kind":"ping","age_ms":60001}]}"#,
    r#"{"heartbeats":[{"peer":"10.0.0.7:2","kind":"ping","age":5}]}"#,
    r#"{"heartbeats":[{"peer":"10.0.0.7:2","kind":"pong","code":1011}]}"#,
    r#"{"heartbeats":[{"peer":"10.0.0.7:2","kind":"close","code":999}]}"#,
    r#"{"heartbeats":[{"peer":"10.0.0.7:2","kind":"close","code":70000}]}"#,
    r#"{"heartbeats":[{"peer":"10.0.0.7:2","kind":"close","reason":"heartbeat timeout"}]}"#,
    r#"{"heartbeats":[{"peer":"10.0.0.7:2","kind":"close","code":1011,"reason":"more than one hundred and twenty-three bytes, which is what RFC 6455 leaves of a control frame's payload for the reason of a close"}]}"#,
    r#"{"heartbeats":[{"peer":"10.0.0.7:1","kind":"ping"}]}"#,
];

fn told(what: &str, status: u16, problem: &serde_json::Value) -> String {
    let field = problem["field"].as_str().unwrap_or("-");
    format!("{what}\n  {status} {} [{field}]\n  {}\n", problem["title"], problem["detail"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_input_is_told_by_the_fields_name() {
    let scene = Scene::start();
    scene.ready().await;
    let now = MonotonicClock.now();
    scene
        .open(vec![opened(1, "10.0.0.7:1", "10.0.0.1:80", now), opened(2, "10.0.0.7:1", "10.0.0.1:81", now)])
        .await;
    let mut table = String::new();
    for path in QUERIES {
        let response = scene.client.get(scene.url(path)).send().await.unwrap();
        let status = response.status().as_u16();
        assert_eq!(response.headers()["content-type"], MEDIA_TYPE, "{path}");
        let _ = write!(table, "{}", told(&format!("GET {path}"), status, &response.json().await.unwrap()));
    }
    for body in BODIES {
        let (status, problem) = scene.post(body).await;
        let _ = write!(table, "{}", told(&format!("POST /v1/heartbeats {body}"), status, &problem));
    }
    let one = r#"{"peer":"10.0.0.7:2","kind":"ping"}"#;
    let (status, problem) = scene.post(&format!(r#"{{"heartbeats":[{}]}}"#, [one; 257].join(","))).await;
    let _ = write!(table, "{}", told("POST /v1/heartbeats, 257 of them", status, &problem));
    let id = "x".repeat(126);
    let long = format!(r#"{{"heartbeats":[{{"peer":"10.0.0.7:2","kind":"ping","id":"{id}"}}]}}"#);
    let (status, problem) = scene.post(&long).await;
    let _ = write!(table, "{}", told("POST /v1/heartbeats, an id of 126 bytes", status, &problem));
    for content_type in ["text/plain", "application/x-www-form-urlencoded"] {
        let response = scene
            .client
            .post(scene.url("/v1/heartbeats"))
            .header("content-type", content_type)
            .body(r#"{"heartbeats":[]}"#)
            .send()
            .await
            .unwrap();
        let status = response.status().as_u16();
        let what = format!("POST /v1/heartbeats as {content_type}");
        let _ = write!(table, "{}", told(&what, status, &response.json().await.unwrap()));
    }
    for (method, path) in [("POST", "/v1/verdict"), ("GET", "/v1/heartbeats"), ("DELETE", "/v1/connections")]
    {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let response = scene.client.request(method.clone(), scene.url(path)).send().await.unwrap();
        let status = response.status().as_u16();
        let allow = response.headers()["allow"].to_str().unwrap().to_owned();
        let what = format!("{method} {path} (allow: {allow})");
        let _ = write!(table, "{}", told(&what, status, &response.json().await.unwrap()));
    }
    insta::assert_snapshot!(table);
    // Nothing of what was refused was taken.
    assert_eq!(scene.counters.heartbeats(ackbeat::api::counters::HeartbeatOutcome::Accepted), 0);
    scene.stop().await;
}
