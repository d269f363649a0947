//! Heartbeats that the application reports because TLS ends in it, and what an answered Ping tells.

use ackbeat_liveness::*;
use proptest::prelude::*;

use crate::world::{Peer, World};

const ID: u64 = 7;
/// What a Ping takes in a TLS record.
const RECORD_BYTES: u64 = 24;

/// A connection of which the wire shows bytes only.
fn encrypted(peer: Peer) -> World {
    let mut world = World::new();
    world.open(ID, peer);
    world.synchronize(ID, Direction::Egress, false);
    world.synchronize(ID, Direction::Ingress, false);
    world.run_ms(1_000);
    world
}

fn ping(world: &mut World) {
    world.write(ID, RECORD_BYTES);
    world.report(ID, FrameKind::Ping, 0, b"");
}

fn pong(world: &mut World) {
    world.peer_writes(ID, RECORD_BYTES);
    world.report(ID, FrameKind::Pong, 0, b"");
}

/// A host that pings and reports, and a peer that answers.
fn reports(world: &mut World, times: u32, interval_ms: u64) {
    for _ in 0..times {
        ping(world);
        world.run_ms(20);
        pong(world);
        world.run_ms(interval_ms - 20);
    }
}

fn answers(world: &World) -> Vec<HeartbeatAnswered> {
    let answer = |output: &Output| match output {
        Output::Answered(answered) => Some(*answered),
        _ => None,
    };
    world.outputs.iter().filter_map(answer).collect()
}

#[test]
fn reported_heartbeat_is_told_and_learned() {
    let mut world = encrypted(Peer::Mute);
    reports(&mut world, 8, 2_000);
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, world.verdicts(ID)), (Verdict::Alive, vec![]));
    let heartbeat = assessed.heartbeat;
    assert_eq!((heartbeat.source, heartbeat.profile), (HeartbeatSource::Application, None));
    assert_eq!((heartbeat.interval_ms, heartbeat.missed), (Some(2_000), Some(0)));
    assert!(!heartbeat.inferred);
    let answered = answers(&world);
    assert_eq!(answered.len(), 8);
    assert!(answered.iter().all(|answered| answered.ping_to_pong_us == 20_000));
}

#[test]
fn reported_ping_without_a_pong_is_silent() {
    let mut world = encrypted(Peer::Mute);
    reports(&mut world, 4, 2_000);
    ping(&mut world);
    world.run_ms(4_500);
    assert_eq!(world.assessed(ID).verdict, Verdict::Alive);
    world.run_ms(2_000);
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.heartbeat.ping_location), (Verdict::Silent, PingLocation::Acked));
    world.run_ms(20_000);
    assert!(world.assessed(ID).kill_justified);
}

/// What one connection teaches its port counts for another from its own next record on: until then the engine answers as it
/// said last.
#[test]
fn what_others_teach_changes_no_answer_by_itself() {
    let mut world = encrypted(Peer::Mute);
    ping(&mut world);
    world.run_ms(10_000);
    let before = world.assessed(ID);
    assert_eq!((before.verdict, before.heartbeat.missed), (Verdict::Alive, None));
    world.open(8, Peer::Mute);
    world.report(8, FrameKind::Ping, 0, b"");
    world.report(8, FrameKind::Pong, 0, b"");
    assert_eq!(world.assessed(ID).verdict, Verdict::Alive);
    assert_eq!(world.verdicts(ID), []);
    // With the next reading it is known that a Pong was owed all the time.
    world.run_ms(1_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Silent);
}

/// A host may report its Pings and leave out the Pongs: that proves nothing about any peer of its port.
#[test]
fn pings_alone_prove_nothing_before_a_pong_was_reported() {
    let mut world = encrypted(Peer::Mute);
    for _ in 0..10 {
        ping(&mut world);
        world.run_ms(100);
        world.peer_writes(ID, RECORD_BYTES);
        world.run_ms(29_900);
    }
    assert_eq!(world.verdicts(ID), []);
    assert_eq!(world.assessed(ID).heartbeat.missed, None);
}

#[test]
fn reported_ping_behind_data_of_a_slow_reader_is_congested() {
    let mut world = encrypted(Peer::Mute);
    reports(&mut world, 4, 2_000);
    world.socket(ID).peer = Peer::Reads(200_000);
    world.write(ID, 8_000_000);
    // The host's own queue holds it: most of the data is not in the kernel yet.
    for _ in 0..17 {
        ping(&mut world);
        world.run_ms(2_000);
        let assessed = world.assessed(ID);
        assert_eq!((assessed.verdict, assessed.kill_justified), (Verdict::Congested, false));
    }
    assert!(world.verdicts(ID).iter().all(|verdict| *verdict == Verdict::Congested));
    assert_eq!(world.assessed(ID).heartbeat.missed, Some(17));
}

