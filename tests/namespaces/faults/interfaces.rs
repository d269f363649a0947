//! The pod's interface goes away and comes back: its programs too, and connections that outlive it are followed on.

use ackbeat_tests::client::{Client, ClientOptions};
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::mux::{Ask, Host, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::Sidecar;
use anyhow::{Result, ensure};

use super::{DEADLINE, wire_programs};
use crate::scene::{SPAN_DEADLINE, watching};

#[test]
fn an_interface_that_comes_back_is_read_again() -> Result<()> {
    let network = Network::create()?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let sidecar = Sidecar::start(&network.host, &watching(host.address().port()))?;
    let connect = || Client::connect(Some(&network.client), ClientOptions::new(host.address()));
    let older = connect()?;
    host.wait_for_pongs(older.port(), 1, DEADLINE)?;

    network.replug_host()?;
    wait_until("the wire programs on the new interface", DEADLINE, || {
        Ok(wire_programs(&network.host, "host0")? == ["wire_ingress", "wire_egress"])
    })?;
    let younger = connect()?;
    host.wait_for_pongs(younger.port(), 2, DEADLINE)?;
    younger.ask(&Ask::Leave { code: 4_001, reason: "server_restart".into() });
    let close = sidecar.wait_for_host_close(younger.port(), SPAN_DEADLINE)?;
    ensure!(close.text("ackbeat.heartbeat.source") == Some("wire"), "{close:?}");
    ensure!(close.number("ackbeat.heartbeat.last_pong_age_ms").is_some(), "{close:?}");
    ensure!(close.number("ackbeat.close.ws_code") == Some(4_001), "{close:?}");

    // The older one's segments found their way again, too.
    older.ask(&Ask::Leave { code: 4_001, reason: "server_restart".into() });
    let close = sidecar.wait_for_host_close(older.port(), SPAN_DEADLINE)?;
    ensure!(close.flag("ackbeat.false_kill") != Some(true), "{close:?}");
    let (_, log) = sidecar.stop_with_log()?;
    ensure!(super::count(&log, &["does not follow interfaces"]) == 0, "{log:#?}");
    Ok(())
}
