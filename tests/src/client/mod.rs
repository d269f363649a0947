//! Clients of the mux host: they read as fast or as slowly as they are told, and say what they saw.

mod engine_io;
mod options;
mod paced;
mod pong_filter;

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::stream::SplitSink;
use futures::{SinkExt, StreamExt};
use nix::sys::socket::{Shutdown, shutdown};
use serde::{Deserialize, Serialize};
use tokio::net::TcpSocket;
use tokio::sync::{Notify, mpsc};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};

pub use self::options::{Chatter, ClientOptions, Command, Pace};
use self::paced::{Controls, PacedStream};
use crate::clock::monotonic_ns;
use crate::journal::Journal;
use crate::mux::{Ask, MUX_PATH};
use crate::namespace::{Namespace, spawn_thread};

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
    /// A Ping was read, or a `ping` packet of engine.io.
    Ping,
    /// The kernel has taken a message of its own whole.
    Sent {
        /// Its payload.
        bytes: u64,
    },
    /// It sent a FIN and goes on reading.
    HalfClosed,
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

/// A running client. Dropping it closes its socket.
pub struct Client {
    port: u16,
    controls: Controls,
    commands: mpsc::UnboundedSender<Command>,
    abandoned: Arc<Notify>,
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
        let controls = Controls::default();
        let abandoned = Arc::new(Notify::new());
        let (connected, port) = std::sync::mpsc::channel();
        let worker =
            Worker { events: events.clone(), controls: controls.clone(), abandoned: Arc::clone(&abandoned) };
        let work = move || worker.run(&options, received, &connected);
        let thread = spawn_thread(namespace, CLIENT_COMMAND, work)?;
        let port =
            port.recv_timeout(OPEN_DEADLINE).context("the client did not open its WebSocket in time")??;
        Ok(Self { port, controls, commands, abandoned, thread: Some(thread), events })
    }

    /// Its own port: the peer port of the host's side.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Bytes that it has read from its socket since the connection was made.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.controls.bytes_read.load(Ordering::Relaxed)
    }

    /// Stops reading, or goes on.
    pub fn freeze(&self, frozen: bool) {
        self.controls.frozen.store(frozen, Ordering::Relaxed);
    }

    /// Writes nothing more from now on, and goes on reading.
    pub fn mute(&self) {
        self.controls.muted.store(true, Ordering::Relaxed);
    }

    /// Tells it something. What it sends comes in the order of the commands; [`Command::Freeze`],
    /// [`Command::Mute`] and [`Command::Abandon`] overtake.
    pub fn command(&self, command: Command) {
        match command {
            Command::Freeze { frozen } => self.freeze(frozen),
            Command::Mute => self.mute(),
            Command::Abandon => self.abandon(),
            other => {
                // A client that has ended cannot be told anything; its events say how it ended.
                let _ = self.commands.send(other);
            }
        }
    }

    /// Asks the host for something.
    pub fn ask(&self, ask: &Ask) {
        if let Ok(text) = serde_json::to_string(ask) {
            self.command(Command::Send { text });
        }
    }

    /// Sends a text message of its own.
    pub fn send(&self, text: &str) {
        self.command(Command::Send { text: text.to_owned() });
    }

    /// Sends one binary message of its own; [`Seen::Sent`] says when the kernel has taken it whole. It reads meanwhile,
    /// and its Pongs come behind the message.
    pub fn send_bytes(&self, bytes: usize) {
        self.command(Command::SendBytes { bytes });
    }

    /// Closes politely.
    pub fn close(&self, code: u16, reason: &str) {
        self.command(Command::Close { code, reason: reason.to_owned() });
    }

    /// Sends a FIN behind what was sent before, and goes on reading.
    pub fn half_close(&self) {
        self.command(Command::HalfClose);
    }

    /// Closes its socket without a Close frame, at once.
    pub fn abandon(&self) {
        self.abandoned.notify_one();
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
        Ok(self.events.wait_for(
            &format!("the client's {what} (port {})", self.port),
            deadline,
            |events| events.iter().find(|event| pick(&event.what)).cloned(),
        )?)
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
    controls: Controls,
    abandoned: Arc<Notify>,
}

type Connected = std::sync::mpsc::Sender<Result<u16>>;
type Socket = tokio_tungstenite::WebSocketStream<PacedStream>;

