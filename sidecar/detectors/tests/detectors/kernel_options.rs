//! `user-timeout`, `keepalive`.

use ackbeat_detectors::NotJudged;
use ackbeat_liveness::{Direction, Input, Reset, Seq, Snapshot, TcpState, Transition};

use crate::tape::{ID, Tape, WIRE, ms, play, reading};

/// The peer is gone from 1 s on, on a LAN: loss probe at 1.21 s, timeouts at 1.42, 1.84, 2.67, 4.3, 7.6 s.
fn blackholed(from: u64, until: u64, base: Seq) -> Tape {
    let mut tape = Tape::new();
    for at in (from..=until).step_by(200) {
        let timeouts = [1_420, 1_840, 2_670, 4_300, 7_600].iter().filter(|timeout| **timeout <= at).count();
        let count = u8::try_from(timeouts).unwrap();
        tape = tape.sample(at, |snapshot| {
            in_flight(snapshot, base);
            snapshot.retransmits = Some(count);
            snapshot.backoff = Some(count);
            snapshot.rto_ms = Some(204 << count);
            snapshot.retransmitting_since = (at >= 1_210).then(|| ms(1_210));
        });
    }
    tape
}

fn in_flight(snapshot: &mut Snapshot, base: Seq) {
    snapshot.snd_una = Some(base);
    snapshot.snd_nxt = Some(base.plus(100));
    snapshot.write_seq = Some(base.plus(100));
    snapshot.send_queue_bytes = Some(100);
    snapshot.unsent_bytes = Some(0);
    snapshot.packets_out = Some(1);
    snapshot.last_ack_at = Some(ms(900));
}

#[test]
fn user_timeout_counts_from_the_first_timeout_not_from_the_loss_probe() {
    let killed_at = play("user-timeout", WIRE, &blackholed(1_000, 9_000, Seq(50)), 9_000).killed_at.unwrap();
    assert!(killed_at.abs_diff(3_420) <= 10, "{killed_at}");
    let slow = play("user-timeout:timeout_ms=30000", WIRE, &blackholed(1_000, 40_000, Seq(50)), 40_000);
    assert!(slow.killed_at.unwrap().abs_diff(31_420) <= 10, "{slow:?}");
    assert_eq!(play("user-timeout", WIRE, &blackholed(1_000, 3_400, Seq(50)), 9_000).killed_at, None);
}

#[test]
fn user_timeout_begins_anew_with_each_acknowledged_byte_across_the_wrap() {
    let healed = blackholed(1_000, 3_200, Seq(u32::MAX - 20)).sample(3_400, |snapshot| {
        in_flight(snapshot, Seq(30));
        snapshot.retransmits = Some(0);
    });
    let again = healed.sample(5_000, |snapshot| {
        in_flight(snapshot, Seq(30));
        snapshot.retransmits = Some(1);
        snapshot.rto_ms = Some(408);
        snapshot.backoff = Some(1);
        snapshot.retransmitting_since = Some(ms(4_900));
    });
    assert_eq!(play("user-timeout", WIRE, &again, 6_000).killed_at, None);
}

/// The peer reads nothing; its window is closed at 1 s and every probe is acknowledged.
fn window_closed(until: u64, moves_at: u64) -> Tape {
    let mut tape = Tape::new();
    let mut last_ack = 1_000;
    let mut probe = 1_204;
    let mut backoff = 0;
    for at in (900..=until).step_by(200) {
        while probe <= at {
            last_ack = probe;
            backoff += 1;
            probe += 204 << backoff;
        }
        let base = Seq(9_000).plus(if at >= moves_at { 500 } else { 0 });
        tape = tape.sample(at, |snapshot| {
            snapshot.snd_una = Some(base);
            snapshot.snd_nxt = Some(base);
            snapshot.write_seq = Some(base.plus(100_000));
            snapshot.send_queue_bytes = Some(100_000);
            snapshot.unsent_bytes = Some(100_000);
            snapshot.packets_out = Some(u32::from(at < 1_000));
            snapshot.snd_wnd_bytes = Some(0);
            snapshot.rto_ms = Some(204);
            snapshot.backoff = Some(backoff);
            snapshot.retransmits = Some(0);
            snapshot.last_ack_at = Some(ms(if at < 1_000 { 850 } else { last_ack }));
        });
    }
    tape
}

