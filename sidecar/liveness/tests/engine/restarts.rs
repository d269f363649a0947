//! Planned restarts, final codes, and peers that come back.

use ackbeat_liveness::*;

use crate::world::{Peer, World, process};

const ID: u64 = 7;
const SIBLING: u64 = 8;
const NEXT: u64 = 9;
/// The process of [`process`].
const HOST: u32 = 4242;

fn websocket(peer: Peer) -> World {
    let mut world = World::new();
    world.open_websocket(ID, peer);
    world.run_ms(1_000);
    world
}

fn closed_with(code: u16, reason: &'static str) -> CloseRecord {
    let mut world = websocket(Peer::Healthy);
    world.close_frame(ID, code, reason);
    world.run_ms(20);
    world.close(ID);
    world.run_to_record(ID)
}

#[test]
fn codes_of_a_restart_are_planned_and_others_are_what_they_were() {
    for (code, reason) in [(1001, ""), (1012, "deploying"), (4001, "server_restart")] {
        let record = closed_with(code, reason);
        assert_eq!((record.kind, record.initiator), (CloseKind::PlannedRestart, CloseInitiator::Host));
        assert_eq!((record.assessment, record.is_final), (None, Some(false)), "{code}");
        assert_eq!(record.postmortem, Some(Postmortem::Answered), "it is watched like any other");
    }
    for (code, reason, is_final) in [(4001, "logged out", true), (1008, "", true), (1000, "", false)] {
        let record = closed_with(code, reason);
        assert_eq!((record.kind, record.is_final), (CloseKind::Graceful, Some(is_final)), "{code}");
    }
}

#[test]
fn final_codes_are_those_that_are_set() {
    let mut world = websocket(Peer::Healthy);
    world.engine.set_deployment(Deployment { final_codes: vec![1000], ..Deployment::default() });
    world.close_frame(ID, 1000, "");
    world.close(ID);
    assert_eq!(world.run_to_record(ID).is_final, Some(true));
}

/// A page that is left says 1001 too; the host's answer repeats it (RFC 6455 section 5.5.1).
#[test]
fn page_that_goes_away_is_no_restart_of_the_host() {
    let mut world = websocket(Peer::Healthy);
    world.peer_frame(ID, FrameKind::Close, Some(1001));
    world.run_ms(20);
    world.close_frame(ID, 1001, "");
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.initiator), (CloseKind::Graceful, CloseInitiator::Peer));
}

/// The Close frame was written before the FIN and leaves the send queue after the socket has changed its state.
#[test]
fn announcement_that_waits_behind_data_is_read_once_it_leaves() {
    let mut world = websocket(Peer::Stopped);
    world.close(ID);
    world.close_frame(ID, 1012, "");
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.assessment), (CloseKind::PlannedRestart, None));
}

fn told(world: &mut World, process: Option<u32>) {
    let at = world.at();
    world.give(Input::Terminating { at, process });
}

fn closed_by(world: &mut World, process: Option<Process>) -> CloseRecord {
    world.write(ID, 30_000_000);
    world.run_ms(6_000);
    world.close_by(ID, process);
    world.run_to_record(ID)
}

#[test]
fn host_that_was_told_to_stop_kills_nobody() {
    for exiting in [false, true] {
        let mut world = websocket(Peer::Reads(20_000));
        told(&mut world, Some(HOST));
        let record = closed_by(&mut world, process(exiting));
        assert_eq!((record.kind, record.assessment), (CloseKind::PlannedRestart, None));
        assert_eq!(record.process, process(exiting));
    }
}

#[test]
fn host_that_was_told_to_stop_and_goes_on_kills_as_any_other() {
    let mut world = World::new();
    told(&mut world, Some(HOST));
    world.run_ms(6_000);
    world.open_websocket(ID, Peer::Reads(20_000));
    let record = closed_by(&mut world, process(false));
    assert_eq!((record.kind, record.assessment), (CloseKind::Abort, Some(Assessment::FalseKill)));
}

#[test]
fn process_that_nobody_told_to_stop_exits_by_itself() {
    let mut world = websocket(Peer::Reads(20_000));
    told(&mut world, Some(HOST + 1));
    let record = closed_by(&mut world, process(true));
    assert_eq!((record.kind, record.assessment), (CloseKind::ProcessExit, Some(Assessment::FalseKill)));
}

#[test]
fn child_of_a_process_that_was_told_to_stop_is_stopping() {
    let mut world = websocket(Peer::Reads(20_000));
    told(&mut world, Some(11));
    let child = process(true).map(|process| Process { ancestors: vec![12, 11], ..process });
    assert_eq!(closed_by(&mut world, child).kind, CloseKind::PlannedRestart);
}

#[test]
fn stop_of_everything_covers_resets_and_a_stop_after_the_close_nothing() {
    let mut world = websocket(Peer::Healthy);
    told(&mut world, None);
    world.close_linger_zero(ID);
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.assessment), (CloseKind::PlannedRestart, None));

    let mut world = websocket(Peer::Healthy);
    world.close(ID);
    told(&mut world, None);
    assert_eq!(world.run_to_record(ID).kind, CloseKind::Abort);
}

