//! The disk is full while everything is recorded: the recording ends, and nothing else does.

use std::process::Command;

use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::Sidecar;
use ackbeat_tests::{sockets, spans, tools};
use anyhow::{Context, Result, ensure};

use super::{DEADLINE, count, wrapped};
use crate::scene::{SPAN_DEADLINE, pair, watching};

/// Far more lines than find room on the disk.
const CONNECTIONS: usize = 120;

#[test]
fn a_full_disk_ends_the_recording_and_nothing_else() -> Result<()> {
    let network = Network::create()?;
    let (listener, address) = network.host.run(|| sockets::listen(network.host_address(IpVersion::V4)))??;
    let directory = tempfile::tempdir().context("making a directory failed")?;
    let disk = directory.path().join("disk");
    std::fs::create_dir(&disk).context("making a directory failed")?;
    // A mount that nobody else sees, and that goes with the sidecar.
    let line = format!(
        "exec unshare --mount --propagation private sh -c 'mount -t tmpfs -o size=64k none \"$0\" && exec \"$@\"' '{}' \"$ACKBEAT\"",
        disk.display()
    );
    let recording = disk.join("night.jsonl");
    let options = watching(address.port()).argument("--record", &recording);
    let sidecar = Sidecar::start_program(&wrapped(directory.path(), &line)?, &network.host, &options)?;

    let mut ports = Vec::new();
    for _ in 0..CONNECTIONS {
        let ended = pair(&network, &listener, address)?;
        ports.push(ended.client_port);
        drop(ended.host);
    }
    sidecar.wait_for("every close", SPAN_DEADLINE, |all| {
        ports.iter().all(|port| spans::host_close(all, *port).is_some()).then_some(())
    })?;
    ackbeat_tests::journal::wait_until("the word that lines are missing", DEADLINE, || {
        Ok(count(&sidecar.log(), &["lines are missing from the recording"]) > 0)
    })?;
    ensure!(
        count(&sidecar.log(), &["the recording ends here", "No space left"]) == 1,
        "{:#?}",
        sidecar.log()
    );

    // What was written before can be replayed.
    let seen = format!("/proc/{}/root{}", sidecar.pid(), recording.display());
    let copy = directory.path().join("copy.jsonl");
    std::fs::copy(&seen, &copy).with_context(|| format!("copying {seen} failed"))?;
    sidecar.stop()?;
    let mut replay = Command::new(tools::ackbeat()?);
    let replayed = replay.arg("replay").arg(&copy).output().context("starting ackbeat failed")?;
    ensure!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    ensure!(String::from_utf8_lossy(&replayed.stdout).contains("closed by host"), "{replayed:?}");
    Ok(())
}
