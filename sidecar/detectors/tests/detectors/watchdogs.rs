//! `ws-2`, `ws-2-slow`, `ws-readme`, `buffered-gate`, `queue-moved`, `window-3x`.

use crate::tape::{REPORTED, Tape, WIRE, ms, play};

const MIB: u64 = 1 << 20;

#[test]
fn ws_2_kills_at_the_third_tick_after_the_last_pong() {
    // Report A: 6 s from the last Pong to the close.
    let tape = Tape::new().answered(2_000, 2_000, 10_000).unanswered(12_000, 2_000, 14_000);
    let played = play("ws-2", WIRE, &tape, 60_000);
    assert_eq!(played.killed_at, Some(16_000));
    assert_eq!(played.reason.as_deref(), Some("2 Pings unanswered"));
    assert_eq!(play("ws-2", WIRE, &tape, 15_999).killed_at, None, "one tick before");

    let answered = Tape::new().answered(2_000, 2_000, 10_000).ping(12_000).ping(14_000).pong(15_999);
    assert_eq!(play("ws-2", WIRE, &answered, 16_500).killed_at, None, "a Pong just before the tick");
}

#[test]
fn ws_2_takes_the_ticks_and_pongs_of_a_host_that_reports_them() {
    let tape = Tape::new().tick(2_000, 0).read_pong(2_001).tick(4_000, 0).tick(6_000, 0).tick(8_007, 0);
    assert_eq!(play("ws-2", REPORTED, &tape, 60_000).killed_at, Some(8_007));
    let unfinished = Tape::new().tick(2_000, 0).read_pong(2_001).tick(4_000, 0).tick(6_000, 0);
    assert_eq!(play("ws-2", REPORTED, &unfinished, 60_000).killed_at, None, "a blocked host ticks late");
    // What passes on the wire is not what the host has read.
    let unread = Tape::new().tick(2_000, 0).tick(4_000, 0).pong(4_001).tick(6_000, 0);
    assert_eq!(play("ws-2", REPORTED, &unread, 60_000).killed_at, Some(6_000));
}

/// A timer that keeps to its schedule is early after it was late.
#[test]
fn ws_2_takes_the_tick_after_a_late_one() {
    let tape = Tape::new().tick(2_000, 0).tick(4_114, 0).tick(6_000, 0);
    assert_eq!(play("ws-2", REPORTED, &tape, 60_000).killed_at, Some(6_000));
    let tape = Tape::new().tick(2_114, 0).tick(4_000, 0).tick(6_000, 0);
    assert_eq!(
        play("ws-2", REPORTED, &tape, 60_000).killed_at,
        Some(6_000),
        "the first one may have been late"
    );
    let tape = Tape::new().tick(2_000, 0).tick(4_000, 0).tick(5_886, 0);
    assert_eq!(play("ws-2", REPORTED, &tape, 5_890).killed_at, None, "that was not late");
}

#[test]
fn ws_2_counts_any_pong_even_one_for_an_old_ping() {
    let tape = Tape::new()
        .tick(0, 0)
        .tick(2_000, 0)
        .read_pong(3_000)
        .tick(4_000, 0)
        .read_pong(5_000)
        .tick(6_000, 0)
        .tick(8_000, 0)
        .read_pong(9_000)
        .tick(10_000, 0);
    assert_eq!(play("ws-2", REPORTED, &tape, 11_000).killed_at, None);
}

#[test]
fn ws_2_is_as_late_as_a_host_whose_event_loop_is_blocked() {
    // No Ping for 7 s, none unanswered: nothing tells that one of ours would not have been answered.
    let tape = Tape::new().answered(2_000, 2_000, 4_000).answered(11_000, 2_000, 15_000);
    assert_eq!(play("ws-2", WIRE, &tape, 16_999).killed_at, None);
}

#[test]
fn ws_2_counts_pings_that_cannot_reach_the_wire_behind_a_full_queue() {
    let tape = Tape::new().answered(2_000, 2_000, 2_000).silent(2_200, 9_000, 2_001);
    assert_eq!(play("ws-2", WIRE, &tape, 9_000).killed_at, Some(8_000));
    // Everything is delivered in time, and no Ping is unanswered.
    let drained =
        Tape::new().answered(2_000, 2_000, 2_000).silent(2_200, 7_800, 2_001).sample(7_900, |snapshot| {
            snapshot.send_queue_bytes = Some(0);
        });
    assert_eq!(play("ws-2", WIRE, &drained.answered(9_000, 2_000, 13_000), 14_000).killed_at, None);
}

#[test]
fn ws_2_follows_a_timer_that_drifts() {
    let tape = Tape::new().answered(2_000, 2_003, 2_000 + 700 * 2_003);
    let last = 2_000 + 700 * 2_003;
    let gone = tape.unanswered(last + 2_003, 2_003, last + 2 * 2_003);
    let killed_at = play("ws-2", WIRE, &gone, last + 60_000).killed_at.unwrap();
    assert!(killed_at.abs_diff(last + 3 * 2_003) <= 10, "{killed_at}");
}

