//! The wire parser against streams whose frames are known, in this process. No privileges.

mod host;
mod model;
mod random;

use ackbeat_abi::{Direction, LossReason, Record};
use ackbeat_wire::state::{FlowState, phase};
use host::Host;
use model::{Case, Totals, Trouble, judge};
use random::Random;

/// Cases in each test; `ACKBEAT_WIRE_CASES` asks for more.
fn cases(default: u64) -> u64 {
    std::env::var("ACKBEAT_WIRE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run(case: &Case) -> Host {
    let mut host = Host::new(FlowState::OPENED);
    for delivery in &case.deliveries {
        let (stream, other) = match delivery.direction {
            Direction::Ingress => (&case.ingress, &case.egress),
            Direction::Egress => (&case.egress, &case.ingress),
        };
        host.deliver(
            delivery.direction,
            stream.seq(delivery.start),
            &stream.bytes[delivery.start..delivery.start + delivery.length],
            other.seq(delivery.acknowledged),
            delivery.pause_ns,
        );
    }
    host
}

fn many(label: &str, count: u64, trouble: Trouble) -> Totals {
    let mut totals = Totals::default();
    for seed in 0..cases(count) {
        let case = Case::random(seed, trouble);
        let host = run(&case);
        if let Err(wrong) = judge(&case, &host.records, &mut totals) {
            panic!("{label}: {wrong}");
        }
    }
    println!("{label}: {totals}");
    totals
}

const CALM: Trouble = Trouble {
    repeat: false,
    reorder: false,
    drop: false,
    frames_max: 40,
    payload_max: 70_000,
    segment_max: 65_000,
    pause_max_ns: 20_000_000,
};

#[test]
fn every_control_frame_is_found_wherever_the_stream_is_cut() {
    let totals = many("cut", 1_000, CALM);
    assert_eq!(totals.reported, totals.control_frames);
    assert_eq!(totals.losses, 0);
}

#[test]
fn repetitions_and_overlaps_change_nothing() {
    let totals = many("repeated", 1_000, Trouble { repeat: true, ..CALM });
    assert_eq!(totals.reported, totals.control_frames);
    assert_eq!(totals.losses, 0);
}

#[test]
fn reordering_never_makes_a_wrong_frame() {
    let totals = many("reordered", 1_000, Trouble { repeat: true, reorder: true, ..CALM });
    assert!(totals.reported > 0);
}

#[test]
fn segments_that_are_never_seen_never_make_a_wrong_frame() {
    let totals =
        many("dropped", 1_000, Trouble { repeat: true, reorder: true, drop: true, frames_max: 80, ..CALM });
    assert!(totals.losses > 0);
    assert!(totals.recoveries > 0, "the parser never found a safe point again");
}
