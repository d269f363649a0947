//! What goes wrong around the sidecar, and what must survive it: one topic a file.

mod addresses;
mod clock;
mod collectors;
mod configuration;
mod disk;
mod dying_host;
mod interfaces;
mod killed;
mod processes;
mod ring;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ackbeat_tests::namespace::Namespace;
use ackbeat_tests::tools;
use anyhow::{Context, Result};
use aya::programs::{SchedClassifier, TcAttachType};

/// Generous: the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(60);

/// A program that runs the sidecar in its own place, under what `line` sets up: a line of shell that ends before `exec`. `"$ACKBEAT"`
/// is the sidecar.
fn wrapped(directory: &Path, line: &str) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let script = directory.join("ackbeat-wrapped");
    let ackbeat = tools::ackbeat()?;
    let text = format!("#!/bin/sh\nset -e\nACKBEAT='{}'\n{line} \"$@\"\n", ackbeat.display());
    std::fs::write(&script, text).context("writing a script failed")?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))
        .context("making a script executable failed")?;
    Ok(script)
}

/// Names of the wire programs on both hooks of an interface; none where there is no such interface.
fn wire_programs(namespace: &Namespace, interface: &str) -> Result<Vec<String>> {
    namespace
        .run(|| {
            let mut names = Vec::new();
            for hook in [TcAttachType::Ingress, TcAttachType::Egress] {
                if let Ok((_revision, programs)) = SchedClassifier::query_tcx(interface, hook) {
                    names.extend(
                        programs.iter().filter_map(|program| program.name_as_str().map(str::to_owned)),
                    );
                }
            }
            names
        })
        .context("entering the namespace failed")
}

/// Lines of a log that have all of `words`.
fn count(log: &[String], words: &[&str]) -> usize {
    log.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
}
