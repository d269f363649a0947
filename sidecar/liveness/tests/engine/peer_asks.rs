//! Heartbeats in which the peer asks, and those that nobody answers.

use ackbeat_liveness::*;
use proptest::prelude::*;

use crate::world::{Peer, World};

const ID: u64 = 7;
const SIBLING: u64 = 8;

fn websocket(profile: HeartbeatProfile, peer: Peer) -> World {
    let mut world = World::new();
    world.profile = profile;
    world.open_websocket(ID, peer);
    world.run_ms(1_000);
    world
}

/// The peer asks so often, and the host answers unless nobody does.
fn asks(world: &mut World, id: u64, times: u64, interval_ms: u64) {
    for _ in 0..times {
        ask(world, id);
        world.run_ms(interval_ms);
    }
}

fn ask(world: &mut World, id: u64) {
    world.peer_frame(id, FrameKind::Ping, None);
    if !world.profile.is_unanswered() {
        world.answer(id);
    }
}

fn phoenix(interval_ms: u64) -> World {
    let mut world = websocket(HeartbeatProfile::Phoenix, Peer::Mute);
    asks(&mut world, ID, 6, interval_ms);
    world
}

#[test]
fn heartbeat_of_a_peer_that_asks_is_told() {
    let mut world = websocket(HeartbeatProfile::Phoenix, Peer::Mute);
    for jitter in [0, 60, 10, 230, 0, 90, 20, 10] {
        asks(&mut world, ID, 1, 30_000 + jitter);
    }
    let heartbeat = world.assessed(ID).heartbeat;
    assert_eq!(
        (heartbeat.source, heartbeat.profile),
        (HeartbeatSource::Wire, Some(HeartbeatProfile::Phoenix))
    );
    assert!(heartbeat.interval_ms.unwrap().abs_diff(30_000) <= 1_500, "{heartbeat:?}");
    assert_eq!((heartbeat.missed, heartbeat.last_pong_age_ms), (Some(0), Some(30_010)));
    assert_eq!((heartbeat.ping_location, heartbeat.inferred), (PingLocation::Unknown, false));
    assert_eq!(world.verdicts(ID), []);
    assert!(world.samples <= 20, "{} passes for 8 heartbeats", world.samples);
}

/// The interval of a port is known to a connection that has asked only once.
#[test]
fn interval_of_the_peers_is_learned_per_port() {
    let mut world = websocket(HeartbeatProfile::SignalR, Peer::Mute);
    asks(&mut world, ID, 4, 15_000);
    world.open_websocket(SIBLING, Peer::Mute);
    world.peer_frame(SIBLING, FrameKind::Ping, None);
    assert_eq!(world.assessed(SIBLING).heartbeat.interval_ms, Some(15_000));
    world.port = 9090;
    world.open_websocket(9, Peer::Mute);
    world.peer_frame(9, FrameKind::Ping, None);
    let heartbeat = world.assessed(9).heartbeat;
    assert_eq!((heartbeat.interval_ms, heartbeat.missed), (None, None));
}

#[test]
fn peer_that_stops_asking_is_silent_after_two_intervals_and_a_pongs_budget() {
    let mut world = phoenix(30_000);
    // The last was sent 30 s ago; the host goes on writing, and everything is acknowledged.
    for _ in 0..34 {
        world.write(ID, 100);
        world.run_ms(1_000);
        assert_eq!(world.assessed(ID).verdict, Verdict::Alive);
    }
    world.run_ms(1_500);
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.kill_justified), (Verdict::Silent, false));
    assert_eq!((assessed.rung, assessed.heartbeat.missed), (Rung::Ack, Some(1)));
    world.run_ms(18_000);
    assert!(!world.assessed(ID).kill_justified);
    world.run_ms(2_000);
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.kill_justified), (Verdict::Silent, true));
    assert_eq!(assessed.heartbeat.missed, Some(2));
    assert_eq!(world.justifications(ID).len(), 1);
    // Its next heartbeat ends it.
    ask(&mut world, ID);
    world.run_ms(10);
    assert_eq!((world.assessed(ID).verdict, world.assessed(ID).kill_justified), (Verdict::Alive, false));
    assert_eq!(world.verdicts(ID), [Verdict::Silent, Verdict::Alive]);
}

