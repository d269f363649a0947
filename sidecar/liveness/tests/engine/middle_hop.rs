//! Report B: somebody in the middle acknowledges for a peer that is not there.

use ackbeat_liveness::*;

use crate::world::{Peer, World};

const ID: u64 = 7;

/// The server of report B: every 40 s a text `ping`, and the connection is given up after two that nobody answered.
const SERVER_INTERVAL_MS: u64 = 40_000;

fn behind(headers: &[&str]) -> World {
    let mut world = World::new();
    world.profile = HeartbeatProfile::PingPong;
    world.open(ID, Peer::Healthy);
    world.upgrade(ID, headers);
    world
}

/// From now on the middle takes everything and passes nothing on.
fn goes_deaf(world: &mut World) {
    world.socket(ID).peer = Peer::Mute;
}

#[test]
fn idle_connection_is_judged_by_the_servers_schedule_and_becomes_silent() {
    let mut world = behind(&["cf-ray"]);
    world.watchdog(SERVER_INTERVAL_MS);
    world.run_ms(3 * SERVER_INTERVAL_MS + 1_000);
    assert_eq!(world.verdicts(ID), [], "an idle connection is alive from one heartbeat to the next");
    goes_deaf(&mut world);
    world.run_ms(SERVER_INTERVAL_MS - 2_000);
    assert_eq!(world.verdicts(ID), [], "nothing was due");
    world.run_ms(8_000);
    assert_eq!(world.verdicts(ID), [Verdict::Silent]);
    let assessed = world.assessed(ID);
    assert_eq!((assessed.scope, assessed.rung), (EvidenceScope::NextHop, Rung::Ack));
    assert_eq!(assessed.heartbeat.interval_ms, Some(SERVER_INTERVAL_MS));
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.assessment), (CloseKind::HeartbeatKill, Some(Assessment::Justified)));
    assert_eq!(record.assessed.scope, EvidenceScope::NextHop);
    assert_eq!(world.verdicts(ID), [Verdict::Silent], "never alive again, and never unreachable");
    // The fourth Ping is the first that the middle swallowed.
    let (at, _) = world.justifications(ID)[0];
    let after_ms = at.ms_since(Timestamp::from_ms(crate::world::START_MS + 4 * SERVER_INTERVAL_MS));
    assert!(after_ms.abs_diff(20_000) <= 250, "a kill was justified {after_ms} ms after the Ping");
}

/// The Ping is acknowledged, and whatever is written after it is taken, a part of it always still to be sent.
fn takes_and_takes(world: &mut World, ms: u64) {
    for _ in 0..ms / 200 {
        world.write(ID, 1_000);
        world.run_ms_unsampled(200);
        let reading = Snapshot {
            unsent_bytes: Some(1_000),
            send_queue_bytes: Some(1_000),
            packets_out: Some(1),
            ..world.snapshot(ID)
        };
        world.give(Input::Sample(reading));
    }
}

#[test]
fn acks_of_a_next_hop_hold_nothing_beyond_the_silence() {
    for (headers, proxy, expected) in [
        (&["via"][..], PeerIsProxy::Auto, Verdict::Silent),
        (&[][..], PeerIsProxy::Yes, Verdict::Silent),
        (&["via"][..], PeerIsProxy::No, Verdict::Congested),
        (&[][..], PeerIsProxy::Auto, Verdict::Congested),
    ] {
        let mut world = behind(headers);
        world.engine.set_deployment(Deployment { peer_is_proxy: proxy, ..Deployment::default() });
        world.ping(ID);
        world.run_ms(500);
        goes_deaf(&mut world);
        world.ping(ID);
        world.run_ms(200);
        takes_and_takes(&mut world, 18_000);
        assert_eq!(world.assessed(ID).verdict, Verdict::Congested, "{headers:?} {proxy:?}");
        takes_and_takes(&mut world, 5_000);
        let assessed = world.assessed(ID);
        assert_eq!(assessed.verdict, expected, "{headers:?} {proxy:?}");
        assert_eq!(assessed.kill_justified, expected == Verdict::Silent);
        assert!(!world.verdicts(ID).contains(&Verdict::Unreachable));
    }
}

/// The pod is the client here, or its peers ask: the interval that they keep is what they are measured by.
#[test]
fn peer_that_asks_is_missed_by_its_own_interval() {
    let silent_after = |interval_ms: u64| {
        let mut world = behind(&["via"]);
        goes_deaf(&mut world);
        for _ in 0..6 {
            world.peer_frame(ID, FrameKind::Ping, None);
            world.answer(ID);
            world.run_ms(interval_ms);
        }
        let last = world.now - interval_ms;
        // What the host writes is acknowledged all the time.
        while world.assessed(ID).verdict != Verdict::Silent {
            world.write(ID, 100);
            world.run_ms(500);
            assert!(world.now - last < 20 * interval_ms, "{:?}", world.verdicts(ID));
        }
        world.now - last
    };
    let (fast, slow) = (silent_after(10_000), silent_after(SERVER_INTERVAL_MS));
    assert!((25_000..27_000).contains(&fast), "{fast}");
    assert!((85_000..87_000).contains(&slow), "{slow}");
}

#[test]
fn lagging_pongs_tell_of_a_middle_hop_and_change_no_verdict() {
    let run = |proxy| {
        let mut world = World::new();
        world.engine.set_deployment(Deployment { peer_is_proxy: proxy, ..Deployment::default() });
        world.open_websocket(ID, Peer::Mute);
        world.run_ms(1_000);
        let mut scopes = Vec::new();
        let heartbeat = |world: &mut World, lag_ms: u64| {
            world.ping(ID);
            world.run_ms(lag_ms);
            world.peer_frame(ID, FrameKind::Pong, None);
            world.run_ms(2_000);
        };
        for _ in 0..9 {
            heartbeat(&mut world, 300);
            scopes.push(world.assessed(ID).scope);
        }
        world.ping(ID);
        world.run_ms(200);
        takes_and_takes(&mut world, 40_000);
        let verdicts = world.verdicts(ID);
        world.peer_frame(ID, FrameKind::Pong, None);
        world.run_ms(3_000);
        heartbeat(&mut world, 10);
        scopes.push(world.assessed(ID).scope);
        (scopes, verdicts)
    };
    let (scopes, verdicts) = run(PeerIsProxy::Auto);
    let (peer, hop) = (EvidenceScope::Peer, EvidenceScope::NextHop);
    assert_eq!(scopes, [peer, peer, peer, peer, peer, peer, peer, hop, hop, peer]);
    let (scopes, verdicts_without) = run(PeerIsProxy::No);
    assert!(scopes.iter().all(|scope| *scope == peer));
    assert_eq!(verdicts, verdicts_without, "a peer that is slow is not judged more strictly");
    assert!(!verdicts.contains(&Verdict::Silent), "{verdicts:?}");
}

#[test]
fn sidecar_that_stood_still_accuses_nobody_behind_a_hop() {
    let mut world = behind(&["x-forwarded-for"]);
    world.watchdog(SERVER_INTERVAL_MS);
    // Well between two heartbeats.
    world.run_ms(3 * SERVER_INTERVAL_MS + 9_000);
    world.stopped = true;
    world.run_ms(7 * SERVER_INTERVAL_MS);
    world.resume();
    world.run_ms(3 * SERVER_INTERVAL_MS);
    assert!(
        world.verdicts(ID).iter().all(|verdict| matches!(verdict, Verdict::Alive | Verdict::Unknown)),
        "{:?}",
        world.verdicts(ID)
    );
    assert_eq!(world.justifications(ID), []);
    assert!(world.record(ID).is_none());
}