#[test]
fn reports_of_an_unreachable_peer_are_judged_as_ever() {
    let mut world = encrypted(Peer::Mute);
    reports(&mut world, 4, 2_000);
    world.socket(ID).peer = Peer::Gone;
    ping(&mut world);
    world.run_ms(11_000);
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.kill_justified), (Verdict::Unreachable, true));
}

/// One connection in clear, once with a host that reports everything twice, and once without.
#[test]
fn reports_of_what_the_wire_shows_change_nothing() {
    let play = |is_reporting: bool| {
        let mut world = World::new();
        world.watchdog(2_000);
        world.tolerance = 99;
        world.open_websocket(ID, Peer::Healthy);
        world.run_ms(2_500);
        for round in 0..30u64 {
            world.run_ms(2_000 + 70 * round % 200);
            if round == 12 {
                world.socket(ID).peer = Peer::Reads(400_000);
                world.write(ID, 3_000_000);
            }
            if is_reporting {
                let info = world.engine.connection(ConnectionId(ID)).unwrap();
                assert!(info.is_ping_report_redundant && info.is_pong_report_redundant);
                for (kind, age_ms) in
                    [(FrameKind::Ping, 60_000), (FrameKind::Pong, 1_900), (FrameKind::Ping, 0)]
                {
                    world.report(ID, kind, age_ms, b"");
                    world.report(ID, kind, age_ms, b"17");
                }
            }
        }
        let assessed = world.assessed(ID);
        let (next, late) = (world.engine.next_sample_at(), world.engine.counters().late_ticks);
        (world.outputs, assessed, next, late)
    };
    assert_eq!(play(true), play(false));
}

#[test]
fn a_report_is_redundant_only_where_the_wire_shows_that_direction() {
    let is_redundant = |world: &World| {
        let info = world.engine.connection(ConnectionId(ID)).unwrap();
        (info.is_ping_report_redundant, info.is_pong_report_redundant)
    };
    let mut world = encrypted(Peer::Healthy);
    ping(&mut world);
    assert_eq!(is_redundant(&world), (false, false));
    let mut world = World::new();
    world.open_websocket(ID, Peer::Healthy);
    assert_eq!(is_redundant(&world), (false, false), "a text heartbeat that no profile knows");
    world.ping(ID);
    world.run_ms(100);
    assert_eq!(is_redundant(&world), (true, true));
    world.synchronize(ID, Direction::Ingress, false);
    assert_eq!(is_redundant(&world), (true, false));
}

/// The host reports before the wire's parser has found its place: what is seen from then on is not counted twice.
#[test]
fn heartbeat_that_comes_into_sight_is_counted_once() {
    let mut world = World::new();
    world.open(ID, Peer::Mute);
    world.run_ms(1_000);
    reports(&mut world, 3, 2_000);
    ping(&mut world);
    world.run_ms(2_000);
    world.synchronize(ID, Direction::Egress, true);
    world.synchronize(ID, Direction::Ingress, true);
    world.ping(ID);
    world.report(ID, FrameKind::Ping, 0, b"");
    world.run_ms(100);
    let heartbeat = world.assessed(ID).heartbeat;
    assert_eq!((heartbeat.source, heartbeat.missed), (HeartbeatSource::Wire, Some(1)));
    assert_eq!(heartbeat.profile, Some(HeartbeatProfile::Rfc6455));
}

/// The engine was quiet for a minute, and is told of what happened then: nothing was late, and nothing is due.
#[test]
fn report_from_the_past_is_no_late_tick() {
    let mut world = encrypted(Peer::Mute);
    reports(&mut world, 4, 2_000);
    world.run_ms(90_000);
    let (samples, verdicts) = (world.samples, world.verdicts(ID));
    for (kind, age_ms) in [
        (FrameKind::Ping, 60_000),
        (FrameKind::Pong, 59_990),
        (FrameKind::Ping, 30_000),
        (FrameKind::Ping, 45_000),
        (FrameKind::Pong, 29_000),
        (FrameKind::Ping, 20),
    ] {
        world.report(ID, kind, age_ms, b"");
        let at = world.at();
        assert!(world.engine.poll_timeout().is_none_or(|due| due > at), "due in the past");
        assert!(world.engine.next_sample_at().is_none_or(|due| due > at), "late already");
    }
    world.report(ID, FrameKind::Pong, 0, b"");
    world.run_ms(1_000);
    assert_eq!(world.engine.counters().late_ticks, 0);
    assert!(world.samples <= samples + 2);
    assert_eq!(world.verdicts(ID), verdicts);
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.heartbeat.missed), (Verdict::Alive, Some(0)));
    assert_eq!(assessed.heartbeat.last_pong_age_ms, Some(1_000));
}

