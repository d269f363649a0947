//! Manifests that get a sidecar, and get rid of it again.

use ackbeat_injection::manifest::{Format, Verb, transform};
use ackbeat_injection::{Facts, NativeSidecar, Outcome, Settings};
use fastrand::Rng;

use super::{Target, ensure};
use crate::draw::{damage, noise};

pub(super) const TARGET: Target = Target {
    name: "injection",
    about: "manifests into which a sidecar is put, and taken out",
    generate,
    run,
    // Aliases may write out a million values.
    memory_limit_bytes: |bytes| 1024 * 1024 * 1024 + 65_536 * bytes as u64,
};

const TEXTS: &[&str] = &[
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop}\nspec:\n  template:\n    metadata:\n      labels:\n        app: shop # x\n    # pod\n    spec:\n      containers:\n      - name: web\n        image: shop:7\n",
    "kind: List\napiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    annotations:\n      ackbeat.dev/ports: \"8080\"\n  spec:\n    containers: [{name: a}]\n",
    "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"labels\": {}}, \"spec\": {\"initContainers\": null, \"containers\": [{\"name\": \"a\"}]}}\n",
    "---\napiVersion: batch/v1\nkind: CronJob\nspec:\n  jobTemplate:\n    spec:\n      template:\n        spec: &s\n          restartPolicy: Never\n          containers:\n          - {name: a, env: []}\n",
];
const PIECES: &[&[u8]] = &[
    b"\n---\n",
    b"# c\n",
    b"\n",
    b"\r\n",
    b"  ",
    b"- ",
    b": ",
    b"{}",
    b"[]",
    b"~",
    b"&a ",
    b"*a",
    b"*s",
    b"<<: *s\n",
    b"|\n",
    b"metadata:",
    b"annotations:",
    b"ackbeat.dev/status: '{\"version\":\"1\"}'\n",
    b"ackbeat.dev/mode: ebpf\n",
    b"name: ackbeat\n",
    b"containers:\n",
    b"\"",
    b"'",
    b"\t",
    b"\xef\xbb\xbf",
];

fn generate(rng: &mut Rng) -> Vec<u8> {
    if rng.u8(0..16) == 0 {
        return noise(rng, 300);
    }
    let mut text = TEXTS[rng.usize(0..TEXTS.len())].as_bytes().to_vec();
    damage(rng, &mut text, PIECES);
    text
}

fn run(bytes: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    let settings = Settings {
        image: "ackbeat:1".to_owned(),
        native_sidecar: NativeSidecar::Always,
        image_pull_secrets: vec!["pull".to_owned()],
        ..Settings::default()
    };
    let facts = Facts { is_wanted: true, ..Facts::default() };
    let verb = Verb::Inject { facts: &facts, settings: &settings };
    let json = |text: &str| transform(text, Verb::Uninject, Format::Json).map(|done| done.text);
    let Ok(first) = transform(&text, verb, Format::Yaml) else { return Ok(()) };
    let second = transform(&first.text, verb, Format::Yaml)
        .map_err(|error| format!("what was injected is no YAML: {error}\n{}", first.text))?;
    ensure!(second.text == first.text, "twice is not once:\n{}\nand\n{}", first.text, second.text);
    let all_injected =
        first.objects.iter().all(|object| matches!(object.report.outcome, Outcome::Injected { .. }));
    if all_injected && !first.objects.is_empty() {
        let back = transform(&first.text, Verb::Uninject, Format::Yaml)
            .map_err(|error| format!("what was injected is no YAML: {error}"))?;
        let (back, before) = (json(&back.text), json(&text));
        ensure!(back == before, "back is not as before:\n{back:?}\nand\n{before:?}");
    }
    Ok(())
}
