//! The traps that were measured, and the scenarios of the arena that the engine alone can show.

use ackbeat_liveness::*;

use crate::world::{Peer, World};

const ID: u64 = 7;

fn is_answer(output: &Output) -> bool {
    matches!(output, Output::Answered(_))
}

fn websocket(peer: Peer) -> World {
    let mut world = World::new();
    world.open_websocket(ID, peer);
    world.run_ms(1_000);
    world
}

/// Trap 1: the back-off grows for a live peer with a closed window.
#[test]
fn trap_01_backoff_of_a_closed_window_is_not_unreachable() {
    let mut world = websocket(Peer::Stopped);
    world.write(ID, 2_000_000);
    world.run_ms(120_000);
    assert!(world.socket(ID).backoff >= 6);
    assert!(!world.verdicts(ID).contains(&Verdict::Unreachable));
    let assessed = world.assessed(ID);
    assert_eq!(assessed.verdict, Verdict::Stalled);
    // Probe spacing grows: the evidence is honestly old.
    assert!(assessed.last_ack_age_ms.unwrap() > 2_000);
    assert!(assessed.kill_justified, "it has not read for two minutes");
}

/// Trap 2: one probe is unanswered for about a round trip after every probe.
#[test]
fn trap_02_one_probe_in_flight_is_not_unreachable() {
    let mut world = websocket(Peer::Stopped);
    world.write(ID, 2_000_000);
    for _ in 0..30 {
        world.run_ms(1_000);
        world.socket(ID).probes_out = 1;
    }
    assert!(!world.verdicts(ID).contains(&Verdict::Unreachable));
    assert_eq!(world.assessed(ID).verdict, Verdict::Stalled);
}

/// Trap 3: a peer that merely stops reading is no kill before the policy says so.
#[test]
fn trap_03_ten_seconds_without_reading_justify_nothing() {
    let mut world = websocket(Peer::Stopped);
    world.write(ID, 2_000_000);
    world.run_ms(10_000);
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.kill_justified), (Verdict::Stalled, false));
    world.socket(ID).peer = Peer::Healthy;
    world.run_ms(1_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Alive);
}

/// Trap 4: a stopped process's kernel acknowledges; that proves its kernel only.
#[test]
fn trap_04_acknowledged_ping_without_a_pong_is_silent() {
    let mut world = websocket(Peer::Stopped);
    world.ping(ID);
    world.run_ms(4_500);
    assert_eq!(world.assessed(ID).verdict, Verdict::Alive, "within its budget");
    world.run_ms(2_000);
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.rung), (Verdict::Silent, Rung::Ack));
    assert!(!assessed.kill_justified);
    assert_eq!(assessed.heartbeat.ping_location, PingLocation::Acked);
    world.run_ms(20_000);
    assert!(world.assessed(ID).kill_justified);
}

/// Trap 5: a queue that is not empty is no progress, and own writes are no evidence.
#[test]
fn trap_05_own_writes_are_no_evidence() {
    let mut world = websocket(Peer::Gone);
    for _ in 0..40 {
        world.write(ID, 1_000);
        world.run_ms(200);
    }
    assert_eq!(world.assessed(ID).verdict, Verdict::Unreachable);
}

/// Trap 5, the other half: a queue that moved is progress.
#[test]
fn trap_05_a_queue_that_moved_is_progress() {
    let mut world = websocket(Peer::Reads(20_000));
    world.write(ID, 1_000_000);
    world.run_ms(20_000);
    let assessed = world.assessed(ID);
    assert_eq!(assessed.verdict, Verdict::Congested);
    assert!(matches!(assessed.rung, Rung::Ack | Rung::Drain), "{:?}", assessed.rung);
}

/// A queue on a slow link inflates the round-trip time that is measured through it; that makes it no less of a queue.
#[test]
fn inflated_round_trip_time_does_not_hide_a_backlog() {
    let mut world = websocket(Peer::Reads(20_000));
    world.socket(ID).srtt_us = 2_900_000;
    world.write(ID, 1_000_000);
    world.run_ms(2_500);
    assert_eq!(world.assessed(ID).verdict, Verdict::Congested);
}

