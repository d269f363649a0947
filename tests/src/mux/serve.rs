//! The host's event loop.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::stream::HostStream;
use super::{Ask, Block, HostAction, HostEvent, HostOptions, MISSED_MAX, PeerFin, snapshot_sizes};
use crate::clock::{elapsed_ms, monotonic_ns};
use crate::journal::Journal;

/// What the host's owner asks of it.
pub(super) enum Command {
    /// Queue this many bytes to every client.
    SendToAll {
        /// How many.
        bytes: usize,
    },
    /// Do nothing else for this long.
    Block {
        /// How long.
        duration: Duration,
    },
    /// End.
    Stop,
}

/// One client's side of the host.
struct Connection {
    peer_port: u16,
    opened_ns: u64,
    missed: Cell<u32>,
    pongs: Cell<u32>,
    /// Bytes that were queued and not handed to the kernel (`bufferedAmount` of the browser API).
    buffered_bytes: Cell<u64>,
    /// The single write chain. It has no bound: that is the fault of the host that this one reproduces.
    chain: mpsc::UnboundedSender<Message>,
    kill: Notify,
    has_peer_finished: Rc<Cell<bool>>,
}

impl Connection {
    fn queue(&self, message: Message) {
        self.buffered_bytes.set(self.buffered_bytes.get() + queued_bytes(&message));
        // The writer is gone only if the connection is.
        let _ = self.chain.send(message);
    }
}

/// The watchdog: one tick for all sockets.
struct Watchdog {
    interval: Duration,
    due: Cell<Instant>,
    ticks: Cell<u32>,
    kills: bool,
    peer_fin: PeerFin,
    block: Cell<Option<Block>>,
}

#[derive(Clone)]
struct Shared {
    connections: Rc<RefCell<BTreeMap<u16, Rc<Connection>>>>,
    events: Journal<HostEvent>,
    watchdog: Rc<Watchdog>,
}

impl Shared {
    fn say(&self, peer_port: u16, what: HostAction) {
        self.events.push(HostEvent { at_ns: monotonic_ns(), peer_port, what });
    }

    fn open(&self) -> Vec<Rc<Connection>> {
        self.connections.borrow().values().cloned().collect()
    }
}

/// Payload of data messages: bytes that look like empty Ping frames, so that a parser that guesses sees Pings.
fn payload(bytes: usize) -> Bytes {
    let mut payload = [0x89, 0x00].repeat(bytes.div_ceil(2));
    payload.truncate(bytes);
    payload.into()
}

/// Serves until told to stop.
pub(super) fn run(
    options: HostOptions,
    events: &Journal<HostEvent>,
    commands: mpsc::UnboundedReceiver<Command>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("building the host's runtime failed")?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, serve(options, events.clone(), commands))
}

fn listen(options: &HostOptions) -> Result<TcpListener> {
    let socket = if options.address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let socket = socket.context("making the host's socket failed")?;
    if let Some(bytes) = options.send_buffer_bytes {
        // Accepted sockets inherit it.
        socket.set_send_buffer_size(bytes).context("setting the send buffer's size failed")?;
    }
    socket.bind(SocketAddr::new(options.address, 0)).context("binding the host's socket failed")?;
    socket.listen(1024).context("listening failed")
}

async fn serve(
    options: HostOptions,
    events: Journal<HostEvent>,
    mut commands: mpsc::UnboundedReceiver<Command>,
) -> Result<()> {
    let watchdog = Rc::new(Watchdog {
        interval: options.interval,
        due: Cell::new(Instant::now() + options.interval),
        ticks: Cell::new(0),
        kills: options.kills,
        peer_fin: options.peer_fin,
        block: Cell::new(options.block),
    });
    let shared = Shared { connections: Rc::default(), events, watchdog };
    let listener = listen(&options)?;
    let port = listener.local_addr().context("reading the host's address failed")?.port();
    shared.say(0, HostAction::Listening { port });
    let watchdog = tokio::task::spawn_local(watch(shared.clone()));
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, peer) = accepted.context("accepting failed")?;
                tokio::task::spawn_local(connection(shared.clone(), stream, peer.port()));
            }
            command = commands.recv() => match command {
                Some(Command::SendToAll { bytes }) => {
                    for connection in shared.open() {
                        shared.say(connection.peer_port, HostAction::Queued { bytes: bytes as u64 });
                        connection.queue(Message::Binary(payload(bytes)));
                    }
                }
                Some(Command::Block { duration }) => {
                    // The whole thread: the loop is what stands still.
                    std::thread::sleep(duration);
                    run_due_ticks(&shared);
                }
                Some(Command::Stop) | None => {
                    watchdog.abort();
                    return Ok(());
                }
            },
        }
    }
}

async fn watch(shared: Shared) {
    loop {
        tokio::time::sleep_until(shared.watchdog.due.get().into()).await;
        run_due_ticks(&shared);
    }
}

/// Runs the ticks that are due. A tick that was missed is made up for, before anything is read.
fn run_due_ticks(shared: &Shared) {
    let watchdog = &shared.watchdog;
    while watchdog.due.get() <= Instant::now() {
        watchdog.due.set(watchdog.due.get() + watchdog.interval);
        watchdog.ticks.set(watchdog.ticks.get() + 1);
        for connection in shared.open() {
            tick(shared, &connection);
        }
    }
}

/// Lets the whole loop stand still if it is time for that: right after the last Ping of the tick was handed to the
/// kernel, so that its Pong comes while nobody reads. Says whether it did.
fn block_if_due(shared: &Shared) -> bool {
    let watchdog = &shared.watchdog;
    let Some(block) = watchdog.block.get() else { return false };
    let unsent = shared.open().iter().any(|connection| connection.buffered_bytes.get() > 0);
    if watchdog.ticks.get() != block.after_tick || unsent {
        return false;
    }
    watchdog.block.set(None);
    std::thread::sleep(block.duration);
    run_due_ticks(shared);
    true
}

