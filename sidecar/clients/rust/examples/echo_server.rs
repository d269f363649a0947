//! An echo server whose heartbeat asks before it kills: `cargo run -p ackbeat-client --example echo_server -- 127.0.0.1:8080`.
//!
//! The sidecar's address is `ACKBEAT_API`, or the default.

use std::sync::Arc;
use std::time::Duration;

use ackbeat_client::{Heartbeat, HeartbeatOptions, Next, Sidecar};
use anyhow::Context as _;
use futures::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{Message, protocol::CloseFrame};

/// A peer may take this long to answer a Close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Messages that wait for a client that reads slowly; its own messages are not read meanwhile.
const QUEUED_MAX: usize = 64;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let api = std::env::var("ACKBEAT_API").unwrap_or_else(|_| Sidecar::ADDRESS_DEFAULT.to_owned());
    let sidecar = Arc::new(Sidecar::at(&api)?);
    let listener =
        TcpListener::bind(&address).await.with_context(|| format!("listening on {address} failed"))?;
    say(&format!("listening on {}", listener.local_addr()?));
    loop {
        let (stream, peer) = listener.accept().await?;
        let sidecar = Arc::clone(&sidecar);
        tokio::spawn(async move {
            if let Err(error) = serve(stream, sidecar).await {
                say(&format!("{peer}: {error:#}"));
            }
        });
    }
}

async fn serve(stream: TcpStream, sidecar: Arc<Sidecar>) -> anyhow::Result<()> {
    let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
    let (mut sink, mut source) = tokio_tungstenite::accept_async(stream).await?.split();
    let (answers, mut queued) = mpsc::channel(QUEUED_MAX);
    // At most one Ping waits: another one behind it would tell nothing more.
    let (ping, mut pings) = mpsc::channel(1);
    let mut heartbeat = Heartbeat::new(sidecar, HeartbeatOptions::default(), peer, local);

    let read = async {
        loop {
            tokio::select! {
                message = source.next() => match message {
                    Some(Ok(Message::Pong(_))) => heartbeat.heard(),
                    // Waits for room and not for the client: the heartbeat goes on below while it waits there.
                    Some(Ok(data @ (Message::Text(_) | Message::Binary(_)))) => {
                        let sent = answers.send(data);
                        tokio::pin!(sent);
                        loop {
                            tokio::select! {
                                _ = &mut sent => break,
                                next = heartbeat.next() => if let Some(frame) = act(next, &ping, peer) { return Some(frame) },
                            }
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return None,
                },
                next = heartbeat.next() => if let Some(frame) = act(next, &ping, peer) { return Some(frame) },
            }
        }
    };
    let write = async {
        loop {
            let message = tokio::select! {
                Some(ping) = pings.recv() => ping,
                Some(answer) = queued.recv() => answer,
            };
            sink.send(message).await?;
        }
    };
    let frame = tokio::select! {
        frame = read => frame,
        error = write => return error,
    };
    let Some(frame) = frame else { return Ok(()) };
    // A peer that is gone never answers. What ends the connection then is that the socket is dropped here.
    let handshake = async {
        let frame = CloseFrame { code: frame.code.into(), reason: frame.reason.into() };
        sink.send(Message::Close(Some(frame))).await?;
        while source.next().await.is_some_and(|message| message.is_ok()) {}
        anyhow::Ok(())
    };
    tokio::time::timeout(CLOSE_TIMEOUT, handshake).await.unwrap_or(Ok(()))
}

/// Does what the heartbeat wants; the frame is what to close with.
fn act(
    next: Next,
    ping: &mpsc::Sender<Message>,
    peer: std::net::SocketAddr,
) -> Option<ackbeat_client::CloseFrame> {
    match next {
        Next::Ping => {
            // One waits already.
            let _ = ping.try_send(Message::Ping(Vec::new().into()));
            None
        }
        Next::Close { frame, by } => {
            say(&format!("closing {peer} with {} {}: {by:?}", frame.code, frame.reason));
            Some(frame)
        }
        Next::Fallback(why) => {
            say(&format!("{peer}: deciding without ackbeat: {why}"));
            None
        }
        Next::Recovered => {
            say(&format!("{peer}: ackbeat answers again"));
            None
        }
    }
}

#[expect(clippy::print_stderr, reason = "an example says what it does")]
fn say(text: &str) {
    eprintln!("{text}");
}
