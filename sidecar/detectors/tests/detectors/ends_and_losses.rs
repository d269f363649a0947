//! What holds for all: the end of a connection, lost facts, facts that are missing altogether.

use ackbeat_detectors::{Evidence, Need, NotJudged, Spec};
use ackbeat_liveness::*;

use crate::tape::{ID, REPORTED, Tape, WIRE, drive, ms, opened, play};

fn desynchronized(at: u64, synchronized: bool) -> Input {
    Input::Synchronization(Synchronization {
        connection: ID,
        at: ms(at),
        direction: Direction::Ingress,
        synchronized,
        reason: None,
    })
}

#[test]
fn nothing_is_decided_after_the_end() {
    let gone = Tape::new().answered(2_000, 2_000, 4_000).ping(6_000).ping(8_000);
    for state in [TcpState::FinWait1, TcpState::CloseWait, TcpState::Close] {
        let ended = gone.clone().closed(9_000, state).unanswered(10_000, 2_000, 400_000);
        for spec in Spec::all() {
            let mut detector = spec.start(&opened(), Evidence::ALL).unwrap();
            assert!(drive(detector.as_mut(), &ended, ms(500_000)).is_empty(), "{spec} {state:?}");
            assert_eq!(detector.poll_timeout(), None);
        }
    }
    let reset = Input::Reset(Reset {
        connection: ID,
        at: ms(9_000),
        direction: Direction::Ingress,
        answers_segment: false,
        reason: None,
    });
    assert_eq!(play("ws-2", WIRE, &gone.input(reset).ping(10_000), 20_000).killed_at, None);
}

#[test]
fn a_host_that_closes_when_the_tick_is_due_was_its_own_watchdog() {
    let gone = Tape::new().answered(2_000, 2_000, 4_000).ping(6_000).ping(8_000);
    assert_eq!(
        play("ws-2", WIRE, &gone.clone().closed(9_990, TcpState::FinWait1), 20_000).killed_at,
        Some(9_990)
    );
    assert_eq!(play("ws-2", WIRE, &gone.clone().closed(9_800, TcpState::FinWait1), 20_000).killed_at, None);
    assert_eq!(
        play("ws-2", WIRE, &gone.closed(9_990, TcpState::CloseWait), 20_000).killed_at,
        None,
        "the peer closed"
    );
    let reported = Tape::new().tick(6_000, 0).tick(8_000, 0).closed(10_002, TcpState::FinWait1);
    assert_eq!(play("ws-2", REPORTED, &reported, 20_000).killed_at, Some(10_002));
}

#[test]
fn a_pong_may_pass_unseen_while_the_parser_has_lost_its_place() {
    let lost = Tape::new()
        .answered(2_000, 2_000, 4_000)
        .input(desynchronized(5_000, false))
        .unanswered(6_000, 2_000, 60_000);
    for spec in ["ws-2", "ws-readme:interval_ms=2000", "window-3x", "phi", "python-websockets"] {
        let played = play(spec, WIRE, &lost, 60_000);
        assert_eq!((played.killed_at, played.not_judged), (None, Some(NotJudged::FramesLost)), "{spec}");
    }
    // Found again, it begins anew.
    let found = lost.input(desynchronized(60_500, true)).unanswered(62_000, 2_000, 70_000);
    assert_eq!(play("ws-2", WIRE, &found, 70_000).killed_at, Some(66_500));
}

#[test]
fn lost_records_begin_the_count_anew() {
    let tape = Tape::new()
        .answered(2_000, 2_000, 4_000)
        .ping(6_000)
        .ping(8_000)
        .input(Input::RecordsLost { at: ms(9_000), count: 1 })
        .ping(10_000)
        .ping(12_000);
    assert_eq!(play("ws-2", WIRE, &tape, 13_000).killed_at, None);
}

#[test]
fn a_recording_that_lacks_what_is_needed_is_not_judged() {
    let start = |spec: &str, evidence| {
        spec.parse::<Spec>().unwrap().start(&opened(), evidence).map(|_| ()).unwrap_err()
    };
    let wire_only = Evidence { frames: true, ..Evidence::default() };
    assert_eq!(start("buffered-gate", WIRE), NotJudged::Missing(Need::Reports));
    assert_eq!(start("buffered-gate", WIRE).to_string(), "the recording has no application reports");
    assert_eq!(start("any-inbound", wire_only), NotJudged::Missing(Need::Samples));
    assert_eq!(
        start("ws-2", Evidence { samples: true, ..Evidence::default() }),
        NotJudged::Missing(Need::Heartbeat)
    );
    let hidden = Opened { frames_visible: false, ..opened() };
    assert!(
        Spec::all()
            .iter()
            .filter(|spec| spec.needs().contains(&Need::Heartbeat))
            .all(|spec| { spec.start(&hidden, WIRE).is_err() && spec.start(&hidden, REPORTED).is_ok() })
    );
}

#[test]
fn a_host_that_never_pings_is_not_judged() {
    let mut quiet = Tape::new();
    for at in (0..200_000).step_by(1_000) {
        quiet = quiet.sample(at, |snapshot| {
            snapshot.send_queue_bytes = Some(0);
            snapshot.last_inbound_at = Some(ms(0));
        });
    }
    for spec in Spec::all().iter().filter(|spec| spec.needs().contains(&Need::Heartbeat)) {
        let played = play(&spec.to_string(), WIRE, &quiet, 200_000);
        assert_eq!((played.killed_at, played.not_judged), (None, Some(NotJudged::NoPing)), "{spec}");
    }
}

#[test]
fn a_healthy_connection_is_never_killed() {
    let tape = Tape::new().answered(2_000, 2_000, 300_000);
    for spec in Spec::all().iter().filter(|spec| !spec.needs().contains(&Need::Reports)) {
        assert_eq!(play(&spec.to_string(), WIRE, &tape, 301_000).killed_at, None, "{spec}");
    }
    let mut reported = Tape::new();
    for at in (2_000..300_000).step_by(2_000) {
        reported = reported.tick(at, 0).read_pong(at + 1);
    }
    for spec in Spec::all() {
        assert_eq!(play(&spec.to_string(), REPORTED, &reported, 300_500).killed_at, None, "{spec}");
    }
}

#[test]
fn counting_starts_with_the_upgrade() {
    let upgrade = Input::Upgrade(Upgrade {
        connection: ID,
        at: ms(10_000),
        path: None,
        traceparent: None,
        forwarding_headers: Vec::new(),
    });
    // Data queued before the upgrade is no reason to count Pings.
    let tape = Tape::new().silent(200, 9_800, 0).input(upgrade).silent(10_200, 20_000, 10_000);
    assert_eq!(play("ws-2:missed=9", WIRE, &tape, 20_000).killed_at, None);
    assert_eq!(play("ws-2", WIRE, &tape.clone(), 9_000).killed_at, Some(6_000), "{tape:?}");
}
