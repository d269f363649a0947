//! The directory, and that a reader is let in while the driver is busy.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ackbeat_liveness::{
    ConnectionId, Endpoints, Engine, Input, Opened, Policy, Role, Snapshot, TcpState, Timestamp, Transition,
};

use super::*;

fn endpoints(peer: &str, local: &str) -> Endpoints {
    let (peer, local): (SocketAddr, SocketAddr) = (peer.parse().unwrap(), local.parse().unwrap());
    Endpoints {
        local_address: local.ip(),
        local_port: local.port(),
        peer_address: peer.ip(),
        peer_port: peer.port(),
    }
}

fn opened(connection: u64, peer: &str, local: &str) -> Input {
    Input::Opened(Opened {
        connection: ConnectionId(connection),
        at: Timestamp::from_ms(1_000 + connection),
        endpoints: endpoints(peer, local),
        role: Role::Server,
        preexisting: false,
        frames_visible: true,
    })
}

fn transition(connection: u64, at_ms: u64, old_state: TcpState, new_state: TcpState) -> Input {
    let snapshot = Snapshot::unavailable(ConnectionId(connection), Timestamp::from_ms(at_ms), new_state);
    Input::Transition(Transition { old_state, new_state, process: None, snapshot })
}

fn feed(connections: &Connections, mut inputs: Vec<Input>) -> Vec<Step> {
    let mut steps = Vec::new();
    connections.feed(&mut inputs, false, &mut steps);
    steps
}

fn find(connections: &Connections, peer: &str, local: Option<&str>) -> Found<u64> {
    connections.find(
        peer.parse().unwrap(),
        local.map(|local| local.parse().unwrap()),
        Timestamp::from_ms(5_000),
        |info, _| info.connection.0,
    )
}

#[test]
fn a_peer_is_found_in_every_way_to_write_it() {
    let connections = Connections::new(Engine::new(Policy::default_policy()));
    feed(
        &connections,
        vec![
            opened(1, "[::ffff:10.0.0.7]:40000", "[::ffff:10.0.0.1]:8080"),
            opened(2, "[fd00::7]:40000", "[fd00::1]:8080"),
            opened(3, "10.0.0.8:40000", "10.0.0.1:8080"),
            opened(4, "10.0.0.8:40000", "10.0.0.1:9090"),
        ],
    );
    assert_eq!(find(&connections, "10.0.0.7:40000", None), Found::One(1));
    assert_eq!(find(&connections, "[::ffff:10.0.0.7]:40000", Some("10.0.0.1:8080")), Found::One(1));
    assert_eq!(find(&connections, "[fd00::7]:40000", None), Found::One(2));
    assert_eq!(find(&connections, "10.0.0.7:40001", None), Found::None);
    assert_eq!(find(&connections, "10.0.0.7:40000", Some("10.0.0.1:8081")), Found::None);
    let locals = ["10.0.0.1:8080", "10.0.0.1:9090"].map(|local| local.parse().unwrap()).to_vec();
    assert_eq!(find(&connections, "10.0.0.8:40000", None), Found::Several(locals));
    assert_eq!(find(&connections, "10.0.0.8:40000", Some("10.0.0.1:9090")), Found::One(4));
    assert_eq!(connections.total(), 4);
}

#[test]
fn the_younger_connection_of_the_same_addresses_counts_and_what_ended_is_forgotten() {
    let connections = Connections::new(Engine::new(Policy::default_policy()));
    let (peer, local) = ("10.0.0.7:40000", "10.0.0.1:8080");
    feed(
        &connections,
        vec![opened(1, peer, local), transition(1, 2_000, TcpState::Established, TcpState::FinWait1)],
    );
    assert_eq!(find(&connections, peer, None), Found::One(1), "its post-mortem runs");
    feed(&connections, vec![opened(2, peer, local)]);
    assert_eq!(find(&connections, peer, None), Found::One(2));
    let mut steps = Vec::new();
    connections.shut_down(Timestamp::from_ms(9_000), &mut steps);
    assert_eq!(steps.iter().filter(|step| matches!(step, Step::Decided(Output::Closed(_)))).count(), 2);
    assert_eq!((connections.total(), find(&connections, peer, None)), (0, Found::None));
}

#[test]
fn a_connection_that_the_engine_refuses_is_not_watched() {
    let connections = Connections::new(Engine::with_connection_limit(Policy::default_policy(), 1));
    let steps = feed(
        &connections,
        vec![opened(1, "10.0.0.7:1", "10.0.0.1:80"), opened(2, "10.0.0.7:2", "10.0.0.1:80")],
    );
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert_eq!((connections.total(), connections.engine_counters().connections_refused), (1, 1));
}

#[test]
fn every_connection_is_visited_once_in_the_order_of_addresses() {
    let connections = Connections::new(Engine::new(Policy::default_policy()));
    let total = READ_AT_ONCE * 2 + 3;
    for chunk in (0..total).rev().collect::<Vec<_>>().chunks(INPUTS_AT_ONCE) {
        let opened = |number: &usize| {
            let address = IpAddr::from([
                10,
                1,
                u8::try_from(number / 256).unwrap(),
                u8::try_from(number % 256).unwrap(),
            ]);
            opened(9_000 - *number as u64, &format!("{address}:4000"), "10.0.0.1:80")
        };
        feed(&connections, chunk.iter().map(opened).collect());
    }
    let mut seen = Vec::new();
    connections.for_each(|info| seen.push(info.endpoints.peer_address));
    assert_eq!(seen.len(), total);
    assert!(seen.is_sorted(), "{seen:?}");
    assert_eq!(connections.by_verdict().values().sum::<usize>(), total);
}

/// Without a fair unlock a busy driver takes its lock back before a reader that sleeps can wake up.
#[test]
fn a_reader_is_let_in_while_the_driver_feeds_without_a_break() {
    let connections = Arc::new(Connections::new(Engine::new(Policy::default_policy())));
    feed(&connections, vec![opened(1, "10.0.0.7:1", "10.0.0.1:80")]);
    let feeding = Arc::clone(&connections);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let (begun, has_begun) = std::sync::mpsc::channel();
    let driver = std::thread::spawn(move || {
        let (mut inputs, mut steps, mut chunks) = (Vec::new(), Vec::new(), 0_u64);
        while !stopped.load(Ordering::Relaxed) {
            chunks += 1;
            let at = Timestamp::from_ms(2_000 + chunks);
            inputs
                .extend((0..INPUTS_AT_ONCE).map(|_| Input::Outstanding { connection: ConnectionId(1), at }));
            feeding.feed(&mut inputs, false, &mut steps);
            steps.clear();
            if chunks == 1 {
                begun.send(()).unwrap();
            }
        }
    });
    has_begun.recv_timeout(Duration::from_secs(60)).unwrap();
    let start = Instant::now();
    for _ in 0..1_000 {
        assert_eq!(find(&connections, "10.0.0.7:1", None), Found::One(1));
        assert!(start.elapsed() < Duration::from_secs(60), "readers starve");
    }
    stop.store(true, Ordering::Relaxed);
    driver.join().unwrap();
}