/// The host writes all the time: what is on its way for a moment is no reason to forget that the peer is silent.
#[test]
fn silence_of_an_asking_peer_does_not_flicker_with_what_is_written() {
    let mut world = phoenix(5_000);
    for _ in 0..580 {
        world.write(ID, 10);
        world.run_ms(50);
    }
    assert_eq!(world.verdicts(ID), [Verdict::Silent]);
    assert_eq!(world.justifications(ID).len(), 0);
}

#[test]
fn peer_that_sends_anything_is_not_silent() {
    let mut world = phoenix(2_000);
    // Messages take the place of heartbeats, as with SignalR.
    for _ in 0..40 {
        world.peer_writes(ID, 50);
        world.run_ms(3_500);
    }
    assert_eq!(world.verdicts(ID), []);
}

#[test]
fn pings_that_measured_the_round_trip_promise_nothing() {
    let mut world = websocket(HeartbeatProfile::Json, Peer::Mute);
    asks(&mut world, ID, 3, 1_000);
    world.run_ms(120_000);
    assert_eq!(world.verdicts(ID), []);
}

/// A page in the background: its timers run once a minute.
#[test]
fn peer_that_became_slower_is_given_its_own_longest_interval() {
    let mut world = phoenix(30_000);
    asks(&mut world, ID, 5, 60_000);
    world.run_ms(60_000);
    assert_eq!(world.verdicts(ID), []);
    world.run_ms(10_000);
    assert_eq!(world.verdicts(ID), [Verdict::Silent]);
}

#[test]
fn asking_peer_with_a_backlog_before_it_is_busy() {
    let mut world = phoenix(2_000);
    world.socket(ID).edge += 10_000_000;
    world.socket(ID).peer = Peer::Stopped;
    world.write(ID, 1_000_000);
    world.run_ms(40_000);
    assert!(!world.verdicts(ID).contains(&Verdict::Silent), "{:?}", world.verdicts(ID));
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.kill_justified), (Verdict::Stalled, false));
    world.run_ms(35_000);
    assert!(world.assessed(ID).kill_justified);
}

#[test]
fn asking_peer_cannot_write_behind_the_window_of_a_host_that_does_not_read() {
    let mut world = phoenix(2_000);
    world.socket(ID).paused = true;
    world.peer_writes(ID, 400_000);
    for _ in 0..60 {
        world.run_ms(1_000);
        assert_ne!(world.assessed(ID).verdict, Verdict::Silent);
    }
}

#[test]
fn asking_peer_that_said_good_bye_owes_nothing() {
    for direction in [Direction::Ingress, Direction::Egress] {
        let mut world = phoenix(2_000);
        match direction {
            Direction::Ingress => world.peer_frame(ID, FrameKind::Close, Some(1000)),
            Direction::Egress => world.close_frame(ID, 1000, ""),
        }
        world.run_ms(60_000);
        assert_eq!(world.verdicts(ID), []);
    }
}

#[test]
fn asking_peer_of_which_frames_may_pass_unseen_owes_nothing() {
    let mut world = phoenix(2_000);
    world.synchronize(ID, Direction::Ingress, false);
    world.run_ms(60_000);
    assert_eq!(world.verdicts(ID), []);
    assert_eq!(world.assessed(ID).heartbeat.missed, None);
    let mut world = phoenix(2_000);
    world.lose_records(1);
    world.run_ms(60_000);
    assert!(!world.verdicts(ID).contains(&Verdict::Silent));
}

#[test]
fn sidecar_that_was_stopped_calls_no_asking_peer_silent() {
    let mut world = phoenix(2_000);
    world.stopped = true;
    world.run_ms(60_000);
    world.resume();
    world.run_ms(8_000);
    assert!(!world.verdicts(ID).contains(&Verdict::Silent), "{:?}", world.verdicts(ID));
    world.run_ms(4_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Silent, "the new window ends like any other");
}

