//! `aiohttp`, `python-websockets`, `engine-io`.

use ackbeat_detectors::NotJudged;
use ackbeat_liveness::{Direction, FrameKind};

use crate::tape::{REPORTED, Tape, WIRE, frame, ms, play};

#[test]
fn aiohttp_pings_when_idle_and_waits_for_half_of_that() {
    // Last byte at 4001, Ping due at 8001; the host's of 8 s is unanswered then.
    let gone = Tape::new()
        .answered(2_000, 2_000, 4_000)
        .unanswered(6_000, 2_000, 12_000)
        .silent(6_200, 12_000, 4_001);
    let gone = gone.sorted();
    // A host's Ping a millisecond early is that Ping.
    assert_eq!(play("aiohttp", WIRE, &gone, 12_000).killed_at, Some(10_000));
    let cut: Vec<_> = gone.0.iter().filter(|told| told.fact().at() <= ms(9_999)).cloned().collect();
    assert_eq!(play("aiohttp", WIRE, &Tape(cut), 10_001).killed_at, None, "what came by then is not known");
}

#[test]
fn aiohttp_is_content_with_any_byte() {
    // The Pong of a Ping is behind a large message: nothing but bytes.
    let mut tape = Tape::new().answered(2_000, 2_000, 4_000).ping(6_000);
    for at in (6_200..40_000).step_by(200) {
        tape = tape.sample(at, |snapshot| snapshot.last_inbound_at = Some(ms(at - 100)));
    }
    assert_eq!(play("aiohttp", WIRE, &tape, 40_000).killed_at, None);
}

#[test]
fn aiohttp_rounds_long_times_up_to_whole_seconds() {
    let gone = Tape::new()
        .ping(4_000)
        .pong(4_250)
        .unanswered(6_000, 2_000, 60_000)
        .silent(6_200, 60_000, 4_250)
        .sorted();
    // 4.25 + 20 s is rounded to 25 s, 25 + 10 s is 35 s.
    assert_eq!(play("aiohttp:heartbeat_ms=20000", WIRE, &gone, 60_000).killed_at, Some(35_000));
}

#[test]
fn python_websockets_waits_for_the_pong_and_nothing_else() {
    let mut tape = Tape::new().ping(20_000).pong(20_400);
    for at in (20_500..40_000).step_by(500) {
        tape = tape.sample(at, |snapshot| snapshot.last_inbound_at = Some(ms(at)));
    }
    // The next Ping comes 20 s after the last: the latency is taken off the sleep.
    let tape = tape.ping(40_000);
    assert_eq!(play("python-websockets", WIRE, &tape, 60_000).killed_at, Some(60_000));
    assert_eq!(play("python-websockets", WIRE, &tape, 59_999).killed_at, None);
    assert_eq!(play("python-websockets", WIRE, &tape.pong(59_999), 70_000).killed_at, None);
}

#[test]
fn python_websockets_takes_the_pong_of_a_later_ping_and_not_that_of_an_earlier_one() {
    let asked = |at, data: &[u8]| frame(at, Direction::Egress, FrameKind::Ping, data);
    let answered = |at, data: &[u8]| frame(at, Direction::Ingress, FrameKind::Pong, data);
    let both = || Tape::new().input(asked(19_000, b"a")).input(asked(20_000, b"b"));
    let earlier = both().input(answered(20_100, b"a"));
    assert_eq!(play("python-websockets", WIRE, &earlier, 60_000).killed_at, Some(40_000));
    let later = both().input(asked(22_000, b"c")).input(answered(22_100, b"c"));
    assert_eq!(play("python-websockets", WIRE, &later, 60_000).killed_at, None);
}

/// Its `ping` returns once the bytes before the Ping have left the host's memory, and only then does it wait for the Pong.
#[test]
fn python_websockets_waits_for_its_own_memory_first() {
    let spec = "python-websockets:interval_ms=2000,timeout_ms=2000";
    let behind = |bytes| Tape::new().tick(2_000, bytes).tick(4_000, bytes).tick(6_000, bytes);
    let killed_at = |tape: Tape| play(spec, REPORTED, &tape, 12_000).killed_at;
    assert_eq!(killed_at(behind(0)), Some(4_000));
    assert_eq!(killed_at(behind(32_768)), Some(4_000));
    assert_eq!(killed_at(behind(32_769)), None, "gone or not");
    // Above a quarter of the limit it still waits.
    assert_eq!(killed_at(Tape::new().tick(2_000, 40_000).tick(4_000, 8_193).tick(6_000, 8_193)), None);
    assert_eq!(killed_at(Tape::new().tick(2_000, 40_000).tick(4_000, 8_192).tick(6_000, 0)), Some(6_000));
}

#[test]
fn python_websockets_does_not_guess_what_waits_in_the_host() {
    let spec = "python-websockets:interval_ms=2000,timeout_ms=2000";
    let queued = |bytes| {
        let mut tape = Tape::new().ping(2_000).pong(2_010);
        for at in (3_000..12_000).step_by(200) {
            tape = tape.sample(at, |snapshot| snapshot.send_queue_bytes = Some(bytes));
        }
        tape
    };
    let short = play(spec, WIRE, &queued(100), 12_000);
    assert_eq!((short.killed_at, short.not_judged), (Some(6_000), None));
    let long = play(spec, WIRE, &queued(100_000), 12_000);
    assert_eq!((long.killed_at, long.not_judged), (None, Some(NotJudged::BacklogUnknown)));
    // A Ping of the host has passed: so has what was before it.
    let passed = play(spec, WIRE, &queued(100_000).ping(7_500).sorted(), 12_000);
    assert_eq!((passed.killed_at, passed.not_judged), (Some(9_500), None));
}

#[test]
fn aiohttp_needs_no_ping_while_bytes_come_in() {
    let mut tape = Tape::new();
    for at in (1_000..20_000).step_by(500) {
        tape = tape.sample(at, |snapshot| snapshot.last_inbound_at = Some(ms(at)));
    }
    let played = play("aiohttp", WIRE, &tape, 20_000);
    assert_eq!((played.killed_at, played.not_judged), (None, None));
}

#[test]
fn engine_io_pings_after_the_last_pong_and_can_be_put_off_once() {
    let spec = "engine-io:interval_ms=2000,timeout_ms=2000";
    let silent = |from| {
        Tape::new().ping(2_000).pong(2_100).unanswered(4_100, 2_000, 12_000).silent(4_200, 12_000, from)
    };
    assert_eq!(play(spec, WIRE, &silent(2_100).sorted(), 12_000).killed_at, Some(6_100));

    // Another packet starts the wait once more; the next one does not.
    let mut chatty = Tape::new().ping(2_000).pong(2_100).ping(4_100);
    for at in (4_300..12_000).step_by(200) {
        chatty = chatty.sample(at, |snapshot| snapshot.last_inbound_at = Some(ms(at)));
    }
    assert_eq!(play(spec, WIRE, &chatty, 12_000).killed_at, Some(6_300));
    let answered = Tape::new().ping(2_000).pong(2_100).ping(4_100).pong(6_099).sorted();
    assert_eq!(play(spec, WIRE, &answered, 8_000).killed_at, None);
}

#[test]
fn engine_io_has_its_defaults() {
    let gone = Tape::new().ping(25_000).silent(25_200, 60_000, 0);
    assert_eq!(play("engine-io", WIRE, &gone, 60_000).killed_at, Some(45_000));
}
