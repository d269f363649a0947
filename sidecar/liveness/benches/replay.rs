//! What an event costs: `cargo bench -p ackbeat-liveness`. Throughput is in events (elements) per second; the goal is at
//! most 1 µs each.

#[expect(dead_code, reason = "the test of the memory needs more of it")]
mod traffic;

use std::hint::black_box;

use ackbeat_liveness::{Engine, Policy};
use criterion::{BatchSize, Criterion, Throughput};

use traffic::{Congested, Steady, feed};

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

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    steady(&mut criterion, 1_000);
    congested(&mut criterion);
    steady(&mut criterion, 10_000);
    criterion.final_summary();
}
