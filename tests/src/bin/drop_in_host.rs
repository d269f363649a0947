//! A host on tokio-tungstenite with the heartbeat of `ackbeat-client`: it asks the sidecar before it kills. It speaks the same
//! JSON as the host in `mux` (asks in, events out).
#![expect(clippy::print_stdout, reason = "its output is how the test knows what it did")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ackbeat_client::{Heartbeat, HeartbeatOptions, Next, Sidecar};
use ackbeat_tests::clock::monotonic_ns;
use ackbeat_tests::mux::{Ask, HostAction, HostEvent, snapshot_sizes};
use anyhow::{Context, Result};
use clap::Parser;
use futures::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{Message, protocol::CloseFrame};

/// A host that asks the sidecar before it kills.
#[derive(Parser)]
struct Arguments {
    /// Address to listen on; the port is chosen by the kernel.
    address: IpAddr,
}

/// A peer may take this long to answer a Close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

fn say(peer_port: u16, what: HostAction) {
    let event = HostEvent { at_ns: monotonic_ns(), peer_port, what };
    if let Ok(line) = serde_json::to_string(&event) {
        println!("{line}");
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let sidecar = Arc::new(Sidecar::at(Sidecar::ADDRESS_DEFAULT)?);
    let listener = TcpListener::bind((arguments.address, 0)).await.context("listening failed")?;
    say(0, HostAction::Listening { port: listener.local_addr()?.port() });
    loop {
        let (stream, peer) = listener.accept().await?;
        let sidecar = Arc::clone(&sidecar);
        tokio::spawn(async move {
            // A client that resets; what matters is that it is over.
            let _ = serve(stream, peer, sidecar).await;
            say(peer.port(), HostAction::Closed);
        });
    }
}

/// What a host knows of one client, for its events.
struct Facts {
    opened_at: Instant,
    pongs: AtomicU32,
    queued_bytes: AtomicU64,
}

async fn serve(stream: TcpStream, peer: SocketAddr, sidecar: Arc<Sidecar>) -> Result<()> {
    let local = stream.local_addr()?;
    let (mut sink, mut source) = tokio_tungstenite::accept_async(stream).await?.split();
    let facts =
        Facts { opened_at: Instant::now(), pongs: AtomicU32::new(0), queued_bytes: AtomicU64::new(0) };
    say(peer.port(), HostAction::Opened);
    // All at once, as a host with a single write chain has it: nothing waits for the peer.
    let (queue, mut queued) = mpsc::unbounded_channel();
    let (ping, mut pings) = mpsc::channel(1);
    let mut heartbeat = Heartbeat::new(sidecar, HeartbeatOptions::default(), peer, local);

    let read = async {
        loop {
            tokio::select! {
                message = source.next() => match message {
                    Some(Ok(Message::Pong(_))) => {
                        heartbeat.heard();
                        facts.pongs.fetch_add(1, Ordering::Relaxed);
                        say(peer.port(), HostAction::Pong);
                    }
                    Some(Ok(Message::Text(text))) => follow(&text, peer, &facts, &queue),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return None,
                },
                next = heartbeat.next() => match next {
                    Next::Ping => {
                        // One waits already.
                        let _ = ping.try_send(Message::Ping(Vec::new().into()));
                    }
                    Next::Close { frame, .. } => return Some(frame),
                    Next::Fallback(why) => say(peer.port(), HostAction::FellBack { reason: why.to_string() }),
                    Next::Recovered => say(peer.port(), HostAction::Recovered),
                },
            }
        }
    };
    let write = async {
        loop {
            let message = tokio::select! {
                Some(message) = queued.recv() => message,
                Some(ping) = pings.recv() => ping,
            };
            let bytes = message.len() as u64;
            let is_data = message.is_binary();
            sink.send(message).await?;
            if is_data {
                facts.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
    };
    let frame = tokio::select! {
        frame = read => frame,
        error = write => return error,
    };
    let Some(frame) = frame else { return Ok(()) };
    let lifetime_ms = u64::try_from(facts.opened_at.elapsed().as_millis())?;
    let buffered_bytes = facts.queued_bytes.load(Ordering::Relaxed);
    let pongs = facts.pongs.load(Ordering::Relaxed);
    say(peer.port(), HostAction::Killed { missed: heartbeat.missed(), buffered_bytes, lifetime_ms, pongs });
    say(peer.port(), HostAction::Closing { code: frame.code });
    let handshake = async {
        let frame = CloseFrame { code: frame.code.into(), reason: frame.reason.into() };
        sink.send(Message::Close(Some(frame))).await?;
        while source.next().await.is_some_and(|message| message.is_ok()) {}
        Ok(())
    };
    tokio::time::timeout(CLOSE_TIMEOUT, handshake).await.unwrap_or(Ok(()))
}

/// Does what a client asks for in a text message.
fn follow(text: &str, peer: SocketAddr, facts: &Facts, queue: &mpsc::UnboundedSender<Message>) {
    let Ok(Ask::Follow) = serde_json::from_str(text) else { return };
    let sizes = snapshot_sizes();
    let bytes: u64 = sizes.iter().map(|size| *size as u64).sum();
    say(peer.port(), HostAction::Queued { bytes });
    facts.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
    for size in sizes {
        // The other half of this task takes it, or is over and this half with it.
        let _ = queue.send(Message::Binary(vec![0; size].into()));
    }
}