#[test]
fn pong_without_an_id_answers_the_last_ping_and_those_before_it() {
    let mut world = encrypted(Peer::Mute);
    reports(&mut world, 2, 2_000);
    for id in [b"1", b"2", b"3"] {
        world.report(ID, FrameKind::Ping, 0, id);
        world.run_ms(1_000);
    }
    assert_eq!(world.assessed(ID).heartbeat.missed, Some(3));
    pong(&mut world);
    world.run_ms(10);
    assert_eq!(world.assessed(ID).heartbeat.missed, Some(0));
    assert_eq!(world.assessed(ID).heartbeat.ping_location, PingLocation::Unknown, "none is outstanding");
    let answered = answers(&world);
    assert_eq!((answered.len(), answered[2].ping_to_pong_us), (3, 1_000_000));
}

#[test]
fn pong_with_an_id_answers_its_own_ping_and_those_before_it() {
    let mut world = encrypted(Peer::Mute);
    reports(&mut world, 2, 2_000);
    for id in [b"1", b"2", b"3"] {
        world.write(ID, RECORD_BYTES);
        world.report(ID, FrameKind::Ping, 0, id);
        world.run_ms(1_000);
    }
    world.report(ID, FrameKind::Pong, 0, b"2");
    world.report(ID, FrameKind::Pong, 0, b"2");
    world.report(ID, FrameKind::Pong, 0, b"9");
    world.run_ms(10);
    assert_eq!(world.assessed(ID).heartbeat.ping_location, PingLocation::Acked, "the third is outstanding");
    let answered = answers(&world);
    assert_eq!((answered.len(), answered[2].ping_to_pong_us), (3, 2_000_000));
}

/// A host that sends its reports together, later: a Pong is not expected before its report can come.
#[test]
fn reports_that_come_in_batches_accuse_nobody() {
    let mut world = encrypted(Peer::Mute);
    // A batch each 25 s tells of a Ping each 10 s; the last Pong of one comes with the next.
    let mut waiting: Vec<(FrameKind, u64)> = Vec::new();
    for second in 0..300u64 {
        if second % 10 == 0 {
            world.write(ID, RECORD_BYTES);
            waiting.push((FrameKind::Ping, world.now));
            world.run_ms(30);
            world.peer_writes(ID, RECORD_BYTES);
            waiting.push((FrameKind::Pong, world.now));
            world.run_ms(970);
        } else {
            world.run_ms(1_000);
        }
        if second % 25 == 24 {
            let kept = if second % 50 == 24 { waiting.pop() } else { None };
            for (kind, at) in waiting.drain(..) {
                world.report(ID, kind, world.now - at, b"");
            }
            waiting.extend(kept);
        }
    }
    assert_eq!(world.verdicts(ID), []);
    assert_eq!(world.engine.counters().late_ticks, 0);
    assert_eq!(world.assessed(ID).heartbeat.interval_ms, Some(10_000));
}

/// Two reports on their way at once: the Pong's comes first.
#[test]
fn pong_that_is_reported_before_its_ping_answers_it() {
    let mut world = encrypted(Peer::Mute);
    reports(&mut world, 3, 2_000);
    for _ in 0..3 {
        world.write(ID, RECORD_BYTES);
        world.run_ms(10);
        pong(&mut world);
        world.report(ID, FrameKind::Ping, 0, b"");
        world.run_ms(30_000);
    }
    assert_eq!(world.verdicts(ID), []);
}

#[test]
fn lost_records_take_no_reported_heartbeat_away() {
    let mut world = encrypted(Peer::Mute);
    reports(&mut world, 3, 2_000);
    ping(&mut world);
    world.run_ms(100);
    world.lose_records(3);
    world.run_ms(100);
    assert_eq!(world.assessed(ID).heartbeat.missed, Some(1));
}

#[test]
fn close_after_reported_heartbeats_accuses_nobody_off_the_tick() {
    let mut world = encrypted(Peer::Mute);
    reports(&mut world, 6, 2_000);
    ping(&mut world);
    world.run_ms(1_000);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.assessment), (CloseKind::Other, Some(Assessment::Unknown)));
    // On the tick, with two missed, it is the watchdog.
    let mut world = encrypted(Peer::Mute);
    reports(&mut world, 6, 2_000);
    for _ in 0..2 {
        ping(&mut world);
        world.run_ms(2_000);
    }
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!(record.kind, CloseKind::HeartbeatKill);
    assert_eq!(record.assessed.heartbeat.source, HeartbeatSource::Application);
    assert_eq!(record.assessed.heartbeat.missed, Some(2));
}

