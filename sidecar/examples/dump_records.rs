//! Prints what the kernel programs say, one JSON object a line, for the network namespace it runs in.
//!
//! ```text
//! cargo xtask build
//! cargo run --example dump_records -- [SECONDS [PORT…]]
//! ```
//!
//! Without a port every listener is watched. A pass of the sampler is made each second. At the end the totals are printed
//! to stderr, and the exit code tells whether seen + dropped + rejected = sent.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

use std::time::{Duration, Instant};

use ackbeat::source::{
    Ports, Source,
    ebpf::{EbpfOptions, EbpfSource},
};
use ackbeat_liveness::Input;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let ports = arguments.map(|text| text.parse()).collect::<Result<Vec<u16>, _>>()?;
    let ports = if ports.is_empty() { Ports::Listening } else { Ports::Listed(ports) };

    let began = Instant::now();
    let mut source = EbpfSource::load(&EbpfOptions::new(ports))?;
    eprintln!(
        "loaded in {:?}, {} ticks a second, {:?}",
        began.elapsed(),
        source.clock().hz(),
        source.self_test()
    );
    for missing in source.missing_signals() {
        eprintln!("missing: {missing}");
    }

    let mut inputs = Vec::new();
    source.discover(&mut inputs)?;
    print(&mut inputs)?;
    let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(end) => break,
            _ = tick.tick() => {
                let began = Instant::now();
                source.sample(&mut inputs)?;
                eprintln!("sampled in {:?}", began.elapsed());
            }
            readable = source.readable() => readable?,
        }
        while source.drain(1024, &mut inputs)? {}
        print(&mut inputs)?;
    }
    while source.drain(1024, &mut inputs)? {}
    print(&mut inputs)?;
    let counters = source.counters();
    eprintln!("{counters:?}");
    let accounted = counters.records_seen + counters.records_dropped + counters.records_rejected;
    anyhow::ensure!(accounted == counters.records_sent, "{accounted} records accounted for, {counters:?}");
    Ok(())
}

fn print(inputs: &mut Vec<Input>) -> anyhow::Result<()> {
    for input in inputs.drain(..) {
        println!("{}", serde_json::to_string(&input)?);
    }
    Ok(())
}