/// Trap 6: a large message makes no frame boundary for a long time; its bytes count.
#[test]
fn trap_06_large_message_from_the_peer_keeps_its_pong_back() {
    let mut world = websocket(Peer::Mute);
    world.ping(ID);
    for _ in 0..300 {
        world.peer_writes(ID, 150_000);
        world.run_ms(100);
    }
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.rung), (Verdict::Congested, Rung::Inbound));
    assert!(!world.verdicts(ID).contains(&Verdict::Silent));
}

/// Trap 7: the clock of a Pong starts when its Ping was acknowledged.
#[test]
fn trap_07_ping_behind_data_is_not_late_before_it_arrived() {
    let mut world = websocket(Peer::Reads(50_000));
    world.write(ID, 2_000_000);
    world.ping(ID);
    world.run_ms(25_000);
    assert!(world.verdicts(ID).iter().all(|verdict| matches!(verdict, Verdict::Alive | Verdict::Congested)));
}

/// Trap 8: state belongs to the cookie; the same addresses may come back at once.
#[test]
fn trap_08_two_connections_with_the_same_addresses_do_not_mix() {
    let mut world = websocket(Peer::Gone);
    world.write(ID, 100);
    world.run_ms(5_000);
    let first = world.engine.connections().next().unwrap().endpoints;
    world.give(Input::Opened(Opened {
        connection: ConnectionId(99),
        at: world.at(),
        endpoints: first,
        role: Role::Server,
        preexisting: false,
        frames_visible: true,
    }));
    assert_eq!(world.assessed(ID).verdict, Verdict::Unreachable);
    assert_eq!(world.engine.assess(ConnectionId(99), world.at()).unwrap().verdict, Verdict::Alive);
}

/// Trap 9: a RST can destroy the Close frame: both are in the record.
#[test]
fn trap_09_reset_after_an_unacknowledged_close_frame_is_no_polite_close() {
    let mut world = websocket(Peer::Gone);
    world.close_frame(ID, 1000, "bye");
    world.close_linger_zero(ID);
    let record = world.run_to_record(ID);
    assert_eq!(record.close_frames, CloseFrames::Sent);
    assert_eq!(record.method, Some(CloseMethod::Rst));
    assert_eq!(record.kind, CloseKind::Abort);
}

/// Trap 10: judge your own clock before judging a peer.
#[test]
fn trap_10_sidecar_that_was_stopped_accuses_nobody() {
    let mut world = websocket(Peer::Stopped);
    world.open_websocket(8, Peer::Healthy);
    world.ping(ID);
    world.run_ms(1_000);
    world.stopped = true;
    world.run_ms(60_000);
    world.resume();
    world.run_ms(400);
    assert_eq!(world.assessed(ID).verdict, Verdict::Alive, "a new window was opened");
    assert_eq!(world.assessed(8).verdict, Verdict::Alive);
    assert!(world.engine.counters().late_ticks > 0);
    world.run_ms(6_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Silent, "and it ends like any other");
}

#[test]
fn post_mortem_of_a_stopped_sidecar_is_looked_at_again() {
    let mut world = websocket(Peer::Stopped);
    world.write(ID, 2_000_000);
    world.run_ms(5_000);
    world.close(ID);
    world.run_ms(400);
    world.stopped = true;
    world.run_ms(60_000);
    world.resume();
    world.run_ms(20);
    assert!(world.record(ID).is_none(), "the window starts anew");
    world.socket(ID).peer = Peer::Mute;
    assert_eq!(world.run_to_record(ID).postmortem, Some(Postmortem::AppProgress));
}

#[test]
fn window_that_was_not_limiting_proves_nothing() {
    let mut world = websocket(Peer::Stopped);
    world.write(ID, 100_000);
    world.run_ms(300);
    world.ping(ID);
    for _ in 0..80 {
        // Receive-buffer tuning moves the edge all the time.
        world.run_ms(100);
        world.socket(ID).edge += 20_000;
    }
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.rung), (Verdict::Silent, Rung::Ack));
    // And it proves nothing after the close either.
    world.close(ID);
    world.socket(ID).edge += 20_000;
    assert_eq!(world.run_to_record(ID).postmortem, Some(Postmortem::Answered));
}

