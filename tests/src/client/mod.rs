//! Clients of the mux host: they read as fast or as slowly as they are told, and say what they saw.

mod paced;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{SinkExt, StreamExt};
use serde::{Deserialize, Serialize};
use tokio::net::TcpSocket;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

use self::paced::PacedStream;
use crate::clock::monotonic_ns;
use crate::journal::Journal;
use crate::mux::{Ask, MUX_PATH};
use crate::namespace::{Namespace, spawn_thread};

/// How fast a client reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As fast as it can.
    Full,
    /// `read_bytes` at a time, `bytes_per_second` in all.
    Slow {
        /// Bytes a second.
        bytes_per_second: u32,
        /// Bytes of one read.
        read_bytes: usize,
    },
    /// Reads nothing for `busy` after its first read, then as fast as it can: a page whose main thread is busy.
    Busy {
        /// How long.
        busy: Duration,
    },
}

/// How a client behaves.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The host.
    pub host: SocketAddr,
    /// How fast it reads once the WebSocket is open.
    pub pace: Pace,
    /// Answers no Ping once the WebSocket is open, and sends nothing else either.
    pub mute: bool,
    /// Size of its receive buffer in bytes; the kernel's own choice if `None`.
    pub receive_buffer_bytes: Option<u32>,
    /// Value of the upgrade request's `traceparent` header (W3C Trace Context).
    pub traceparent: Option<String>,
}

impl ClientOptions {
    /// A healthy client of `host`.
    #[must_use]
    pub const fn new(host: SocketAddr) -> Self {
        Self { host, pace: Pace::Full, mute: false, receive_buffer_bytes: None, traceparent: None }
    }

    /// The same at another pace.
    #[must_use]
    pub const fn paced(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }
}

/// Something that a client saw, with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientEvent {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Bytes that it had read from its socket since the connection was made.
    pub bytes_read: u64,
    /// What.
    #[serde(flatten)]
    pub what: Seen,
}

/// What a client saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Seen {
    /// The WebSocket is open.
    Opened,
    /// A data message was read whole.
    Data {
        /// Its payload.
        bytes: u64,
    },
    /// A Ping was read.
    Ping,
    /// A Close frame was read.
    CloseFrame {
        /// Its status code, if it had one.
        code: Option<u16>,
    },
    /// The stream is over: FIN after a whole frame or in the middle of one, RST, or an error of the protocol.
    Ended {
        /// `fin`, `rst`, or what the error says.
        how: String,
    },
}

enum Command {
    Send(String),
    Close { code: u16, reason: String },
    Drop,
}

/// A running client. Dropping it closes its socket.
pub struct Client {
    port: u16,
    bytes_read: Arc<AtomicU64>,
    frozen: Arc<AtomicBool>,
    commands: mpsc::UnboundedSender<Command>,
    thread: Option<JoinHandle<Option<()>>>,
    /// What it saw.
    pub events: Journal<ClientEvent>,
}

/// A client must have its WebSocket within this time.
const OPEN_DEADLINE: Duration = Duration::from_secs(20);
/// Name of the thread that a client runs on.
const CLIENT_COMMAND: &str = "mux-client";

impl Client {
    /// Connects in `namespace` (or in this process's own) and waits until the WebSocket is open.
    ///
    /// # Errors
    /// If it is not open within a deadline.
    pub fn connect(namespace: Option<&Namespace>, options: ClientOptions) -> Result<Self> {
        let events: Journal<ClientEvent> = Journal::default();
        let (commands, received) = mpsc::unbounded_channel();
        let bytes_read = Arc::new(AtomicU64::new(0));
        let frozen = Arc::new(AtomicBool::new(false));
        let (connected, port) = std::sync::mpsc::channel();
        let worker = Worker {
            events: events.clone(),
            bytes_read: Arc::clone(&bytes_read),
            frozen: Arc::clone(&frozen),
        };
        let work = move || worker.run(&options, received, &connected);
        let thread = spawn_thread(namespace, CLIENT_COMMAND, work)?;
        let port =
            port.recv_timeout(OPEN_DEADLINE).context("the client did not open its WebSocket in time")??;
        Ok(Self { port, bytes_read, frozen, commands, thread: Some(thread), events })
    }

    /// Its own port: the peer port of the host's side.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Bytes that it has read from its socket since the connection was made.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read.load(Ordering::Relaxed)
    }

    /// Stops reading, or goes on.
    pub fn freeze(&self, frozen: bool) {
        self.frozen.store(frozen, Ordering::Relaxed);
    }

    fn command(&self, command: Command) {
        // A client that has ended cannot be told anything; its events say how it ended.
        let _ = self.commands.send(command);
    }

    /// Asks the host for something.
    pub fn ask(&self, ask: &Ask) {
        if let Ok(text) = serde_json::to_string(ask) {
            self.command(Command::Send(text));
        }
    }

    /// Sends a text message of its own.
    pub fn send(&self, text: &str) {
        self.command(Command::Send(text.to_owned()));
    }

    /// Closes politely.
    pub fn close(&self, code: u16, reason: &str) {
        self.command(Command::Close { code, reason: reason.to_owned() });
    }

    /// Closes its socket without a Close frame.
    pub fn abandon(&self) {
        self.command(Command::Drop);
    }

    /// Waits until it saw what `pick` looks for.
    ///
    /// # Errors
    /// Names `what` if it did not come within `deadline`.
    pub fn wait_for(
        &self,
        what: &str,
        deadline: Duration,
        pick: impl Fn(&Seen) -> bool,
    ) -> Result<ClientEvent> {
        self.events.wait_for(&format!("the client's {what} (port {})", self.port), deadline, |events| {
            events.iter().find(|event| pick(&event.what)).cloned()
        })
    }

    /// Waits until its stream is over.
    ///
    /// # Errors
    /// If it is not within `deadline`.
    pub fn wait_for_end(&self, deadline: Duration) -> Result<ClientEvent> {
        self.wait_for("end", deadline, |seen| matches!(seen, Seen::Ended { .. }))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.abandon();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}

