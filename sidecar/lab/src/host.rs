//! A WebSocket host with a heartbeat: one tick asks all clients, and closes those that did not answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, broadcast};
use tokio_tungstenite::tungstenite::Message;

use crate::error::{Context as _, Result};
use crate::namespace::{Namespace, spawn_thread};

/// Name of the thread that serves, and so of the task that closes.
pub const HOST_COMMAND: &str = "lab-host";

/// A host that runs on a thread of its own. Dropping it closes everything.
pub struct Host {
    address: SocketAddr,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<Option<()>>>,
}

impl Host {
    /// Starts it in `namespace`: every `interval` a Ping to every client at once, and the end, without a Close frame, for
    /// whoever has not answered `missed_max` of them.
    ///
    /// # Errors
    /// If the namespace cannot be entered or the address cannot be listened on.
    pub fn start(
        namespace: &Namespace,
        address: SocketAddr,
        interval: Duration,
        missed_max: u32,
    ) -> Result<Self> {
        let listener = namespace
            .run(|| std::net::TcpListener::bind(address))?
            .context("listening in the host's namespace failed")?;
        listener.set_nonblocking(true).context("making the listener non-blocking failed")?;
        let address = listener.local_addr().context("reading the listener's address failed")?;
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let thread = spawn_thread(Some(namespace), HOST_COMMAND, move || {
            // A runtime that cannot be built accepts nobody, which every client sees.
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
                return;
            };
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async {
                tokio::select! {
                    () = serve(listener, interval, missed_max) => {}
                    () = stopped.notified() => {}
                }
            });
        })?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: std::net::TcpListener, interval: Duration, missed_max: u32) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let (ticks, _) = broadcast::channel::<()>(4);
    let ticking = ticks.clone();
    tokio::task::spawn_local(async move {
        let mut timer = tokio::time::interval(interval);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            timer.tick().await;
            // Nobody is there yet.
            let _ = ticking.send(());
        }
    });
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::task::spawn_local(converse(stream, ticks.subscribe(), missed_max));
            }
            // Too many descriptors, say: others may close meanwhile.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// One client. Whoever leaves this function closes the socket.
async fn converse(stream: TcpStream, mut ticks: broadcast::Receiver<()>, missed_max: u32) {
    let handshake = tokio::time::timeout(Duration::from_secs(10), tokio_tungstenite::accept_async(stream));
    let Ok(Ok(mut socket)) = handshake.await else { return };
    let mut unanswered = 0_u32;
    loop {
        tokio::select! {
            tick = ticks.recv() => {
                if matches!(tick, Err(broadcast::error::RecvError::Closed)) || unanswered >= missed_max {
                    return;
                }
                unanswered += 1;
                // A Ping of a few bytes finds room in the kernel's buffer, whether the path is there or not.
                if socket.send(Message::Ping(b"lab".to_vec().into())).await.is_err() {
                    return;
                }
            }
            message = socket.next() => match message {
                Some(Ok(Message::Pong(_))) => unanswered = 0,
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
        }
    }
}