#[test]
fn ws_2_slow_needs_sixty_to_ninety_seconds_over_a_host_that_pings_every_two() {
    // Ticks at 2, 32, 62, …: each goes out with the host's next Ping.
    let alive = Tape::new().answered(2_000, 2_000, 400_000);
    assert_eq!(play("ws-2-slow", WIRE, &alive, 400_500).killed_at, None);
    for last in [32_000, 46_000, 60_000] {
        let gone = Tape::new().answered(2_000, 2_000, last).unanswered(last + 2_000, 2_000, 400_000);
        let killed_at = play("ws-2-slow", WIRE, &gone, 400_000).killed_at.unwrap();
        assert_eq!(killed_at, 122_000);
        assert!((60_000..=90_000).contains(&(killed_at - last)));
    }
    // A Pong for a Ping before its own does not answer its own.
    let late = Tape::new().answered(2_000, 2_000, 28_000).ping(30_000).ping(32_000).pong(32_001);
    let gone = late.unanswered(34_000, 2_000, 400_000);
    assert_eq!(play("ws-2-slow", WIRE, &gone, 400_000).killed_at, Some(92_000));
}

#[test]
fn ws_readme_kills_at_the_first_tick_without_a_pong() {
    let gone = Tape::new().answered(2_000, 2_000, 32_000).unanswered(34_000, 2_000, 100_000);
    assert_eq!(play("ws-readme", WIRE, &gone, 100_000).killed_at, Some(92_000));
    let before = Tape(gone.0.iter().filter(|told| told.fact().at() < ms(92_000)).cloned().collect());
    assert_eq!(play("ws-readme", WIRE, &before, 91_999).killed_at, None);
    let fast = Tape::new().answered(2_000, 2_000, 10_000).unanswered(12_000, 2_000, 20_000);
    assert_eq!(play("ws-readme:interval_ms=2000", WIRE, &fast, 20_000).killed_at, Some(14_000));
}

#[test]
fn buffered_gate_skips_ticks_with_a_backlog() {
    let full = |bytes| {
        Tape::new().tick(2_000, 0).read_pong(2_001).tick(4_000, bytes).tick(6_000, bytes).tick(8_000, bytes)
    };
    assert_eq!(play("buffered-gate", REPORTED, &full(MIB + 1), 9_000).killed_at, None);
    assert_eq!(play("buffered-gate", REPORTED, &full(MIB), 9_000).killed_at, Some(8_000), "at the gate");
    // What was skipped was not counted either.
    let tape = full(MIB + 1).tick(10_000, 0).tick(12_000, 0).tick(14_000, 0);
    assert_eq!(play("buffered-gate", REPORTED, &tape, 20_000).killed_at, Some(14_000));
    // The kernel took it all, and the peer is megabytes behind: the gate is open.
    assert_eq!(play("buffered-gate", REPORTED, &full(0), 9_000).killed_at, Some(8_000));
}

#[test]
fn queue_moved_begins_anew_when_the_queue_differs() {
    let moving = Tape::new()
        .tick(2_000, 9_000)
        .tick(4_000, 8_000)
        .tick(6_000, 7_000)
        .tick(8_000, 6_000)
        .tick(10_000, 5_000);
    assert_eq!(play("queue-moved", REPORTED, &moving, 11_000).killed_at, None);
    // Own writes count as life: the rule looks for any difference.
    let growing = Tape::new().tick(2_000, 1).tick(4_000, 2).tick(6_000, 3).tick(8_000, 4).tick(10_000, 5);
    assert_eq!(play("queue-moved", REPORTED, &growing, 11_000).killed_at, None);
    let stuck = moving.tick(12_000, 5_000).tick(14_000, 5_000);
    assert_eq!(play("queue-moved", REPORTED, &stuck, 20_000).killed_at, Some(14_000));
    let empty = Tape::new().tick(2_000, 0).tick(4_000, 0).tick(6_000, 0);
    assert_eq!(play("queue-moved", REPORTED, &empty, 7_000).killed_at, Some(6_000));
}

#[test]
fn window_looks_at_the_time_of_the_last_pong() {
    // 5.999 s at the third tick is not enough.
    let gone = Tape::new().answered(2_000, 2_000, 10_000).unanswered(12_000, 2_000, 20_000);
    assert_eq!(play("window-3x", WIRE, &gone, 20_000).killed_at, Some(18_000));
    let exact = Tape::new()
        .answered(2_000, 2_000, 8_000)
        .ping(9_999)
        .pong(10_000)
        .ping(12_000)
        .ping(14_000)
        .ping(16_000);
    assert_eq!(play("window-3x", WIRE, &exact, 17_000).killed_at, Some(16_000), "6 s to the millisecond");
    assert_eq!(play("window-3x", WIRE, &Tape::new().answered(2_000, 2_000, 60_000), 61_000).killed_at, None);
}
