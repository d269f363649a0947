//! `any-inbound`, `idle-probe`, `idle-probe-fast`, `phi`.

use ackbeat_liveness::Seq;

use crate::tape::{REPORTED, Tape, WIRE, ms, play};

#[test]
fn any_inbound_kills_where_nothing_came_and_spares_who_writes() {
    let gone = Tape::new()
        .answered(2_000, 2_000, 4_000)
        .unanswered(6_000, 2_000, 12_000)
        .silent(6_200, 12_000, 4_001);
    assert_eq!(play("any-inbound", WIRE, &gone.sorted(), 12_000).killed_at, Some(10_000));
    // A byte between the reading before the tick and the tick is seen only afterwards.
    let mut tape =
        Tape::new().answered(2_000, 2_000, 4_000).unanswered(6_000, 2_000, 8_000).silent(6_200, 9_900, 4_001);
    tape = tape.sorted().sample(10_100, |snapshot| snapshot.last_inbound_at = Some(ms(9_999)));
    assert_eq!(play("any-inbound", WIRE, &tape, 10_200).killed_at, None);
}

#[test]
fn any_inbound_counts_bytes_by_sequence_numbers_that_wrap() {
    let mut tape = Tape::new().answered(2_000, 2_000, 2_000).unanswered(4_000, 2_000, 30_000);
    let mut rcv_nxt = Seq(u32::MAX - 5_000);
    for at in (4_200..30_000).step_by(200) {
        rcv_nxt = rcv_nxt.plus(100);
        tape = tape.sample(at, |snapshot| {
            snapshot.send_queue_bytes = Some(2);
            snapshot.rcv_nxt = Some(rcv_nxt);
        });
    }
    assert_eq!(play("any-inbound", WIRE, &tape.sorted(), 30_000).killed_at, None);
}

#[test]
fn a_reading_without_anything_about_inbound_bytes_decides_nothing() {
    let mut tape = Tape::new().answered(2_000, 2_000, 4_000).unanswered(6_000, 2_000, 30_000);
    for at in (6_200..30_000).step_by(200) {
        tape = tape.sample(at, |snapshot| snapshot.send_queue_bytes = Some(2));
    }
    for spec in ["any-inbound", "aiohttp", "idle-probe-fast"] {
        assert_eq!(play(spec, WIRE, &tape.clone().sorted(), 30_000).killed_at, None, "{spec}");
    }
}

#[test]
fn idle_probe_waits_long_and_then_briefly() {
    let gone = Tape::new()
        .answered(2_000, 2_000, 10_000)
        .unanswered(12_000, 2_000, 150_000)
        .silent(12_200, 150_000, 10_001)
        .sorted();
    // 120 s after 10.001 s (the host's Ping of 130 s is the probe), and 10 s more.
    assert_eq!(play("idle-probe", WIRE, &gone, 150_000).killed_at, Some(140_000));
    assert_eq!(
        play("idle-probe", WIRE, &gone, 150_000).reason.as_deref(),
        Some("a probe, and no byte from the peer for 129999 ms")
    );
    assert_eq!(play("idle-probe-fast", WIRE, &gone, 150_000).killed_at, Some(18_667));
}

#[test]
fn idle_probe_opens_a_new_wait_when_the_check_is_late() {
    // The sidecar paused between 18.4 s and 40 s.
    let before = Tape::new().answered(2_000, 2_000, 10_000).ping(12_000).silent(12_200, 18_400, 10_001);
    let after = before.silent(40_000, 40_400, 10_001);
    assert_eq!(play("idle-probe-fast", WIRE, &after, 40_600).killed_at, None);
    let still_gone = after.silent(40_600, 41_000, 10_001);
    assert_eq!(play("idle-probe-fast", WIRE, &still_gone, 41_000).killed_at, Some(40_667));
}

#[test]
fn phi_crosses_half_a_second_after_a_regular_pong_is_missing() {
    let gone = Tape::new().answered(2_000, 2_000, 20_000).unanswered(22_000, 2_000, 30_000);
    let killed_at = play("phi", WIRE, &gone, 30_000).killed_at.unwrap();
    // Mean 2 s, deviation 100 ms: 1 - F = 1e-8 at 5.2 deviations.
    assert!((22_400..22_700).contains(&killed_at), "{killed_at}");
    let later: u64 = play("phi:threshold=12", WIRE, &gone, 30_000).killed_at.unwrap();
    assert!(later > killed_at);
    let relaxed: u64 = play("phi:min_std_ms=500", WIRE, &gone, 30_000).killed_at.unwrap();
    assert!((24_300..25_000).contains(&relaxed), "{relaxed}");
}

#[test]
fn phi_suspects_nobody_while_the_host_asks_nothing() {
    let blocked = Tape::new().answered(2_000, 2_000, 20_000).answered(27_000, 2_000, 40_000);
    assert_eq!(play("phi", WIRE, &blocked, 41_000).killed_at, None);
    let mut reported = Tape::new();
    for at in [2_000, 4_000, 6_000, 8_000, 13_000, 15_000] {
        reported = reported.tick(at, 0).read_pong(at + 1);
    }
    assert_eq!(play("phi", REPORTED, &reported, 16_000).killed_at, None);
}

#[test]
fn phi_remembers_a_window() {
    // Long times between arrivals are forgotten once the window has moved on.
    let slow = Tape::new().answered(1_000, 6_000, 31_000).answered(33_000, 2_000, 53_000);
    let gone = slow.unanswered(55_000, 2_000, 90_000);
    let forgotten = play("phi:window=5", WIRE, &gone, 90_000).killed_at.unwrap();
    let remembered = play("phi", WIRE, &gone, 90_000).killed_at.unwrap();
    assert!(forgotten + 2_000 < remembered, "{forgotten} {remembered}");
}