#[test]
fn user_timeout_kills_a_live_peer_that_stops_reading() {
    // Trap 3: 2000 ms give ETIMEDOUT after 2.3 s although every probe is acknowledged.
    let killed_at = play("user-timeout", WIRE, &window_closed(9_000, u64::MAX), 9_000).killed_at;
    assert_eq!(killed_at, Some(3_204));
    assert_eq!(play("user-timeout", WIRE, &window_closed(3_100, u64::MAX), 9_000).killed_at, None);
    assert_eq!(
        play("user-timeout", WIRE, &window_closed(4_500, 3_000), 9_000).killed_at,
        None,
        "it read a little"
    );
}

#[test]
fn user_timeout_says_nothing_where_the_kernel_says_nothing() {
    let mut tape = Tape::new();
    for at in (1_000..60_000).step_by(200) {
        tape = tape.sample(at, |snapshot| snapshot.snd_una = Some(Seq(1)));
    }
    assert_eq!(play("user-timeout", WIRE, &tape, 60_000).killed_at, None);
}

fn idle(from: u64, until: u64, probes_out: Option<u8>) -> Tape {
    let mut tape = Tape::new();
    for at in (from..=until).step_by(100) {
        tape = tape.sample(at, |snapshot| {
            snapshot.send_queue_bytes = Some(0);
            snapshot.last_ack_at = Some(ms(1_000));
            snapshot.last_inbound_at = Some(ms(1_000));
            snapshot.probes_out = probes_out;
        });
    }
    tape
}

#[test]
fn keepalive_kills_an_idle_socket_whose_probes_are_unanswered() {
    assert_eq!(play("keepalive", WIRE, &idle(1_100, 6_000, Some(3)), 6_000).killed_at, Some(5_000));
    assert_eq!(play("keepalive", WIRE, &idle(1_100, 4_900, Some(3)), 6_000).killed_at, None);
    assert_eq!(play("keepalive", WIRE, &idle(1_100, 6_000, Some(2)), 6_000).killed_at, None);
}

#[test]
fn keepalive_does_not_judge_where_nobody_probed() {
    let played = play("keepalive", WIRE, &idle(1_100, 9_000, Some(0)), 9_000);
    assert_eq!((played.killed_at, played.not_judged), (None, Some(NotJudged::NotProbed)));
}

#[test]
fn keepalive_does_nothing_while_a_ping_is_in_flight() {
    let gone = Tape::new()
        .answered(2_000, 2_000, 4_000)
        .unanswered(6_000, 2_000, 60_000)
        .silent(6_200, 60_000, 4_001);
    let played = play("keepalive", WIRE, &gone.sorted(), 60_000);
    assert_eq!((played.killed_at, played.not_judged), (None, None));
}

/// The kernel gives the socket up; its queues are empty by then.
fn given_up(at: u64, socket_error: u32) -> Input {
    Input::Transition(Transition {
        old_state: TcpState::Established,
        new_state: TcpState::Close,
        process: None,
        snapshot: Snapshot {
            state: TcpState::Close,
            packets_out: Some(0),
            socket_error: Some(socket_error),
            ..reading(at)
        },
    })
}

#[test]
fn user_timeout_decides_at_the_end_that_the_option_itself_made() {
    const ETIMEDOUT: u32 = 110;
    const ECONNRESET: u32 = 104;
    let killed_at = |end| {
        let tape = blackholed(1_000, 3_200, Seq(50)).input(end);
        play("user-timeout", WIRE, &tape, 9_000).killed_at
    };
    assert!(killed_at(given_up(3_440, ETIMEDOUT)).unwrap().abs_diff(3_420) <= 10);
    // The kernel's clock and the one read off its accounting are a reading apart at most.
    assert_eq!(killed_at(given_up(3_300, ETIMEDOUT)), Some(3_300));
    assert_eq!(killed_at(given_up(2_900, ETIMEDOUT)), None, "for another reason");
    assert_eq!(killed_at(given_up(3_300, ECONNRESET)), None, "the peer was first");
}

#[test]
fn keepalive_decides_at_the_reset_that_the_option_itself_made() {
    let reset = |at| {
        Input::Reset(Reset {
            connection: ID,
            at: ms(at),
            direction: Direction::Egress,
            answers_segment: false,
            reason: None,
        })
    };
    let killed_at = |probes_out, at| {
        let tape = idle(1_100, 4_900, Some(probes_out)).input(reset(at));
        play("keepalive", WIRE, &tape, 9_000).killed_at
    };
    assert_eq!(killed_at(3, 5_060), Some(5_000));
    assert_eq!(killed_at(2, 5_060), None);
    assert_eq!(killed_at(3, 4_940), None);
}