/// A hole on a slow link with a long queue stays for many seconds; what arrives behind it is acknowledged selectively.
#[test]
fn selective_acknowledgements_behind_a_hole_are_progress() {
    let mut world = websocket(Peer::Gone);
    world.write(ID, 100_000);
    for _ in 0..100 {
        world.run_ms(200);
        let now = world.now;
        let socket = world.socket(ID);
        socket.last_ack = now;
        (socket.retransmits, socket.backoff) = (0, 0);
        socket.srtt_us += 10_000;
    }
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.rung), (Verdict::Congested, Rung::Ack));
    assert!(!assessed.kill_justified);
    // Retransmitted segments that arrive give no round-trip sample: only that something comes is seen.
    for _ in 0..250 {
        world.run_ms(200);
        let now = world.now;
        let socket = world.socket(ID);
        socket.last_ack = now;
        (socket.retransmits, socket.backoff) = (0, 0);
    }
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.rung), (Verdict::Congested, Rung::Hop));
    assert!(!assessed.kill_justified);
    assert!(!world.verdicts(ID).contains(&Verdict::Unknown), "{:?}", world.verdicts(ID));
}

/// The peer's kernel makes room for all that its application has not read: the window is open, nothing is queued, and
/// the Ping lies behind a backlog all the same.
#[test]
fn backlog_in_the_peers_kernel_is_no_silence() {
    let mut world = websocket(Peer::Stopped);
    world.write(ID, 1_000_000);
    world.run_ms(1_000);
    world.ping(ID);
    world.run_ms(1_000);
    world.socket(ID).edge += 2_000_000;
    world.run_ms(30_000);
    let socket = world.socket(ID);
    assert_eq!(socket.snd_una, socket.write_seq, "all of it was acknowledged");
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.kill_justified), (Verdict::Stalled, false));
    assert!(!world.verdicts(ID).contains(&Verdict::Silent), "{:?}", world.verdicts(ID));
    world.run_ms(60_000);
    assert!(world.assessed(ID).kill_justified, "it has not read for a minute and a half");
    // Once it has answered it has read everything, and silence is silence again.
    world.socket(ID).peer = Peer::Healthy;
    world.run_ms(5_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Alive);
    world.socket(ID).peer = Peer::Mute;
    world.ping(ID);
    world.run_ms(8_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Silent);
}

/// The same while the sidecar stood still: it sees an open window and an acknowledged Ping, and did not see what was
/// written before it.
#[test]
fn backlog_that_was_written_while_nobody_looked_is_no_silence() {
    let mut world = websocket(Peer::Healthy);
    world.ping(ID);
    world.run_ms(2_000);
    world.stopped = true;
    world.socket(ID).peer = Peer::Reads(5_000);
    world.socket(ID).edge += 3_000_000;
    world.write(ID, 1_000_000);
    for _ in 0..30 {
        world.run_ms(2_000);
        world.ping(ID);
    }
    world.resume();
    for _ in 0..60 {
        world.run_ms(1_000);
        let assessed = world.assessed(ID);
        assert!(!assessed.kill_justified || assessed.verdict == Verdict::Stalled, "{assessed:?}");
    }
    assert!(!world.verdicts(ID).contains(&Verdict::Silent), "{:?}", world.verdicts(ID));
    // It has read all of it in the end, and silence is silence again.
    world.run_ms(100_000);
    world.ping(ID);
    world.run_ms(1_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Alive);
    world.socket(ID).peer = Peer::Mute;
    world.ping(ID);
    world.run_ms(8_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Silent);
}

/// The same for a connection that is older than the sidecar.
#[test]
fn backlog_from_before_the_start_is_no_silence() {
    let mut world = World::new();
    world.stopped = true;
    world.open_as(ID, Peer::Reads(5_000), true);
    world.socket(ID).edge += 3_000_000;
    world.write(ID, 1_000_000);
    world.run_ms(2_000);
    world.resume();
    for _ in 0..60 {
        world.ping(ID);
        world.run_ms(1_000);
        let assessed = world.assessed(ID);
        assert!(!assessed.kill_justified || assessed.verdict == Verdict::Stalled, "{assessed:?}");
    }
    assert!(!world.verdicts(ID).contains(&Verdict::Silent), "{:?}", world.verdicts(ID));
}

