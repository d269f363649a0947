//! What the engine takes from the allocator: nothing for an event, and a bounded amount for a connection.

use ackbeat_liveness::{Engine, FrameKind, Input, Policy};
use allocation_counter::measure;

#[path = "../benches/traffic/mod.rs"]
mod traffic;

use traffic::{Asking, Congested, Steady, feed, full};

/// Each answers a Ping, and the engine says so.
fn count_pongs(events: &[Input]) -> u64 {
    let is_pong = |input: &&Input| matches!(input, Input::Frame(frame) if frame.kind == FrameKind::Pong);
    events.iter().filter(is_pong).count() as u64
}

/// Samples, Pings, Pongs, passes of the sampler and timeouts of 100 connections, and a backlog that drains.
#[test]
fn an_event_in_the_steady_state_allocates_nothing() {
    let mut engine = Engine::new(Policy::default_policy());
    let mut steady = Steady::open(&mut engine, 100);
    // Every ring of remembered things grows to its bound: 33 gaps of the schedule, 16 Pings, 8 Pongs.
    for _ in 0..20 {
        feed(&mut engine, steady.interval());
    }
    for _ in 0..5 {
        let events = steady.interval();
        let count = events.len();
        let pongs = count_pongs(&events);
        let mut outputs = 0;
        let taken = measure(|| outputs = feed(&mut engine, events));
        assert_eq!((taken.count_total, outputs), (0, pongs), "in {count} events");
    }
}

/// The peers ask, on the wire, and hosts report what they saw themselves.
#[test]
fn a_ping_of_a_peer_and_a_report_allocate_nothing() {
    let mut engine = Engine::new(Policy::default_policy());
    let mut asking = Asking::open(&mut engine, 50);
    for _ in 0..40 {
        feed(&mut engine, asking.interval());
    }
    for _ in 0..5 {
        let events = asking.interval();
        let (count, pongs) = (events.len(), count_pongs(&events));
        let mut outputs = 0;
        let taken = measure(|| outputs = feed(&mut engine, events));
        assert_eq!((taken.count_total, outputs), (0, pongs), "in {count} events");
    }
}

#[test]
fn an_event_of_a_congested_connection_allocates_nothing() {
    let mut engine = Engine::new(Policy::default_policy());
    let mut congested = Congested::open(&mut engine);
    for _ in 0..5 {
        feed(&mut engine, congested.intervals());
    }
    for _ in 0..5 {
        let events = congested.intervals();
        let taken = measure(|| {
            feed(&mut engine, events);
        });
        assert_eq!(taken.count_total, 0);
    }
}

/// The numbers here and below are those in the documentation of the crate.
#[test]
fn a_connection_takes_a_bounded_amount_of_memory() {
    const CONNECTIONS: u64 = 10_000;
    const DOCUMENTED_BYTES: u64 = 2_048;
    let mut engine = None;
    let taken = measure(|| {
        let mut fresh = Engine::new(Policy::default_policy());
        let mut steady = Steady::open(&mut fresh, CONNECTIONS);
        for _ in 0..10 {
            feed(&mut fresh, steady.interval());
        }
        engine = Some(fresh);
    });
    let bytes = u64::try_from(taken.bytes_current).unwrap() / CONNECTIONS;
    println!("{bytes} bytes for each of {CONNECTIONS} connections with a heartbeat");
    assert!(bytes <= DOCUMENTED_BYTES, "{bytes}");
    assert_eq!(engine.unwrap().connections().count() as u64, CONNECTIONS);
}

/// Everything that a connection remembers is in use, each Ping with the largest payload.
#[test]
fn a_connection_whose_memory_is_full_takes_a_bounded_amount_too() {
    const CONNECTIONS: u64 = 100;
    const DOCUMENTED_BYTES: u64 = 8_192;
    let mut engine = None;
    let taken = measure(|| {
        let mut fresh = Engine::new(Policy::default_policy());
        full(&mut fresh, CONNECTIONS, 300);
        engine = Some(fresh);
    });
    let bytes = u64::try_from(taken.bytes_current).unwrap() / CONNECTIONS;
    println!("{bytes} bytes for each of {CONNECTIONS} connections whose memory is full");
    assert!(bytes <= DOCUMENTED_BYTES, "{bytes}");
    let mut engine = engine.unwrap();
    // It is full: going on for as long again takes nothing more.
    let again = measure(|| full(&mut engine, CONNECTIONS, 300));
    assert_eq!(again.bytes_current, 0);
}
