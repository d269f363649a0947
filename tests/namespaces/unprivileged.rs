//! Without eBPF and without any capability, as an ordinary user: connections, kills and leaks, as far as the signals go.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ackbeat::api::leaks::Leaks;
use ackbeat_liveness::Verdict;
use ackbeat_tests::api::ApiClient;
use ackbeat_tests::client::{Client, ClientOptions};
use ackbeat_tests::expectations::Expectations;
use ackbeat_tests::mux::{Host, HostOptions, PeerFin};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::Sidecar;
use ackbeat_tests::{story, tools};
use anyhow::{Context, Result, ensure};

use super::scene::{SPAN_DEADLINE, watching};

const DEADLINE: Duration = Duration::from_secs(60);
/// `nobody`.
const USER: u32 = 65_534;

/// A program that runs a copy of the sidecar as [`USER`], without groups and capabilities.
fn as_ordinary_user(directory: &Path) -> Result<PathBuf> {
    let readable = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
            .context("letting every user run the copy failed")
    };
    let (copy, script) = (directory.join("ackbeat"), directory.join("ackbeat-as-nobody"));
    std::fs::copy(tools::ackbeat()?, &copy).context("copying the sidecar failed")?;
    let text = format!(
        "#!/bin/sh\ncd /\nunset ACKBEAT_EBPF_OBJECT\nexec setpriv --reuid {USER} --regid {USER} --clear-groups --inh-caps=-all \
         --bounding-set=-all --no-new-privs '{}' \"$@\"\n",
        copy.display()
    );
    std::fs::write(&script, text).context("writing a script failed")?;
    [directory, &copy, &script].into_iter().try_for_each(readable)?;
    Ok(script)
}

/// Which user a process runs as, and its capabilities (`Uid`, `CapEff`, `CapBnd`, proc_pid_status(5)).
fn is_powerless(pid: u32) -> Result<()> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("reading a status failed")?;
    let of = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    ensure!(of("Uid:").split_whitespace().all(|id| id == USER.to_string()), "{status}");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        ensure!(of(set) == "0000000000000000", "{set} {}", of(set));
    }
    Ok(())
}

#[test]
fn an_ordinary_user_sees_connections_kills_and_leaks() -> Result<()> {
    let network = Network::create()?;
    let address = network.host_address(IpVersion::V4);
    let host = Host::start(Some(&network.host), HostOptions::new(address))?;
    // A host that forgets to close: nobody kills there.
    let options = HostOptions { peer_fin: PeerFin::Forget, ..HostOptions::new(address).watching_only() };
    let forgetful = Host::start(Some(&network.host), options)?;
    let directory = tempfile::tempdir().context("making a directory failed")?;
    let mut options = watching(host.address().port())
        .argument("--mode", "sock-diag")
        .variable("ACKBEAT_LEAKS_CENSUS_INTERVAL_MS", "250")
        .variable("ACKBEAT_LEAKS_CLOSE_WAIT_AFTER_MS", "1000");
    options.ports.push(forgetful.address().port());
    let sidecar = Sidecar::start_program(&as_ordinary_user(directory.path())?, &network.host, &options)?;
    is_powerless(sidecar.pid())?;

    let api = ApiClient::of(&network.host)?;
    let at = |client: &Client| SocketAddr::new(network.client_address(IpVersion::V4), client.port());
    let healthy = Client::connect(Some(&network.client), ClientOptions::new(host.address()))?;
    let leaked = Client::connect(Some(&network.client), ClientOptions::new(forgetful.address()))?;
    let seen = api.wait_for_verdict("the healthy client", at(&healthy), DEADLINE, |_| true)?;
    ensure!(seen.verdict == Verdict::Alive && !seen.kill_justified, "{seen:#?}");
    // What cannot be seen is unknown, not zero.
    ensure!(
        seen.heartbeat.missed.is_none() && seen.heartbeat.interval_ms.is_none() && seen.path.is_none(),
        "{seen:#?}"
    );

    // The watchdog kills a slow reader in the middle of its data.
    let slow = story::burst(&network, &host, story::slow_reader(&host))?;
    api.wait_for_verdict("the slow reader", at(&slow), DEADLINE, |_| true)?;
    leaked.abandon();
    host.wait_for_kill(slow.port(), DEADLINE)?;
    let killed = sidecar.wait_for_host_close(slow.port(), SPAN_DEADLINE)?;
    Expectations::of(&killed)
        .text("ackbeat.mode", &["sock_diag"])
        .text("ackbeat.close.initiator", &["host"])
        // Whether the process was exiting is not told, nor whether a Pong was owed.
        .text("ackbeat.close.kind", &["abort", "other"])
        .text("ackbeat.verdict", &["congested", "alive", "unknown"])
        .text("ackbeat.kill.assessment", &["false_kill", "premature", "unknown"])
        .flag("ackbeat.kill.justified", false)
        .text("ackbeat.postmortem", &["app_progress", "answered"])
        .number("ackbeat.tcp.send_queue_bytes", 1..=i64::MAX)
        .absent("ackbeat.heartbeat.missed")
        .absent("ackbeat.heartbeat.interval_ms")
        .absent("process.pid")
        .absent("ackbeat.close.ws_code")
        .check("a slow reader that was killed")?;

    // The peer went, the host did not notice.
    let leak = sidecar.wait_for("the leaked socket", DEADLINE, |spans| {
        spans.iter().find(|span| span.name == "leak_suspected").cloned()
    })?;
    ensure!(leak.local_port() == Some(forgetful.address().port()), "{leak:?}");
    let leaks: Leaks = api.read("/v1/leaks")?;
    ensure!(leaks.ports.iter().any(|port| port.close_wait == 1), "{leaks:#?}");
    let all = sidecar.stop()?;
    ensure!(!all.iter().any(
        |span| span.flag("ackbeat.false_kill") == Some(true) && span.peer_port() == Some(healthy.port())
    ));
    Ok(())
}
