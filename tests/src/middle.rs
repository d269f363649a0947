//! A terminating relay between host and client, as a CDN or a proxy is one: it accepts TCP connections, dials the host
//! for each, and copies bytes both ways, until it is told to swallow them.
//!
//! A direction that is swallowed is still read: the kernel of the middle goes on acknowledging, with its window open,
//! and nothing arrives at the other end. Nobody's end is passed on either, so the host keeps a connection whose client
//! may be long gone.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use crate::namespace::{Namespace, spawn_thread};
use crate::relay::Direction;

/// Name of the thread that relays.
const MIDDLE_COMMAND: &str = "middle";
/// The middle must listen within this time.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// Size of one read.
const BUFFER_BYTES: usize = 64 * 1024;

/// Bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes that were passed on.
    pub forwarded_bytes: u64,
    /// Bytes that were read and went nowhere.
    pub swallowed_bytes: u64,
}

/// One direction of all connections.
struct Way {
    swallows: watch::Sender<bool>,
    forwarded_bytes: AtomicU64,
    swallowed_bytes: AtomicU64,
}

impl Way {
    fn new() -> Self {
        Self {
            swallows: watch::Sender::new(false),
            forwarded_bytes: AtomicU64::new(0),
            swallowed_bytes: AtomicU64::new(0),
        }
    }
}

struct Shared {
    to_client: Way,
    to_host: Way,
    /// The port from which the host was dialled, by the client's port.
    dialled: Mutex<BTreeMap<u16, u16>>,
    stop: Notify,
}

impl Shared {
    const fn way(&self, direction: Direction) -> &Way {
        match direction {
            Direction::ToClient => &self.to_client,
            Direction::ToHost => &self.to_host,
        }
    }
}

/// A running terminating relay. Dropping it closes all its connections.
pub struct Middle {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Option<()>>>,
}

/// A direction of one connection is over, and the other has to be, too.
struct Over;

/// Copies one direction of one connection until its end, or swallows it.
async fn pump(
    way: &Way,
    direction: Direction,
    mut from: OwnedReadHalf,
    to: &mut OwnedWriteHalf,
) -> std::result::Result<(), Over> {
    let mut swallows = way.swallows.subscribe();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await;
        let bytes = *read.as_ref().unwrap_or(&0);
        let is_swallowed = *swallows.borrow_and_update();
        if bytes == 0 && is_swallowed && direction == Direction::ToHost {
            // The client is gone and the host is not told; only the host can end this now.
            return std::future::pending().await;
        }
        match (read, is_swallowed) {
            (Err(_), _) | (Ok(0), true) => return Err(Over),
            (Ok(0), false) => return to.shutdown().await.map_err(|_gone| Over),
            (Ok(bytes), true) => {
                way.swallowed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            (Ok(bytes), false) => {
                let part = buffer.get(..bytes).unwrap_or_default();
                // Who has begun to swallow does not wait for a reader either.
                tokio::select! {
                    written = to.write_all(part) => {
                        written.map_err(|_gone| Over)?;
                        way.forwarded_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                    }
                    _ = swallows.wait_for(|swallows| *swallows) => {
                        way.swallowed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                    }
                }
            }
        }
    }
}

async fn connection(shared: Arc<Shared>, client: TcpStream, client_port: u16, host: SocketAddr) {
    // A host that cannot be dialled shows as a close.
    let Ok(dialled) = TcpStream::connect(host).await else { return };
    let Ok(own) = dialled.local_addr() else { return };
    shared.dialled.lock().unwrap_or_else(PoisonError::into_inner).insert(client_port, own.port());
    for leg in [&client, &dialled] {
        // What is copied was sent at its sender's own pace; the kernel may refuse, then it is a little later.
        let _ = leg.set_nodelay(true);
    }
    let ((from_client, mut to_client), (from_host, mut to_host)) =
        (client.into_split(), dialled.into_split());
    // Both halves live until both directions are over, so that one's end does not close the other.
    let _ = tokio::try_join!(
        pump(&shared.to_client, Direction::ToClient, from_host, &mut to_client),
        pump(&shared.to_host, Direction::ToHost, from_client, &mut to_host),
    );
}

async fn serve(shared: Arc<Shared>, listener: TcpListener, host: SocketAddr) {
    loop {
        tokio::select! {
            () = shared.stop.notified() => return,
            accepted = listener.accept() => {
                if let Ok((client, peer)) = accepted {
                    tokio::task::spawn_local(connection(Arc::clone(&shared), client, peer.port(), host));
                }
            }
        }
    }
}

impl Middle {
    /// Starts one on a thread in `namespace` (or in this process's own). It listens on `address`, on a port that the
    /// kernel chooses, and dials `host` for each connection.
    ///
    /// # Errors
    /// If the namespace cannot be entered or the address cannot be listened on.
    pub fn start(namespace: Option<&Namespace>, address: IpAddr, host: SocketAddr) -> Result<Self> {
        let shared = Arc::new(Shared {
            to_client: Way::new(),
            to_host: Way::new(),
            dialled: Mutex::default(),
            stop: Notify::new(),
        });
        let (listens, listening) = std::sync::mpsc::channel();
        let for_thread = Arc::clone(&shared);
        let work = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => {
                    // Whoever starts it waits for exactly this, here and below.
                    let _ = listens.send(Err(error));
                    return;
                }
            };
            tokio::task::LocalSet::new().block_on(&runtime, async {
                let bound = TcpListener::bind((address, 0)).await;
                match bound.and_then(|listener| Ok((listener.local_addr()?, listener))) {
                    Ok((address, listener)) => {
                        let _ = listens.send(Ok(address));
                        serve(for_thread, listener, host).await;
                    }
                    Err(error) => drop(listens.send(Err(error))),
                }
            });
        };
        let thread = spawn_thread(namespace, MIDDLE_COMMAND, work)?;
        let address = listening
            .recv_timeout(START_DEADLINE)
            .map_err(|_nothing| anyhow!("the middle did not say whether it listens"))?
            .with_context(|| format!("the middle cannot listen on {address}"))?;
        Ok(Self { address, shared, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port from which it dialled the host for the client with `client_port`: the peer port of the host's side.
    #[must_use]
    pub fn dialled_port(&self, client_port: u16) -> Option<u16> {
        self.shared.dialled.lock().unwrap_or_else(PoisonError::into_inner).get(&client_port).copied()
    }

    /// From now on reads what comes this way and passes nothing on.
    pub fn swallow(&self, direction: Direction) {
        self.shared.way(direction).swallows.send_replace(true);
    }

    /// Swallows both directions: the host's connection stays open and acknowledged, whatever becomes of the client.
    pub fn swallow_both(&self) {
        for direction in Direction::BOTH {
            self.swallow(direction);
        }
    }

    /// Passes on again what comes from now on. What was swallowed is lost, so a stream goes on with a gap.
    pub fn pass_on(&self, direction: Direction) {
        self.shared.way(direction).swallows.send_replace(false);
    }

    /// What was carried so far.
    #[must_use]
    pub fn carried(&self, direction: Direction) -> Carried {
        let way = self.shared.way(direction);
        Carried {
            forwarded_bytes: way.forwarded_bytes.load(Ordering::Relaxed),
            swallowed_bytes: way.swallowed_bytes.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.shared.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}
