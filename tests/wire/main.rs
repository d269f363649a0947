//! The wire parser in the kernel. Needs root and the BPF object (`ACKBEAT_EBPF_OBJECT`).

mod kernel;
mod model;
mod packet;
mod random;

use std::time::{Duration, Instant};

use ackbeat_abi::{Counter, Direction};
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
