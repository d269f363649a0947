//! Events: what is in them, how few there are, and what a server that refuses, hangs or goes away costs.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use governor::Quota;
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use serde_json::Value;

use super::server::{Answer, Server, own_pod, until};
use crate::kubernetes::aggregation::Rate;
use crate::kubernetes::events::{Pace, WAITING_MAX};
use crate::kubernetes::{EventOutcome, Events, KubernetesCounters, Publishing};
use crate::telemetry::test_records as records;

/// Like the real one, a hundred times as fast.
fn fast() -> Pace {
    let burst = NonZeroU32::new(3).unwrap();
    Pace {
        rate: Rate {
            gather: Duration::from_millis(5),
            quota: Quota::with_period(Duration::from_millis(600)).unwrap().allow_burst(burst),
        },
        deadline: Duration::from_millis(500),
        pause: Duration::from_millis(10),
        pause_max: Duration::from_millis(100),
        refused: Duration::from_secs(2),
    }
}

struct Scene {
    server: Server,
    events: Events,
    publishing: Publishing,
    counters: Arc<KubernetesCounters>,
}

fn scene(pace: Pace) -> Scene {
    let server = Server::start();
    let counters = Arc::new(KubernetesCounters::default());
    let (events, publishing) = Events::start(server.connection(), &own_pod(), Arc::clone(&counters), pace);
    Scene { server, events, publishing, counters }
}

impl Scene {
    fn kill(&self) {
        let span =
            SpanContext::new(TraceId::from(7), SpanId::from(7), TraceFlags::SAMPLED, false, TraceState::NONE);
        self.events.false_kill(&records::false_kill(), &span, None);
    }

    fn published(&self) -> Vec<Value> {
        self.server.cluster.lock().events.clone()
    }

    fn count(&self, outcome: EventOutcome) -> u64 {
        self.counters.events().unwrap().into_iter().find(|(known, _)| *known == outcome).unwrap().1
    }
}

/// How many kills an Event stands for.
fn stands_for(event: &Value) -> u64 {
    let note = event["note"].as_str().unwrap();
    match note.strip_prefix("the host killed a peer ") {
        Some(_) => 1,
        None => note.strip_prefix("the host killed ").unwrap().split(' ').next().unwrap().parse().unwrap(),
    }
}

#[tokio::test]
async fn a_false_kill_is_an_event_on_the_pod() {
    let scene = scene(fast());
    scene.kill();
    until("an event", || scene.published().len() == 1).await;
    let mut event = scene.published().remove(0);
    let name = event["metadata"]["name"].take();
    assert!(name.as_str().unwrap().starts_with("web-0."), "{name}");
    assert!(event["eventTime"].take().is_string());
    insta::assert_json_snapshot!(event);
}

#[tokio::test]
async fn a_flood_is_a_few_events_that_count_all_of_it() {
    let scene = scene(fast());
    for _ in 0..10_000 {
        scene.kill();
    }
    let began = Instant::now();
    // Whatever found no room is in a number, too: one more brings it along.
    until("room", || {
        scene.kill();
        scene.published().len() == 3
    })
    .await;
    assert!(scene.count(EventOutcome::Dropped) >= 10_000 - WAITING_MAX as u64);
    let mut told = 10_000;
    let total = || scene.published().iter().map(stands_for).sum::<u64>();
    until("everything is told", || {
        scene.kill();
        total() >= told
    })
    .await;
    told = total();
    let most = 4 + began.elapsed().as_millis() / 600;
    assert!(scene.published().len() as u128 <= most, "{} events, {most} at most", scene.published().len());
    assert!(told >= 10_000);
    assert_eq!(scene.count(EventOutcome::Failed), 0);
}

#[tokio::test]
async fn a_refusal_is_asked_about_rarely_and_a_right_that_comes_is_used() {
    let scene = scene(fast());
    scene.server.cluster.lock().answer = Answer::With(StatusCode::FORBIDDEN);
    scene.kill();
    until("a refusal", || scene.count(EventOutcome::Refused) == 1).await;
    scene.events.leak_suspected("remote 10.0.0.7:80: full".to_owned());
    until("another one", || scene.count(EventOutcome::Refused) == 2).await;
    assert_eq!(scene.server.cluster.lock().requests, 1);
    scene.server.cluster.lock().answer = Answer::Properly;
    until("published", || {
        scene.events.degraded("mode auto goes on with sock-diag".to_owned());
        scene.count(EventOutcome::Published) == 1
    })
    .await;
    let event = scene.published().remove(0);
    assert_eq!((&event["reason"], &event["action"]), (&"DegradedMode".into(), &"Start".into()));
}

#[tokio::test]
async fn what_the_server_does_not_take_is_not_tried_again() {
    let scene = scene(fast());
    scene.server.cluster.lock().answer = Answer::With(StatusCode::UNPROCESSABLE_ENTITY);
    scene.events.configuration_refused("mode: \"turbo\" is not one of auto, ebpf");
    until("a failure", || scene.count(EventOutcome::Failed) == 1).await;
    scene.server.cluster.lock().answer = Answer::Properly;
    scene.kill();
    until("the next", || scene.published().len() == 1).await;
    assert_eq!(scene.published()[0]["reason"], "FalseKill");
    assert_eq!(scene.server.cluster.lock().requests, 2);
}

#[tokio::test]
async fn a_server_that_goes_away_and_comes_back_gets_all_of_it() {
    let mut scene = scene(fast());
    scene.kill();
    until("the first", || scene.published().len() == 1).await;
    scene.server.go_away().await;
    for _ in 0..5 {
        scene.kill();
    }
    until("attempts", || scene.count(EventOutcome::Failed) >= 3).await;
    scene.server.come_back();
    until("the second", || scene.published().len() == 2).await;
    assert_eq!(stands_for(&scene.published()[1]), 5, "{:?}", scene.published()[1]);
}

#[tokio::test]
async fn a_server_that_hangs_holds_up_neither_who_tells_nor_the_end() {
    let scene = scene(fast());
    scene.server.cluster.lock().answer = Answer::Never;
    scene.kill();
    until("a request", || scene.server.cluster.lock().requests == 1).await;
    let began = Instant::now();
    for _ in 0..100_000 {
        scene.kill();
    }
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(scene.count(EventOutcome::Dropped) > 0);
    let began = Instant::now();
    let Scene { server, events, publishing, .. } = scene;
    publishing.finish(Duration::from_millis(300)).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop((server, events));
}

#[tokio::test]
async fn what_waits_at_the_end_is_told_at_once() {
    let slow = Pace { rate: Rate { gather: Duration::from_secs(3_600), ..Rate::default() }, ..fast() };
    let scene = scene(slow);
    for _ in 0..7 {
        scene.kill();
    }
    scene.events.leak_suspected("remote 10.0.0.7:80: full".to_owned());
    let Scene { server, publishing, .. } = scene;
    publishing.finish(Duration::from_secs(60)).await;
    let events = server.cluster.lock().events.clone();
    assert_eq!(
        events.iter().map(|event| event["reason"].as_str().unwrap()).collect::<Vec<_>>(),
        ["FalseKill", "LeakSuspected"]
    );
    assert_eq!(stands_for(&events[0]), 7);
}

#[tokio::test]
async fn without_a_way_to_the_server_the_end_is_no_later() {
    let (events, publishing) = Events::start(
        futures::FutureExt::shared(futures::FutureExt::boxed(std::future::pending())),
        &own_pod(),
        Arc::default(),
        Pace::default(),
    );
    events.leak_suspected("x".to_owned());
    publishing.finish(Duration::from_secs(60)).await;
}