#[test]
fn trickling_reader_is_never_called_dead_but_may_be_killed_by_policy() {
    let mut world = websocket(Peer::Stopped);
    world.write(ID, 2_000_000);
    world.run_ms(3_000);
    let mut justified = false;
    for _ in 0..12 {
        world.run_ms(10_000);
        world.socket(ID).edge += 1;
        let now = world.now;
        world.socket(ID).last_ack = now;
        world.run_ms(400);
        justified |= world.assessed(ID).kill_justified;
    }
    assert!(justified);
    let verdicts = world.verdicts(ID);
    assert!(
        !verdicts.contains(&Verdict::Unreachable) && !verdicts.contains(&Verdict::Silent),
        "{verdicts:?}"
    );
}

#[test]
fn slow_but_steady_reader_is_never_killed_by_policy() {
    let mut world = websocket(Peer::Reads(5_000));
    world.write(ID, 3_000_000);
    for _ in 0..60 {
        world.run_ms(2_000);
        assert!(!world.assessed(ID).kill_justified);
    }
    assert_eq!(world.assessed(ID).verdict, Verdict::Congested);
}

#[test]
fn unreachable_is_known_early_and_justified_late() {
    let mut world = websocket(Peer::Gone);
    world.ping(ID);
    world.run_ms(2_200);
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.kill_justified), (Verdict::Unreachable, false));
    world.run_ms(9_000);
    assert!(world.assessed(ID).kill_justified);
}

/// Where whole round trips were lost by chance and healed, the next long one may heal too: it is known early, and acted on
/// much later.
#[test]
fn path_that_loses_by_chance_gets_more_time() {
    let mut world = websocket(Peer::Healthy);
    for _ in 0..3 {
        world.socket(ID).peer = Peer::Gone;
        world.ping(ID);
        world.run_ms(3_000);
        world.socket(ID).peer = Peer::Healthy;
        world.run_ms(5_000);
        assert_eq!(world.assessed(ID).verdict, Verdict::Alive);
    }
    world.socket(ID).peer = Peer::Gone;
    world.ping(ID);
    world.run_ms(30_000);
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.kill_justified), (Verdict::Unreachable, false));
    world.run_ms(35_000);
    assert!(world.assessed(ID).kill_justified);
}

/// The peer is gone for three seconds, with a Ping on its way, and is back for five, so many times.
fn heal_from(world: &mut World, spells: u32) {
    for _ in 0..spells {
        world.socket(ID).peer = Peer::Gone;
        world.ping(ID);
        world.run_ms(3_000);
        world.socket(ID).peer = Peer::Healthy;
        world.run_ms(5_000);
    }
}

/// The same for a Pong, which may be lost with all of its repetitions.
#[test]
fn path_that_loses_by_chance_gives_a_pong_more_time_too() {
    let mut world = websocket(Peer::Healthy);
    heal_from(&mut world, 3);
    world.socket(ID).peer = Peer::Mute;
    world.ping(ID);
    world.run_ms(30_000);
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.kill_justified), (Verdict::Silent, false));
    world.run_ms(35_000);
    assert!(world.assessed(ID).kill_justified);
}

/// A host that reads nothing closes its own window, and then no Pong can be sent: the peer's kernel can only probe. Whoever
/// cannot speak is not silent.
#[test]
fn peer_is_not_silent_behind_the_window_of_a_host_that_does_not_read() {
    let mut world = websocket(Peer::Healthy);
    world.socket(ID).paused = true;
    world.peer_writes(ID, 400_000);
    world.socket(ID).peer = Peer::Mute;
    world.ping(ID);
    for _ in 0..120 {
        world.run_ms(1_000);
        // The peer's window probes.
        let now = world.now;
        world.socket(ID).last_ack = now;
        let assessed = world.assessed(ID);
        assert!(!assessed.kill_justified, "{assessed:?}");
        assert_ne!(assessed.verdict, Verdict::Silent);
    }
    // The host reads again, and the peer says nothing all the same: its time begins now.
    let received = world.socket(ID).received;
    world.socket(ID).copied = received;
    world.run_ms(4_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Unknown);
    world.run_ms(2_000);
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.kill_justified), (Verdict::Silent, false));
    world.run_ms(15_000);
    assert!(world.assessed(ID).kill_justified);
}

