//! The stream parser: any segments of any bytes.

use ackbeat_abi::{Direction, Record};
use ackbeat_wire::state::{DirectionState, FlowState, phase};
use fastrand::Rng;

use super::wire_model::{heartbeats, host::Host};
use super::{Target, ensure};
use crate::draw::{Draw, noise};

pub(super) const TARGET: Target = Target {
    name: "wire-stream",
    about: "the WebSocket stream parser: any segments of any bytes",
    generate,
    run,
    // What is kept while a hole is open, a head, and the records of the test's own environment (4 kB each at most).
    memory_limit_bytes: |bytes| 256 * 1024 + 4_400 * bytes as u64,
};

const PIECES: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: x\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 ",
    b"\r\nSec-WebSocket-Accept: x",
    b"\r\n\r\n",
    &[0x89, 0x00],
    &[0x8a, 0x80, 1, 2, 3, 4],
    &[0x89, 0x82, 1, 2, 3, 4, 5, 6],
    &[0x88, 0x02, 0x03, 0xe8],
    &[0x82, 126, 0, 200],
    &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0],
    &[0x01, 0x01, b'a'],
    &[0x80, 0x00],
    &[0x81, 0x01, b'2'],
    &[0x81, 0x84, 0, 0, 0, 0, b'p', b'o', b'n', b'g'],
    &[0x81, 0x0f, b'{', b'"', b't', b'y', b'p', b'e'],
    &[0x81, 0x86, 0, 0, 0, 0],
];

/// A script of segments: flags, moves of the sequence number, a length, the bytes.
fn generate(rng: &mut Rng) -> Vec<u8> {
    let mut script = Vec::new();
    script.push(rng.u8(..));
    for _ in 0..rng.usize(1..30) {
        let mut payload = Vec::new();
        for _ in 0..rng.usize(1..5) {
            if rng.u8(0..5) == 0 {
                payload.extend(noise(rng, 40));
            } else {
                payload.extend_from_slice(PIECES[rng.usize(0..PIECES.len())]);
            }
        }
        let cut = rng.usize(1..=payload.len().max(1));
        payload.truncate(if rng.bool() { cut } else { payload.len() });
        script.extend([rng.u8(..), rng.u8(..), rng.u8(..)]);
        script.extend(u16::try_from(payload.len()).unwrap_or(0).to_le_bytes());
        script.extend(payload);
    }
    script
}

fn run(bytes: &[u8]) -> Result<(), String> {
    let mut draw = Draw::new(bytes);
    let mut flow = FlowState::OPENED;
    if draw.below(4) == 0 {
        let midstream = DirectionState { phase: phase::MIDSTREAM, ..DirectionState::OPENED };
        (flow.ingress, flow.egress) = (midstream, midstream);
    }
    let mut host = Host::new(flow);
    let reads_text = draw.below(2) == 0;
    if reads_text {
        host.patterns = heartbeats::patterns();
    }
    // One direction begins where sequence numbers wrap.
    let mut next = [1_000_u32, u32::MAX - 100];
    let mut bytes_given = 0;
    while !draw.is_empty() {
        let flags = draw.byte();
        let direction = if flags & 1 == 0 { Direction::Ingress } else { Direction::Egress };
        let shift = u32::from(draw.byte());
        let pause_ns = u64::from(draw.byte()) * 200_000;
        let length = usize::from(draw.u16());
        let payload = draw.take(length);
        if payload.is_empty() {
            continue;
        }
        bytes_given += payload.len();
        let index = usize::from(direction.number());
        let (Some(own), Some(other)) = (next.get(index).copied(), next.get(1 - index).copied()) else {
            continue;
        };
        let seq = match flags >> 1 & 15 {
            0 => own.wrapping_sub(shift),
            1 => own.wrapping_add(shift),
            2 => own.wrapping_add(shift << 24),
            _ => own,
        };
        host.deliver(direction, seq, payload, other, pause_ns);
        if let (Ok(length), Some(own)) = (u32::try_from(payload.len()), next.get_mut(index)) {
            *own = if seq == *own { own.wrapping_add(length) } else { *own };
        }
    }
    let mut frames = 0;
    for record in &host.records {
        if let Record::Frame(frame) = record {
            frames += 1;
            ensure!(frame.payload_bytes <= 125, "a frame of {} bytes", frame.payload_bytes);
            let text = reads_text && matches!(frame.opcode, 1 | 2);
            ensure!(text || matches!(frame.opcode, 8..=10), "opcode {}", frame.opcode);
        }
    }
    // A control frame has two bytes at least; kept and repeated segments are read once.
    ensure!(frames * 2 <= bytes_given, "{frames} frames in {bytes_given} bytes");
    Ok(())
}
