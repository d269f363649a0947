//! What clients can hold is bounded.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use ackbeat::api::server::CONNECTIONS_MAX;
use ackbeat::driver::clock::{Clock as _, MonotonicClock};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::scene::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_at_once_are_answered() {
    let scene = Scene::start();
    scene.ready().await;
    scene.open(crowd(500)).await;
    let requests: Vec<_> = (0..1_000_u32)
        .map(|number| {
            let client = scene.client.clone();
            let url = scene.url(&format!(
                "/v1/verdict?peer=10.100.{}.{}:40000",
                (number % 500) / 256,
                (number % 500) % 256
            ));
            tokio::spawn(async move { client.get(url).send().await.unwrap().status().as_u16() })
        })
        .collect();
    for request in requests {
        assert_eq!(request.await.unwrap(), 200);
    }
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_too_many_is_told_and_counted() {
    let scene = Scene::start();
    scene.ready().await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        held.push(TcpStream::connect(scene.address).await.unwrap());
    }
    // Those of the client of the scene may have been among the first.
    let start = Instant::now();
    let refused = loop {
        let mut one_more = TcpStream::connect(scene.address).await.unwrap();
        let mut answer = String::new();
        match tokio::time::timeout(Duration::from_millis(500), one_more.read_to_string(&mut answer)).await {
            Ok(Ok(_)) if !answer.is_empty() => break answer,
            _ => held.push(one_more),
        }
        assert!(start.elapsed() < DEADLINE, "nobody is refused");
    };
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(scene.counters.connections_refused() >= 1);
    drop(held);
    scene.get_until("/healthz", "a place", |status, _| status == 200).await;
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_too_long_is_refused() {
    let scene = Scene::start();
    scene.ready().await;
    for head in [
        format!("GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "x".repeat(64 * 1024)),
        format!("GET /healthz HTTP/1.1\r\nhost: x\r\n{}\r\n", "x-many: 1\r\n".repeat(100)),
    ] {
        let mut stream = TcpStream::connect(scene.address).await.unwrap();
        // The answer may come before all of it is written.
        let _ = stream.write_all(head.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await.unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    let (status, _) = scene.get("/healthz").await;
    assert_eq!(status, 200);
    scene.stop().await;
}

/// The figures are the benchmark's (`cargo bench -p ackbeat --bench verdict`); here only the order counts: verdicts come
/// while one long turn of the driver runs, and not when it is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_does_not_wait_for_a_busy_driver() {
    let scene = Scene::start();
    scene.ready().await;
    scene.open(crowd(1_000)).await;
    let now = MonotonicClock.now();
    let mut turn = vec![opened(1, "10.0.0.1:1", LOCAL, now)];
    turn.extend((0..100_000).flat_map(|each| upgraded(100_000 + each % 1_000, "/", now)).take(100_000));
    turn.push(opened(2, "10.0.0.2:1", LOCAL, now));
    scene.feed(turn).await;
    scene.get_until("/v1/verdict?peer=10.0.0.1:1", "the turn's begin", |status, _| status == 200).await;
    let (start, mut answers) = (Instant::now(), 0);
    while scene.get("/v1/verdict?peer=10.0.0.2:1").await.0 == 404 {
        answers += 1;
        assert!(start.elapsed() < DEADLINE, "the turn does not end");
    }
    assert!(answers >= 5, "{answers} answers came during the turn");
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_requests_in_a_second_are_told_and_counted() {
    let scene = Scene::start_with(Differs { rate: Some(NonZeroU32::new(1).unwrap()), ..Differs::default() });
    scene.ready().await;
    // The first takes what a quiet second leaves.
    let (status, _) = scene.get("/v1/status").await;
    assert_eq!(status, 200);
    let refused = scene.client.get(scene.url("/v1/verdict?peer=10.0.0.1:1")).send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    assert_eq!(scene.get("/v1/connections").await.0, 429);
    // Whoever restarts the container gets its answer all the same.
    for _ in 0..100 {
        assert_eq!(scene.get("/healthz").await.0, 200);
    }
    let counts: Vec<_> =
        scene.counters.requests().into_iter().filter(|(_, status, _)| *status == 429).collect();
    assert_eq!(counts, [("/v1/connections", 429, 1), ("/v1/verdict", 429, 1)]);
    // And when some time has passed, the others again: one second is room for one verdict.
    scene.get_until("/v1/verdict?peer=10.0.0.1:1", "room", |status, _| status == 404).await;
    scene.stop().await;
}

/// A client that holds a connection and says next to nothing is sent away, whatever it has begun.
#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_are_sent_away() {
    let scene = Scene::start();
    scene.ready().await;
    let begun = [
        "",
        "GET /healthz HT",
        "GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: 1",
        "POST /v1/heartbeats HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{",
    ];
    let clients: Vec<_> = begun
        .into_iter()
        .map(|begun| {
            let address = scene.address;
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(begun.as_bytes()).await.unwrap();
                let (mut reading, mut writing) = stream.split();
                let mut answer = Vec::new();
                let trickle = async {
                    // A byte a second never makes a whole of it. A reset while it writes is an end too.
                    while !begun.is_empty() && writing.write_all(b"1").await.is_ok() {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    _ = reading.read_to_end(&mut answer) => {}
                    () = trickle => {}
                    () = tokio::time::sleep(DEADLINE) => panic!("{begun:?} is not sent away"),
                }
                String::from_utf8_lossy(&answer).into_owned()
            })
        })
        .collect();
    let mut answers = Vec::new();
    for client in clients {
        answers.push(client.await.unwrap());
    }
    assert!(answers[3].starts_with("HTTP/1.1 408 "), "{answers:?}");
    scene.stop().await;
}
