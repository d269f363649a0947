//! The parser of lists of detectors and policies (`ws-2:interval_ms=30000,phi,ackbeat:silent_after=30s`).

use ackbeat::comparison::Contestant;
use ackbeat_detectors::Spec;
use fastrand::Rng;

use super::{Target, ensure};
use crate::draw::damage;

pub(super) const TARGET: Target = Target {
    name: "detector-lists",
    about: "the parser of lists of detectors and policies",
    generate,
    run,
    memory_limit_bytes: |bytes| 256 * 1024 + 1024 * bytes as u64,
};

const PIECES: &[&[u8]] = &[
    b",",
    b":",
    b"=",
    b"interval_ms=",
    b"ackbeat:silent_after=30s",
    b"all",
    b"18446744073709551616",
    b"0",
    b" ",
    b"\xff",
];

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
    match Contestant::list(&text) {
        // `all` is three letters and a comma, and many.
        Ok(contestants) => {
            let most = Contestant::all().len() * (text.len() / 4 + 1);
            ensure!(contestants.len() <= most, "{} contestants in {text:?}", contestants.len());
            for contestant in contestants {
                let name = contestant.name();
                ensure!(
                    name.parse::<Contestant>().is_ok_and(|same| same == contestant),
                    "{name:?} is another"
                );
            }
        }
        Err(error) => ensure!(!error.to_string().is_empty(), "an error without a message"),
    }
    Ok(())
}