struct Worker {
    events: Journal<ClientEvent>,
    bytes_read: Arc<AtomicU64>,
    frozen: Arc<AtomicBool>,
}

type Connected = std::sync::mpsc::Sender<Result<u16>>;
type Socket = tokio_tungstenite::WebSocketStream<PacedStream>;

impl Worker {
    fn say(&self, what: Seen) {
        let bytes_read = self.bytes_read.load(Ordering::Relaxed);
        self.events.push(ClientEvent { at_ns: monotonic_ns(), bytes_read, what });
    }

    fn run(
        &self,
        options: &ClientOptions,
        commands: mpsc::UnboundedReceiver<Command>,
        connected: &Connected,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let outcome = runtime.context("building the client's runtime failed").and_then(|runtime| {
            runtime.block_on(async {
                let (socket, port) = self.open(options).await?;
                self.say(Seen::Opened);
                // Whoever connects waits for exactly this.
                let _ = connected.send(Ok(port));
                self.talk(socket, commands).await;
                Ok(())
            })
        });
        if let Err(error) = outcome {
            let _ = connected.send(Err(error));
        }
    }

    async fn open(&self, options: &ClientOptions) -> Result<(Socket, u16)> {
        let socket = if options.host.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let socket = socket.context("making the client's socket failed")?;
        if let Some(bytes) = options.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes).context("setting the receive buffer's size failed")?;
        }
        let stream = socket
            .connect(options.host)
            .await
            .with_context(|| format!("connecting to {} failed", options.host))?;
        let port = stream.local_addr().context("reading the client's address failed")?.port();
        let read_bytes = match options.pace {
            Pace::Slow { read_bytes, .. } => read_bytes,
            Pace::Full | Pace::Busy { .. } => 128 * 1024,
        };
        let paced = PacedStream::new(stream, Arc::clone(&self.bytes_read), Arc::clone(&self.frozen));
        let config = WebSocketConfig::default()
            .read_buffer_size(read_bytes)
            .max_message_size(None)
            .max_frame_size(None);
        let mut request = tungstenite::client::IntoClientRequest::into_client_request(format!(
            "ws://{}{MUX_PATH}",
            options.host
        ))
        .context("the mux host's address is no URL")?;
        if let Some(traceparent) = &options.traceparent {
            let value = traceparent.parse().context("the value of traceparent is no header value")?;
            request.headers_mut().insert("traceparent", value);
        }
        let opened = tokio_tungstenite::client_async_with_config(request, paced, Some(config)).await;
        let (mut socket, _response) = opened.context("the WebSocket handshake failed")?;
        socket.get_mut().begin(options.pace, options.mute);
        Ok((socket, port))
    }

    async fn talk(&self, mut socket: Socket, mut commands: mpsc::UnboundedReceiver<Command>) {
        loop {
            tokio::select! {
                message = socket.next() => match self.read(message) {
                    Ok(()) => {}
                    Err(how) => {
                        self.say(Seen::Ended { how });
                        return;
                    }
                },
                command = commands.recv() => {
                    let sent = match command {
                        Some(Command::Send(text)) => socket.send(Message::Text(text.into())).await,
                        Some(Command::Close { code, reason }) => {
                            let frame = CloseFrame { code: CloseCode::from(code), reason: reason.into() };
                            socket.send(Message::Close(Some(frame))).await
                        }
                        Some(Command::Drop) | None => return,
                    };
                    if let Err(error) = sent {
                        self.say(Seen::Ended { how: how_it_ended(&error) });
                        return;
                    }
                }
            }
        }
    }

    /// Says what was read; the error is how the stream ended.
    fn read(&self, message: Option<tungstenite::Result<Message>>) -> std::result::Result<(), String> {
        match message {
            Some(Ok(Message::Ping(_))) => self.say(Seen::Ping),
            Some(Ok(Message::Close(frame))) => {
                self.say(Seen::CloseFrame { code: frame.map(|frame| frame.code.into()) });
            }
            Some(Ok(Message::Pong(_))) => {}
            Some(Ok(data)) => self.say(Seen::Data { bytes: data.len() as u64 }),
            Some(Err(error)) => return Err(how_it_ended(&error)),
            None => return Err("fin".into()),
        }
        Ok(())
    }
}

fn how_it_ended(error: &tungstenite::Error) -> String {
    use tungstenite::error::ProtocolError;
    match error {
        tungstenite::Error::ConnectionClosed
        | tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => "fin".into(),
        tungstenite::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionReset => "rst".into(),
        tungstenite::Error::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => "fin".into(),
        other => other.to_string(),
    }
}

/// Opens `count` healthy clients.
///
/// # Errors
/// As [`Client::connect`].
pub fn connect_healthy(namespace: Option<&Namespace>, host: SocketAddr, count: usize) -> Result<Vec<Client>> {
    if count == 0 {
        bail!("no client was asked for");
    }
    (0..count).map(|_| Client::connect(namespace, ClientOptions::new(host))).collect()
}
