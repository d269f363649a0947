//! Heartbeats that the host reports.

use ackbeat::api::counters::HeartbeatOutcome;
use ackbeat::api::types::{BODY_MAX_BYTES, Connection, HEARTBEATS_MAX};
use ackbeat::driver::clock::{Clock as _, MonotonicClock};
use ackbeat_liveness::{HeartbeatSource, Input};

use crate::scene::*;

#[tokio::test(flavor = "multi_thread")]
async fn reported_heartbeats_count_like_those_on_the_wire() {
    let scene = Scene::start();
    scene.ready().await;
    let now = MonotonicClock.now();
    let mut inputs = vec![
        opened(1, "10.0.0.7:1", LOCAL, now.minus_ms(5_000)),
        Input::Sample(snapshot(1, 1_000, 0, now)),
        opened(2, "10.0.0.7:2", LOCAL, now.minus_ms(5_000)),
    ];
    inputs.extend(upgraded(2, "/", now.minus_ms(4_000)));
    inputs.push(ping(2, 1_000, now.minus_ms(3_000)));
    scene.open(inputs).await;
    let (status, receipt) = scene
        .post(
            r#"{"heartbeats":[
                {"peer":"10.0.0.7:1","kind":"ping","age_ms":900,"id":"a"},
                {"peer":"10.0.0.7:1","local":"10.0.0.1:8080","kind":"pong","age_ms":400,"id":"a"},
                {"peer":"10.0.0.7:2","kind":"ping"},
                {"peer":"10.0.0.9:1","kind":"ping"}]}"#,
        )
        .await;
    assert_eq!(status, 202, "{receipt}");
    assert_eq!(receipt, serde_json::json!({"accepted": 2, "unmatched": 1, "redundant": 1}));
    let answer = scene
        .get_until("/v1/verdict?peer=10.0.0.7:1", "the Pong", |_, answer| {
            !answer["heartbeat"]["last_pong_age_ms"].is_null()
        })
        .await;
    let connection: Connection = serde_json::from_value(answer).unwrap();
    assert_eq!(connection.heartbeat.source, HeartbeatSource::Application);
    assert!(connection.heartbeat.last_pong_age_ms.is_some_and(|age| age >= 400));
    for (outcome, expected) in [
        (HeartbeatOutcome::Accepted, 2),
        (HeartbeatOutcome::Unmatched, 1),
        (HeartbeatOutcome::Redundant, 1),
        (HeartbeatOutcome::Dropped, 0),
    ] {
        assert_eq!(scene.counters.heartbeats(outcome), expected, "{outcome:?}");
    }
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_without_room_is_refused_as_a_whole_and_counted() {
    let scene = Scene::start_with(Differs { without_driver: true, ready: true, ..Differs::default() });
    let (mut inputs, mut steps) = (vec![opened(1, "10.0.0.7:1", LOCAL, MonotonicClock.now())], Vec::new());
    scene.connections.feed(&mut inputs, false, &mut steps);
    let report =
        r#"{"heartbeats":[{"peer":"10.0.0.7:1","kind":"ping"},{"peer":"10.0.0.7:1","kind":"pong"}]}"#;
    for _ in 0..ackbeat::api::REPORTS_MAX {
        assert_eq!(scene.post(report).await.0, 202);
    }
    let response = scene
        .client
        .post(scene.url("/v1/heartbeats"))
        .header("content-type", "application/json; charset=utf-8")
        .body(report)
        .send()
        .await
        .unwrap();
    assert_eq!((response.status().as_u16(), response.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    assert_eq!(scene.counters.heartbeats(HeartbeatOutcome::Dropped), 2);
    let (_, status) = scene.get("/v1/status").await;
    assert_eq!(status["lost"]["heartbeats"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_report_is_taken_and_a_larger_body_is_not() {
    let scene = Scene::start();
    scene.ready().await;
    let one = r#"{"peer":"[fd00:1234:5678:9abc:def0:1234:5678:9abc]:40000","local":"[fd00:1234:5678:9abc:def0:1234:5678:9abd]:40000","kind":"ping","age_ms":60000}"#;
    let largest = format!(r#"{{"heartbeats":[{}]}}"#, vec![one; HEARTBEATS_MAX].join(","));
    let (status, receipt) = scene.post(&largest).await;
    assert_eq!((status, &receipt["unmatched"]), (202, &HEARTBEATS_MAX.into()), "{receipt}");
    let body = format!("{{\"heartbeats\":[]{}}}", " ".repeat(BODY_MAX_BYTES));
    let (status, problem) = scene.post(&body).await;
    assert_eq!(status, 413, "{problem}");
    scene.stop().await;
}
