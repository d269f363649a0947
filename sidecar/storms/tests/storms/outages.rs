//! Nothing comes from anybody.

use ackbeat_liveness::{ConnectionId, Timestamp, Verdict};

use crate::world::World;

/// Ten peers that were last heard at 10 s.
fn ten(world: &mut World) -> Vec<ConnectionId> {
    let peers: Vec<ConnectionId> =
        (0..10).map(|peer| world.arrive(1_000 + u64::from(peer) * 100, peer)).collect();
    for peer in &peers {
        world.hear(10_100, *peer, 10_000);
    }
    peers
}

#[test]
fn an_outage_begins_with_the_last_sign_of_life_and_ends_with_the_next() {
    let mut world = World::new();
    let peers = ten(&mut world);
    for (number, peer) in (0..).zip(&peers[..6]) {
        world.turn(12_000 + number * 20, *peer, Verdict::Unreachable);
    }
    let outage = world.port().outage.expect("most are unreachable");
    assert_eq!((outage.began_at, outage.ended_at), (Timestamp::from_ms(10_000), None));
    world.hear(20_000, peers[9], 19_800);
    assert_eq!(world.port().outage, None);
    assert_eq!(world.outages.len(), 1);
    assert_eq!(world.outages[0].ended_at, Some(Timestamp::from_ms(19_800)));
    assert_eq!(world.outages[0].peers, 6);
}

/// Behind a lossy path the verdict takes more timeouts than an outage of some seconds has room for.
#[test]
fn timeouts_of_most_peers_are_an_outage_whatever_their_verdicts_are() {
    for (timeouts, is_outage) in [(2, false), (3, true)] {
        let mut world = World::new();
        let peers = ten(&mut world);
        for peer in &peers[..6] {
            world.time_out(12_000, *peer, 10_000, timeouts);
        }
        world.pass(12_300);
        assert_eq!(world.port().outage.is_some(), is_outage, "{timeouts}");
        // A peer that was given up is expected elsewhere.
        world.close(12_400, peers[0]);
        world.time_out(12_500, peers[0], 10_000, 4);
        world.hear(14_000, peers[9], 13_800);
        assert_eq!(world.outages.len(), usize::from(is_outage));
    }
}

/// A host gives peers up while nothing comes: their sockets are read on, and are as silent as those that are left. Once anybody
/// is heard, they are expected on another connection.
#[test]
fn those_who_were_given_up_in_silence_count_until_anybody_is_heard() {
    for is_heard in [false, true] {
        let mut world = World::new();
        let peers = ten(&mut world);
        for peer in &peers[..6] {
            world.close(11_500, *peer);
        }
        if is_heard {
            world.arrive(11_700, 77);
        }
        for peer in &peers[..6] {
            world.time_out(13_000, *peer, 10_000, 3);
        }
        world.pass(13_300);
        let outage = world.port().outage;
        assert_eq!(outage.map(|outage| outage.peers), (!is_heard).then_some(6), "{is_heard}");
    }
}

#[test]
fn a_new_connection_ends_an_outage() {
    let mut world = World::new();
    let peers = ten(&mut world);
    for peer in &peers {
        world.turn(12_000, *peer, Verdict::Unreachable);
    }
    world.arrive(21_500, 77);
    assert_eq!(world.outages[0].ended_at, Some(Timestamp::from_ms(21_500)));
}

#[test]
fn what_came_before_and_is_read_late_does_not_end_it() {
    let mut world = World::new();
    let peers = ten(&mut world);
    for peer in &peers[..6] {
        world.turn(12_000, *peer, Verdict::Unreachable);
    }
    world.hear(12_100, peers[9], 10_300);
    assert!(world.outages.is_empty());
    assert_eq!(world.port().outage.map(|outage| outage.began_at), Some(Timestamp::from_ms(10_300)));
}

#[test]
fn those_who_were_given_up_make_no_second_outage() {
    let mut world = World::new();
    let peers = ten(&mut world);
    for peer in &peers {
        world.turn(12_000, *peer, Verdict::Unreachable);
    }
    for peer in &peers {
        world.close(14_000, *peer);
    }
    world.arrive(20_000, 77);
    assert_eq!(world.outages.len(), 1);
    // The others come back three seconds later, and nothing is heard meanwhile.
    world.pass(22_900);
    assert_eq!(world.port().outage, None);
}

#[test]
fn a_rest_of_the_crowd_makes_no_outage() {
    let mut world = World::new();
    let peers = ten(&mut world);
    for peer in &peers[..6] {
        world.close(10_500, *peer);
    }
    for peer in &peers[6..] {
        world.turn(12_000, *peer, Verdict::Unreachable);
    }
    world.pass(13_000);
    assert_eq!(world.port().outage, None, "six left just now, and may come back");
    world.pass(120_000);
    assert!(world.port().outage.is_some(), "but not for ever");
}

#[test]
fn lossy_peers_are_no_outage() {
    let mut world = World::new();
    let peers = ten(&mut world);
    // Four of ten are in trouble, and then all while one of them is heard.
    for peer in &peers[..4] {
        world.turn(12_000, *peer, Verdict::Unreachable);
    }
    assert_eq!(world.port().outage, None);
    world.hear(12_500, peers[9], 12_400);
    for peer in &peers[4..9] {
        world.turn(12_600, *peer, Verdict::Unreachable);
    }
    assert_eq!(world.port().outage, None);
    for peer in &peers[..9] {
        world.turn(13_000, *peer, Verdict::Alive);
    }
    world.pass(60_000);
    assert_eq!(world.port().outage, None);
    assert!(world.outages.is_empty());
}