// ---- what an answered Ping tells ----------------------------------------------------------------------------------------------

#[test]
fn answer_without_a_reading_before_it_has_a_sum_only() {
    let mut world = World::new();
    world.open_websocket(ID, Peer::Healthy);
    world.run_ms(1_000);
    world.ping(ID);
    world.run_ms(100);
    let answered = answers(&world);
    assert_eq!(answered.len(), 1);
    let answered = answered[0];
    assert_eq!(answered.ping_to_pong_us, 10_000);
    assert_eq!((answered.ping_to_ack_us, answered.ack_to_pong_us), (None, None));
    assert_eq!((answered.ping_to_ack_us_max(), answered.ack_to_pong_us_max()), (10_000, 10_000));
}

#[test]
fn reading_between_the_ack_and_the_pong_tells_queue_and_application_apart() {
    let mut world = World::new();
    world.open_websocket(ID, Peer::Healthy);
    world.run_ms(1_000);
    // The application is busy for two seconds.
    world.socket(ID).peer = Peer::Stopped;
    world.ping(ID);
    world.run_ms(2_000);
    world.socket(ID).peer = Peer::Healthy;
    world.run_ms(100);
    let busy = answers(&world)[0];
    assert!(busy.ping_to_ack_us.unwrap() <= 20_000, "{busy:?}");
    assert!(busy.ack_to_pong_us.unwrap() >= 1_900_000, "{busy:?}");
    // The way there takes two seconds, and the application one.
    world.socket(ID).peer = Peer::Gone;
    world.ping(ID);
    world.run_ms(2_000);
    world.socket(ID).peer = Peer::Stopped;
    world.run_ms(1_000);
    world.socket(ID).peer = Peer::Healthy;
    world.run_ms(100);
    let late = answers(&world)[1];
    assert!(late.ping_to_ack_us.unwrap().abs_diff(2_000_000) <= 20_000, "{late:?}");
    assert!(late.ack_to_pong_us.unwrap().abs_diff(1_000_000) <= 20_000, "{late:?}");
    assert_eq!(late.profile, HeartbeatProfile::Rfc6455);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// The parts are known together and make the sum; the bounds hold; and a Pong has an answer at most.
    #[test]
    fn parts_of_an_answer_make_its_sum(
        steps in prop::collection::vec((0u8..5, 0u64..400_000, 10u64..3_000), 1..30),
    ) {
        let mut world = World::new();
        world.open_websocket(ID, Peer::Healthy);
        for (what, bytes, ms) in steps {
            match what {
                0 => world.socket(ID).peer = Peer::Stopped,
                1 => world.socket(ID).peer = Peer::Healthy,
                2 => world.write(ID, bytes + 1),
                _ => world.ping(ID),
            }
            world.run_ms(ms);
        }
        for answered in answers(&world) {
            match (answered.ping_to_ack_us, answered.ack_to_pong_us) {
                (Some(ack), Some(pong)) => {
                    prop_assert!((ack + pong).abs_diff(answered.ping_to_pong_us) <= 1, "{:?}", answered);
                }
                (None, None) => {}
                _ => prop_assert!(false, "half of an answer: {:?}", answered),
            }
            prop_assert!(answered.ping_to_ack_us_max() <= answered.ping_to_pong_us);
            prop_assert!(answered.ack_to_pong_us_max() <= answered.ping_to_pong_us);
        }
    }

    /// Reports of any age, in any order: nothing becomes late by them, nothing is due in the past, nobody is accused while its
    /// bytes come.
    #[test]
    fn reports_of_any_age_disturb_nothing(
        reports in prop::collection::vec((any::<bool>(), 0u64..60_000, 0u64..3, 10u64..2_000), 1..60),
    ) {
        let mut world = encrypted(Peer::Mute);
        world.run_ms(60_000);
        for (is_ping, age_ms, id, ms) in reports {
            let kind = if is_ping { FrameKind::Ping } else { FrameKind::Pong };
            let payload: &[u8] = [&b""[..], b"1", b"2"][usize::try_from(id).unwrap()];
            world.write(ID, RECORD_BYTES);
            world.report(ID, kind, age_ms, payload);
            world.peer_writes(ID, RECORD_BYTES);
            let at = world.at();
            prop_assert!(world.engine.poll_timeout().is_none_or(|due| due > at));
            prop_assert!(world.engine.next_sample_at().is_none_or(|due| due > at));
            world.run_ms(ms);
            prop_assert!(!world.assessed(ID).kill_justified);
        }
        prop_assert_eq!(world.engine.counters().late_ticks, 0);
        for verdict in world.verdicts(ID) {
            prop_assert!(matches!(verdict, Verdict::Alive | Verdict::Congested), "{}", verdict);
        }
    }
}
