//! The wire parser in the kernel. Needs root and the BPF object (`ACKBEAT_EBPF_OBJECT`).
#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths and sequence numbers of test streams, which are small or wrap on purpose"
)]
#![expect(clippy::print_stdout, reason = "what a run saw is part of the test's result")]

mod follow;
mod heartbeats;
mod kernel;
mod model;
mod packet;
mod random;
mod sockets;

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use ackbeat_abi::{Counter, Direction, LossReason, Record};
use ackbeat_tests::{network::Network, process::run};
use anyhow::{Result, anyhow};
use kernel::Kernel;
use model::{Case, Delivery, Totals, Trouble, judge};
use packet::Packets;
use random::Random;

const PORT: u16 = 8_080;

const CALM: Trouble = Trouble {
    repeat: false,
    reorder: false,
    drop: false,
    frames_max: 12,
    payload_max: 5_000,
    // The kernel's test run takes packets of less than a page.
    segment_max: 3_000,
    pause_max_ns: 0,
    heartbeats: false,
};

/// Sends a connection's segments through the programs.
fn replay(kernel: &mut Kernel, case: &Case) -> Result<()> {
    let mut random = Random::new(case.seed ^ 0x5eed);
    let packets = Packets::new(&mut random, PORT);
    kernel.open(&packets.flow)?;
    for delivery in &case.deliveries {
        if delivery.pause_ns > 5_000_000 {
            let until = Instant::now() + Duration::from_nanos(delivery.pause_ns);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
        send(kernel, &packets, case, delivery, &mut random)?;
    }
    kernel.close(&packets.flow)
}

/// Sends one segment through the program of its direction.
fn send(
    kernel: &mut Kernel,
    packets: &Packets,
    case: &Case,
    delivery: &Delivery,
    random: &mut Random,
) -> Result<()> {
    let (stream, other) = match delivery.direction {
        Direction::Ingress => (&case.ingress, &case.egress),
        Direction::Egress => (&case.egress, &case.ingress),
    };
    let packet = packets.build(
        random,
        delivery.direction,
        stream.seq(delivery.start),
        other.seq(delivery.acknowledged),
        &stream.bytes[delivery.start..delivery.start + delivery.length],
    );
    match delivery.direction {
        Direction::Ingress => kernel.run("wire_ingress", &packet, 1).map(drop),
        Direction::Egress => {
            kernel.run("wire_egress", &packet, 1)?;
            kernel.forget_cookie(&packets.flow)
        }
    }
}

fn many(kernel: &mut Kernel, label: &str, seeds: std::ops::Range<u64>, trouble: Trouble) -> Result<Totals> {
    let mut totals = Totals::default();
    for seed in seeds {
        let case = Case::random(seed, trouble);
        replay(kernel, &case)?;
        let records = kernel.records()?;
        judge(&case, &records, &mut totals).map_err(|wrong| anyhow!("{label}: {wrong}"))?;
    }
    println!("{label}: {totals}");
    Ok(totals)
}

#[test]
fn ten_thousand_sequences_through_the_loaded_programs() -> Result<()> {
    let mut kernel = Kernel::load()?;
    kernel.watch(PORT)?;
    let in_order = many(&mut kernel, "cut and repeated", 0..5_000, Trouble { repeat: true, ..CALM })?;
    assert_eq!(in_order.reported, in_order.frames, "a frame is missing though all came in order");
    let reordered =
        many(&mut kernel, "reordered", 5_000..9_000, Trouble { repeat: true, reorder: true, ..CALM })?;
    assert!(reordered.reported > 0);
    let dropped = Trouble { repeat: true, reorder: true, drop: true, ..CALM };
    let dropped = many(&mut kernel, "dropped", 9_000..10_000, dropped)?;
    assert!(dropped.losses > 0);
    let quiet = Trouble { drop: true, frames_max: 40, payload_max: 500, pause_max_ns: 9_000_000, ..CALM };
    let quiet = many(&mut kernel, "dropped, with quiet times", 10_000..10_060, quiet)?;
    assert!(quiet.recoveries > 0, "the parser never found a safe point again");
    assert_eq!(kernel.counter(Counter::RecordsDropped)?, 0, "the ring was too small for the test");
    Ok(())
}

/// The same with text heartbeats in the streams, and lures.
#[test]
fn text_heartbeats_through_the_loaded_programs() -> Result<()> {
    let mut kernel = Kernel::load_with(&heartbeats::patterns())?;
    for program in ["wire_ingress", "wire_egress"] {
        println!("{program}: {:?} instructions verified", kernel.verified_instructions(program)?);
    }
    kernel.watch(PORT)?;
    let trouble = Trouble { heartbeats: true, repeat: true, payload_max: 2_000, ..CALM };
    let in_order = many(&mut kernel, "heartbeats, cut and repeated", 40_000..43_000, trouble)?;
    assert_eq!(in_order.reported, in_order.frames, "a frame is missing though all came in order");
    assert!(in_order.heartbeats > 1_000, "{in_order}");
    let trouble = Trouble { reorder: true, ..trouble };
    let reordered = many(&mut kernel, "heartbeats, reordered", 43_000..45_000, trouble)?;
    assert!(reordered.reported > 0);
    let dropped =
        Trouble { drop: true, frames_max: 40, pause_max_ns: 9_000_000, payload_max: 500, ..trouble };
    let dropped = many(&mut kernel, "heartbeats, dropped, with quiet times", 45_000..45_060, dropped)?;
    assert!(dropped.losses > 0);
    assert_eq!(kernel.counter(Counter::RecordsDropped)?, 0, "the ring was too small for the test");
    assert!(kernel.counter(Counter::WireTextFrames)? > kernel.counter(Counter::WireTextMatches)?);
    Ok(())
}

/// Two processors work on one direction at the same time: the lock makes them one after the other, in any order.
#[test]
fn two_processors_at_once_never_make_a_wrong_frame() -> Result<()> {
    let mut kernel = Kernel::load_with(&heartbeats::patterns())?;
    kernel.watch(PORT)?;
    let mut totals = Totals::default();
    for seed in 30_000..30_300 {
        let mut case = Case::random(seed, Trouble { frames_max: 40, heartbeats: true, ..CALM });
        case.in_order = false;
        let mut random = Random::new(seed);
        let packets = Packets::new(&mut random, PORT);
        kernel.open(&packets.flow)?;
        let (handshake, rest): (Vec<_>, Vec<_>) = case.deliveries.iter().partition(|delivery| {
            delivery.direction == Direction::Egress || delivery.start < case.ingress.frames_start
        });
        for delivery in handshake {
            send(&mut kernel, &packets, &case, delivery, &mut random)?;
        }
        let built: Vec<Vec<u8>> = rest
            .iter()
            .map(|delivery| {
                let bytes = &case.ingress.bytes[delivery.start..delivery.start + delivery.length];
                packets.build(&mut random, Direction::Ingress, case.ingress.seq(delivery.start), 1, bytes)
            })
            .collect();
        let next = AtomicUsize::new(0);
        let kernel_ref = &kernel;
        std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| {
                scope.spawn(|| -> Result<()> {
                    while let Some(packet) = built.get(next.fetch_add(1, Ordering::Relaxed)) {
                        kernel_ref.run("wire_ingress", packet, 1)?;
                    }
                    Ok(())
                })
            });
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_panic| anyhow!("a thread panicked"))?)
        })?;
        kernel.close(&packets.flow)?;
        let records = kernel.records()?;
        judge(&case, &records, &mut totals).map_err(|wrong| anyhow!("two at once: {wrong}"))?;
    }
    println!("two at once: {totals}");
    Ok(())
}

