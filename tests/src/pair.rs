//! Both ends of plain TCP connections between the client's namespace and the host's.

use std::net::{SocketAddr, TcpListener, TcpStream};

use anyhow::{Context, Result};

use crate::network::Network;
use crate::sockets;

/// Both ends of one connection.
pub struct Pair {
    /// The accepted end.
    pub host: TcpStream,
    /// The dialling end.
    pub client: TcpStream,
    /// The dialling end's port.
    pub client_port: u16,
}

/// Connects one client to `listener` and accepts it.
///
/// # Errors
/// If nothing answers in time.
pub fn pair(network: &Network, listener: &TcpListener, address: SocketAddr) -> Result<Pair> {
    let client = network.client.run(|| sockets::connect(address))??;
    let host = sockets::accept(listener)?;
    let client_port = client.local_addr().context("reading the client's address failed")?.port();
    Ok(Pair { host, client, client_port })
}
