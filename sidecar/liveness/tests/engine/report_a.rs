//! Report A: a heartbeat watchdog (2 s, two missed, bare terminate) and a 28 MB burst to a slow reader.

use ackbeat_liveness::*;

use crate::world::{Peer, World};

const SLOW: u64 = 1;
const SIBLING: u64 = 2;
const BURST: u64 = 28_000_000;

/// The slow reader is upgraded, and the burst is written at once.
fn burst_to_slow_reader(world: &mut World, peer: Peer) {
    world.open_websocket(SLOW, peer);
    world.write(SLOW, BURST);
}

#[test]
fn slow_reader_with_a_sibling_is_a_false_heartbeat_kill() {
    let mut world = World::new();
    world.watchdog(2_000);
    world.open_websocket(SIBLING, Peer::Healthy);
    world.run_ms(6_500);
    burst_to_slow_reader(&mut world, Peer::Reads(200_000));
    let record = world.run_to_record(SLOW);

    assert_eq!(record.kind, CloseKind::HeartbeatKill);
    assert_eq!(record.initiator, CloseInitiator::Host);
    assert_eq!(record.method, Some(CloseMethod::Fin));
    assert_eq!(record.close_frames, CloseFrames::None);
    let heartbeat = &record.assessed.heartbeat;
    assert_eq!(heartbeat.missed, Some(2));
    assert!(heartbeat.interval_ms.unwrap().abs_diff(2_000) <= 50);
    assert_eq!(heartbeat.ping_location, PingLocation::NotSent);
    assert!(heartbeat.inferred);
    assert!(heartbeat.ping_bytes_ahead.unwrap() > 1_000_000);
    assert_eq!(record.assessed.verdict, Verdict::Congested);
    assert!(!record.assessed.kill_justified);
    assert_eq!(record.postmortem, Some(Postmortem::AppProgress));
    assert_eq!(record.assessment, Some(Assessment::FalseKill));
    assert_eq!(world.assessed(SIBLING).verdict, Verdict::Alive);
}

#[test]
fn slow_reader_that_stopped_reading_is_stalled_and_its_kill_premature_or_false() {
    let mut world = World::new();
    world.watchdog(2_000);
    world.open_websocket(SIBLING, Peer::Healthy);
    world.run_ms(6_500);
    burst_to_slow_reader(&mut world, Peer::Stopped);
    world.run_to_close(SLOW);
    // A busy browser: it goes on reading after the kill.
    world.run_ms(1_000);
    world.socket(SLOW).peer = Peer::Healthy;
    let record = world.run_to_record(SLOW);

    assert_eq!(record.kind, CloseKind::HeartbeatKill);
    assert_eq!(record.assessed.verdict, Verdict::Stalled);
    assert_eq!(record.postmortem, Some(Postmortem::AppProgress));
    assert_eq!(record.assessment, Some(Assessment::FalseKill));
}

#[test]
fn slow_reader_without_a_sibling_is_an_abort_with_an_unknown_heartbeat() {
    let mut world = World::new();
    world.watchdog(2_000);
    burst_to_slow_reader(&mut world, Peer::Reads(200_000));
    let record = world.run_to_record(SLOW);

    assert_eq!(record.kind, CloseKind::Abort);
    assert_eq!(record.assessed.heartbeat.source, HeartbeatSource::None);
    assert_eq!(record.assessed.heartbeat.missed, None);
    assert_eq!(record.assessed.heartbeat.ping_location, PingLocation::Unknown);
    assert!(matches!(record.assessed.verdict, Verdict::Congested | Verdict::Stalled));
    assert_eq!(record.assessment, Some(Assessment::FalseKill));
}

#[test]
fn kill_after_two_pongs_counts_two_missed() {
    // "lived 9052 ms, 2 Pongs, last Pong at 3052 ms"
    let mut world = World::new();
    world.watchdog(2_000);
    world.open_websocket(SIBLING, Peer::Healthy);
    world.run_ms(1_000);
    world.open_websocket(SLOW, Peer::Healthy);
    world.run_ms(3_500);
    world.socket(SLOW).peer = Peer::Reads(20_000);
    world.write(SLOW, BURST);
    let record = world.run_to_record(SLOW);
    assert_eq!(record.kind, CloseKind::HeartbeatKill);
    assert_eq!(record.assessed.heartbeat.missed, Some(2));
    let age = record.assessed.heartbeat.last_pong_age_ms.unwrap();
    assert!((5_900..6_100).contains(&age), "{age}");
}

#[test]
fn kill_on_a_loaded_machine_still_belongs_to_its_tick() {
    let mut world = World::new();
    world.watchdog(2_000);
    world.open_websocket(SIBLING, Peer::Healthy);
    world.run_ms(7_000);
    world.socket(SIBLING).peer = Peer::Healthy;
    world.open_websocket(SLOW, Peer::Reads(200_000));
    world.tolerance = 99;
    world.write(SLOW, BURST);
    // Ticks at 8 and 10 s are missed; the one at 12 s comes 279 ms late.
    world.run_ms(5_279);
    world.close(SLOW);
    let record = world.run_to_record(SLOW);
    assert_eq!(record.kind, CloseKind::HeartbeatKill);
    assert_eq!(record.assessed.heartbeat.missed, Some(2));
}

#[test]
fn cut_client_is_unreachable_and_its_kill_justified() {
    let mut world = World::new();
    world.watchdog(2_000);
    world.open_websocket(SLOW, Peer::Healthy);
    world.run_ms(8_500);
    world.socket(SLOW).peer = Peer::Gone;
    let record = world.run_to_record(SLOW);

    assert_eq!(record.kind, CloseKind::HeartbeatKill);
    assert_eq!(record.assessed.heartbeat.missed, Some(2));
    assert_eq!(record.assessed.verdict, Verdict::Unreachable);
    assert_eq!(record.assessed.heartbeat.ping_location, PingLocation::InFlight);
    assert_eq!(record.postmortem, Some(Postmortem::NoAnswer));
    assert_eq!(record.assessment, Some(Assessment::Justified));
}