/// Each side sends its own, and nobody answers: the host's start no clock.
#[test]
fn heartbeat_that_nobody_answers_misses_no_pong() {
    let mut world = websocket(HeartbeatProfile::SignalR, Peer::Mute);
    for _ in 0..8 {
        world.ping(ID);
        world.run_ms(7_000);
        world.peer_frame(ID, FrameKind::Ping, None);
        world.run_ms(8_000);
    }
    assert_eq!(world.verdicts(ID), []);
    let heartbeat = world.assessed(ID).heartbeat;
    assert_eq!(heartbeat.profile, Some(HeartbeatProfile::SignalR));
    assert_eq!((heartbeat.interval_ms, heartbeat.missed), (Some(15_000), Some(0)));
    assert!(!world.outputs.iter().any(|output| matches!(output, Output::Answered(_))));
}

/// A peer that never sent one owes none.
#[test]
fn pings_of_the_host_alone_that_nobody_answers_prove_nothing() {
    let mut world = websocket(HeartbeatProfile::SignalR, Peer::Stopped);
    for _ in 0..20 {
        world.ping(ID);
        world.run_ms(5_000);
    }
    assert_eq!(world.verdicts(ID), []);
    let heartbeat = world.assessed(ID).heartbeat;
    assert_eq!(
        (heartbeat.source, heartbeat.profile),
        (HeartbeatSource::Wire, Some(HeartbeatProfile::SignalR))
    );
    assert_eq!((heartbeat.interval_ms, heartbeat.missed), (None, None));
    world.close(ID);
    assert_eq!(world.run_to_record(ID).kind, CloseKind::Abort);
}

/// Nothing says that a text is answered at all, before it was.
#[test]
fn text_heartbeat_is_expected_to_be_answered_once_one_was_on_its_port() {
    let mut world = websocket(HeartbeatProfile::PingPong, Peer::Mute);
    for _ in 0..10 {
        world.ping(ID);
        world.run_ms(2_000);
    }
    assert_eq!(world.verdicts(ID), []);
    let heartbeat = world.assessed(ID).heartbeat;
    assert_eq!((heartbeat.interval_ms, heartbeat.missed), (Some(2_000), None));
    world.open_websocket(SIBLING, Peer::Healthy);
    world.ping(SIBLING);
    world.run_ms(100);
    world.ping(ID);
    world.run_ms(6_500);
    assert_eq!(world.verdicts(ID), [Verdict::Silent]);
    assert_eq!(world.assessed(ID).heartbeat.profile, Some(HeartbeatProfile::PingPong));
}

/// The host asks, and so does the peer: it is the host's heartbeat that counts.
#[test]
fn heartbeat_of_the_host_goes_before_that_of_the_peer() {
    let mut world = websocket(HeartbeatProfile::Rfc6455, Peer::Healthy);
    world.watchdog(2_000);
    for _ in 0..6 {
        world.profile = HeartbeatProfile::Json;
        world.peer_frame(ID, FrameKind::Ping, None);
        world.profile = HeartbeatProfile::Rfc6455;
        world.run_ms(5_000);
    }
    world.run_ms(500);
    let heartbeat = world.assessed(ID).heartbeat;
    assert_eq!(heartbeat.profile, Some(HeartbeatProfile::Rfc6455));
    assert_eq!((heartbeat.interval_ms, heartbeat.missed), (Some(2_000), Some(0)));
}

/// A library pings by control frames, which its peer's library answers, and the application by text, which takes longer:
/// the answers of one are not those of the other, and neither disturbs the interval.
#[test]
fn two_heartbeats_of_one_host_do_not_mix() {
    let mut world = websocket(HeartbeatProfile::Rfc6455, Peer::Healthy);
    for _ in 0..10 {
        world.profile = HeartbeatProfile::Rfc6455;
        world.ping(ID);
        world.run_ms(1_100);
        world.profile = HeartbeatProfile::Json;
        world.ping(ID);
        world.run_ms(1_900);
    }
    let heartbeat = world.assessed(ID).heartbeat;
    assert_eq!(heartbeat.profile, Some(HeartbeatProfile::Rfc6455));
    assert_eq!((heartbeat.interval_ms, heartbeat.missed), (Some(3_000), Some(0)));
    assert_eq!(world.verdicts(ID), []);
}