/// A receive buffer that grows takes a whole burst at once and never shows a narrower window: a page that is busy has not
/// read any of it, and its Pong is not due.
#[test]
fn burst_that_a_wide_window_took_is_no_silence() {
    let mut world = websocket(Peer::Healthy);
    world.ping(ID);
    world.run_ms(1_000);
    world.socket(ID).edge += 40_000_000;
    world.run_ms(1_000);
    world.socket(ID).peer = Peer::Stopped;
    world.write(ID, 28_000_000);
    world.run_ms(1_000);
    world.ping(ID);
    world.run_ms(15_000);
    let assessed = world.assessed(ID);
    assert_eq!((assessed.verdict, assessed.kill_justified), (Verdict::Stalled, false));
    assert!(!world.verdicts(ID).contains(&Verdict::Silent), "{:?}", world.verdicts(ID));
    world.socket(ID).peer = Peer::Healthy;
    world.run_ms(3_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Alive);
}

/// Two spells are enough if they had three timeouts between them; one long outage is no lossy path.
#[test]
fn two_long_spells_make_a_path_lossy_and_one_does_not() {
    for (spells, is_justified) in [(1, true), (2, false)] {
        let mut world = websocket(Peer::Healthy);
        heal_from(&mut world, spells);
        world.socket(ID).peer = Peer::Gone;
        world.ping(ID);
        world.run_ms(11_500);
        let assessed = world.assessed(ID);
        assert_eq!(
            (assessed.verdict, assessed.kill_justified),
            (Verdict::Unreachable, is_justified),
            "{spells}"
        );
    }
}

/// Where whole round trips fail by chance, three of them in a row say less than elsewhere.
#[test]
fn lossy_path_needs_more_timeouts_before_a_peer_is_called_unreachable() {
    for (spells, after_4_s) in [(0, Verdict::Unreachable), (2, Verdict::Unknown)] {
        let mut world = websocket(Peer::Healthy);
        heal_from(&mut world, spells);
        world.socket(ID).peer = Peer::Gone;
        world.ping(ID);
        world.run_ms(4_000);
        assert_eq!(world.assessed(ID).verdict, after_4_s, "{spells}");
        world.run_ms(6_000);
        assert_eq!(world.assessed(ID).verdict, Verdict::Unreachable, "{spells}");
    }
}

/// What healed long ago says nothing about the path of today.
#[test]
fn path_is_lossy_for_a_minute_only() {
    let mut world = websocket(Peer::Healthy);
    heal_from(&mut world, 3);
    for _ in 0..35 {
        world.ping(ID);
        world.run_ms(2_000);
    }
    world.socket(ID).peer = Peer::Gone;
    world.ping(ID);
    world.run_ms(11_500);
    assert!(world.assessed(ID).kill_justified);
}

/// A retransmission that the peer asked for itself, just before it was lost, is older than its last segment. The silence
/// is counted in timeouts then, and a timeout that has just doubled takes nothing back.
#[test]
fn unreachable_does_not_flicker_with_each_timeout() {
    let mut world = websocket(Peer::Healthy);
    world.run_ms(3_000);
    world.write(ID, 100_000);
    world.run_ms(10);
    world.socket(ID).peer = Peer::Gone;
    world.write(ID, 100_000);
    world.socket(ID).retransmitting_since = Some(world.now - 20);
    world.run_ms(2_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Unreachable);
    world.run_ms(60_000);
    let verdicts = world.verdicts(ID);
    let is_taken_back = verdicts.windows(2).any(|pair| pair[0] == Verdict::Unreachable);
    assert!(!is_taken_back, "{verdicts:?}");
}

/// `icsk_retransmits` is one byte. Where a router answers each retransmission with an ICMP error, the timeout does not
/// double, and the count begins anew within a minute: that takes nothing back.
#[test]
fn count_of_retransmissions_that_begins_anew_takes_nothing_back() {
    let mut world = websocket(Peer::Gone);
    world.ping(ID);
    world.run_ms(3_200);
    let verdicts = world.verdicts(ID);
    assert_eq!(verdicts.last(), Some(&Verdict::Unreachable));
    for count in [254, 255, 0, 1, 2] {
        world.socket(ID).retransmits = count;
        world.run_ms(400);
        assert_eq!(world.verdicts(ID), verdicts, "count {count}");
    }
    // An ACK ends it, and the next count is a count again.
    world.socket(ID).peer = Peer::Healthy;
    world.run_ms(1_000);
    world.socket(ID).peer = Peer::Gone;
    world.ping(ID);
    world.run_ms(1_000);
    assert_ne!(world.assessed(ID).verdict, Verdict::Unreachable);
}