fn tick(shared: &Shared, connection: &Connection) {
    if connection.has_peer_finished.get() && shared.watchdog.peer_fin == PeerFin::Forget {
        return;
    }
    let (missed, buffered_bytes) = (connection.missed.get(), connection.buffered_bytes.get());
    if shared.watchdog.kills && missed >= MISSED_MAX {
        let lifetime_ms = elapsed_ms(connection.opened_ns, monotonic_ns());
        let pongs = connection.pongs.get();
        shared.connections.borrow_mut().remove(&connection.peer_port);
        shared.say(connection.peer_port, HostAction::Killed { missed, buffered_bytes, lifetime_ms, pongs });
        connection.kill.notify_one();
    } else {
        connection.missed.set(missed + 1);
        shared.say(connection.peer_port, HostAction::Ping { missed: missed + 1, buffered_bytes });
        connection.queue(Message::Ping(Bytes::new()));
    }
}

/// Bytes that a message takes in the queue: its payload, and the smallest header (RFC 6455 section 5.2).
fn queued_bytes(message: &Message) -> u64 {
    message.len() as u64 + 2
}

async fn connection(shared: Shared, stream: TcpStream, peer_port: u16) {
    // Without it a Ping could wait for an ACK of its predecessor; the kernel may refuse, then it does wait.
    let _ = stream.set_nodelay(true);
    let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
    let has_peer_finished = Rc::new(Cell::new(false));
    let hides_fin = shared.watchdog.peer_fin != PeerFin::Close;
    let stream = HostStream::new(stream, hides_fin, Rc::clone(&has_peer_finished));
    let Ok(socket) = tokio_tungstenite::accept_async_with_config(stream, Some(config)).await else {
        shared.say(peer_port, HostAction::Closed);
        return;
    };
    let (chain, queued) = mpsc::unbounded_channel();
    let connection = Rc::new(Connection {
        peer_port,
        opened_ns: monotonic_ns(),
        missed: Cell::new(0),
        pongs: Cell::new(0),
        buffered_bytes: Cell::new(0),
        chain,
        kill: Notify::new(),
        has_peer_finished,
    });
    shared.connections.borrow_mut().insert(peer_port, Rc::clone(&connection));
    shared.say(peer_port, HostAction::Opened);
    exchange(&shared, &connection, socket, queued).await;
    // The socket was dropped: the descriptor is closed, and no Close frame was written on that account.
    shared.connections.borrow_mut().remove(&peer_port);
    shared.say(peer_port, HostAction::Closed);
}

async fn exchange(
    shared: &Shared,
    connection: &Rc<Connection>,
    socket: WebSocketStream<HostStream>,
    mut queued: mpsc::UnboundedReceiver<Message>,
) {
    let (mut sink, mut source) = socket.split();
    let write = async {
        while let Some(message) = queued.recv().await {
            let bytes = queued_bytes(&message);
            if sink.send(message).await.is_err() {
                break;
            }
            connection.buffered_bytes.set(connection.buffered_bytes.get().saturating_sub(bytes));
            if block_if_due(shared) {
                // The watchdog may have closed this connection: that comes before the next write.
                tokio::task::yield_now().await;
            }
        }
        // What cannot be written does not end the connection: reading says when it is over.
        std::future::pending::<()>().await;
    };
    let read = async {
        while let Some(Ok(message)) = source.next().await {
            match message {
                Message::Pong(_) => {
                    connection.missed.set(0);
                    connection.pongs.set(connection.pongs.get() + 1);
                    shared.say(connection.peer_port, HostAction::Pong);
                }
                Message::Text(text) => {
                    if let Ok(ask) = serde_json::from_str(&text) {
                        answer(shared, connection, ask);
                    }
                }
                // Sessions' data, Pings (answered by the library) and Close (likewise).
                _ => {}
            }
        }
    };
    tokio::select! {
        biased;
        () = connection.kill.notified() => {}
        () = read => {}
        () = write => {}
    }
}

/// Queues a message again and again until the connection is over.
async fn queue_steadily(shared: Shared, connection: Rc<Connection>, bytes: usize, period: Duration) {
    let mut due = tokio::time::interval(period);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        if connection.chain.is_closed() {
            return;
        }
        shared.say(connection.peer_port, HostAction::Queued { bytes: bytes as u64 });
        connection.queue(Message::Binary(payload(bytes)));
    }
}

fn answer(shared: &Shared, connection: &Rc<Connection>, ask: Ask) {
    let send = |bytes: usize| connection.queue(Message::Binary(payload(bytes)));
    match ask {
        Ask::Follow => {
            let sizes = snapshot_sizes();
            let bytes = sizes.iter().sum::<usize>() as u64;
            shared.say(connection.peer_port, HostAction::Queued { bytes });
            sizes.into_iter().for_each(send);
        }
        Ask::Bytes { bytes } => {
            shared.say(connection.peer_port, HostAction::Queued { bytes: bytes as u64 });
            send(bytes);
        }
        Ask::Steady { bytes, period_ms } => {
            // An interval of nothing is refused by the runtime.
            let period = Duration::from_millis(period_ms.max(1));
            tokio::task::spawn_local(queue_steadily(shared.clone(), Rc::clone(connection), bytes, period));
        }
        Ask::Leave { code, reason } => {
            shared.say(connection.peer_port, HostAction::Closing { code });
            let frame = CloseFrame { code: CloseCode::from(code), reason: reason.into() };
            connection.queue(Message::Close(Some(frame)));
        }
    }
}