/// Whose Pongs are not seen is not silent for want of them.
#[test]
fn ping_whose_pong_would_not_be_seen_starts_no_clock() {
    let mut world = websocket(HeartbeatProfile::Rfc6455, Peer::Healthy);
    world.ping(ID);
    world.run_ms(1_000);
    world.synchronize(ID, Direction::Ingress, false);
    world.socket(ID).peer = Peer::Mute;
    for _ in 0..4 {
        world.ping(ID);
        world.run_ms(30_000);
    }
    assert_eq!(world.verdicts(ID), []);
}

// ---- closes -----------------------------------------------------------------------------------------------------------------

fn kill_after(world: &mut World, silence_ms: u64) -> CloseRecord {
    world.run_ms(silence_ms);
    world.close(ID);
    world.run_to_record(ID)
}

/// The host's timer and the peer's are not the same: 60 s came a moment before two intervals were over, as they were learned.
#[test]
fn kill_of_a_peer_that_stopped_asking_is_a_heartbeat_kill() {
    for (interval_ms, timeout_ms, profile) in [
        (30_010, 60_000, HeartbeatProfile::Phoenix),
        (15_000, 30_000, HeartbeatProfile::SignalR),
        (30_000, 80_000, HeartbeatProfile::PingPong),
    ] {
        let mut world = websocket(profile, Peer::Mute);
        asks(&mut world, ID, 6, interval_ms);
        ask(&mut world, ID);
        let record = kill_after(&mut world, timeout_ms);
        assert_eq!(record.kind, CloseKind::HeartbeatKill, "{profile}");
        assert_eq!(record.assessed.heartbeat.missed, Some(2), "{profile}");
        assert_eq!(record.assessed.heartbeat.profile, Some(profile));
        // Its kernel answered, its application did not show itself any more.
        assert_eq!(record.assessment, Some(Assessment::Premature), "{profile}");
    }
}

#[test]
fn kill_of_an_asking_peer_is_judged_by_what_followed() {
    // The peer is gone, and nobody could know: nothing was sent to it.
    let mut world = phoenix(15_000);
    ask(&mut world, ID);
    world.run_ms(100);
    world.socket(ID).peer = Peer::Gone;
    let record = kill_after(&mut world, 31_000);
    assert_eq!((record.kind, record.assessed.verdict), (CloseKind::HeartbeatKill, Verdict::Alive));
    assert_eq!(record.postmortem, Some(Postmortem::NoAnswer));
    assert_eq!(record.assessment, Some(Assessment::Justified));
    // It was only late.
    let mut world = phoenix(15_000);
    ask(&mut world, ID);
    world.run_ms(31_000);
    world.close(ID);
    world.run_ms(10);
    if world.record(ID).is_none() {
        world.peer_writes(ID, 10);
    }
    let record = world.run_to_record(ID);
    assert_eq!(record.kind, CloseKind::HeartbeatKill);
    // Long after the policy allowed it.
    let mut world = phoenix(5_000);
    ask(&mut world, ID);
    let record = kill_after(&mut world, 40_000);
    assert_eq!(
        (record.kind, record.assessed.verdict, record.assessment),
        (CloseKind::HeartbeatKill, Verdict::Silent, Some(Assessment::Justified))
    );
}

#[test]
fn late_heartbeat_after_the_kill_makes_it_false() {
    let mut world = phoenix(15_000);
    ask(&mut world, ID);
    world.run_ms(31_000);
    // Its answer to the FIN takes a while, as on a slow path.
    world.socket(ID).peer = Peer::Gone;
    world.close(ID);
    world.run_ms(100);
    world.peer_writes(ID, 10);
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.postmortem), (CloseKind::HeartbeatKill, Some(Postmortem::AppProgress)));
    assert_eq!(record.assessment, Some(Assessment::FalseKill));
}

