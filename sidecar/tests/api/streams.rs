//! `/v1/events`.

use std::time::{Duration, Instant};

use ackbeat::api::events::EVENTS_KEPT;
use ackbeat::api::types::Event;
use ackbeat::driver::clock::{Clock as _, MonotonicClock};
use ackbeat_liveness::{CloseInitiator, Verdict};
use futures::StreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use crate::scene::*;

type Reader = tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

async fn listen(scene: &Scene, query: &str) -> Reader {
    let url = format!("ws://{}/v1/events{query}", scene.address);
    tokio_tungstenite::connect_async(url).await.unwrap().0
}

async fn next(reader: &mut Reader) -> Event {
    let message = tokio::time::timeout(DEADLINE, reader.next()).await.expect("an event").unwrap().unwrap();
    serde_json::from_str(message.to_text().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn verdict_changes_and_closes_come_as_they_happen() {
    let scene = Scene::start();
    scene.ready().await;
    let mut all = listen(&scene, "").await;
    let mut closes = listen(&scene, "?type=closed&peer=10.0.0.9").await;
    scene.open(silent(5, "10.0.0.9:1")).await;
    scene.open(vec![opened(6, "10.0.0.8:1", LOCAL, MonotonicClock.now())]).await;
    scene.feed(closed(6)).await;
    scene.feed(closed(5)).await;
    let mut changes = Vec::new();
    let ended = loop {
        match next(&mut all).await {
            Event::VerdictChanged { connection, peer, from, to, kill_justified, at_unix_ms, .. } => {
                assert_eq!((connection, peer.as_str()), (5, "10.0.0.9:1"));
                assert!(at_unix_ms > 1_600_000_000_000, "{at_unix_ms}");
                changes.push((from, to, kill_justified));
            }
            Event::Closed(event) if event.connection == 5 => break event,
            Event::Closed(event) => assert_eq!(event.connection, 6),
            Event::Lagged { events_dropped } => panic!("{events_dropped} events are missing"),
        }
    };
    assert!(changes.contains(&(Verdict::Alive, Verdict::Silent, false)), "{changes:?}");
    assert!(changes.contains(&(Verdict::Silent, Verdict::Silent, true)), "{changes:?}");
    assert_eq!(
        (ended.initiator, ended.kill_justified, ended.false_kill),
        (CloseInitiator::Host, true, false)
    );
    assert_eq!((ended.trace_id.len(), ended.span_id.len()), (32, 16));
    assert!(ended.trace_id.contains(|digit| digit != '0'), "{}", ended.trace_id);
    assert_eq!(ended.path.as_deref(), Some("/api/remote.mux"));
    assert!(ended.lifetime_ms.is_some_and(|ms| ms >= 3_000));
    // The other reader got what it asked for only.
    let Event::Closed(event) = next(&mut closes).await else { panic!("it asked for closes") };
    assert_eq!(event, ended);
    // The sidecar stops: the stream ends in order.
    scene.stop().await;
    let end = tokio::time::timeout(DEADLINE, async {
        loop {
            match closes.next().await {
                Some(Ok(Message::Close(frame))) => return frame,
                Some(Ok(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    });
    assert_eq!(end.await.unwrap().unwrap().code, CloseCode::Away);
}

/// A reader that reads nothing while more happens than is kept for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_is_too_slow_is_told_and_closed() {
    let scene = Scene::start();
    scene.ready().await;
    // A small window: what the kernel holds for it is soon full.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut slow = socket.connect(scene.address).await.unwrap();
    let request = format!(
        "GET /v1/events HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        scene.address
    );
    slow.write_all(request.as_bytes()).await.unwrap();
    let mut quick = listen(&scene, "?type=closed").await;
    let start = Instant::now();
    let mut round = 0;
    let mut came = 0_usize;
    while scene.counters.readers_dropped() == 0 {
        assert!(start.elapsed() < DEADLINE, "nobody was dropped");
        let base = 1_000_000 + round * 1_000;
        let ids: Vec<u64> = (base..base + 200).collect();
        let now = MonotonicClock.now();
        scene
            .feed(
                ids.iter()
                    .map(|id| opened(*id, &format!("10.2.0.1:{}", 1 + id % 60_000), LOCAL, now))
                    .collect(),
            )
            .await;
        scene.feed(ids.iter().flat_map(|id| closed(*id)).collect()).await;
        round += 1;
        // The reader that keeps up misses nothing; its pace is the pace here.
        for _ in &ids {
            assert!(matches!(next(&mut quick).await, Event::Closed(_)));
            came += 1;
        }
    }
    assert!(came > EVENTS_KEPT, "{came}");
    assert!(scene.counters.events_dropped() > 0);
    assert_eq!(scene.counters.readers_dropped(), 1);
    // Now it reads: what was on its way, then the word that events are missing, then the close with 1008.
    let mut text = Vec::new();
    tokio::time::timeout(DEADLINE, slow.read_to_end(&mut text)).await.unwrap().unwrap();
    let word = b"{\"type\":\"lagged\",\"events_dropped\":";
    let lagged =
        text.windows(word.len()).rposition(|part| part == word).expect("the word that events are missing");
    assert!(text[lagged..].windows(2).any(|pair| pair == 1_008_u16.to_be_bytes()), "no 1008 after it");
    let (_, status) = scene.get("/v1/status").await;
    assert!(status["lost"]["events"].as_u64().is_some_and(|count| count > 0), "{status}");
    scene.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_are_bounded_and_pages_of_other_origins_may_not_listen() {
    let scene = Scene::start();
    scene.ready().await;
    let mut readers = Vec::new();
    for _ in 0..ackbeat::api::stream::READERS_MAX {
        readers.push(listen(&scene, "").await);
    }
    let url = format!("ws://{}/v1/events", scene.address);
    let status = |error| match error {
        tokio_tungstenite::tungstenite::Error::Http(response) => response.status().as_u16(),
        other => panic!("{other}"),
    };
    assert_eq!(status(tokio_tungstenite::connect_async(&url).await.unwrap_err()), 503);
    drop(readers.pop());
    // Its place is free once its end was seen.
    let start = Instant::now();
    loop {
        match tokio_tungstenite::connect_async(&url).await {
            Ok(_) => break,
            Err(error) => assert_eq!(status(error), 503),
        }
        assert!(start.elapsed() < DEADLINE, "the place stays taken");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
    let mut request = url.as_str().into_client_request().unwrap();
    request.headers_mut().insert("origin", "https://elsewhere.example".parse().unwrap());
    assert_eq!(status(tokio_tungstenite::connect_async(request).await.unwrap_err()), 403);
    scene.stop().await;
}
