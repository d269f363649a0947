//! The decoder of `sock_diag` dumps.

use ackbeat::source::sock_diag::read_dump_part;
use ackbeat_liveness::Timestamp;
use fastrand::Rng;

use super::{Target, ensure};
use crate::draw::{damage, noise};

pub(super) const TARGET: Target = Target {
    name: "sock-diag",
    about: "the decoder of sock_diag dumps",
    generate,
    run,
    memory_limit_bytes: |bytes| 256 * 1024 + 64 * bytes as u64,
};

/// `SOCK_DIAG_BY_FAMILY` (include/uapi/linux/sock_diag.h).
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `NLMSG_ERROR`, `NLMSG_DONE` (include/uapi/linux/netlink.h).
const ENDS: [u16; 2] = [2, 3];
/// Rows that are asked for.
const ROWS_MAX: usize = 64;

/// One message with a `struct inet_diag_msg` and attributes.
fn message(rng: &mut Rng) -> Vec<u8> {
    let mut body = vec![0; 72];
    rng.fill(&mut body[4..]);
    body[0] = if rng.bool() { 2 } else { 10 };
    body[1] = rng.u8(0..14);
    for _ in 0..rng.usize(0..4) {
        let kind = rng.u16(0..24);
        let length = if rng.bool() { 232 } else { rng.usize(0..64) };
        let mut payload = vec![0; length];
        rng.fill(&mut payload);
        body.extend(u16::try_from(length + 4).unwrap_or(4).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(payload);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let kind = if rng.u8(0..20) == 0 { ENDS[rng.usize(0..2)] } else { SOCK_DIAG_BY_FAMILY };
    let mut bytes = Vec::new();
    bytes.extend(u32::try_from(body.len() + 16).unwrap_or(16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(2_u16.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(body);
    bytes
}

fn generate(rng: &mut Rng) -> Vec<u8> {
    if rng.u8(0..16) == 0 {
        return noise(rng, 2_000);
    }
    let mut bytes: Vec<u8> = (0..rng.usize(1..6)).flat_map(|_| message(rng)).collect();
    if rng.u8(0..3) != 0 {
        damage(rng, &mut bytes, &[]);
    }
    bytes
}

fn run(bytes: &[u8]) -> Result<(), String> {
    let mut rows = Vec::new();
    let result = read_dump_part(bytes, ROWS_MAX, &mut rows);
    ensure!(rows.len() <= ROWS_MAX.min(bytes.len() / 16 + 1), "{} rows in {} bytes", rows.len(), bytes.len());
    for row in &rows {
        let snapshot = row.snapshot(Timestamp::from_ms(1_000));
        ensure!(snapshot.connection == row.cookie, "{snapshot:?}");
    }
    ensure!(result.is_ok() || !format!("{result:?}").is_empty(), "an error without a message");
    Ok(())
}