/// A connection older than the parser: said once, then found again by its heartbeats; nothing is reported before.
#[test]
fn a_connection_in_its_middle_is_found_by_its_heartbeats() -> Result<()> {
    let mut kernel = Kernel::load()?;
    kernel.watch(PORT)?;
    let mut random = Random::new(3);
    let packets = Packets::new(&mut random, PORT);
    kernel.open_midstream(&packets.flow)?;
    let mut seq = 0xffff_fff0_u32;
    let mut starts = Vec::new();
    for _ in 0..6 {
        // A Ping alone after a quiet time.
        std::thread::sleep(Duration::from_millis(8));
        let ping = [0x89, 0x02, b'h', b'i'];
        kernel.run("wire_egress", &packets.build(&mut random, Direction::Egress, seq, 1, &ping), 1)?;
        kernel.forget_cookie(&packets.flow)?;
        starts.push(seq);
        seq = seq.wrapping_add(4);
    }
    let mut said = Vec::new();
    for record in kernel.records()? {
        match record {
            Record::Synchronization(change) => said.push((change.synchronized, change.reason, change.seq)),
            Record::Frame(frame) => said.push((9, frame.opcode, frame.seq_start)),
            _ => {}
        }
    }
    // The first segment only shows where the second must begin; then three whole Pings are believed.
    assert_eq!(
        said,
        [
            (0, LossReason::Midstream.number(), starts[0]),
            (1, 0, starts[4]),
            (9, 9, starts[4]),
            (9, 9, starts[5]),
        ]
    );
    Ok(())
}

