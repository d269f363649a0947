//! The reader of recordings, and a replay of what it read.

use std::io::Cursor;
use std::path::Path;

use ackbeat::recording::replay::replay;
use ackbeat::recording::{FORMAT, Header, Reader};
use ackbeat_liveness::{Deployment, Output, Policy, Timestamp};
use fastrand::Rng;

use super::inputs::{self, Clock};
use super::{Target, ensure};
use crate::draw::{Draw, damage, noise};

pub(super) const TARGET: Target = Target {
    name: "recordings",
    about: "the reader of recordings, and a replay",
    generate,
    run,
    memory_limit_bytes: |bytes| 512 * 1024 + 64 * bytes as u64,
};

const PIECES: &[&[u8]] = &[
    b"{\"gap\":3}\n",
    b"{\"tick\":{\"due\":1,\"at\":2}}\n",
    b"{\"shut_down\":5}\n",
    b"{\"input\":\"sampling_done\",\"began_at\":1,\"at\":2}\n",
    b"18446744073709551615",
    b"-1",
    b"1e999",
    b"null",
    b"{\"a\":",
    b"[[[[[[[[",
    b"\\u0000",
    b"\n",
];

pub(super) fn generate(rng: &mut Rng) -> Vec<u8> {
    let header = Header {
        ackbeat_recording: FORMAT,
        version: "0".into(),
        mode: "ebpf".into(),
        policy: "default".into(),
        thresholds: Policy::default_policy(),
        leaks: ackbeat_liveness::leak::LeakSettings::default(),
        deployment: Deployment::default(),
        ticks: rng.bool(),
        began_at: Timestamp::from_ms(100_000),
        began_unix_ns: 0,
        segment: None,
    };
    let mut text = serde_json::to_vec(&header).unwrap_or_default();
    text.push(b'\n');
    let script = noise(rng, 512);
    let (mut draw, mut clock) = (Draw::new(&script), Clock::new());
    while !draw.is_empty() {
        clock.go_on(&mut draw);
        if draw.below(6) == 0 {
            let now = clock.now.as_ns();
            text.extend(format!("{{\"tick\":{{\"due\":{now},\"at\":{now}}}}}\n").into_bytes());
        } else {
            text.extend(serde_json::to_vec(&inputs::input(&mut draw, &clock)).unwrap_or_default());
            text.push(b'\n');
        }
    }
    if rng.u8(0..4) != 0 {
        damage(rng, &mut text, PIECES);
    }
    text
}

fn run(bytes: &[u8]) -> Result<(), String> {
    let open = || Reader::new(Path::new("case"), Box::new(Cursor::new(bytes.to_vec())));
    let Ok(mut reader) = open() else { return Ok(()) };
    let mut lines = 0_usize;
    while let Ok(Some(_)) = reader.next_line() {
        lines += 1;
    }
    ensure!(lines <= bytes.len(), "{lines} lines in {} bytes", bytes.len());
    // Under the recorded thresholds and under others.
    for policy in [None, Some(Policy::fast_policy())] {
        let Ok(mut reader) = open() else { return Err("it opened before".to_owned()) };
        let policy = policy.unwrap_or_else(|| reader.header().thresholds.clone());
        let mut closed = 0_usize;
        let result = replay(&mut reader, policy, |output| {
            closed += usize::from(matches!(output, Output::Closed(_)));
        });
        ensure!(result.is_err() || closed <= lines, "{closed} records out of {lines} lines");
    }
    Ok(())
}
