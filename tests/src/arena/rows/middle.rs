//! Somebody in the middle speaks for a peer that is not there.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::arena::row::{Row, Variant};
use crate::arena::stage::{INTERVAL, Stage, StageOptions};
use crate::arena::truth::State;
use crate::client::{Client, ClientOptions};
use crate::clock::monotonic_ns;
use crate::middle::Middle;
use crate::network::IpVersion;

/// Name of the variant whose relay is told of by a header. The judge asks for the scope there.
pub const INGRESS: &str = "ingress";

/// A relay that has ended both TCP connections in itself goes on acknowledging and forwards nothing.
///
/// It copies bytes. Where the upgrade request has the header that an ingress adds, the host can know that its next hop is not
/// the peer, and how far the evidence reaches; without it nothing tells.
pub(super) const DEAF_RELAY: Row = Row {
    number: 28,
    title: "relay in the middle acknowledges and forwards nothing",
    truth: "gone",
    expected: "silent, scope next_hop where a header tells of the relay; never unreachable",
    allowed: &["alive", "congested", "silent", "unknown"],
    wanted: &["silent"],
    variants: &[Variant { name: INGRESS, value: 1.0 }, Variant { name: "plain relay", value: 0.0 }],
    options: |_| StageOptions::default(),
    play: deaf_relay,
    about_s: 125,
    subjects: 10,
    weight: 1,
    quick: Some(INGRESS),
};

fn deaf_relay(stage: &mut Stage) -> Result<()> {
    let address = stage.network.router_address(IpVersion::V4);
    let mut legs = Vec::new();
    for number in 1..=stage.row.subjects {
        // One relay for each peer, so that each goes deaf at a moment of its own.
        let middle = Middle::start(Some(&stage.network.router), address, stage.host.address())?;
        let forwarded_for =
            (stage.variant.name == INGRESS).then(|| stage.network.client_address(IpVersion::V4).to_string());
        let options = ClientOptions { forwarded_for, ..ClientOptions::new(middle.address()) };
        let client = Client::connect(Some(&stage.network.client), options)?;
        let port = middle.dialled_port(client.port()).context("the relay dialled nobody")?;
        // What the host sees is the relay.
        let from_router = stage.network.router_address_for_host(IpVersion::V4);
        stage.declare(&format!("peer-{number}"), SocketAddr::new(from_router, port));
        legs.push((port, middle, client));
        stage.pass_up_to(INTERVAL / stage.row.subjects);
    }
    for (port, ..) in &legs {
        stage.wait_for_learning(*port)?;
    }
    for (port, middle, _) in &legs {
        stage.pass_up_to(INTERVAL);
        let before_ns = monotonic_ns();
        middle.swallow_both();
        stage.from(before_ns, *port, State::Gone)?;
    }
    // Long enough for a Ping every 30 s, two of which must stay unanswered; in a short set, for the default policy.
    stage.pass_or(Duration::from_secs(95), Duration::from_secs(32));
    for (port, ..) in &legs {
        stage.now(*port, State::Ended)?;
    }
    Ok(())
}
