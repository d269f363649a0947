//! When many come back at once.

use ackbeat_liveness::{ConnectionId, Timestamp};
use ackbeat_storms::{CAUSES_MAX, Fact, PORTS_MAX, Settings, StormEnd};
use proptest::prelude::*;

use crate::world::{PORT, World};

/// Forty peers that came one after the other, and are closed within a second at 60 s.
fn forty_are_closed(world: &mut World) -> Vec<ConnectionId> {
    let peers: Vec<ConnectionId> = (0..40).map(|peer| world.arrive(u64::from(peer) * 500, peer)).collect();
    for (number, peer) in (0..).zip(&peers) {
        world.close(60_000 + number * 20, *peer);
    }
    peers
}

#[test]
fn a_crowd_that_comes_back_after_a_burst_of_closes_is_a_storm() {
    let mut world = World::new();
    let peers = forty_are_closed(&mut world);
    for peer in 0..40 {
        world.arrive(63_000 + u64::from(peer) * 10, peer);
    }
    world.pass(65_000);
    assert_eq!(world.began.len(), 1);
    let began = world.began[0];
    assert_eq!((began.local_port, began.closes), (PORT, 40));
    assert!(began.at <= Timestamp::from_ms(63_000) && began.at >= Timestamp::from_ms(62_000), "{began:?}");
    assert!(world.port().storm_since.is_some());
    world.pass(90_000);
    let [storm] = world.ended.as_slice() else { panic!("{:?}", world.ended) };
    assert_eq!((storm.peak_per_second, storm.arrivals, storm.peers), (40, 40, 40));
    assert_eq!(storm.end, StormEnd::Calm);
    assert!(storm.ended_at >= Timestamp::from_ms(63_390) && storm.ended_at <= Timestamp::from_ms(64_000));
    // The last of the closes, in their order.
    assert_eq!(storm.set_off_by, peers[40 - CAUSES_MAX..]);
    assert_eq!(storm.resonance, None, "one crowd has no period");
    assert_eq!(world.watch.totals().storms, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_storm_is_seen_whenever_the_first_connection_was(first_ms in 0_u64..1_000, crowd_ms in 62_000_u64..64_000) {
        let mut world = World::new();
        let peers: Vec<ConnectionId> =
            (0..40).map(|peer| world.arrive(first_ms + u64::from(peer) * 500, peer)).collect();
        for (number, peer) in (0..).zip(&peers) {
            world.close(60_000 + number * 20, *peer);
        }
        for peer in 0..40 {
            world.arrive(crowd_ms, peer);
        }
        world.pass(90_000);
        prop_assert_eq!(world.ended.len(), 1);
        prop_assert_eq!(world.ended[0].arrivals, 40);
    }
}

#[test]
fn closes_that_are_told_late_are_a_burst_too() {
    let mut world = World::new();
    let peers: Vec<ConnectionId> = (0..40).map(|peer| world.arrive(u64::from(peer) * 500, peer)).collect();
    world.pass(62_500);
    for peer in &peers {
        world.close(60_000, *peer);
    }
    for peer in 0..40 {
        world.arrive(63_000 + u64::from(peer) * 10, peer);
    }
    world.pass(90_000);
    assert_eq!((world.began.len(), world.ended.len()), (1, 1));
}

#[test]
fn more_and_more_short_connections_are_no_storm() {
    for (life_ms, gap_ms) in [(500, 37), (5_000, 66)] {
        let mut world = World::new();
        let arrivals =
            (0..40).map(|number| number * 1_000).chain((0..800).map(|number| 40_000 + number * gap_ms));
        let mut closes: Vec<(u64, ConnectionId)> = Vec::new();
        for at_ms in arrivals {
            while let Some(place) = closes.iter().position(|(close_ms, _)| *close_ms <= at_ms) {
                let (close_ms, connection) = closes.remove(place);
                world.close(close_ms, connection);
            }
            let connection = world.arrive(at_ms, 1);
            closes.push((at_ms + life_ms, connection));
        }
        assert_eq!(world.began, [], "lives of {life_ms} ms");
    }
}

#[test]
fn a_crowd_without_closes_is_no_storm() {
    let mut world = World::new();
    for peer in 0..200 {
        world.arrive(1_000 + u64::from(peer) * 5, peer);
    }
    world.pass(60_000);
    assert!(world.began.is_empty());
    assert_eq!(world.watch.totals().arrivals, 200);
}

#[test]
fn usual_churn_is_no_storm() {
    let mut world = World::new();
    // Twenty connections a second, each closed after a second.
    let mut open = std::collections::VecDeque::new();
    for step in 0..12_000_u64 {
        let at = step * 50;
        open.push_back((at, world.arrive(at, u32::try_from(step % 300).unwrap())));
        if let Some((opened, connection)) = open.front().copied()
            && at >= opened + 1_000
        {
            world.close(at, connection);
            open.pop_front();
        }
    }
    // The first seconds have no baseline yet.
    let after_the_start = world.began.iter().filter(|began| began.at > Timestamp::from_ms(60_000)).count();
    assert_eq!(after_the_start, 0, "{:?}", world.began);
    let usual = world.port().baseline_per_second;
    assert!((usual - 20.0).abs() < 4.0, "{usual}");
}

#[test]
fn the_baseline_learns_nothing_from_a_storm() {
    let mut world = World::new();
    for round in 0..20 {
        let at = round * 60_000;
        let peers: Vec<ConnectionId> =
            (0..40).map(|peer| world.arrive(at + u64::from(peer) * 10, peer)).collect();
        for peer in peers {
            world.close(at + 50_000, peer);
        }
    }
    assert!(world.port().baseline_per_second < 1.0, "{:?}", world.port());
    assert_eq!(world.began.len(), 19, "each after its closes");
}

#[test]
fn what_never_ends_is_the_new_baseline() {
    let mut world = World::new();
    forty_are_closed(&mut world);
    for step in 0..20_000_u64 {
        world.arrive(62_000 + step * 50, u32::try_from(step % 40).unwrap());
    }
    assert_eq!(world.ended.len(), 1);
    assert_eq!(world.ended[0].end, StormEnd::NewBaseline);
    assert!((world.port().baseline_per_second - 20.0).abs() < 3.0, "{:?}", world.port());
}

#[test]
fn nothing_begins_in_what_was_lost_or_slept_through() {
    for is_late in [false, true] {
        let mut world = World::with(Settings { found: is_late, ..Settings::default() });
        forty_are_closed(&mut world);
        for peer in 0..40 {
            world.arrive(63_000 + u64::from(peer) * 10, peer);
            if peer == 20 {
                if is_late {
                    world.watch.late(Timestamp::from_ms(63_200));
                } else {
                    world.fact(&Fact::Lost { at: Timestamp::from_ms(63_200) });
                }
            }
        }
        world.pass(64_200);
        assert!(world.began.is_empty(), "{is_late}");
        assert_eq!(world.port().arrivals_per_second, None, "unknown, and not 0");
    }
}

#[test]
fn a_burst_of_late_findings_is_no_storm() {
    let mut world = World::with(Settings { found: true, ..Settings::default() });
    world.open(0, 1, PORT, true);
    world.fact(&Fact::Passed { at: Timestamp::from_ms(500) });
    let peers: Vec<ConnectionId> =
        (2..30).map(|peer| world.open(u64::from(peer) * 500, peer, PORT, true)).collect();
    assert_eq!(world.watch.totals().arrivals, 28, "what was there at the start is no arrival");
    for peer in peers {
        world.close(30_000, peer);
    }
    // Half a minute of sleep; then everything that came meanwhile is found at once.
    world.watch.late(Timestamp::from_ms(60_000));
    for peer in 2..30 {
        world.open(60_000, peer, PORT, true);
    }
    world.pass(100_000);
    assert!(world.began.is_empty());
}

#[test]
fn ports_are_bounded() {
    let mut world = World::new();
    for number in 0..200_u16 {
        world.open(u64::from(number), 1, 10_000 + number, false);
    }
    assert_eq!(world.watch.ports().count(), PORTS_MAX);
    let totals = world.watch.totals();
    assert_eq!((totals.arrivals, totals.arrivals_unwatched), (200, 200 - PORTS_MAX as u64));
}

proptest! {
    #[test]
    fn any_row_of_facts_is_survived(steps in proptest::collection::vec((0_u8..6, 0_u64..200_000, 0_u32..40), 0..400)) {
        let mut world = World::new();
        let mut open = Vec::new();
        for (what, at, peer) in steps {
            match what {
                0 | 1 => open.push(world.arrive(at, peer)),
                2 => if let Some(connection) = open.pop() { world.close(at, connection) },
                3 => if let Some(connection) = open.last() { world.hear(at, *connection, at / 2) },
                4 => world.watch.late(Timestamp::from_ms(at)),
                _ => world.pass(at),
            }
        }
        world.watch.shut_down(Timestamp::from_ms(10_000_000));
        world.take();
        prop_assert_eq!(world.began.len(), world.ended.len());
        for storm in &world.ended {
            prop_assert!(storm.ended_at >= storm.began_at && storm.set_off_by.len() <= CAUSES_MAX);
        }
    }
}
