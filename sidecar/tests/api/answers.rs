//! What the routes answer.

use ackbeat::api::types::{Connection, Connections, Status};
use ackbeat::driver::clock::{Clock as _, MonotonicClock};

use ackbeat_liveness::{Input, Verdict};

use crate::scene::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_peer_may_be_killed_and_the_answer_says_how() {
    let scene = Scene::start();
    scene.ready().await;
    scene.open(silent(7, "[::ffff:10.0.0.7]:40000")).await;
    let path = "/v1/verdict?peer=10.0.0.7:40000";
    let answer =
        scene.get_until(path, "a justified kill", |_, answer| answer["kill_justified"] == true).await;
    let connection: Connection = serde_json::from_value(answer).unwrap();
    assert_eq!(connection.connection, 7);
    assert_eq!((connection.peer.as_str(), connection.local.as_str()), ("10.0.0.7:40000", LOCAL));
    assert_eq!(connection.verdict, Verdict::Silent);
    assert_eq!(connection.path.as_deref(), Some("/api/remote.mux"));
    let close = connection.suggested_close.unwrap();
    assert_eq!((close.code, close.reason.as_str()), (1_011, "heartbeat timeout"));
    assert!(connection.age_ms >= 3_000, "{}", connection.age_ms);
    assert_eq!(connection.evidence.pong_age_ms, None, "what was never seen has no age");
    assert!(connection.evidence.hop_age_ms.is_some_and(|age| age >= 1_000), "{:?}", connection.evidence);
    assert_eq!(connection.tcp.send_queue_bytes, Some(0));
    assert!(connection.tcp.read_age_ms.is_some_and(|age| age < 60_000));

    // In every way to write the address, and over the Unix socket.
    for peer in ["[::ffff:10.0.0.7]:40000", "%5B::ffff:a00:7%5D:40000", "10.0.0.7:40000&local=10.0.0.1:8080"]
    {
        let (status, answer) = scene.get(&format!("/v1/verdict?peer={peer}")).await;
        assert_eq!((status, &answer["connection"]), (200, &7.into()), "{peer}: {answer}");
    }
    let over_unix = client_builder().unix_socket(scene.socket.clone()).build().unwrap();
    let answer: Connection = over_unix
        .get("http://sidecar/v1/verdict?peer=10.0.0.7:40000")
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(answer.connection, 7);
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_filtered_sorted_and_limited() {
    let scene = Scene::start();
    scene.ready().await;
    let now = MonotonicClock.now();
    let mut inputs = Vec::new();
    for (connection, peer, local, age_ms, queue) in [
        (1, "10.0.0.7:1", "10.0.0.1:8080", 9_000, Some(500)),
        (2, "10.0.0.7:2", "10.0.0.1:9090", 8_000, None),
        (3, "10.0.0.8:1", "10.0.0.1:8080", 7_000, Some(9_000)),
        (4, "[fd00::7]:1", "[fd00::1]:8080", 6_000, Some(700)),
    ] {
        inputs.push(opened(connection, peer, local, now.minus_ms(age_ms)));
        let mut socket = snapshot(connection, 1_000, queue.unwrap_or_default(), MonotonicClock.now());
        socket.send_queue_bytes = queue;
        inputs.push(Input::Sample(socket));
    }
    inputs.extend(upgraded(3, "/api/remote.mux", now));
    scene.open(inputs).await;
    scene.open(silent(5, "10.0.0.9:1")).await;
    scene
        .get_until("/v1/connections?kill_justified=true", "the silent one", |_, answer| {
            answer["matched"] == 1
        })
        .await;
    for (query, expected) in [
        // Unsorted: in the order of the peers' addresses.
        ("", &[1, 2, 3, 5, 4][..]),
        ("?local_port=8080", &[1, 3, 5, 4]),
        ("?peer=10.0.0.7", &[1, 2]),
        ("?peer=::ffff:10.0.0.7&local_port=9090", &[2]),
        ("?peer=fd00::7", &[4]),
        ("?path=/api", &[3, 5]),
        ("?path=/api/remote.mux/x", &[]),
        ("?websocket=true", &[3, 5]),
        ("?websocket=false", &[1, 2, 4]),
        ("?kill_justified=true", &[5]),
        ("?verdict=silent", &[5]),
        ("?verdict=silent,closed", &[5]),
        ("?verdict=closed", &[]),
        ("?sort=age_ms", &[5, 4, 3, 2, 1]),
        ("?sort=-age_ms&limit=2", &[1, 2]),
        // Of the second nothing is known: it comes last in either order.
        ("?sort=-send_queue_bytes", &[3, 4, 1, 5, 2]),
        ("?sort=send_queue_bytes", &[5, 1, 4, 3, 2]),
        ("?limit=0", &[]),
    ] {
        let (status, answer) = scene.get(&format!("/v1/connections{query}")).await;
        assert_eq!(status, 200, "{query}: {answer}");
        let answer: Connections = serde_json::from_value(answer).unwrap();
        let found: Vec<u64> = answer.connections.iter().map(|connection| connection.connection).collect();
        assert_eq!(found, expected, "{query}");
        assert_eq!(answer.total, 5, "{query}");
        if !query.contains("limit") {
            assert_eq!(answer.matched, found.len(), "{query}");
        }
    }
    let (_, limited) = scene.get("/v1/connections?sort=age_ms&limit=1").await;
    assert_eq!((&limited["matched"], limited["connections"].as_array().unwrap().len()), (&5.into(), 1));
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_comes_whole() {
    let scene = Scene::start();
    scene.ready().await;
    scene.open(crowd(3_000)).await;
    let (_, answer) = scene.get("/v1/connections?limit=100000&sort=-age_ms").await;
    let answer: Connections = serde_json::from_value(answer).unwrap();
    assert_eq!((answer.total, answer.matched, answer.connections.len()), (3_000, 3_000, 3_000));
    assert!(answer.connections.windows(2).all(|pair| pair[0].connection > pair[1].connection));
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_connections_of_one_address_need_the_local_one() {
    let scene = Scene::start();
    scene.ready().await;
    let now = MonotonicClock.now();
    scene
        .open(vec![opened(1, "10.0.0.7:1", "10.0.0.1:80", now), opened(2, "10.0.0.7:1", "10.0.0.1:81", now)])
        .await;
    let (status, problem) = scene.get("/v1/verdict?peer=10.0.0.7:1").await;
    assert_eq!((status, &problem["field"]), (409, &"local".into()));
    assert!(problem["detail"].as_str().unwrap().contains("10.0.0.1:80, 10.0.0.1:81"), "{problem}");
    let (status, answer) = scene.get("/v1/verdict?peer=10.0.0.7:1&local=10.0.0.1:81").await;
    assert_eq!((status, &answer["connection"]), (200, &2.into()));
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sidecar_tells_of_itself() {
    let scene = Scene::start();
    scene.ready().await;
    let (status, health) = scene.get("/healthz").await;
    assert_eq!((status, &health["healthy"]), (200, &true.into()), "{health}");
    let (_, readiness) = scene.get("/readyz").await;
    assert_eq!(
        (&readiness["mode"], &readiness["missing_signals"][0]),
        (&"ebpf".into(), &"resets_sent".into())
    );
    scene.open(silent(5, "10.0.0.9:1")).await;
    scene.open(vec![opened(6, "10.0.0.9:2", LOCAL, MonotonicClock.now())]).await;
    scene.feed(closed(6)).await;
    let answer = scene.get_until("/v1/status", "the close", |_, answer| answer["closed"]["total"] == 1).await;
    let answer: Status = serde_json::from_value(answer).unwrap();
    assert_eq!((answer.mode.as_str(), answer.policy.as_str(), answer.ready), ("ebpf", "default", true));
    assert_eq!((answer.closed.by_host, answer.closed.false_kills), (1, 0));
    assert_eq!(answer.connections.values().sum::<usize>(), 1, "{:?}", answer.connections);
    let page = scene.client.get(scene.url("/metrics")).send().await.unwrap();
    assert_eq!(page.headers()["content-type"], "text/plain; version=0.0.4");
    assert_eq!(page.text().await.unwrap(), "ackbeat_connections 1\n");
    let requests = scene.counters.requests();
    assert!(requests.contains(&("/healthz", 200, 1)), "{requests:?}");
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn before_everything_is_found_the_answer_is_to_ask_again() {
    let scene = Scene::start_with(Differs { without_driver: true, ..Differs::default() });
    for path in ["/v1/verdict?peer=10.0.0.7:1", "/v1/connections"] {
        let response = scene.client.get(scene.url(path)).send().await.unwrap();
        assert_eq!(response.status(), 503, "{path}");
        assert_eq!(response.headers()["retry-after"], "1", "{path}");
    }
    let (status, _) = scene.post(r#"{"heartbeats":[]}"#).await;
    assert_eq!(status, 503);
    let (status, health) = scene.get("/healthz").await;
    assert_eq!((status, &health["turn_age_ms"]), (503, &serde_json::Value::Null));
    let (status, readiness) = scene.get("/readyz").await;
    assert_eq!((status, &readiness["ready"]), (503, &false.into()));
    // A loop that stands still.
    scene.connections.set_turned(MonotonicClock.now().minus_ms(6_000));
    let (status, health) = scene.get("/healthz").await;
    assert_eq!((status, &health["healthy"]), (503, &false.into()), "{health}");
}