/// The kernel's third timeout is over at a moment that is known: it is looked at then, and not up to a whole sample
/// interval later, whatever the phase of the samples. That costs a pass for the outage, not a finer grid.
#[test]
fn verdict_comes_right_after_the_timeout_that_decides() {
    for phase_ms in (0..200).step_by(10) {
        let mut world = websocket(Peer::Gone);
        // Another connection's outage sets the grid of the samples.
        world.open_websocket(8, Peer::Gone);
        world.ping(8);
        world.run_ms(3_000 + phase_ms);
        let (early_samples, asked_at) = (world.early_samples, world.now);
        world.ping(ID);
        while world.socket(ID).retransmits < 3 {
            world.run_ms(10);
        }
        let timed_out_at = world.now;
        while world.assessed(ID).verdict != Verdict::Unreachable {
            world.run_ms(10);
        }
        assert!(world.now - timed_out_at <= 60, "phase {phase_ms}: {} ms late", world.now - timed_out_at);
        let passes = world.early_samples - early_samples;
        assert!(passes <= 2, "phase {phase_ms}: {passes} passes in {} ms", world.now - asked_at);
    }
}

/// A blackhole, and no reading of the socket at the moment in question: the policy's own moment is met all the same.
#[test]
fn kill_becomes_justified_exactly_when_the_policy_says_so() {
    for phase_ms in [0, 10, 70, 130, 190] {
        let mut world = websocket(Peer::Gone);
        world.run_ms(phase_ms);
        world.ping(ID);
        // Nothing was outstanding before: the Ping is what nobody answers.
        let justified_at = world.at().plus_ms(Policy::default_policy().unreachable_after_ms);
        world.run_ms(9_000);
        assert_eq!(world.assessed(ID).verdict, Verdict::Unreachable);
        while world.last_pass + 200 < justified_at.as_ns() / 1_000_000 {
            world.run_ms(10);
        }
        // From here on the engine is only told that time passes, and only when it asks for it.
        while let Some(due) = world.engine.poll_timeout().filter(|due| *due <= justified_at) {
            world.engine.handle_timeout(due);
            while let Some(output) = world.engine.poll() {
                world.outputs.push(output);
            }
        }
        assert_eq!(world.justifications(ID), [(justified_at, true)]);
        let last = world.outputs.last().unwrap();
        assert!(
            matches!(last, Output::VerdictChanged(change)
                if change.is_turn() && change.to == Verdict::Unreachable && change.kill_justified),
            "{last:?}"
        );
    }
}

/// A reading speaks for one sample interval: where nobody looks any more, time alone justifies nothing.
#[test]
fn time_alone_justifies_no_kill() {
    let mut world = websocket(Peer::Gone);
    world.ping(ID);
    world.run_ms(9_000);
    let mut calls = 0;
    while let Some(due) = world.engine.poll_timeout() {
        calls += 1;
        assert!(calls < 10, "a driver that only lets time pass comes to an end");
        world.engine.handle_timeout(due);
        while let Some(output) = world.engine.poll() {
            world.outputs.push(output);
        }
    }
    assert_eq!(world.justifications(ID), []);
    assert_eq!(world.verdicts(ID).last(), Some(&Verdict::Unknown));
}

/// The peer comes back after a kill was justified: verdict and justification turn at once, in one output.
#[test]
fn verdict_and_justification_that_turn_together_are_one_output() {
    let mut world = websocket(Peer::Gone);
    world.ping(ID);
    world.run_ms(12_000);
    assert_eq!(world.justifications(ID).len(), 1);
    let seen = world.outputs.len();
    world.socket(ID).peer = Peer::Healthy;
    world.run_ms(2_000);
    let after: Vec<_> = world.outputs[seen..].iter().filter(|output| !is_answer(output)).collect();
    assert!(
        matches!(after.first(), Some(Output::VerdictChanged(change))
            if change.from == Verdict::Unreachable && change.to != change.from && !change.kill_justified),
        "{after:?}"
    );
    assert_eq!(world.justifications(ID).len(), 2);
    assert!(
        after.iter().all(|output| matches!(output, Output::VerdictChanged(change) if !change.is_turn())),
        "{after:?}"
    );
    assert_eq!(world.assessed(ID).verdict, Verdict::Alive);
}