#[test]
fn close_of_a_peer_that_is_in_time_is_no_heartbeat_kill() {
    // A heartbeat is not even due, or only one is missing.
    for silence_ms in [5_000, 15_000, 17_000, 25_000] {
        let mut world = phoenix(15_000);
        ask(&mut world, ID);
        let record = kill_after(&mut world, silence_ms);
        assert_eq!(record.kind, CloseKind::Abort, "after {silence_ms} ms");
        assert_eq!(record.assessment, Some(Assessment::FalseKill));
    }
    // Its messages took the place of its heartbeats.
    let mut world = phoenix(15_000);
    for _ in 0..10 {
        world.run_ms(10_000);
        world.peer_writes(ID, 50);
    }
    world.run_ms(5_000);
    world.pass();
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.assessed.heartbeat.missed), (CloseKind::Abort, Some(8)));
    // A polite close stays one, however late; one that says nothing but that it was unexpected does not.
    for (code, kind) in [(1000, CloseKind::Graceful), (1011, CloseKind::HeartbeatKill)] {
        let mut world = phoenix(15_000);
        world.run_ms(40_000);
        world.close_frame(ID, code, "");
        world.run_ms(20);
        world.close(ID);
        assert_eq!(world.run_to_record(ID).kind, kind);
    }
}

#[test]
fn close_of_a_silent_asking_peer_whose_host_is_not_followed_accuses_nobody() {
    let mut world = phoenix(15_000);
    ask(&mut world, ID);
    world.synchronize(ID, Direction::Egress, false);
    let record = kill_after(&mut world, 31_000);
    assert_eq!((record.kind, record.assessment), (CloseKind::Other, Some(Assessment::Unknown)));
}

// ---- what holds for every peer that asks --------------------------------------------------------------------------------------

/// What happens between two moments.
#[derive(Clone, Debug)]
enum Between {
    Asks,
    PeerWrites,
    HostWrites(u64),
    Nothing,
}

fn between() -> impl Strategy<Value = (Between, u64)> {
    let what = prop_oneof![
        4 => Just(Between::Asks),
        2 => Just(Between::PeerWrites),
        2 => (1u64..2_000_000).prop_map(Between::HostWrites),
        2 => Just(Between::Nothing),
    ];
    (what, 10u64..12_000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever an asking peer does or leaves undone: it is never silent while anything came within a Pong's budget and two
    /// intervals, and a kill is never justified sooner than the policy's time after that.
    #[test]
    fn asking_peer_is_never_silent_while_inbound_is_fresh(
        interval_ms in 500u64..8_000,
        happenings in prop::collection::vec(between(), 1..25),
        stops in any::<bool>(),
    ) {
        let policy = Policy::default_policy();
        let mut world = websocket(HeartbeatProfile::Phoenix, Peer::Mute);
        asks(&mut world, ID, 6, interval_ms);
        let mut heard_at = world.now - interval_ms;
        let check = |world: &World, heard_at: u64| {
            let assessed = world.assessed(ID);
            let silence_ms = world.now - heard_at;
            let overdue_ms = 2 * interval_ms + policy.pong_budget_ms;
            if silence_ms <= overdue_ms {
                prop_assert!(
                    assessed.verdict == Verdict::Alive || assessed.verdict == Verdict::Congested,
                    "{assessed:?} after {silence_ms} ms"
                );
            }
            if silence_ms <= overdue_ms + policy.silent_after_ms {
                prop_assert!(!assessed.kill_justified, "{assessed:?} after {silence_ms} ms");
            }
            Ok(())
        };
        for (what, ms) in happenings {
            match what {
                Between::Asks => {
                    ask(&mut world, ID);
                    heard_at = world.now;
                }
                Between::PeerWrites => {
                    world.peer_writes(ID, 20);
                    heard_at = world.now;
                }
                Between::HostWrites(bytes) => world.write(ID, bytes),
                Between::Nothing => {}
            }
            if stops && ms % 7 == 0 {
                world.stopped = true;
                world.run_ms(ms);
                world.resume();
                world.step();
            }
            for _ in 0..ms / 250 {
                world.run_ms(250);
                check(&world, heard_at)?;
            }
        }
    }
}
