//! Both hosts do what the watchdog is known for, with nobody watching: what the sidecar says later rests on this.

use std::net::IpAddr;
use std::time::Duration;

use ackbeat_tests::client::Seen;
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::mux::{Host, HostAction, HostOptions};
use ackbeat_tests::namespace::Namespace;
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::{node, story};

const DEADLINE: Duration = Duration::from_secs(30);

fn plays_the_story(start_host: impl Fn(&Namespace, IpAddr) -> anyhow::Result<Host>) -> anyhow::Result<()> {
    let network = Network::create()?;
    let host = start_host(&network.host, network.host_address(IpVersion::V4))?;
    let cast = story::play(&network, &host, |_| {})?;
    let killed = host.wait_for_kill(cast.slow.port(), DEADLINE)?;
    let HostAction::Killed { missed, buffered_bytes, pongs, .. } = killed.what else { unreachable!() };
    assert_eq!((missed, pongs), (2, 0));
    assert!(buffered_bytes > 15_000_000, "most of the burst never left the host: {buffered_bytes}");
    let seen = cast.slow.events.all();
    assert!(!seen.iter().any(|event| event.what == Seen::Ping), "no Ping got through the data");
    let read_at_kill = cast.slow.bytes_read();
    wait_until(
        "bytes read after the kill",
        DEADLINE,
        || Ok(cast.slow.bytes_read() > read_at_kill + 200_000),
    )?;
    assert!(!seen.iter().any(|event| matches!(event.what, Seen::Ended { .. })));
    let end =
        cast.polite.wait_for("Close frame", DEADLINE, |seen| matches!(seen, Seen::CloseFrame { .. }))?;
    assert_eq!(end.what, Seen::CloseFrame { code: Some(story::POLITE_CODE) });
    assert!(
        cast.healthy.events.read(|seen| !seen.iter().any(|event| matches!(event.what, Seen::Ended { .. })))
    );
    // The client behind the cut path is told nothing.
    assert!(cast.cut.events.read(|seen| !seen.iter().any(|event| matches!(event.what, Seen::Ended { .. }))));
    Ok(())
}

#[test]
fn the_host_in_rust() -> anyhow::Result<()> {
    plays_the_story(|namespace, address| Host::start(Some(namespace), HostOptions::new(address)))
}

#[test]
fn the_host_on_node() -> anyhow::Result<()> {
    plays_the_story(|namespace, address| node::start(Some(namespace), address))
}
