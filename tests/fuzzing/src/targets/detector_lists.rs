//! The parser of detector lists (`ws-2:interval_ms=30000,phi`).

use ackbeat_detectors::Spec;
use fastrand::Rng;

use super::{Target, ensure};
use crate::draw::damage;

pub(super) const TARGET: Target = Target {
    name: "detector-lists",
    about: "the parser of detector lists",
    generate,
    run,
    memory_limit_bytes: |bytes| 256 * 1024 + 256 * bytes as u64,
};

const PIECES: &[&[u8]] = &[b",", b":", b"=", b"interval_ms=", b"18446744073709551616", b"0", b" ", b"\xff"];

fn generate(rng: &mut Rng) -> Vec<u8> {
    let names: Vec<&str> = Spec::names().collect();
    let mut text = Vec::new();
    for _ in 0..rng.usize(1..5) {
        text.extend_from_slice(names[rng.usize(0..names.len())].as_bytes());
        if rng.bool() {
            text.extend(format!(":interval_ms={}", rng.u32(..)).into_bytes());
        }
        text.push(b',');
    }
    damage(rng, &mut text, PIECES);
    text
}

fn run(bytes: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    match Spec::parse_list(&text) {
        Ok(specs) => {
            ensure!(!specs.is_empty() && specs.len() <= text.len(), "{} detectors in {text:?}", specs.len());
            for spec in specs {
                ensure!(!spec.describe().is_empty(), "no description");
                let _ = spec.earliest_kill_ms();
            }
        }
        Err(error) => ensure!(!error.to_string().is_empty(), "an error without a message"),
    }
    Ok(())
}