/// A policy that is put in force tells at once what it changes.
#[test]
fn another_policy_in_force_is_told_at_once() {
    let mut world = websocket(Peer::Gone);
    world.ping(ID);
    world.run_ms(5_000);
    assert!(!world.assessed(ID).kill_justified);
    world.engine.set_policy(Policy::fast_policy());
    let change = world.engine.poll();
    assert!(
        matches!(&change, Some(Output::VerdictChanged(change)) if change.is_turn() && change.kill_justified),
        "{change:?}"
    );
    assert_eq!(world.engine.poll(), None);
}

/// A verdict that turns for hours leaves a record that is bounded.
#[test]
fn verdict_history_is_bounded() {
    let mut world = websocket(Peer::Healthy);
    for _ in 0..60 {
        world.socket(ID).peer = Peer::Gone;
        world.ping(ID);
        world.run_ms(12_000);
        world.socket(ID).peer = Peer::Healthy;
        world.run_ms(14_000);
    }
    let told = world.outputs.iter().filter(|output| !is_answer(output)).count();
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!(record.verdict_changes.len(), VERDICT_HISTORY_MAX);
    assert_eq!(record.verdict_changes_dropped as usize, told - VERDICT_HISTORY_MAX);
    assert!(told >= 180, "{told}");
}

#[test]
fn outage_of_five_seconds_heals_and_is_no_kill() {
    let mut world = websocket(Peer::Gone);
    world.ping(ID);
    world.run_ms(5_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Unreachable);
    assert!(!world.assessed(ID).kill_justified);
    world.socket(ID).peer = Peer::Healthy;
    world.run_ms(2_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Alive);
}

#[test]
fn blackhole_behind_a_closed_window_is_unreachable_late() {
    let mut world = websocket(Peer::Stopped);
    world.write(ID, 2_000_000);
    world.run_ms(5_000);
    world.socket(ID).peer = Peer::Gone;
    world.run_ms(60_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Unreachable);
}

#[test]
fn kernel_evidence_alone_names_a_stall_without_a_heartbeat() {
    let mut world = World::new();
    world.open(ID, Peer::Stopped);
    world.write(ID, 2_000_000);
    world.run_ms(5_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Stalled);
    assert_eq!(world.assessed(ID).heartbeat.source, HeartbeatSource::None);
}

#[test]
fn missing_numbers_are_unknown_and_never_dead() {
    let mut world = websocket(Peer::Gone);
    world.ping(ID);
    for _ in 0..60 {
        world.now += 200;
        let mut snapshot = world.snapshot(ID);
        snapshot.last_ack_at = None;
        snapshot.last_inbound_at = None;
        snapshot.retransmits = None;
        snapshot.snd_una = None;
        snapshot.send_queue_bytes = None;
        snapshot.packets_out = None;
        world.give(Input::Sample(snapshot));
    }
    assert_eq!(world.assessed(ID).verdict, Verdict::Unknown);
    assert!(
        !world.verdicts(ID).iter().any(|verdict| matches!(verdict, Verdict::Unreachable | Verdict::Silent))
    );
}

#[test]
fn socket_that_nobody_samples_is_unknown() {
    let mut world = websocket(Peer::Gone);
    world.ping(ID);
    let mut now = world.at();
    for _ in 0..40 {
        now = now.plus_ms(500);
        world.engine.handle_timeout(now);
    }
    let verdict = world.engine.assess(ConnectionId(ID), now.plus_ms(10_000)).unwrap().verdict;
    assert_eq!(verdict, Verdict::Unknown);
}

#[test]
fn lost_records_make_the_heartbeat_unknown_until_a_pong_is_seen_again() {
    let mut world = websocket(Peer::Healthy);
    world.watchdog(2_000);
    world.run_ms(7_000);
    world.lose_records(1);
    assert_eq!(world.assessed(ID).heartbeat.missed, None);
    world.run_ms(4_500);
    assert_eq!(world.assessed(ID).heartbeat.missed, Some(0));
}

#[test]
fn close_after_lost_records_is_no_accusation() {
    let mut world = websocket(Peer::Stopped);
    world.write(ID, 2_000_000);
    world.run_ms(5_000);
    world.lose_records(1);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.assessment), (CloseKind::Other, Some(Assessment::Unknown)));
}

