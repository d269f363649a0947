//! Records from the kernel: bytes to records, records to the engine's words, the head of an upgrade request among them.

use ackbeat::source::ebpf::clock::JiffiesClock;
use ackbeat::source::ebpf::convert;
use ackbeat_abi::{HEAD_MAX_BYTES, Record, RecordKind, Snapshot, decode_snapshots};
use ackbeat_liveness::Input;
use fastrand::Rng;

use super::{Target, ensure};
use crate::draw::{damage, noise};

pub(super) const TARGET: Target = Target {
    name: "kernel-records",
    about: "the decoder of kernel records, and the head of an upgrade request",
    generate,
    run,
    memory_limit_bytes: |_| 256 * 1024,
};

const HEADS: &[&[u8]] = &[
    b"GET /chat?token=1 HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nVia: 1.1 x\r\nX-Forwarded-For: 1\r\n\
      traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\nCookie: a=b\r\n\r\n",
    b"GET http://host:80/ws HTTP/1.1\r\nForwarded: for=1\r\n\r\n",
    b"POST * HTTP/1.0\n\n",
];
const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b": ",
    b"traceparent: ",
    b"x-forwarded-",
    b"HTTP/1.1",
    b"\xff",
    b"\0",
    b"://",
    b"?",
];

fn generate(rng: &mut Rng) -> Vec<u8> {
    if rng.u8(0..16) == 0 {
        return noise(rng, 4_300);
    }
    let kind = rng.u32(1..=7);
    let size = RecordKind::from_number(kind).map_or(0, size_of_kind);
    let mut bytes = vec![0; size];
    if rng.bool() {
        rng.fill(&mut bytes);
    }
    if RecordKind::from_number(kind) == Some(RecordKind::UpgradeHead) {
        let mut head = HEADS[rng.usize(0..HEADS.len())].to_vec();
        damage(rng, &mut head, PIECES);
        head.truncate(HEAD_MAX_BYTES);
        let start = size - HEAD_MAX_BYTES;
        bytes[start - 8..start - 4].copy_from_slice(&u32::try_from(head.len()).unwrap_or(0).to_ne_bytes());
        bytes[start..start + head.len()].copy_from_slice(&head);
    }
    bytes[..4].copy_from_slice(&kind.to_ne_bytes());
    bytes[4..8].copy_from_slice(&u32::try_from(size).unwrap_or(0).to_ne_bytes());
    // Most numbers that the contract bounds are within their bounds.
    if rng.u8(0..4) != 0 {
        for byte in &mut bytes[24..] {
            if rng.u8(0..3) == 0 && kind != 6 {
                *byte %= 12;
            }
        }
    } else {
        damage(rng, &mut bytes, PIECES);
    }
    bytes
}

const fn size_of_kind(kind: RecordKind) -> usize {
    match kind {
        RecordKind::Lifecycle => size_of::<ackbeat_abi::Lifecycle>(),
        RecordKind::Reset => size_of::<ackbeat_abi::Reset>(),
        RecordKind::Frame => size_of::<ackbeat_abi::Frame>(),
        RecordKind::Synchronization => size_of::<ackbeat_abi::Synchronization>(),
        RecordKind::Outstanding => size_of::<ackbeat_abi::Outstanding>(),
        RecordKind::UpgradeHead => size_of::<ackbeat_abi::UpgradeHead>(),
        RecordKind::Termination => size_of::<ackbeat_abi::Termination>(),
    }
}

fn run(bytes: &[u8]) -> Result<(), String> {
    let Some(clock) = JiffiesClock::from_tick_ns(4_000_000) else {
        return Err("no clock of 250 Hz".to_owned());
    };
    if let Ok(record) = Record::decode(bytes)
        && let Ok(convert::Meaning::Inputs(inputs)) = convert::record(clock, &record)
    {
        for input in inputs {
            if let Input::Upgrade(upgrade) = &input {
                ensure!(
                    upgrade.path.as_ref().is_none_or(|path| path.len() <= 256 && path.starts_with('/')),
                    "path {:?}",
                    upgrade.path
                );
                ensure!(
                    upgrade.forwarding_headers.len() <= 128,
                    "{} names",
                    upgrade.forwarding_headers.len()
                );
            }
        }
    }
    let (snapshots, rest) = decode_snapshots(bytes);
    let mut count = 0;
    for snapshot in snapshots {
        count += 1;
        // Refused or not, it ends.
        let _ = convert::snapshot(clock, &snapshot);
    }
    ensure!(count * size_of::<Snapshot>() + rest == bytes.len(), "{count} snapshots and {rest} bytes");
    Ok(())
}
