//! The configuration is read anew: garbage changes nothing and is told by name, what is sound takes effect on open connections.

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ackbeat::api::types::Status;
use ackbeat_liveness::Verdict;
use ackbeat_tests::api::ApiClient;
use ackbeat_tests::client::{Client, ClientOptions};
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::metrics_page::MetricsPage;
use ackbeat_tests::mux::{Host, HostOptions};
use ackbeat_tests::namespace::Namespace;
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::Sidecar;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use super::{DEADLINE, count};
use crate::scene::watching;

/// Where the sidecar's page is, in its own namespace.
const PAGE: &str = "127.0.0.1:9464";

/// A folder as a kubelet mounts a ConfigMap: `ackbeat.yaml` is a link to `..data/ackbeat.yaml`, and `..data` a link that is replaced.
struct Mount<'a> {
    folder: &'a Path,
    number: u32,
}

impl<'a> Mount<'a> {
    fn new(folder: &'a Path, text: &str) -> Result<Self> {
        let mut mount = Self { folder, number: 0 };
        mount.swap(text)?;
        symlink("..data/ackbeat.yaml", mount.file()).context("making a link failed")?;
        Ok(mount)
    }

    fn file(&self) -> PathBuf {
        self.folder.join("ackbeat.yaml")
    }

    fn swap(&mut self, text: &str) -> Result<()> {
        self.number += 1;
        let version = format!("..{}", self.number);
        std::fs::create_dir(self.folder.join(&version)).context("making a folder failed")?;
        std::fs::write(self.folder.join(&version).join("ackbeat.yaml"), text).context("writing failed")?;
        let link = self.folder.join("..data_tmp");
        symlink(&version, &link).context("making a link failed")?;
        std::fs::rename(link, self.folder.join("..data")).context("swapping a link failed")
    }
}

/// What became of readings: applied, unchanged, refused.
fn reloads(namespace: &Namespace) -> Result<[u64; 3]> {
    let page = MetricsPage::read(namespace, PAGE.parse()?)?;
    let of = |outcome| page.count("ackbeat_config_reloads_total", Some(("outcome", outcome)));
    Ok([of("applied")?, of("unchanged")?, of("refused")?])
}

#[test]
fn garbage_is_refused_by_name_and_what_is_sound_takes_effect() -> Result<()> {
    let network = Network::create()?;
    let namespace = &network.host;
    let options = HostOptions::new(network.host_address(IpVersion::V4)).watching_only();
    let host = Host::start(Some(namespace), options)?;
    let directory = tempfile::tempdir().context("making a directory failed")?;
    let patient = "thresholds: {unreachable_after_ms: 3600000, silent_after_ms: 3600000}\n";
    let mut mount = Mount::new(directory.path(), patient)?;
    let options = watching(host.address().port()).argument("--config", mount.file());
    let mut sidecar = Sidecar::start(namespace, &options)?;
    let api = ApiClient::of(namespace)?;
    let client = Client::connect(Some(&network.client), ClientOptions::new(host.address()))?;
    host.wait_for_pongs(client.port(), 1, DEADLINE)?;
    network.cut(client.port())?;
    let at = SocketAddr::new(network.client_address(IpVersion::V4), client.port());

    // Three kinds of garbage, each told once.
    for (number, (garbage, named)) in [
        ("thresholds: {unreachable_after_ms: soon}\n", "thresholds.unreachable_after_ms"),
        ("policy: fast\nportss: [80]\n", "portss"),
        ("policy: [\n\u{1}", "line 1, column 9"),
    ]
    .into_iter()
    .enumerate()
    {
        mount.swap(garbage)?;
        wait_until("the word of a mistake", DEADLINE, || {
            Ok(reloads(namespace)? == [0, 0, number as u64 + 1])
        })?;
        wait_until("the word of it", DEADLINE, || {
            Ok(count(&sidecar.log(), &["the old one stays in force", named]) == 1)
        })
        .with_context(|| format!("{named}: {:#?}", sidecar.log()))?;
    }
    let status: Status = api.read("/v1/status")?;
    ensure!(status.policy == "default", "{status:#?}");
    let gone = api.wait_for_verdict("a client that is gone", at, DEADLINE, |connection| {
        connection.verdict == Verdict::Unreachable
    })?;
    ensure!(!gone.kill_justified, "the first configuration bears it for an hour: {gone:#?}");

    mount.swap("mode: sock-diag\npolicy: fast\nthresholds: {unreachable_after_ms: 100}\n")?;
    api.wait_for_verdict("a kill that the new configuration justifies", at, DEADLINE, |connection| {
        connection.kill_justified
    })?;
    let status: Status = api.read("/v1/status")?;
    ensure!(status.policy == "fast" && status.mode == "ebpf", "{status:#?}");
    wait_until("the words of both", DEADLINE, || {
        let log = sidecar.log();
        let said = count(&log, &["the configuration was read anew", "thresholds.unreachable_after_ms"]);
        Ok(said == 1 && count(&log, &["with the next start only", "mode"]) == 1)
    })
    .with_context(|| format!("{:#?}", sidecar.log()))?;

    // A SIGHUP reads it at once, and ends nothing.
    sidecar.signal(Signal::SIGHUP)?;
    wait_until("another reading", DEADLINE, || Ok(reloads(namespace)? == [1, 1, 3]))?;
    sidecar.stop().map(drop)
}
