//! What an event costs: `cargo bench -p ackbeat-liveness`. Throughput is in events (elements) per second; the goal is at
//! most 1 µs each.

#[expect(dead_code, reason = "the test of the memory needs more of it")]
mod traffic;

use std::hint::black_box;

use ackbeat_liveness::{ConnectionId, Engine, Input, Policy, Timestamp};
use criterion::{BatchSize, Criterion, Throughput};

use traffic::{Asking, Congested, Steady, feed};

fn steady(criterion: &mut Criterion, connections: u64) {
    let mut engine = Engine::new(Policy::default_policy());
    let mut traffic = Steady::open(&mut engine, connections);
    let events = traffic.interval();
    let mut group = criterion.benchmark_group("steady");
    group.throughput(Throughput::Elements(u64::try_from(events.len()).unwrap_or(u64::MAX)));
    feed(&mut engine, events);
    group.sample_size(20);
    group.bench_function(format!("{connections} connections"), |bencher| {
        bencher.iter_batched(
            || traffic.interval(),
            |events| black_box(feed(&mut engine, events)),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn congested(criterion: &mut Criterion) {
    let mut engine = Engine::new(Policy::default_policy());
    let mut traffic = Congested::open(&mut engine);
    let events = traffic.intervals();
    let mut group = criterion.benchmark_group("congested");
    group.throughput(Throughput::Elements(u64::try_from(events.len()).unwrap_or(u64::MAX)));
    feed(&mut engine, events);
    group.bench_function("1 connection", |bencher| {
        bencher.iter_batched(
            || traffic.intervals(),
            |events| black_box(feed(&mut engine, events)),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

/// Pings of peers, and reports of hosts.
fn asking(criterion: &mut Criterion) {
    let mut engine = Engine::new(Policy::default_policy());
    let mut traffic = Asking::open(&mut engine, 500);
    let events = traffic.interval();
    let mut group = criterion.benchmark_group("asking");
    group.throughput(Throughput::Elements(u64::try_from(events.len()).unwrap_or(u64::MAX)));
    feed(&mut engine, events);
    group.bench_function("500 peers, 500 hosts that report", |bencher| {
        bencher.iter_batched(
            || traffic.interval(),
            |events| black_box(feed(&mut engine, events)),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

/// What a verdict costs that somebody asks for, with every connection asked about in turn.
fn assess(criterion: &mut Criterion, connections: u64) {
    let mut engine = Engine::new(Policy::default_policy());
    let mut traffic = Steady::open(&mut engine, connections);
    let mut last = Timestamp::default();
    for _ in 0..4 {
        let events = traffic.interval();
        last = events.last().map_or(last, Input::at);
        feed(&mut engine, events);
    }
    let ids: Vec<ConnectionId> = engine.connections().map(|info| info.connection).collect();
    let now = last.plus_ms(1_000);
    let mut group = criterion.benchmark_group("assess");
    group.throughput(Throughput::Elements(u64::try_from(ids.len()).unwrap_or(u64::MAX)));
    group.sample_size(30);
    group.bench_function(format!("{} connections", ids.len()), |bencher| {
        bencher.iter(|| {
            ids.iter().filter(|id| engine.assess(**id, now).is_some_and(|now| now.kill_justified)).count()
        });
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    steady(&mut criterion, 1_000);
    congested(&mut criterion);
    steady(&mut criterion, 10_000);
    asking(&mut criterion);
    assess(&mut criterion, 10_000);
    criterion.final_summary();
}
