//! Who closed, how and why.

use ackbeat_liveness::*;

use crate::world::{Peer, World, process};

const ID: u64 = 7;

fn plain(peer: Peer) -> World {
    let mut world = World::new();
    world.open(ID, peer);
    world.run_ms(1_000);
    world
}

fn websocket(peer: Peer) -> World {
    let mut world = World::new();
    world.open_websocket(ID, peer);
    world.run_ms(1_000);
    world
}

fn shape(record: &CloseRecord) -> (CloseKind, CloseInitiator, Option<CloseMethod>) {
    (record.kind, record.initiator, record.method)
}

#[test]
fn plain_fin_with_nothing_owed_is_graceful() {
    let mut world = plain(Peer::Healthy);
    world.write(ID, 1_000);
    world.run_ms(500);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!(shape(&record), (CloseKind::Graceful, CloseInitiator::Host, Some(CloseMethod::Fin)));
    assert_eq!(record.postmortem, Some(Postmortem::Answered));
    assert_eq!(record.process, process(false));
}

#[test]
fn plain_fin_right_after_the_answer_is_graceful() {
    let mut world = plain(Peer::Healthy);
    world.write(ID, 1_000);
    world.close(ID);
    assert_eq!(world.run_to_record(ID).kind, CloseKind::Graceful);
}

/// An HTTP answer that is longer than the send queue ends like this: the kernel delivers the rest, then the FIN.
#[test]
fn plain_fin_behind_data_for_a_slow_reader_is_graceful() {
    let mut world = plain(Peer::Reads(200_000));
    world.write(ID, 1_500_000);
    world.run_ms(4_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Congested);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.assessment), (CloseKind::Graceful, None));
}

#[test]
fn plain_fin_behind_data_for_a_peer_that_does_not_read_is_an_abort() {
    let mut world = plain(Peer::Stopped);
    world.write(ID, 1_500_000);
    world.run_ms(8_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Stalled);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.assessment), (CloseKind::Abort, Some(Assessment::Premature)));
}

/// The lingering close of an HTTP server that refuses an upload: what lies unread at the half-close is read later.
#[test]
fn half_close_with_unread_bytes_that_ends_in_order_is_graceful() {
    let mut world = plain(Peer::Healthy);
    world.socket(ID).paused = true;
    world.peer_writes(ID, 500);
    world.run_ms(100);
    world.half_close(ID);
    world.socket(ID).paused = false;
    world.peer_writes(ID, 500);
    world.run_ms(500);
    world.peer_fin(ID);
    let record = world.run_to_record(ID);
    assert_eq!(shape(&record), (CloseKind::Graceful, CloseInitiator::Host, Some(CloseMethod::Fin)));
    assert_eq!(record.assessment, None);
}

/// The host's FIN came first, but it would have read on: it killed nobody.
#[test]
fn half_close_that_the_peer_answers_with_a_reset_accuses_nobody() {
    let mut world = websocket(Peer::Healthy);
    world.half_close(ID);
    world.run_ms(3_000);
    world.peer_reset(ID);
    let record = world.run_to_record(ID);
    assert_eq!(shape(&record), (CloseKind::Other, CloseInitiator::Host, Some(CloseMethod::Fin)));
    assert_eq!(record.assessment, Some(Assessment::Unknown));
}

/// Without a wire parser a Close frame passes unseen.
#[test]
fn source_that_sees_no_frames_accuses_nobody() {
    let mut world = World::new();
    world.frames_visible = false;
    world.open(ID, Peer::Healthy);
    world.write(ID, 1_000);
    world.run_ms(2_000);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.assessment), (CloseKind::Other, Some(Assessment::Unknown)));
}

/// A sibling has a heartbeat; this connection never showed one, and its host closes it between two ticks.
#[test]
fn close_between_two_ticks_of_a_borrowed_schedule_is_no_heartbeat_kill() {
    let mut world = World::new();
    world.watchdog(1_000);
    world.tolerance = 99;
    world.open_websocket(8, Peer::Healthy);
    world.run_ms(5_200);
    world.open_websocket(ID, Peer::Reads(20_000));
    world.write(ID, 2_000_000);
    world.run_ms(2_500);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert!(record.assessed.heartbeat.inferred);
    assert_eq!((record.kind, record.assessment), (CloseKind::Abort, Some(Assessment::FalseKill)));
}

