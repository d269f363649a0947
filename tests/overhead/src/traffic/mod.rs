//! The traffic that is measured, on plain sockets: what is made in advance costs nothing beside what the kernel does, so a
//! share of ackbeat shows as it is.

pub(crate) mod bulk;
pub(crate) mod crowd;
pub(crate) mod echo;
pub(crate) mod set_up;
pub(crate) mod websocket;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use ackbeat_lab::network::{IpVersion, Network};
use anyhow::{Context, Result};
use nix::sys::socket::{Backlog, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike as _};

/// Reads and writes of every socket must end within this time.
const SOCKET_DEADLINE: Duration = Duration::from_secs(30);

/// Host, router and client, and a listener in the host's namespace. A socket stays in the namespace in which it was made,
/// whichever thread uses it.
pub(crate) struct Scene {
    /// The namespaces.
    pub(crate) network: Network,
    /// The host's listener.
    pub(crate) listener: TcpListener,
    /// Its address.
    pub(crate) address: SocketAddr,
}

impl Scene {
    /// Makes it.
    ///
    /// # Errors
    /// Not root, or iproute2 or nftables is missing.
    pub(crate) fn create() -> Result<Self> {
        let network = Network::create()?;
        // Tens of thousands of connections a minute from one address: ports that rest after a close are used again after a
        // second (`tcp_tw_reuse`, tcp(7)), and there are more of them.
        network.client.set_sysctl("ipv4/tcp_tw_reuse", "1")?;
        network.client.set_sysctl("ipv4/ip_local_port_range", "10000 65000")?;
        let host = network.host_address(IpVersion::V4);
        let listener = network
            .host
            .run(|| TcpListener::bind((host, 0)))?
            .with_context(|| format!("listening on {host} failed"))?;
        // A second call sets the backlog anew: with the standard library's 128 a burst of clients loses SYNs.
        let backlog = Backlog::new(4_096).context("a backlog of 4096 is refused")?;
        nix::sys::socket::listen(&listener, backlog).context("raising the backlog failed")?;
        // Also the end of accept(2), see socket(7): a host whose client never comes does not wait for ever.
        let deadline = TimeVal::seconds(SOCKET_DEADLINE.as_secs().cast_signed());
        setsockopt(&listener, sockopt::ReceiveTimeout, &deadline).context("bounding accepts failed")?;
        let address = listener.local_addr().context("reading a listener's address failed")?;
        Ok(Self { network, listener, address })
    }

    /// Runs `host` with the listener and `client` with its address, the client in its namespace, and gives what the client
    /// gives. The host must end when its client does.
    fn between<T: Send>(
        &self,
        host: impl FnOnce(&TcpListener) -> Result<()> + Send,
        client: impl FnOnce(SocketAddr) -> Result<T> + Send,
    ) -> Result<T> {
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| host(&self.listener));
            let outcome = self.network.client.run(|| client(self.address));
            let served = serving.join().map_err(|_panic| anyhow::anyhow!("the host's thread panicked"))?;
            let outcome = outcome??;
            served?;
            Ok(outcome)
        })
    }
}

/// Connects.
fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, SOCKET_DEADLINE)
        .with_context(|| format!("connecting to {address} failed"))?;
    prepare(&stream)?;
    Ok(stream)
}

/// Accepts.
fn accept(listener: &TcpListener) -> Result<TcpStream> {
    let (stream, _) = listener.accept().context("accepting failed")?;
    prepare(&stream)?;
    Ok(stream)
}

fn prepare(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true).context("setting TCP_NODELAY failed")?;
    stream.set_read_timeout(Some(SOCKET_DEADLINE)).context("bounding reads failed")?;
    stream.set_write_timeout(Some(SOCKET_DEADLINE)).context("bounding writes failed")
}
