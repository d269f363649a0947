//! A watched listener and plain TCP connections to it.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::sockets;
use ackbeat_tests::spans::{self, Span};
use anyhow::{Context, Result};

/// The post-mortem's window, the export, and a busy machine.
pub(crate) const SPAN_DEADLINE: Duration = Duration::from_secs(60);

/// Options that export at once, into a queue that holds every span of a test.
pub(crate) fn watching(port: u16) -> SidecarOptions {
    SidecarOptions::port(port)
        .variable("OTEL_BSP_SCHEDULE_DELAY", "200")
        .variable("OTEL_BSP_MAX_QUEUE_SIZE", "16384")
}

/// A listener in the host's namespace, with the sidecar beside it.
pub(crate) struct Scene {
    pub(crate) network: Network,
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
    pub(crate) sidecar: Sidecar,
}

/// Both ends of one connection.
pub(crate) struct Pair {
    pub(crate) host: TcpStream,
    pub(crate) client: TcpStream,
    pub(crate) client_port: u16,
}

impl Scene {
    pub(crate) fn new(version: IpVersion) -> Result<Self> {
        let network = Network::create()?;
        let address = network.host_address(version);
        let (listener, address) = network.host.run(|| sockets::listen(address))??;
        let sidecar = Sidecar::start(&network.host, &watching(address.port()))?;
        Ok(Self { network, listener, address, sidecar })
    }

    /// Connects one client.
    pub(crate) fn pair(&self) -> Result<Pair> {
        pair(&self.network, &self.listener, self.address)
    }

    /// Connects `count` clients, one after the other.
    pub(crate) fn pairs(&self, count: usize) -> Result<Vec<Pair>> {
        (0..count).map(|_| self.pair()).collect()
    }

    /// The span that says how each connection ended: that of the host's close if there is one, else the connection's.
    pub(crate) fn ends(&self, client_ports: &[u16]) -> Result<Vec<Span>> {
        self.sidecar.wait_for(&format!("{} connections' spans", client_ports.len()), SPAN_DEADLINE, |all| {
            client_ports
                .iter()
                .map(|port| {
                    let connection = spans::connection(all, *port)?;
                    Some(spans::host_close(all, *port).unwrap_or(connection).clone())
                })
                .collect()
        })
    }
}

/// Connects one client to `listener` and accepts it.
pub(crate) fn pair(network: &Network, listener: &TcpListener, address: SocketAddr) -> Result<Pair> {
    let client = network.client.run(|| sockets::connect(address))??;
    let host = sockets::accept(listener)?;
    let client_port = client.local_addr().context("reading the client's address failed")?.port();
    Ok(Pair { host, client, client_port })
}
