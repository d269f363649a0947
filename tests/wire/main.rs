//! The wire parser in the kernel. Needs root and the BPF object (`ACKBEAT_EBPF_OBJECT`).

mod kernel;
mod model;
mod packet;
mod random;
mod sockets;

use std::time::{Duration, Instant};

use ackbeat_abi::{Counter, Direction};
use ackbeat_tests::{network::Network, process::run};
use anyhow::{Result, anyhow};
use kernel::Kernel;
use model::{Case, Totals, Trouble, judge};
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
};

/// Sends a connection's segments through the programs.
fn replay(kernel: &mut Kernel, case: &Case) -> Result<()> {
    let mut random = Random::new(case.seed ^ 0x5eed);
    let packets = Packets::new(&mut random, PORT);
    kernel.open(&packets.flow)?;
    for delivery in &case.deliveries {
        let (stream, other) = match delivery.direction {
            Direction::Ingress => (&case.ingress, &case.egress),
            Direction::Egress => (&case.egress, &case.ingress),
        };
        let packet = packets.build(
            &mut random,
            delivery.direction,
            stream.seq(delivery.start),
            other.seq(delivery.acknowledged),
            &stream.bytes[delivery.start..delivery.start + delivery.length],
        );
        if delivery.pause_ns > 5_000_000 {
            let until = Instant::now() + Duration::from_nanos(delivery.pause_ns);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
        match delivery.direction {
            Direction::Ingress => kernel.run("wire_ingress", &packet, 1)?,
            Direction::Egress => {
                kernel.run("wire_egress", &packet, 1)?;
                kernel.forget_cookie(&packets.flow)?;
                0
            }
        };
    }
    kernel.close(&packets.flow)
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
    assert_eq!(in_order.reported, in_order.control_frames, "a frame is missing though all came in order");
    let reordered =
        many(&mut kernel, "reordered", 5_000..9_000, Trouble { repeat: true, reorder: true, ..CALM })?;
    assert!(reordered.reported > 0);
    let dropped = Trouble { repeat: true, reorder: true, drop: true, ..CALM };
    let dropped = many(&mut kernel, "dropped", 9_000..10_000, dropped)?;
    assert!(dropped.losses > 0);
    assert_eq!(kernel.counter(Counter::RecordsDropped)?, 0, "the ring was too small for the test");
    Ok(())
}

/// Connections of real sockets, over a router, with and without loss.
#[test]
fn real_sockets_over_a_router() -> Result<()> {
    let network = Network::create()?;
    let mut kernel = Kernel::load()?;
    kernel.watch(PORT)?;
    network.host.run(|| kernel.attach("host0"))??;
    let trouble = Trouble { frames_max: 30, payload_max: 200_000, segment_max: 65_000, ..CALM };
    let calm = sockets::many(&network, &mut kernel, "no loss", 20_000..20_100, trouble)?;
    assert!(calm.reported > 0);
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
    for (label, frame) in [("1 MiB frames", large), ("66-byte frames", small)] {
        let data_frames = kernel.counter(Counter::WireDataFrames)?;
        let (out_before, in_before) = (kernel.statistics("wire_egress")?, kernel.statistics("wire_ingress")?);
        sockets::bulk(&network, &mut kernel, &frame, 64 << 20)?;
        let (out, into) = (kernel.statistics("wire_egress")?, kernel.statistics("wire_ingress")?);
        let (out_ns, out_runs) = (out.0 - out_before.0, out.1 - out_before.1);
        println!(
            "{label}: {out_runs} buffers out of {} bytes in the mean, {} ns each, {:.1} frames each; \
             {} ACKs in, {} ns each",
            (64 << 20) / out_runs,
            out_ns / out_runs,
            (kernel.counter(Counter::WireDataFrames)? - data_frames) as f64 / out_runs as f64,
            into.1 - in_before.1,
            (into.0 - in_before.0) / (into.1 - in_before.1),
        );
    }
    assert!(unwatched_ns < 2_000, "{unwatched_ns} ns for a packet that nobody watches");
    Ok(())
}