#[test]
fn polite_close_that_announces_a_restart_is_planned() {
    let mut world = World::new();
    world.watchdog(2_000);
    world.open_websocket(SLOW, Peer::Healthy);
    world.run_ms(5_000);
    world.close_frame(SLOW, 1001, "server_restart");
    world.run_ms(20);
    world.peer_frame(SLOW, FrameKind::Close, Some(1001));
    world.close(SLOW);
    let record = world.run_to_record(SLOW);
    assert_eq!(record.kind, CloseKind::PlannedRestart);
    assert_eq!(record.initiator, CloseInitiator::Host);
    assert_eq!(record.close_frames, CloseFrames::Both);
    assert_eq!(record.close_code, Some(1001));
    assert_eq!(record.close_reason.as_deref(), Some("server_restart"));
    assert_eq!(record.is_final, Some(false));
    assert_eq!(record.assessment, None);
}

#[test]
fn polite_client_is_the_initiator_whoever_sends_the_first_fin() {
    let mut world = World::new();
    world.open_websocket(SLOW, Peer::Healthy);
    world.run_ms(500);
    world.peer_frame(SLOW, FrameKind::Close, Some(1000));
    world.close_frame(SLOW, 1000, "");
    world.close(SLOW);
    let record = world.run_to_record(SLOW);
    assert_eq!((record.kind, record.initiator), (CloseKind::Graceful, CloseInitiator::Peer));
    assert_eq!(record.close_code, Some(1000));
    assert_eq!((record.postmortem, record.assessment), (None, None));
}

#[test]
fn healthy_client_stays_alive_and_costs_few_samples() {
    let mut world = World::new();
    world.watchdog(2_000);
    world.open_websocket(SLOW, Peer::Healthy);
    world.run_ms(60_500);
    assert_eq!(world.verdicts(SLOW), []);
    let assessed = world.assessed(SLOW);
    assert_eq!(assessed.verdict, Verdict::Alive);
    assert_eq!(assessed.rung, Rung::Pong);
    assert_eq!(assessed.heartbeat.interval_ms, Some(2_000));
    assert_eq!(assessed.heartbeat.missed, Some(0));
    assert!(world.samples <= 31, "{} passes for 30 Pings", world.samples);
}

#[test]
fn pong_that_the_host_did_not_read_is_named() {
    let mut world = World::new();
    world.watchdog(2_000);
    world.open_websocket(SLOW, Peer::Healthy);
    world.run_ms(6_990);
    // The host's event loop hangs before the Pong of the next Ping is read.
    world.ping(SLOW);
    world.socket(SLOW).blocked = true;
    world.run_ms(5_000);
    let assessed = world.assessed(SLOW);
    assert_eq!(assessed.verdict, Verdict::Alive);
    world.close(SLOW);
    let record = world.run_to_record(SLOW);
    assert_eq!(record.assessed.heartbeat.ping_location, PingLocation::PongUnread);
    assert_eq!(record.assessed.heartbeat.missed, Some(1));
    assert_eq!(record.method, Some(CloseMethod::Rst));
    assert_eq!(record.assessment, Some(Assessment::FalseKill));
}

#[test]
fn bytes_ahead_of_a_ping_on_the_wire_are_counted() {
    let mut world = World::new();
    world.open_websocket(SLOW, Peer::Gone);
    world.write(SLOW, 300_000);
    world.ping(SLOW);
    world.run_ms(50);
    let assessed = world.assessed(SLOW);
    assert_eq!(assessed.heartbeat.ping_location, PingLocation::InFlight);
    world.run_ms(300);
    assert_eq!(world.assessed(SLOW).heartbeat.ping_bytes_ahead, Some(300_000));
}

#[test]
fn host_that_pings_on_but_reads_no_pong_is_named_at_its_own_kill() {
    let mut world = World::new();
    world.watchdog(2_000);
    world.open_websocket(SIBLING, Peer::Healthy);
    world.open_websocket(SLOW, Peer::Healthy);
    world.run_ms(7_000);
    // The host stops reading this socket; its watchdog goes on.
    world.socket(SLOW).paused = true;
    world.run_to_close(SLOW);
    let record = world.run_to_record(SLOW);
    assert_eq!(record.kind, CloseKind::HeartbeatKill);
    assert_eq!(record.method, Some(CloseMethod::Rst));
    assert_eq!(record.assessed.verdict, Verdict::Alive);
    assert_eq!(record.assessed.heartbeat.missed, Some(2));
    assert_eq!(record.assessed.heartbeat.ping_location, PingLocation::PongUnread);
}

#[test]
fn heartbeat_that_was_seen_too_seldom_is_not_counted_behind_data() {
    let mut world = World::new();
    world.watchdog(2_000);
    world.open_websocket(SLOW, Peer::Healthy);
    world.run_ms(4_500);
    world.socket(SLOW).peer = Peer::Reads(20_000);
    world.write(SLOW, BURST);
    let record = world.run_to_record(SLOW);
    assert_eq!(record.kind, CloseKind::Abort);
    assert_eq!(record.assessed.heartbeat.source, HeartbeatSource::Wire);
    assert_eq!(record.assessed.heartbeat.missed, None, "two Pings make no schedule");
    assert_eq!(record.assessment, Some(Assessment::FalseKill));
}