#[test]
fn websocket_without_a_close_frame_is_an_abort() {
    let mut world = websocket(Peer::Healthy);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!(shape(&record), (CloseKind::Abort, CloseInitiator::Host, Some(CloseMethod::Fin)));
    assert_eq!(record.assessment, Some(Assessment::FalseKill));
}

#[test]
fn close_frame_that_leaves_the_queue_after_the_fin_still_makes_it_graceful() {
    let mut world = websocket(Peer::Stopped);
    world.write(ID, 600_000);
    world.close_frame(ID, 1000, "bye");
    world.run_ms(1_000);
    world.close(ID);
    world.socket(ID).peer = Peer::Mute;
    let record = world.run_to_record(ID);
    assert_eq!(record.close_frames, CloseFrames::Sent);
    assert_eq!((record.kind, record.close_code), (CloseKind::Graceful, Some(1000)));
}

#[test]
fn process_exit() {
    let mut world = websocket(Peer::Healthy);
    world.close_by(ID, process(true));
    let record = world.run_to_record(ID);
    assert_eq!(shape(&record), (CloseKind::ProcessExit, CloseInitiator::Host, Some(CloseMethod::Fin)));
}

#[test]
fn kernel_timeout() {
    for error in [110, 113, 101] {
        let mut world = websocket(Peer::Healthy);
        world.kernel_gives_up(ID, error);
        let record = world.run_to_record(ID);
        assert_eq!(shape(&record), (CloseKind::KernelTimeout, CloseInitiator::Kernel, None));
        assert_eq!(record.socket_error, Some(error));
        assert_eq!((record.postmortem, record.assessment), (None, None));
    }
}

#[test]
fn keepalive_timeout_sends_a_reset_first_and_is_still_the_kernels() {
    let mut world = websocket(Peer::Healthy);
    world.reset(ID, Direction::Egress, false);
    world.kernel_gives_up(ID, 110);
    let record = world.run_to_record(ID);
    assert_eq!(shape(&record), (CloseKind::KernelTimeout, CloseInitiator::Kernel, Some(CloseMethod::Rst)));
}

#[test]
fn destroyed_from_outside() {
    let mut world = websocket(Peer::Healthy);
    world.reset(ID, Direction::Egress, false);
    world.kernel_gives_up(ID, 103);
    let record = world.run_to_record(ID);
    // Nobody is accused of it: least of all the host.
    assert_eq!((record.kind, record.assessment), (CloseKind::Other, Some(Assessment::Unknown)));
}

#[test]
fn reset_by_unread_data() {
    let mut world = websocket(Peer::Healthy);
    world.socket(ID).blocked = true;
    world.peer_writes(ID, 500);
    world.run_ms(100);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!(shape(&record), (CloseKind::Abort, CloseInitiator::Host, Some(CloseMethod::Rst)));
    assert_eq!(record.snapshot.unwrap().unread_bytes, Some(500));
    assert_eq!(record.postmortem, Some(Postmortem::Unresolved));
}

#[test]
fn reset_by_linger_zero() {
    let mut world = plain(Peer::Healthy);
    world.close_linger_zero(ID);
    let record = world.run_to_record(ID);
    assert_eq!(shape(&record), (CloseKind::Abort, CloseInitiator::Host, Some(CloseMethod::Rst)));
}

#[test]
fn sudden_close_whose_reset_record_is_missing_is_decided_when_the_hold_is_over() {
    let mut world = plain(Peer::Healthy);
    world.transition(ID, TcpState::Close, process(false));
    assert!(world.record(ID).is_none());
    let record = world.run_to_record(ID);
    assert_eq!(shape(&record), (CloseKind::Abort, CloseInitiator::Host, None));
}

#[test]
fn sudden_close_of_nobody_accuses_nobody() {
    let mut world = plain(Peer::Healthy);
    world.transition(ID, TcpState::Close, None);
    let record = world.run_to_record(ID);
    assert_eq!(shape(&record), (CloseKind::Other, CloseInitiator::Unknown, None));
    assert_eq!((record.postmortem, record.assessment), (None, None));
}