#[test]
fn what_the_peer_ends_during_a_stop_is_the_peers() {
    let mut world = websocket(Peer::Healthy);
    told(&mut world, None);
    world.peer_fin(ID);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.initiator), (CloseKind::Abort, CloseInitiator::Peer));
}

#[test]
fn closing_handshake_of_a_stop_is_planned_although_the_peers_fin_comes_first() {
    let mut world = websocket(Peer::Healthy);
    told(&mut world, Some(HOST));
    world.close_frame(ID, 1000, "");
    world.run_ms(20);
    world.peer_frame(ID, FrameKind::Close, Some(1000));
    world.peer_fin(ID);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.initiator), (CloseKind::PlannedRestart, CloseInitiator::Host));
}

// ---- peers that come back -----------------------------------------------------------------------------------------

fn reconnects(world: &World) -> Vec<Reconnect> {
    world
        .outputs
        .iter()
        .filter_map(|output| match output {
            Output::Reconnected(reconnect) => Some(*reconnect),
            _ => None,
        })
        .collect()
}

#[test]
fn peer_that_comes_back_after_a_false_kill_says_what_it_cost() {
    let mut world = websocket(Peer::Reads(20_000));
    let killed = closed_by(&mut world, process(false));
    assert_eq!(killed.assessment, Some(Assessment::FalseKill));
    let waited_ms = 3_000;
    world.run_ms(waited_ms);
    world.open_websocket(NEXT, Peer::Healthy);
    let found = reconnects(&world);
    let after_ms = world.at().ms_since(killed.closed_at);
    let expected = Reconnect {
        connection: ConnectionId(NEXT),
        at: world.at(),
        follows: ConnectionId(ID),
        after_ms,
        kind: killed.kind,
        initiator: CloseInitiator::Host,
        assessment: Some(Assessment::FalseKill),
    };
    assert_eq!(found, [expected]);
    assert!(after_ms >= waited_ms);
    world.close(NEXT);
    assert_eq!(world.run_to_record(NEXT).reconnect, Some(expected));
}

/// The peer is back before its old socket's post-mortem is over: what that finds is told with the return.
#[test]
fn return_is_told_once_the_record_of_the_end_is_out() {
    let mut world = websocket(Peer::Gone);
    world.write(ID, 1_000);
    world.run_ms(2_000);
    world.close(ID);
    world.run_ms(1_500);
    world.open_websocket(NEXT, Peer::Healthy);
    assert_eq!(reconnects(&world), []);
    world.run_to_record(ID);
    let found = reconnects(&world);
    assert_eq!((found.len(), found[0].after_ms), (1, 1_500));
    let place = |wanted: fn(&Output) -> bool| world.outputs.iter().position(wanted).unwrap();
    assert!(
        place(|output| matches!(output, Output::Closed(_)))
            < place(|output| matches!(output, Output::Reconnected(_)))
    );
}

#[test]
fn each_end_is_followed_once_and_the_latest_first() {
    let mut world = websocket(Peer::Healthy);
    world.open_websocket(SIBLING, Peer::Healthy);
    world.run_ms(500);
    world.close(ID);
    world.run_ms(2_000);
    world.close(SIBLING);
    world.run_ms(2_000);
    for id in [NEXT, NEXT + 1, NEXT + 2] {
        world.open_websocket(id, Peer::Healthy);
        world.run_ms(500);
    }
    let follows: Vec<_> =
        reconnects(&world).iter().map(|found| (found.connection.0, found.follows.0)).collect();
    assert_eq!(follows, [(NEXT, SIBLING), (NEXT + 1, ID)]);
}

#[test]
fn end_that_is_a_minute_old_is_nobodys_any_more() {
    let mut world = websocket(Peer::Healthy);
    world.close(ID);
    world.run_ms(RECONNECT_WITHIN_MS + 100);
    world.open_websocket(NEXT, Peer::Healthy);
    assert_eq!(reconnects(&world), []);
}

/// The address is the proxy's, and so is everybody's behind it.
#[test]
fn nobody_is_known_again_behind_a_proxy() {
    for (old, new) in [(&["via"][..], &[][..]), (&[][..], &["via"][..])] {
        let mut world = World::new();
        world.open(ID, Peer::Healthy);
        world.upgrade(ID, old);
        world.run_ms(500);
        world.close(ID);
        world.run_ms(1_000);
        world.open(NEXT, Peer::Healthy);
        world.upgrade(NEXT, new);
        assert_eq!(reconnects(&world), []);
    }
    let mut world = websocket(Peer::Healthy);
    world.engine.set_deployment(Deployment { peer_is_proxy: PeerIsProxy::Yes, ..Deployment::default() });
    world.close(ID);
    world.run_ms(1_000);
    world.open_websocket(NEXT, Peer::Healthy);
    assert_eq!(reconnects(&world), []);
}