/// Data that goes out after a quiet time is told once.
#[test]
fn data_after_a_quiet_time_is_told_once() -> Result<()> {
    let mut kernel = Kernel::load()?;
    kernel.watch(PORT)?;
    let mut random = Random::new(4);
    let packets = Packets::new(&mut random, PORT);
    kernel.open(&packets.flow)?;
    let mut told = Vec::new();
    for round in 0..4_u32 {
        if round == 1 {
            kernel.set_quiet(&packets.flow)?;
        }
        let payload = packets.build(&mut random, Direction::Egress, 1 + round * 8, 1, b"HTTP/1.1");
        // An acknowledgement carries nothing, so it tells nothing.
        let acknowledgement = packets.build(&mut random, Direction::Egress, 1 + round * 8, 1, b"");
        kernel.run("wire_egress", &acknowledgement, 1)?;
        kernel.run("wire_egress", &payload, 1)?;
        kernel.forget_cookie(&packets.flow)?;
        let outstanding =
            kernel.records()?.iter().filter(|record| matches!(record, Record::Outstanding(_))).count();
        told.push(outstanding);
    }
    assert_eq!(told, [0, 1, 0, 0]);
    Ok(())
}

/// Streams that are no WebSocket cost a counter, whatever their bytes are, and no frame is ever reported.
#[test]
fn garbage_in_the_kernel_makes_no_frame() -> Result<()> {
    let mut kernel = Kernel::load()?;
    kernel.watch(PORT)?;
    let mut random = Random::new(5);
    for round in 0..2_000 {
        let packets = Packets::new(&mut random, PORT);
        if round % 2 == 0 {
            kernel.open(&packets.flow)?;
        } else {
            kernel.open_midstream(&packets.flow)?;
        }
        let (mut seq, mut other_seq) = (random.number() as u32, random.number() as u32);
        for _ in 0..random.between(1, 20) {
            let longest = [2, 8, 200, 3_000][random.below(4)];
            let length = random.between(1, longest);
            let bytes = random.bytes(length);
            if random.one_in(2) {
                let packet = packets.build(&mut random, Direction::Ingress, seq, other_seq, &bytes);
                kernel.run("wire_ingress", &packet, 1)?;
                seq = seq.wrapping_add(length as u32);
            } else {
                let packet = packets.build(&mut random, Direction::Egress, other_seq, seq, &bytes);
                kernel.run("wire_egress", &packet, 1)?;
                kernel.forget_cookie(&packets.flow)?;
                other_seq = other_seq.wrapping_add(length as u32);
            }
        }
        // Packets that are cut anywhere, headers included.
        let whole = packets.build(&mut random, Direction::Ingress, seq, other_seq, b"GET / HTTP/1.1\r\n");
        // Not shorter than its IP header: such a packet the kernel's test run refuses itself.
        for length in 54..whole.len() {
            kernel.run("wire_ingress", &whole[..length], 1)?;
        }
        kernel.close(&packets.flow)?;
        for record in kernel.records()? {
            if matches!(record, Record::Frame(_) | Record::UpgradeHead(_)) {
                return Err(anyhow!("round {round}: {record:?} out of random bytes"));
            }
        }
    }
    assert!(kernel.counter(Counter::WireNotHttp)? > 500);
    Ok(())
}

/// Connections of real sockets, over a router, with and without loss.
#[test]
fn real_sockets_over_a_router() -> Result<()> {
    let network = Network::create()?;
    let mut kernel = Kernel::load_with(&heartbeats::patterns())?;
    kernel.watch(PORT)?;
    network.host.run(|| kernel.attach("host0"))??;
    let trouble =
        Trouble { frames_max: 30, payload_max: 200_000, segment_max: 65_000, heartbeats: true, ..CALM };
    let calm = sockets::many(&network, &mut kernel, "no loss", 20_000..20_100, trouble)?;
    // All of them, but for what a processor that was taken away in the middle may cost.
    assert!(calm.reported * 20 >= calm.frames * 19, "nothing was lost on the way: {calm}");
    run(
        Some(&network.router),
        "nft",
        &["add rule inet ackbeat forward ip protocol tcp numgen random mod 100 < 5 drop"],
    )?;
    run(
        Some(&network.router),
        "nft",
        &["add rule inet ackbeat forward ip6 nexthdr tcp numgen random mod 100 < 5 drop"],
    )?;
    sockets::many(&network, &mut kernel, "5 % loss", 20_100..20_140, trouble)?;
    println!(
        "buffers {}, data frames {}, repetitions {}, losses {}",
        kernel.counter(Counter::WireBuffers)?,
        kernel.counter(Counter::WireDataFrames)?,
        kernel.counter(Counter::WireRetransmissions)?,
        kernel.counter(Counter::WireLosses)?
    );
    Ok(())
}