#[test]
fn peer_reset() {
    let mut world = websocket(Peer::Healthy);
    world.peer_reset(ID);
    let record = world.run_to_record(ID);
    assert_eq!(shape(&record), (CloseKind::Abort, CloseInitiator::Peer, Some(CloseMethod::Rst)));
}

#[test]
fn peer_fin() {
    let mut world = plain(Peer::Healthy);
    world.peer_fin(ID);
    world.run_ms(20);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!(shape(&record), (CloseKind::Graceful, CloseInitiator::Peer, Some(CloseMethod::Fin)));
    assert_eq!(record.assessment, None);
}

#[test]
fn peer_half_closes_and_goes_on_reading() {
    let mut world = websocket(Peer::Healthy);
    world.peer_fin(ID);
    // It reads on, but can answer no Ping any more.
    world.socket(ID).peer = Peer::Mute;
    for _ in 0..20 {
        world.write(ID, 10_000);
        world.ping(ID);
        world.run_ms(1_000);
    }
    assert!(world.closing(ID).is_none());
    assert_eq!(world.assessed(ID).verdict, Verdict::Alive);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!(record.initiator, CloseInitiator::Peer);
}

#[test]
fn host_half_closes_and_the_peer_answers_with_its_fin() {
    let mut world = plain(Peer::Healthy);
    let half_closed_at = world.at();
    world.half_close(ID);
    world.run_ms(5_000);
    assert!(world.closing(ID).is_none(), "a half-close is no close");
    world.peer_writes(ID, 1_000);
    world.run_ms(100);
    world.peer_fin(ID);
    let record = world.run_to_record(ID);
    assert_eq!(shape(&record), (CloseKind::Graceful, CloseInitiator::Host, Some(CloseMethod::Fin)));
    assert_eq!(record.closed_at, half_closed_at);
}

#[test]
fn host_half_closes_and_gives_up_later() {
    let mut world = websocket(Peer::Healthy);
    world.half_close(ID);
    world.run_ms(3_000);
    let given_up_at = world.at();
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!(shape(&record), (CloseKind::Abort, CloseInitiator::Host, Some(CloseMethod::Fin)));
    assert_eq!(record.closed_at, given_up_at);
}

#[test]
fn both_close_at_once() {
    let mut world = plain(Peer::Gone);
    world.write(ID, 10);
    world.close(ID);
    world.peer_fin(ID);
    world.socket(ID).peer = Peer::Mute;
    let record = world.run_to_record(ID);
    assert_eq!(record.initiator, CloseInitiator::Host);
    assert_eq!(record.postmortem, Some(Postmortem::Answered));
}

#[test]
fn late_payload_that_an_orphan_refuses_is_progress_of_the_application() {
    let mut world = websocket(Peer::Stopped);
    world.write(ID, 2_000_000);
    world.run_ms(3_000);
    world.close(ID);
    world.run_ms(500);
    world.peer_writes(ID, 100);
    let record = world.run_to_record(ID);
    assert_eq!(record.postmortem, Some(Postmortem::AppProgress));
    assert_eq!(record.assessment, Some(Assessment::FalseKill));
}

#[test]
fn stalled_peer_that_only_acknowledges_afterwards_was_killed_prematurely() {
    let mut world = websocket(Peer::Stopped);
    world.write(ID, 2_000_000);
    world.run_ms(8_000);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!(record.assessed.verdict, Verdict::Stalled);
    assert_eq!(record.postmortem, Some(Postmortem::Answered));
    assert_eq!(record.assessment, Some(Assessment::Premature));
}

#[test]
fn orphan_that_the_kernel_gives_up_got_no_answer() {
    let mut world = websocket(Peer::Gone);
    world.close(ID);
    world.run_ms(1_000);
    world.kernel_gives_up(ID, 110);
    let record = world.run_to_record(ID);
    assert_eq!(record.initiator, CloseInitiator::Host);
    assert_eq!(record.postmortem, Some(Postmortem::NoAnswer));
}

