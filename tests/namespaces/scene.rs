//! A watched listener and plain TCP connections to it.

use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::Duration;

use ackbeat_tests::network::{IpVersion, Network};
pub(crate) use ackbeat_tests::pair::{Pair, pair};
use ackbeat_tests::process::Process;
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::sockets::{self, SOCKET_DEADLINE};
use ackbeat_tests::spans::{self, Span};
use anyhow::Result;
use nix::sys::signal::Signal;

/// The post-mortem's window, the export, and a busy machine.
pub(crate) const SPAN_DEADLINE: Duration = Duration::from_secs(60);

/// Options that export at once, into a queue that holds every span of a test.
pub(crate) fn watching(port: u16) -> SidecarOptions {
    SidecarOptions::port(port)
        .variable("OTEL_BSP_SCHEDULE_DELAY", "200")
        .variable("OTEL_BSP_MAX_QUEUE_SIZE", "16384")
}

/// What became of connections whose process ended by a signal.
pub(crate) struct Ended {
    /// The process that was started.
    pub(crate) pid: u32,
    /// The span of each close.
    pub(crate) closes: Vec<Span>,
    pub(crate) sidecar: Sidecar,
}

/// Starts `holder`, which accepts connections on a port of its own, with a sidecar of its own, and sends it `signal` once it holds
/// `count` of them.
pub(crate) fn end_by_signal(
    network: &Network,
    holder: Command,
    count: usize,
    signal: Signal,
) -> Result<Ended> {
    let mut holder = Process::spawn("holder", Some(&network.host), holder)?;
    let port: u16 =
        holder.stdout.wait_for("the holder's port", SOCKET_DEADLINE, |lines| lines.first()?.parse().ok())?;
    let sidecar = Sidecar::start(&network.host, &watching(port))?;
    let address = SocketAddr::new(network.host_address(IpVersion::V4), port);
    let connect = || network.client.run(|| sockets::connect(address));
    let mut clients = (0..count).map(|_| connect()?).collect::<Result<Vec<_>>>()?;
    holder
        .stdout
        .wait_for("the holder's connections", SOCKET_DEADLINE, |lines| (lines.len() > count).then_some(()))?;
    let pid = holder.pid();
    holder.signal(signal)?;
    for client in &mut clients {
        sockets::read_to_end(client)?;
    }
    let ports = clients
        .iter()
        .map(|client| Ok(client.local_addr()?.port()))
        .collect::<std::io::Result<Vec<u16>>>()?;
    drop(clients);
    let closes = sidecar.wait_for("the spans of the host's closes", SPAN_DEADLINE, |all| {
        ports.iter().map(|port| spans::host_close(all, *port).cloned()).collect::<Option<Vec<Span>>>()
    })?;
    Ok(Ended { pid, closes, sidecar })
}

/// A listener in the host's namespace, with the sidecar beside it.
pub(crate) struct Scene {
    pub(crate) network: Network,
    pub(crate) listener: TcpListener,
    pub(crate) address: SocketAddr,
    pub(crate) sidecar: Sidecar,
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
