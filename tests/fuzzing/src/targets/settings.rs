//! The parser of settings.

use std::path::Path;

use ackbeat::config::{Settings, parse_yaml};
use fastrand::Rng;

use super::Target;
use crate::draw::{damage, noise};

pub(super) const TARGET: Target = Target {
    name: "settings",
    about: "the parser of settings files",
    generate,
    run,
    memory_limit_bytes: |bytes| 4 * 1024 * 1024 + 4_096 * bytes as u64,
};

const FILES: &[&str] = &[
    "ports: [8080, 9090]\nmode: auto\npolicy: fast\nlog:\n  format: json\n  level: debug\n",
    "thresholds:\n  fresh_ms: 2000\n  unreachable_after_ms: 10000\nrecording:\n  file: /tmp/x\n  max_bytes: 1000000\n",
    "shutdown:\n  drain_ms: 5000\nexport:\n  own_spans: true\n",
    "# nothing\n---\n",
];
const PIECES: &[&[u8]] = &[
    b"ports: ",
    b"thresholds:\n  ",
    b": ",
    b"\n",
    b"\n  ",
    b"&a ",
    b"*a",
    b"[",
    b"{",
    b"- ",
    b"!!int ",
    b"|\n",
    b">\n",
    b"99999999999999999999",
    b"-1",
    b".nan",
    b"0x10",
    b"~",
    b"\"",
    b"'",
    b"<<: *a\n",
    b"? ",
    b"%YAML 1.2\n",
    b"...\n",
    b"\xc3\x28",
    b"\xef\xbb\xbf",
    b"\t",
];

fn generate(rng: &mut Rng) -> Vec<u8> {
    if rng.u8(0..16) == 0 {
        return noise(rng, 300);
    }
    let mut text: Vec<u8> =
        (0..rng.usize(1..3)).flat_map(|_| FILES[rng.usize(0..FILES.len())].as_bytes().to_vec()).collect();
    damage(rng, &mut text, PIECES);
    text
}

fn run(bytes: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(layer) = parse_yaml(&text, Path::new("case"))
        && let Err(error) = Settings::resolve(layer)
        && error.to_string().is_empty()
    {
        return Err("an error without a message".to_owned());
    }
    Ok(())
}
