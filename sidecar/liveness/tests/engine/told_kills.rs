//! Watchdogs that say goodbye: a kill with a Close frame is no less one.

use ackbeat_liveness::*;

use crate::world::{NO_CODE, Peer, World};

const ID: u64 = 7;
/// What the kernel takes at once, so that the Close frame is in its queue too.
const BURST: u64 = 600_000;

/// Three answered Pings, 2 s apart, and one that is not answered yet.
fn one_ping_outstanding(profile: HeartbeatProfile, peer: Peer) -> World {
    let mut world = World::new();
    world.profile = profile;
    world.open_websocket(ID, Peer::Healthy);
    for _ in 0..3 {
        world.ping(ID);
        world.run_ms(2_000);
    }
    world.socket(ID).peer = peer;
    if matches!(peer, Peer::Reads(_)) {
        world.write(ID, BURST);
    }
    world.ping(ID);
    world.run_ms(1_200);
    world
}

/// The closing handshake, whose end the host does not wait for.
fn closed_with(mut world: World, code: u16) -> CloseRecord {
    world.close_frame(ID, code, "");
    world.run_ms(100);
    world.close(ID);
    world.run_to_record(ID)
}

#[test]
fn told_kill_of_a_slow_reader_is_a_false_heartbeat_kill() {
    let record = closed_with(one_ping_outstanding(HeartbeatProfile::Rfc6455, Peer::Reads(200_000)), 1011);
    assert_eq!((record.kind, record.initiator), (CloseKind::HeartbeatKill, CloseInitiator::Host));
    assert_eq!(record.assessed.heartbeat.missed, Some(1));
    assert_eq!(record.assessment, Some(Assessment::FalseKill));
}

#[test]
fn kill_that_is_told_without_a_code_is_one_where_engine_io_asks() {
    let engine_io = one_ping_outstanding(HeartbeatProfile::EngineIo, Peer::Reads(200_000));
    assert_eq!(closed_with(engine_io, NO_CODE).kind, CloseKind::HeartbeatKill);
    // Elsewhere one Ping that waits is too little to read a wordless goodbye by …
    let other = one_ping_outstanding(HeartbeatProfile::Rfc6455, Peer::Reads(200_000));
    assert_eq!(closed_with(other, NO_CODE).kind, CloseKind::Graceful);
    // … and two are not.
    let mut other = one_ping_outstanding(HeartbeatProfile::Rfc6455, Peer::Stopped);
    other.run_ms(800);
    other.ping(ID);
    other.run_ms(2_000);
    assert_eq!(closed_with(other, NO_CODE).kind, CloseKind::HeartbeatKill);
}

#[test]
fn polite_codes_stay_polite_however_late_the_pong() {
    for code in [1000, 1003, 1008, 4000] {
        let world = one_ping_outstanding(HeartbeatProfile::Rfc6455, Peer::Reads(200_000));
        let record = closed_with(world, code);
        assert_eq!((record.kind, record.assessment), (CloseKind::Graceful, None), "{code}");
    }
}

#[test]
fn close_for_another_reason_with_every_pong_in_time_is_graceful() {
    for code in [1011, NO_CODE] {
        let mut world = one_ping_outstanding(HeartbeatProfile::EngineIo, Peer::Healthy);
        world.run_ms(500);
        let record = closed_with(world, code);
        assert_eq!((record.kind, record.assessment), (CloseKind::Graceful, None), "{code}");
    }
}

#[test]
fn what_counts_is_what_was_known_when_the_watchdog_spoke() {
    // Gone for so long that a kill is justified; then it is there again and answers the Close frame.
    let mut world = one_ping_outstanding(HeartbeatProfile::Rfc6455, Peer::Gone);
    world.run_ms(20_000);
    assert!(world.assessed(ID).kill_justified);
    world.close_frame(ID, 1011, "heartbeat timeout");
    world.socket(ID).peer = Peer::Healthy;
    world.run_ms(30_000);
    world.peer_frame(ID, FrameKind::Close, Some(1011));
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!(record.kind, CloseKind::HeartbeatKill);
    assert_eq!((record.assessed.verdict, record.assessed.kill_justified), (Verdict::Unreachable, true));
    assert_eq!(record.assessment, Some(Assessment::Justified));
}

#[test]
fn peer_that_answers_the_watchdogs_close_frame_was_there() {
    let mut world = one_ping_outstanding(HeartbeatProfile::Rfc6455, Peer::Stopped);
    world.close_frame(ID, 1011, "keepalive ping timeout");
    world.run_ms(50);
    world.peer_frame(ID, FrameKind::Close, Some(1011));
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.close_frames), (CloseKind::HeartbeatKill, CloseFrames::Both));
    assert_eq!(record.postmortem, Some(Postmortem::AppProgress));
    assert_eq!(record.assessment, Some(Assessment::FalseKill));
}

#[test]
fn goodbye_of_the_peer_is_the_peers() {
    let mut world = one_ping_outstanding(HeartbeatProfile::Rfc6455, Peer::Stopped);
    world.peer_frame(ID, FrameKind::Close, None);
    world.run_ms(20);
    let record = closed_with(world, 1011);
    assert_eq!((record.kind, record.initiator), (CloseKind::Graceful, CloseInitiator::Peer));
}
