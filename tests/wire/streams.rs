//! The wire parser against streams whose frames are known, in this process. No privileges.
#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths and sequence numbers of test streams, which are small or wrap on purpose"
)]
#![expect(clippy::print_stdout, reason = "what a run saw is part of the test's result")]

mod heartbeats;
mod host;
mod model;
mod random;

use ackbeat_abi::{Counter, Direction, LossReason, Record};
use ackbeat_wire::state::{FlowState, phase};
use host::Host;
use model::{Case, Totals, Trouble, judge};
use random::Random;

/// Cases in each test; `ACKBEAT_WIRE_CASES` asks for more.
fn cases(default: u64) -> u64 {
    std::env::var("ACKBEAT_WIRE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run(case: &Case, heartbeats: bool) -> Host {
    let mut host = Host::new(FlowState::OPENED);
    if heartbeats {
        host.patterns = heartbeats::patterns();
    }
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

#[expect(clippy::panic, reason = "a failed case is a failed test; its message holds the seed")]
fn many(label: &str, count: u64, trouble: Trouble) -> Totals {
    let mut totals = Totals::default();
    for seed in 0..cases(count) {
        let case = Case::random(seed, trouble);
        let host = run(&case, trouble.heartbeats);
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
    heartbeats: false,
};

const HEARTBEATS: Trouble =
    Trouble { heartbeats: true, repeat: true, payload_max: 3_000, segment_max: 9_000, ..CALM };

#[test]
fn every_control_frame_is_found_wherever_the_stream_is_cut() {
    let totals = many("cut", 1_000, CALM);
    assert_eq!(totals.reported, totals.frames);
    assert_eq!(totals.losses, 0);
}

#[test]
fn text_heartbeats_are_found_and_lures_are_not() {
    let totals = many("heartbeats, cut", 1_000, HEARTBEATS);
    assert_eq!(totals.reported, totals.frames);
    assert_eq!(totals.losses, 0);
    assert!(totals.heartbeats > 1_000);
}

#[test]
fn text_heartbeats_that_are_reordered_and_lost_never_make_a_wrong_frame() {
    let trouble = Trouble { reorder: true, ..HEARTBEATS };
    let totals = many("heartbeats, reordered", 1_000, trouble);
    assert!(totals.reported > 0);
    let totals = many("heartbeats, dropped", 1_000, Trouble { drop: true, frames_max: 80, ..trouble });
    assert!(totals.losses > 0);
    assert!(totals.recoveries > 0, "the parser never found a safe point again");
}

#[test]
fn repetitions_and_overlaps_change_nothing() {
    let totals = many("repeated", 1_000, Trouble { repeat: true, ..CALM });
    assert_eq!(totals.reported, totals.frames);
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

const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\n\r\n";
const INGRESS_SEQ: u32 = 1_000;
const EGRESS_SEQ: u32 = 0xffff_ff00;

/// What was said about synchronization: direction, found (1) or lost (0), reason.
fn said(host: &Host) -> Vec<(u8, u8, u8)> {
    host.records
        .iter()
        .filter_map(|record| match record {
            Record::Synchronization(change) => Some((change.direction, change.synchronized, change.reason)),
            _ => None,
        })
        .collect()
}

fn frames(host: &Host) -> usize {
    host.records.iter().filter(|record| matches!(record, Record::Frame(_))).count()
}

/// A connection after its upgrade, and the sequence numbers of the first frames.
fn upgraded() -> (Host, u32, u32) {
    let mut host = Host::new(FlowState::OPENED);
    host.deliver(Direction::Ingress, INGRESS_SEQ, REQUEST, EGRESS_SEQ, 0);
    let ingress_seq = INGRESS_SEQ + REQUEST.len() as u32;
    host.deliver(Direction::Egress, EGRESS_SEQ, ANSWER, ingress_seq, 0);
    assert_eq!(said(&host), [(1, 1, 0), (0, 1, 0)]);
    host.records.clear();
    (host, ingress_seq, EGRESS_SEQ.wrapping_add(ANSWER.len() as u32))
}

#[test]
fn what_is_no_frame_header_is_said_and_costs_the_place() {
    let invalid: &[(&str, Direction, &[u8])] = &[
        ("RSV2", Direction::Egress, &[0xa1, 0x00]),
        ("RSV3", Direction::Egress, &[0x91, 0x00]),
        ("RSV1 on a control frame", Direction::Egress, &[0xc9, 0x00]),
        ("RSV1 on a continuation", Direction::Egress, &[0xc0, 0x00]),
        ("opcode 3", Direction::Egress, &[0x83, 0x00]),
        ("opcode 11", Direction::Egress, &[0x8b, 0x00]),
        ("Ping in fragments", Direction::Egress, &[0x09, 0x00]),
        ("Ping of 126 bytes", Direction::Egress, &[0x89, 126, 0, 126]),
        ("masked by the server", Direction::Egress, &[0x89, 0x80, 1, 2, 3, 4]),
        ("not masked by the client", Direction::Ingress, &[0x89, 0x00]),
        ("16-bit length of 125", Direction::Egress, &[0x82, 126, 0, 125]),
        ("64-bit length of 65535", Direction::Egress, &[0x82, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff]),
        ("64-bit length with its top bit", Direction::Egress, &[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ("continuation of nothing", Direction::Egress, &[0x80, 0x00]),
        ("a message inside a message", Direction::Egress, &[0x01, 0x00, 0x81, 0x00]),
    ];
    for (what, direction, bytes) in invalid {
        for cut in 1..=bytes.len() {
            let (mut host, ingress_seq, egress_seq) = upgraded();
            let seq = if *direction == Direction::Ingress { ingress_seq } else { egress_seq };
            host.deliver(*direction, seq, &bytes[..cut], 1, 0);
            if cut < bytes.len() {
                host.deliver(*direction, seq.wrapping_add(cut as u32), &bytes[cut..], 1, 0);
            }
            assert_eq!(
                said(&host),
                [(direction.number(), 0, LossReason::InvalidHeader.number())],
                "{what}, {cut}"
            );
            assert_eq!(frames(&host), 0, "{what}");
        }
    }
}

#[test]
fn a_length_of_two_to_the_63_minus_1_is_waited_out() {
    let (mut host, _, seq) = upgraded();
    let mut bytes = vec![0x82, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    bytes.extend_from_slice(&[0x8a, 0x00].repeat(500));
    let mut at = seq;
    for _ in 0..50 {
        host.deliver(Direction::Egress, at, &bytes, 1, 10_000_000);
        at = at.wrapping_add(bytes.len() as u32);
        bytes = [0x8a, 0x00].repeat(500);
    }
    assert_eq!((said(&host).len(), frames(&host)), (0, 0));
}

#[test]
fn streams_that_never_upgrade_make_no_frame() {
    let tls = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03];
    let exchanges: &[(&[u8], &[u8], bool)] = &[
        (&tls, &tls, true),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x89\x00\x89\x00", false),
        (b"POST / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found\r\n\r\n", false),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 101 \r\nUpgrade: h2c\r\n\r\n\x89\x00\x89\x00", true),
        (b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n", true),
        (b"\x89\x80\x00\x00\x00\x00", b"\x89\x00", true),
    ];
    for (index, (request, answer, refused)) in exchanges.iter().enumerate() {
        let mut host = Host::new(FlowState::OPENED);
        let (mut ingress_seq, mut egress_seq) = (INGRESS_SEQ, EGRESS_SEQ);
        for _ in 0..3 {
            host.deliver(Direction::Ingress, ingress_seq, request, egress_seq, 0);
            ingress_seq = ingress_seq.wrapping_add(request.len() as u32);
            host.deliver(Direction::Egress, egress_seq, answer, ingress_seq, 0);
            egress_seq = egress_seq.wrapping_add(answer.len() as u32);
        }
        assert_eq!(frames(&host), 0, "exchange {index}");
        assert_eq!(host.flow.egress.phase == phase::OPAQUE, *refused, "exchange {index}");
        let not_http = said(&host).iter().filter(|said| said.2 == LossReason::NotHttp.number()).count();
        assert_eq!(not_http, usize::from(*refused), "exchange {index}: said once, if at all");
    }
}

#[test]
fn a_request_whose_first_segment_comes_last_upgrades_all_the_same() {
    let mut host = Host::new(FlowState::OPENED);
    host.deliver(Direction::Ingress, INGRESS_SEQ + 7, &REQUEST[7..], EGRESS_SEQ, 0);
    host.deliver(Direction::Ingress, INGRESS_SEQ, &REQUEST[..7], EGRESS_SEQ, 0);
    host.deliver(Direction::Egress, EGRESS_SEQ, ANSWER, INGRESS_SEQ + REQUEST.len() as u32, 0);
    assert_eq!(said(&host), [(1, 1, 0), (0, 1, 0)]);
    assert_eq!(host.counters[Counter::HeadsMissing.number() as usize], 1);
}

#[test]
fn a_head_without_end_is_given_up() {
    let mut host = Host::new(FlowState::OPENED);
    host.deliver(Direction::Ingress, INGRESS_SEQ, REQUEST, EGRESS_SEQ, 0);
    let ingress_seq = INGRESS_SEQ + REQUEST.len() as u32;
    let mut answer = b"HTTP/1.1 101 Switching Protocols\r\nX: ".to_vec();
    answer.resize(5_000, b'x');
    host.deliver(Direction::Egress, EGRESS_SEQ, &answer, ingress_seq, 0);
    let reason = LossReason::HeadTooLong.number();
    assert_eq!(said(&host), [(1, 0, reason), (0, 0, reason)]);
}

#[test]
fn a_client_that_sends_before_its_answer_loses_its_direction() {
    let mut early = REQUEST.to_vec();
    early.extend_from_slice(&[0x89, 0x80, 1, 2, 3, 4]);
    let mut host = Host::new(FlowState::OPENED);
    host.deliver(Direction::Ingress, INGRESS_SEQ, &early, EGRESS_SEQ, 0);
    let ingress_seq = INGRESS_SEQ + early.len() as u32;
    host.deliver(Direction::Egress, EGRESS_SEQ, ANSWER, ingress_seq, 0);
    assert_eq!(said(&host), [(1, 1, 0), (0, 1, 0), (0, 0, LossReason::Hole.number())]);
}

#[test]
fn more_frames_than_a_buffer_may_hold_cost_the_place() {
    let (mut host, _, seq) = upgraded();
    host.deliver(Direction::Egress, seq, &[0x82, 0x00].repeat(1_024), 1, 0);
    assert_eq!(said(&host), []);
    host.deliver(Direction::Egress, seq.wrapping_add(2_048), &[0x82, 0x00].repeat(1_026), 1, 0);
    assert_eq!(said(&host), [(1, 0, LossReason::TooManyFrames.number())]);
}

#[test]
fn a_hole_that_the_host_acknowledged_is_said() {
    let (mut host, seq, egress_seq) = upgraded();
    let pong = [0x8a, 0x80, 1, 2, 3, 4];
    // The first Pong went by unseen, the second did not.
    host.deliver(Direction::Ingress, seq + 6, &pong, 1, 0);
    assert_eq!(said(&host), []);
    host.deliver(Direction::Egress, egress_seq, &[0x89, 0x00], seq, 0);
    assert_eq!(said(&host), [], "the peer still has to send it again");
    host.deliver(Direction::Egress, egress_seq.wrapping_add(2), &[0x89, 0x00], seq + 12, 0);
    assert_eq!(said(&host), [(0, 0, LossReason::Hole.number())]);
    assert_eq!(frames(&host), 2);
}

#[test]
fn a_segment_that_went_by_unseen_is_said_once_and_found_again() {
    let (mut host, seq, _) = upgraded();
    let pong = [0x8a, 0x80, 1, 2, 3, 4];
    host.deliver(Direction::Ingress, seq, &pong, 1, 0);
    host.contended(Direction::Ingress);
    host.contended(Direction::Ingress);
    assert_eq!(said(&host), [(0, 0, LossReason::Contended.number())]);
    // One of them went by; those behind it are not believed before three stand alone.
    for at in 2..=4 {
        host.deliver(Direction::Ingress, seq + 6 * at, &pong, 1, 6_000_000);
    }
    assert_eq!(frames(&host), 1);
    assert_eq!(said(&host).len(), 1);
    for at in 5..=8 {
        host.deliver(Direction::Ingress, seq + 6 * at, &pong, 1, 6_000_000);
    }
    assert_eq!(said(&host), [(0, 0, LossReason::Contended.number()), (0, 1, 0)]);
    assert!(frames(&host) > 1);
}

/// Random bytes on a connection older than the parser, each segment after a quiet time: the easiest there is for a
/// wrong guess.
#[test]
fn random_bytes_are_never_believed() {
    let mut random = Random::new(7);
    let mut host = Host::new(FlowState::OPENED);
    host.flow.ingress.phase = phase::MIDSTREAM;
    host.flow.egress.phase = phase::MIDSTREAM;
    let mut seq = [0_u32; 2];
    for _ in 0..cases(400_000) {
        let direction = if random.one_in(2) { Direction::Ingress } else { Direction::Egress };
        let longest = if random.one_in(2) { 8 } else { 140 };
        let length = random.between(1, longest);
        let bytes = random.bytes(length);
        let at = &mut seq[usize::from(direction.number())];
        host.deliver(direction, *at, &bytes, 0, 6_000_000);
        *at = at.wrapping_add(length as u32);
    }
    assert_eq!(frames(&host), 0);
    assert_eq!(said(&host).len(), 2, "both directions were said to be lost, and never found");
}

/// The same where text heartbeats are looked for.
#[test]
fn random_bytes_are_no_text_heartbeats() {
    let mut random = Random::new(8);
    let mut host = Host::new(FlowState::OPENED);
    host.patterns = heartbeats::patterns();
    host.flow.egress.phase = phase::MIDSTREAM;
    let mut seq = 0_u32;
    for _ in 0..cases(400_000) {
        // Half of them begin like a text heartbeat of their length, with another payload.
        let length = random.between(3, 20);
        let mut bytes = random.bytes(length);
        if random.one_in(2) {
            bytes[0] = 0x81;
            bytes[1] = length as u8 - 2;
        }
        host.deliver(Direction::Egress, seq, &bytes, 0, 6_000_000);
        seq = seq.wrapping_add(length as u32);
    }
    assert_eq!((frames(&host), said(&host).len()), (0, 1));
}

/// A connection that was there before, and whose only heartbeats are text.
#[test]
fn a_connection_in_its_middle_is_found_by_its_text_heartbeats() {
    let question = [0x81, 0x01, b'2'];
    let other = [0x81, 0x01, b'4'];
    for (beat, found) in [(question, true), (other, false)] {
        let mut host = Host::new(FlowState::OPENED);
        host.patterns = heartbeats::patterns();
        host.flow.egress.phase = phase::MIDSTREAM;
        for round in 0..6 {
            host.deliver(Direction::Egress, 3 * round, &beat, 0, 8_000_000);
        }
        assert_eq!(host.flow.egress.phase == phase::FRAMES, found, "{beat:?}");
        // The first shows where the second begins, three are believed, two are left.
        assert_eq!(frames(&host), if found { 2 } else { 0 }, "{beat:?}");
    }
}

/// A file full of empty Pongs inside one message, over a slow link, after a loss.
#[test]
fn bulk_that_looks_like_frames_is_never_believed() {
    let mut host = Host::new(FlowState::OPENED);
    host.flow.egress.phase = phase::MIDSTREAM;
    host.patterns = heartbeats::patterns();
    let mut seq = 0_u32;
    for bytes in [[0x8a, 0x00].repeat(724), [0x81, 0x01, b'2'].repeat(482)] {
        for _ in 0..1_000 {
            host.deliver(Direction::Egress, seq, &bytes, 0, 50_000_000);
            seq = seq.wrapping_add(bytes.len() as u32);
        }
    }
    assert_eq!((frames(&host), said(&host).len()), (0, 1));
}