#[test]
fn host_whose_own_frames_are_lost_is_judged_by_its_siblings_schedule() {
    let mut world = World::new();
    world.watchdog(2_000);
    world.open_websocket(8, Peer::Healthy);
    world.open_websocket(ID, Peer::Healthy);
    world.run_ms(7_000);
    world.synchronize(ID, Direction::Egress, false);
    world.socket(ID).peer = Peer::Gone;
    // Its Pings would be on the wire, but nobody sees them.
    world.hidden = true;
    world.run_to_close(ID);
    let record = world.run_to_record(ID);
    assert_eq!(record.assessed.heartbeat.missed, Some(2));
    assert_eq!(record.kind, CloseKind::HeartbeatKill);
}

#[test]
fn pong_answers_the_latest_ping_and_all_before_it() {
    let mut world = websocket(Peer::Stopped);
    for _ in 0..40 {
        world.ping(ID);
        world.run_ms(50);
    }
    assert_eq!(world.assessed(ID).heartbeat.missed, Some(40), "also those that found no room");
    world.peer_frame(ID, FrameKind::Pong, None);
    let assessed = world.assessed(ID);
    assert_eq!((assessed.heartbeat.missed, assessed.verdict), (Some(0), Verdict::Alive));
    world.run_ms(30_000);
    assert_eq!(world.verdicts(ID), [], "nothing is owed any more");
}

#[test]
fn watchdog_that_kills_at_the_first_missed_ping_is_recognised_by_its_tick() {
    let mut world = World::new();
    world.tolerance = 1;
    world.watchdog(30_000);
    world.open_websocket(8, Peer::Healthy);
    world.open_websocket(ID, Peer::Healthy);
    world.run_ms(100_000);
    world.socket(ID).peer = Peer::Stopped;
    let record = world.run_to_record(ID);
    assert_eq!((record.kind, record.assessed.heartbeat.missed), (CloseKind::HeartbeatKill, Some(1)));
    assert_eq!(record.assessed.verdict, Verdict::Silent);
    assert_eq!(record.assessment, Some(Assessment::Justified));
}

#[test]
fn terminate_right_after_a_ping_is_no_heartbeat_kill() {
    let mut world = websocket(Peer::Healthy);
    world.watchdog(2_000);
    world.run_ms(9_000);
    world.socket(ID).peer = Peer::Mute;
    world.run_ms(1_050);
    world.close(ID);
    let record = world.run_to_record(ID);
    assert_eq!(record.kind, CloseKind::Abort);
}

#[test]
fn quiet_connections_want_no_samples() {
    let mut world = websocket(Peer::Healthy);
    world.write(ID, 1_000);
    world.run_ms(2_000);
    assert_eq!(world.engine.next_sample_at(), None);
    let before = world.samples;
    world.run_ms(60_000);
    assert_eq!(world.samples, before);
    assert_eq!(world.engine.poll_timeout(), None);
}

#[test]
fn driver_that_stays_late_opens_one_window_at_a_time() {
    let mut world = websocket(Peer::Gone);
    world.ping(ID);
    // Nobody samples, and other connections go on.
    for step in 1..=1_000 {
        let at = Timestamp::from_ms(world.now + step * 10);
        world.give(Input::Outstanding { connection: ConnectionId(ID), at });
    }
    let late = world.engine.counters().late_ticks;
    assert!((5..=10).contains(&late), "{late} windows in 10 s");
}

/// A threshold may be as long as its owner likes.
#[test]
fn endless_thresholds_overflow_nothing() {
    let mut world = World::with_policy(Policy {
        fresh_ms: u64::MAX,
        pong_budget_ms: u64::MAX,
        unreachable_floor_ms: u64::MAX,
        unreachable_after_ms: u64::MAX,
        silent_after_ms: u64::MAX,
        stalled_after_ms: u64::MAX,
        progress_window_ms: u64::MAX,
        postmortem_window_ms: u64::MAX,
        sample_interval_ms: 200,
        late_tick_ms: u64::MAX,
        ..Policy::default_policy()
    });
    world.open_websocket(ID, Peer::Stopped);
    world.write(ID, 2_000_000);
    world.ping(ID);
    world.run_ms(5_000);
    world.close(ID);
    world.run_ms(5_000);
}
