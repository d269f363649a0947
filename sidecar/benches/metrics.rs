//! What metrics cost: the pass over 10,000 connections that the driver makes once a second, a close, and a scrape.

#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up is broken")]

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ackbeat::connections::Connections;
use ackbeat::metrics::page::Form;
use ackbeat::metrics::{Feed, MetricsPipeline, Sources};
use ackbeat::telemetry::environment::MetricsPlan;
use ackbeat::telemetry::pipeline::{SpanCounts, resource};
use ackbeat_liveness::{
    ConnectionId, Endpoints, Engine, HeartbeatAnswered, HeartbeatProfile, Input, Opened, Policy, Role,
    Snapshot, TcpState, Timestamp,
};
use criterion::{Criterion, criterion_group, criterion_main};

const CONNECTIONS: u64 = 10_000;

/// Connections whose sockets were all read once.
fn connections() -> Connections {
    let connections = Connections::new(Engine::new(Policy::default_policy()));
    let (at, mut steps) = (Timestamp::from_ms(1_000), Vec::new());
    for number in 0..CONNECTIONS {
        let (connection, port) = (ConnectionId(number), u16::try_from(number).unwrap());
        let opened = Input::Opened(Opened {
            connection,
            at,
            endpoints: Endpoints {
                local_address: Ipv4Addr::LOCALHOST.into(),
                local_port: 8_080,
                peer_address: Ipv4Addr::new(10, 0, 0, 2).into(),
                peer_port: 20_000 + port,
            },
            role: Role::Server,
            preexisting: false,
            frames_visible: true,
        });
        let read = Input::Sample(Snapshot {
            send_queue_bytes: Some(u32::from(port) * 100),
            unsent_bytes: Some(u32::from(port)),
            srtt_us: Some(100 + u32::from(port)),
            ..Snapshot::unavailable(connection, at, TcpState::Established)
        });
        connections.feed(&mut vec![opened, read], false, &mut steps);
        steps.clear();
    }
    connections
}

fn pipeline() -> MetricsPipeline {
    let sources = Sources { spans: Arc::new(SpanCounts::default()), lost_log_lines: Box::new(|| 0) };
    MetricsPipeline::start(&MetricsPlan::read(|_| None), resource(), sources).unwrap()
}

fn benches(criterion: &mut Criterion) {
    let (pipeline, connections) = (pipeline(), connections());
    let metrics = pipeline.metrics();
    criterion.bench_function("sweep of 10,000 connections, every socket read since the last", |bencher| {
        bencher.iter(|| Feed::new(metrics.clone()).sweep(|look| connections.for_each(look)));
    });
    let mut feed = Feed::new(metrics.clone());
    criterion.bench_function("sweep of 10,000 connections, none read since the last", |bencher| {
        bencher.iter(|| feed.sweep(|look| connections.for_each(look)));
    });
    let answered = HeartbeatAnswered {
        connection: ConnectionId(1),
        at: Timestamp::from_ms(1),
        profile: HeartbeatProfile::Rfc6455,
        ping_to_pong_us: 900,
        ping_to_ack_us: Some(400),
        ack_to_pong_us: Some(500),
    };
    criterion.bench_function("a Pong", |bencher| bencher.iter(|| metrics.answered(black_box(&answered))));
    let page = pipeline.page().unwrap();
    for (name, form) in [("text", Form::Text), ("OpenMetrics", Form::OpenMetrics)] {
        criterion.bench_function(&format!("a scrape, {name}"), |bencher| {
            bencher.iter(|| page.render(form).unwrap());
        });
    }
}

criterion_group!(group, benches);
criterion_main!(group);
