//! What holds whatever a detector is told.

use ackbeat_detectors::{Evidence, Report, Reported, Spec};
use ackbeat_liveness::*;
use proptest::prelude::*;

use crate::tape::{ID, Tape, Told, drive, frame, ms, opened, reading};

fn facts() -> impl Strategy<Value = Told> {
    let at = 0_u64..400_000;
    let seq = prop_oneof![
        any::<u32>(),
        (0_u32..3_000).prop_map(|low| u32::MAX - 1_500 + low.min(1_499)),
        0_u32..3_000
    ];
    let heard = prop::option::of(0_u64..500_000);
    let sample = (at.clone(), seq.clone(), seq, 0_u32..9_000, heard.clone(), heard, 0_u8..9, any::<bool>())
        .prop_map(|(at, una, rcv, queued, inbound, ack, count, in_flight)| {
            Told::Input(Box::new(Input::Sample(Snapshot {
                snd_una: Some(Seq(una)),
                snd_nxt: Some(Seq(una).plus(queued / 2)),
                write_seq: Some(Seq(una).plus(queued)),
                rcv_nxt: Some(Seq(rcv)),
                send_queue_bytes: (count % 3 != 0).then_some(queued),
                unsent_bytes: Some(queued / 2),
                last_inbound_at: inbound.map(ms),
                last_ack_at: ack.map(ms),
                packets_out: Some(u32::from(in_flight)),
                retransmits: Some(count),
                backoff: Some(count.wrapping_mul(31)),
                probes_out: Some(count),
                rto_ms: Some(queued),
                retransmitting_since: inbound.map(ms),
                ..reading(at)
            })))
        });
    let beat = (at.clone(), any::<bool>(), any::<bool>(), prop::collection::vec(0_u8..3, 0..2)).prop_map(
        |(at, out, ping, payload)| {
            let direction = if out { Direction::Egress } else { Direction::Ingress };
            Told::Input(Box::new(frame(
                at,
                direction,
                if ping { FrameKind::Ping } else { FrameKind::Pong },
                &payload,
            )))
        },
    );
    let report = (at.clone(), prop::option::of(0_u64..4_000_000)).prop_map(|(at, buffered)| {
        let what = buffered.map_or(Reported::Pong, |buffered_bytes| Reported::Tick { buffered_bytes });
        Told::Report(Report { connection: ID, at: ms(at), what })
    });
    let rare = (at, 0_u8..5).prop_map(|(at, kind)| {
        Told::Input(Box::new(match kind {
            0 => Input::RecordsLost { at: ms(at), count: 1 },
            1 => Input::Outstanding { connection: ID, at: ms(at) },
            2 | 3 => Input::Synchronization(Synchronization {
                connection: ID,
                at: ms(at),
                direction: Direction::Egress,
                synchronized: kind == 2,
                reason: None,
            }),
            _ => Input::Upgrade(Upgrade {
                connection: ID,
                at: ms(at),
                path: None,
                traceparent: None,
                forwarding_headers: Vec::new(),
            }),
        }))
    });
    prop_oneof![6 => sample, 8 => beat, 4 => report, 1 => rare]
}

fn evidence() -> impl Strategy<Value = Evidence> {
    any::<bool>().prop_map(|reports| Evidence { reports, ..Evidence::ALL })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Told in any order: no panic, no busy loop (the driver asserts it), one decision at most.
    #[test]
    fn any_order_of_facts_is_endured(facts in prop::collection::vec(facts(), 0..120), evidence in evidence()) {
        let tape = Tape(facts);
        for spec in Spec::all() {
            let Ok(mut detector) = spec.start(&opened(), evidence) else { continue };
            let kills = drive(detector.as_mut(), &tape, ms(600_000));
            prop_assert!(kills.len() <= 1, "{} decided twice: {:?}", spec, kills);
        }
    }

    /// In the order of time: no decision before the earliest possible one, nor with a time that has not come.
    #[test]
    fn no_decision_is_too_early(facts in prop::collection::vec(facts(), 0..160), evidence in evidence()) {
        let tape = Tape(facts).sorted();
        let last = tape.0.last().map_or(ms(0), |told| told.fact().at());
        for spec in Spec::all() {
            let Ok(mut detector) = spec.start(&opened(), evidence) else { continue };
            for kill in drive(detector.as_mut(), &tape, ms(600_000)) {
                let after_ms = kill.at.ms_since(ms(0));
                prop_assert!(after_ms >= spec.earliest_kill_ms(), "{} at {} ms: {}", spec, after_ms, kill.reason);
                prop_assert!(kill.at <= last.max(ms(600_000)));
            }
        }
    }

    /// A peer that answers every Ping at once is killed by nobody, whenever the host pings.
    #[test]
    fn whoever_answers_every_ping_at_once_lives(
        pauses in prop::collection::vec(100_u64..9_000, 1..60), evidence in evidence(),
    ) {
        let mut tape = Tape::new();
        let mut at = 0;
        for pause in pauses {
            at += pause;
            tape = tape.ping(at).tick(at, 0).pong(at + 1).read_pong(at + 1).sample(at + 2, |snapshot| {
                snapshot.send_queue_bytes = Some(0);
                snapshot.last_inbound_at = Some(ms(at + 1));
            });
        }
        // A host that is itself late, and those that go by the time of the last Pong: they kill, as in life. `phi` expects the
        // next one as the last ones came.
        for spec in Spec::all().iter().filter(|spec| !["window-3x", "phi"].contains(&spec.name())) {
            let Ok(mut detector) = spec.start(&opened(), evidence) else { continue };
            let kills = drive(detector.as_mut(), &tape, ms(at + 50));
            prop_assert!(kills.is_empty(), "{}: {:?}", spec, kills);
        }
    }

    /// The numbers of a connection may start anywhere.
    #[test]
    fn sequence_numbers_do_not_matter(
        facts in prop::collection::vec(facts(), 0..120), shift in any::<u32>(), evidence in evidence(),
    ) {
        let tape = Tape(facts).sorted();
        let shifted = Tape(tape.0.iter().cloned().map(|told| match told {
            Told::Input(mut input) => {
                if let Input::Sample(snapshot) = input.as_mut() {
                    for seq in [
                        &mut snapshot.snd_una,
                        &mut snapshot.snd_nxt,
                        &mut snapshot.write_seq,
                        &mut snapshot.rcv_nxt,
                    ] {
                        *seq = seq.map(|seq| seq.plus(shift));
                    }
                }
                Told::Input(input)
            }
            other @ Told::Report(_) => other,
        }).collect());
        for spec in Spec::all() {
            let (Ok(mut one), Ok(mut other)) = (spec.start(&opened(), evidence), spec.start(&opened(), evidence))
            else { continue };
            prop_assert_eq!(drive(one.as_mut(), &tape, ms(600_000)), drive(other.as_mut(), &shifted, ms(600_000)));
        }
    }
}