impl Worker {
    fn say(&self, what: Seen) {
        let bytes_read = self.controls.bytes_read.load(Ordering::Relaxed);
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
                let (socket, descriptor, port) = self.open(options).await?;
                self.say(Seen::Opened);
                // Whoever connects waits for exactly this.
                let _ = connected.send(Ok(port));
                self.talk(socket, &descriptor, options, commands).await;
                Ok(())
            })
        });
        if let Err(error) = outcome {
            let _ = connected.send(Err(error));
        }
    }

    async fn open(&self, options: &ClientOptions) -> Result<(Socket, OwnedFd, u16)> {
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
            Pace::Full | Pace::Busy { .. } | Pace::Pausing { .. } | Pace::Trickle { .. } => 128 * 1024,
        };
        let descriptor =
            stream.as_fd().try_clone_to_owned().context("duplicating the client's descriptor failed")?;
        let paced = PacedStream::new(stream, self.controls.clone());
        let config = WebSocketConfig::default()
            .read_buffer_size(read_bytes)
            .max_message_size(None)
            .max_frame_size(None);
        let query = if options.engine_io { engine_io::QUERY } else { "" };
        let mut request = tungstenite::client::IntoClientRequest::into_client_request(format!(
            "ws://{}{MUX_PATH}{query}",
            options.host
        ))
        .context("the mux host's address is no URL")?;
        if let Some(traceparent) = &options.traceparent {
            let value = traceparent.parse().context("the value of traceparent is no header value")?;
            request.headers_mut().insert("traceparent", value);
        }
        if let Some(forwarded_for) = &options.forwarded_for {
            let value = forwarded_for.parse().context("the value of X-Forwarded-For is no header value")?;
            request.headers_mut().insert("x-forwarded-for", value);
        }
        let opened = tokio_tungstenite::client_async_with_config(request, paced, Some(config)).await;
        let (mut socket, _response) = opened.context("the WebSocket handshake failed")?;
        socket.get_mut().begin(options);
        Ok((socket, descriptor, port))
    }

    /// Reads, obeys and chatters until the stream is over or the client is abandoned.
    async fn talk(
        &self,
        socket: Socket,
        descriptor: &OwnedFd,
        options: &ClientOptions,
        mut commands: mpsc::UnboundedReceiver<Command>,
    ) {
        let chatter = options.chatter;
        let (mut sink, mut source) = socket.split();
        // What is read may ask for an answer in the protocol above the WebSocket.
        let (answers, mut answered) = mpsc::unbounded_channel();
        let mut due = chatter.map(|chatter| {
            let mut due = tokio::time::interval(chatter.period);
            due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            due
        });
        let read = async {
            loop {
                let message = source.next().await;
                if options.engine_io && engine_io::is_ping(message.as_ref()) {
                    self.say(Seen::Ping);
                    if !options.withhold_pongs {
                        // The other half of this task takes it, or is over and this half with it.
                        let _ = answers.send(engine_io::pong());
                    }
                } else if let Err(how) = self.read(message) {
                    return how;
                }
            }
        };
        let write = async {
            loop {
                let done = tokio::select! {
                    Some(answer) = answered.recv() => sink.send(answer).await,
                    Some(command) = commands.recv() => {
                        let command = if options.engine_io { engine_io::packet(command) } else { command };
                        self.obey(command, &mut sink, descriptor).await
                    }
                    bytes = next_chatter(&mut due, chatter) => {
                        self.obey(Command::SendBytes { bytes }, &mut sink, descriptor).await
                    }
                };
                if let Err(error) = done {
                    return how_it_ended(&error);
                }
            }
        };
        // Both halves live on one task: what cannot be written yet does not keep it from reading.
        let how = tokio::select! {
            () = self.abandoned.notified() => return,
            how = read => how,
            how = write => how,
        };
        self.say(Seen::Ended { how });
    }

    async fn obey(
        &self,
        command: Command,
        sink: &mut SplitSink<Socket, Message>,
        descriptor: &OwnedFd,
    ) -> tungstenite::Result<()> {
        let message = match command {
            Command::Send { text } => Message::Text(text.into()),
            Command::SendBytes { bytes } => Message::Binary(vec![0; bytes].into()),
            Command::Close { code, reason } => {
                Message::Close(Some(CloseFrame { code: CloseCode::from(code), reason: reason.into() }))
            }
            Command::HalfClose => {
                sink.flush().await?;
                self.controls.half_closed.store(true, Ordering::Relaxed);
                shutdown(descriptor.as_raw_fd(), Shutdown::Write).map_err(std::io::Error::from)?;
                self.say(Seen::HalfClosed);
                return Ok(());
            }
            // These never come this way: the client does them itself.
            Command::Abandon | Command::Freeze { .. } | Command::Mute => return Ok(()),
        };
        let bytes = message.len() as u64;
        let is_data = matches!(message, Message::Binary(_));
        sink.send(message).await?;
        if is_data {
            self.say(Seen::Sent { bytes });
        }
        Ok(())
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

/// Size of the next message that is sent unasked, once it is due.
async fn next_chatter(due: &mut Option<tokio::time::Interval>, chatter: Option<Chatter>) -> usize {
    match (due, chatter) {
        (Some(due), Some(chatter)) => {
            due.tick().await;
            chatter.bytes
        }
        _ => std::future::pending().await,
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