/// What a packet costs. Prints figures; asserts only orders of magnitude, because the machine is shared.
#[test]
fn what_a_packet_costs() -> Result<()> {
    let _statistics = aya::sys::enable_stats(aya::sys::Stats::RunTime)?;
    let network = Network::create()?;
    let mut kernel = Kernel::load()?;
    for program in ["wire_ingress", "wire_egress"] {
        println!("{program}: {:?} instructions verified", kernel.verified_instructions(program)?);
    }
    let mut random = Random::new(1);
    let packet = Packets::new(&mut random, PORT).build(&mut random, Direction::Egress, 1, 1, &[0; 1_000]);
    let unwatched_ns = kernel.run("wire_egress", &packet, 1_000_000)?;
    let mut other = packet.clone();
    other[12..14].copy_from_slice(&[0x08, 0x06]);
    let empty_ns = kernel.run("wire_egress", &other, 1_000_000)?;
    println!(
        "a packet of a port that nobody watches: {unwatched_ns} ns, of which {empty_ns} ns are the test run's own \
         (ARP; 1,000,000 times)"
    );
    kernel.watch(PORT)?;
    network.host.run(|| kernel.attach("host0"))??;

    let mut large = vec![0x82, 127, 0, 0, 0, 0, 0, 0x10, 0, 0];
    large.resize(10 + 0x10_0000, 0);
    let mut small = vec![0x82, 64];
    small.resize(66, 0);
    let text = |text: &str| [&[0x81, text.len() as u8], text.as_bytes()].concat();
    let chat = text("42[\"message\",{\"from\":\"alice\",\"text\":\"good morning, how are you?\"}]");
    let json = text("{\"type\":\"message\",\"from\":\"alice\",\"text\":\"good morning, how are you?\"}");
    let frames = [("1 MiB frames", large), ("66-byte frames", small), ("chat", chat), ("JSON", json)];
    for (label, frame) in &frames {
        print_cost(&network, &mut kernel, label, frame)?;
    }
    drop(kernel);
    let mut kernel = Kernel::load_with(&ackbeat::heartbeat::Selection::auto(None).patterns()?)?;
    for program in ["wire_ingress", "wire_egress"] {
        println!(
            "{program} with every profile: {:?} instructions verified",
            kernel.verified_instructions(program)?
        );
    }
    kernel.watch(PORT)?;
    network.host.run(|| kernel.attach("host0"))??;
    for (label, frame) in &frames {
        print_cost(&network, &mut kernel, &format!("every profile, {label}"), frame)?;
    }
    assert!(unwatched_ns < 2_000, "{unwatched_ns} ns for a packet that nobody watches");
    Ok(())
}

/// Sends 64 MiB of this frame to a client, and prints what each buffer cost.
fn print_cost(network: &Network, kernel: &mut Kernel, label: &str, frame: &[u8]) -> Result<()> {
    const BYTES: usize = 64 << 20;
    let counted = [Counter::WireDataFrames, Counter::WireTextFrames];
    let before = counted.map(|counter| kernel.counter(counter));
    let (out_before, in_before) = (kernel.statistics("wire_egress")?, kernel.statistics("wire_ingress")?);
    sockets::bulk(network, kernel, frame, BYTES)?;
    let (out, into) = (kernel.statistics("wire_egress")?, kernel.statistics("wire_ingress")?);
    let (out_ns, out_runs) = (out.0 - out_before.0, out.1 - out_before.1);
    let [frames_before, collected_before] = before;
    println!(
        "{label}: {out_runs} buffers out of {} bytes in the mean, {} ns each, {:.1} frames each, {} payloads collected; \
         {} ACKs in, {} ns each",
        BYTES as u64 / out_runs,
        out_ns / out_runs,
        (kernel.counter(Counter::WireDataFrames)? - frames_before?) as f64 / out_runs as f64,
        kernel.counter(Counter::WireTextFrames)? - collected_before?,
        into.1 - in_before.1,
        (into.0 - in_before.0) / (into.1 - in_before.1),
    );
    Ok(())
}