#[test]
fn socket_that_vanished_without_a_record_accuses_nobody() {
    let mut world = websocket(Peer::Healthy);
    world.socket(ID).state = TcpState::Close;
    world.lose_records(3);
    let record = world.run_to_record(ID);
    assert_eq!(shape(&record), (CloseKind::Other, CloseInitiator::Unknown, None));
    assert_eq!((record.records_lost, record.assessment), (3, None));
}

#[test]
fn state_that_only_a_sample_showed_waits_for_its_record_first() {
    let mut world = plain(Peer::Gone);
    world.write(ID, 100);
    let closed_at = world.at();
    world.socket(ID).state = TcpState::FinWait1;
    world.socket(ID).shutdown = 3;
    let transition = Transition {
        old_state: TcpState::Established,
        new_state: TcpState::FinWait1,
        process: process(false),
        snapshot: world.snapshot(ID),
    };
    // The pass overtakes the record.
    world.run_ms(300);
    assert!(world.closing(ID).is_none());
    world.give(Input::Transition(transition));
    assert_eq!(world.closing(ID), Some((closed_at, CloseInitiator::Host)));
    let record = world.run_to_record(ID);
    assert_eq!(record.process, process(false));
}

#[test]
fn state_that_only_samples_showed_is_nobodys_kill() {
    let mut world = plain(Peer::Gone);
    world.write(ID, 100);
    world.socket(ID).state = TcpState::FinWait1;
    world.socket(ID).shutdown = 3;
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.initiator), (CloseKind::Other, CloseInitiator::Host));
}

#[test]
fn preexisting_connection_accuses_nobody_before_it_has_synchronized() {
    let mut world = World::new();
    world.open_as(ID, Peer::Stopped, true);
    assert_eq!(world.assessed(ID).verdict, Verdict::Unknown);
    world.pass();
    world.write(ID, 2_000_000);
    world.run_ms(8_000);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!(record.kind, CloseKind::Other);
    assert_eq!(record.assessed.heartbeat.missed, None);
    assert_eq!(record.assessment, Some(Assessment::Unknown));
}

#[test]
fn plain_connection_may_have_been_upgraded_in_a_record_that_was_lost() {
    let mut world = plain(Peer::Stopped);
    world.lose_records(1);
    world.write(ID, 2_000_000);
    world.run_ms(8_000);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.assessment), (CloseKind::Other, Some(Assessment::Unknown)));
}

#[test]
fn shutdown_ends_every_record_and_blames_nobody() {
    let mut world = websocket(Peer::Gone);
    world.open_websocket(8, Peer::Healthy);
    world.close(ID);
    world.run_ms(100);
    let now = world.at();
    world.engine.shut_down(now);
    while let Some(output) = world.engine.poll() {
        world.outputs.push(output);
    }
    let closed = world.record(ID).unwrap();
    assert_eq!((closed.postmortem, closed.still_open), (Some(Postmortem::Unresolved), false));
    let open = world.record(8).unwrap();
    assert!(open.still_open);
    assert_eq!(
        (open.kind, open.initiator, open.postmortem),
        (CloseKind::Other, CloseInitiator::Unknown, None)
    );
    assert_eq!(world.engine.connections().count(), 0);
    assert_eq!((world.engine.poll_timeout(), world.engine.next_sample_at()), (None, None));
}

#[test]
fn connections_beyond_the_limit_are_refused_and_counted() {
    let mut world = World::new();
    world.engine = Engine::with_connection_limit(Policy::default(), 2);
    for id in 1..=5 {
        world.open(id, Peer::Healthy);
    }
    assert_eq!(world.engine.counters().connections_refused, 3);
    assert_eq!(world.engine.connections().count(), 2);
}

#[test]
fn scope_is_the_next_hop_behind_a_forwarder() {
    let mut world = World::new();
    world.open(ID, Peer::Healthy);
    assert_eq!(world.assessed(ID).scope, EvidenceScope::Peer);
    world.upgrade(ID, &["x-forwarded-for"]);
    assert_eq!(world.assessed(ID).scope, EvidenceScope::NextHop);
}
