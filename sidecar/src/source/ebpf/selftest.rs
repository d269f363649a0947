//! Two connections over the loopback interface prove that every hook sees what it is there for.
//!
//! A tracepoint whose arguments changed, or a network namespace that is not the pod's, would otherwise fail silently: the
//! programs load and attach, and nothing ever comes.
//!
//! The first one carries what a watched connection carries, an upgrade with a Ping and its Pong, for the wire parser on the
//! loopback interface. Three programs are not tested: nothing is lost on the way for `retransmits`, a SIGTERM made for
//! `terminations` would tell every ackbeat that sees it of a restart, and the first pass of `sample_all` takes up the
//! connections that exist, which must not happen twice.
//!
//! Both connections are closed by the dialling end first, with a FIN, and reset only then: to whoever else watches (another
//! ackbeat, in any mode) the peer ended them, and nothing looks like a kill. See also [`neighbor`](super::neighbor).

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use ackbeat_abi::{Direction, Record, Snapshot, decode_snapshots};
use aya::maps::{MapData, RingBuf};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{setsockopt, sockopt},
};

use super::{
    error::LoadError,
    interfaces::{WIRE_EGRESS, WIRE_INGRESS},
    loader::{LIFECYCLE, RECEIVE_RESET, SAMPLE_TRACKED, SEND_RESET},
    neighbor::flow,
};

/// Longest that one step may take. The loopback interface needs well under a millisecond.
const PATIENCE: Duration = Duration::from_secs(1);

/// An upgrade (RFC 6455 section 1.3, with its example's key) …
const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: ackbeat\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
/// … its answer …
const UPGRADED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
/// … a Ping, and the Pong that answers it, masked with 0 as a client's frames must be masked (section 5.3).
const PING: &[u8] = &[0x89, 0x00];
const PONG: &[u8] = &[0x8a, 0x80, 0, 0, 0, 0];
/// What the accepting end leaves unread: the first byte of another frame.
const UNREAD: &[u8] = &[0x81];
/// Opcodes (section 5.2).
const PING_OPCODE: u8 = 0x9;
const PONG_OPCODE: u8 = 0xa;

/// What the self-test found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelfTest {
    /// It ran; these programs saw nothing of it.
    Ran {
        /// Programs that are blind.
        blind: Vec<&'static str>,
    },
    /// It could not run, so nothing was proven.
    NotRun {
        /// Why.
        reason: String,
    },
}

impl SelfTest {
    /// Programs that saw nothing of it.
    #[must_use]
    pub fn blind(&self) -> &[&'static str] {
        match self {
            Self::Ran { blind } => blind,
            Self::NotRun { .. } => &[],
        }
    }
}

/// A listener that nobody else knows of.
pub(super) struct Stage {
    listener: TcpListener,
    address: SocketAddr,
}

impl Stage {
    /// Listens on a free port of the loopback interface, IPv4 or else IPv6.
    pub(super) fn bind() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .or_else(|_| TcpListener::bind((Ipv6Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// The port.
    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// A connection to itself: the dialling end and the accepted end.
    fn connect(&self) -> io::Result<(TcpStream, TcpStream)> {
        let client = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        wait(self.listener.as_fd(), PollFlags::POLLIN)?;
        let (server, _) = self.listener.accept()?;
        Ok((client, server))
    }
}

/// Waits for an event of a socket; an error and a hang-up end the wait too (poll(2)).
fn wait(fd: BorrowedFd<'_>, events: PollFlags) -> io::Result<()> {
    let timeout = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::ZERO);
    match poll(&mut [PollFd::new(fd, events)], timeout)? {
        0 => Err(io::Error::new(ErrorKind::TimedOut, "nothing came over the loopback interface")),
        _ => Ok(()),
    }
}

/// The records that were read meanwhile.
#[derive(Default)]
pub(super) struct Reading {
    /// Records of real connections, for the first [`drain`](crate::source::Source::drain).
    pub(super) pending: VecDeque<Record>,
    /// Records that were read and understood.
    pub(super) seen: u64,
    /// Records that were read and refused.
    pub(super) rejected: u64,
    opened: u32,
    closed: u32,
    reset_sent: bool,
    reset_received: bool,
    ping: bool,
    pong: bool,
    /// Control frames of the self-test that were read.
    pub(super) own_frames: u64,
}

impl Reading {
    /// Takes what is in the ring.
    fn take(&mut self, events: &mut RingBuf<MapData>, port: u16) {
        while let Some(item) = events.next() {
            let Ok(record) = Record::decode(&item) else {
                self.rejected += 1;
                continue;
            };
            if !is_own(&record, port) {
                // Counted when it is handed on.
                self.pending.push_back(record);
                continue;
            }
            self.seen += 1;
            match record {
                Record::Lifecycle(found) if found.old_state == 3 && found.new_state == 1 => self.opened += 1,
                Record::Lifecycle(found)
                    if found.old_state != ackbeat_abi::TCP_LISTEN && found.new_state == 7 =>
                {
                    self.closed += 1;
                }
                Record::Reset(found) if found.direction == Direction::Egress.number() => {
                    self.reset_sent = true;
                }
                Record::Reset(_) => self.reset_received = true,
                Record::Frame(found) => {
                    self.own_frames += 1;
                    self.ping |= found.opcode == PING_OPCODE;
                    self.pong |= found.opcode == PONG_OPCODE;
                }
                _ => {}
            }
        }
    }

    fn complete(&self, has_wire: bool) -> bool {
        let is_wire_complete = !has_wire || (self.ping && self.pong);
        self.opened == 2 && self.closed == 2 && self.reset_sent && self.reset_received && is_wire_complete
    }
}

/// Whether a record is about the self-test: nobody else has its port meanwhile.
fn is_own(record: &Record, port: u16) -> bool {
    flow(record).is_some_and(|flow| flow.local_port == port)
}

/// Runs the two connections. `has_wire` says whether the wire parser is attached to the loopback interface, `sample` makes one
/// pass over the tracked connections.
pub(super) fn run(
    stage: Stage,
    events: &mut RingBuf<MapData>,
    has_wire: bool,
    mut sample: impl FnMut(&mut Vec<u8>) -> Result<(), LoadError>,
) -> (SelfTest, Reading) {
    let mut reading = Reading::default();
    let port = stage.port();
    let sampled = converse(&stage, &mut sample);
    let began = Instant::now();
    loop {
        reading.take(events, port);
        let left = PATIENCE.saturating_sub(began.elapsed());
        if sampled.is_err() || reading.complete(has_wire) || left.is_zero() {
            break;
        }
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        // An error here shows as records that do not come.
        let _ready = poll(&mut [PollFd::new(events.as_fd(), PollFlags::POLLIN)], timeout);
    }
    drop(stage);
    // Closing the listener is the last record of the self-test, and it is there when the call returns.
    reading.take(events, port);
    let outcome = match sampled {
        Err(reason) => SelfTest::NotRun { reason },
        Ok(sampled) => {
            let seen = [
                (LIFECYCLE, reading.opened == 2 && reading.closed == 2),
                (SEND_RESET, reading.reset_sent),
                (RECEIVE_RESET, reading.reset_received),
                (SAMPLE_TRACKED, sampled),
                (WIRE_EGRESS, reading.ping || !has_wire),
                (WIRE_INGRESS, reading.pong || !has_wire),
            ];
            SelfTest::Ran {
                blind: seen.into_iter().filter(|(_, seen)| !seen).map(|(program, _)| program).collect(),
            }
        }
    };
    (outcome, reading)
}

/// One connection that the accepting end resets because of unread data, one that the dialling end resets; each after the
/// dialling end's FIN. Returns whether a pass of the sampler saw the second one.
fn converse(
    stage: &Stage,
    sample: &mut impl FnMut(&mut Vec<u8>) -> Result<(), LoadError>,
) -> Result<bool, String> {
    let io_reason = |error: io::Error| format!("a connection over the loopback interface failed: {error}");
    let (mut client, mut server) = stage.connect().map_err(io_reason)?;
    upgrade(&mut client, &mut server).map_err(io_reason)?;
    client.write_all(UNREAD).map_err(io_reason)?;
    finish(&client, &server).map_err(io_reason)?;
    drop(server);
    drop(client);
    let (client, server) = stage.connect().map_err(io_reason)?;
    let peer_port = client.local_addr().map_err(io_reason)?.port();
    let mut written = Vec::new();
    sample(&mut written).map_err(|error| error.to_string())?;
    let (mut snapshots, _) = decode_snapshots(&written);
    let sampled = snapshots.any(|found: Snapshot| {
        found.flow.local_port == stage.port() && found.flow.peer_port == peer_port && found.state == 1
    });
    finish(&client, &server).map_err(io_reason)?;
    let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(&client, sockopt::Linger, &linger).map_err(|error| io_reason(error.into()))?;
    drop(client);
    // Nothing but the reset makes an end that has not closed hang up.
    wait(server.as_fd(), PollFlags::empty()).map_err(io_reason)?;
    Ok(sampled)
}

/// An upgrade, a Ping and its Pong.
fn upgrade(client: &mut TcpStream, server: &mut TcpStream) -> io::Result<()> {
    for stream in [&*client, &*server] {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
    }
    pass_on(client, server, UPGRADE)?;
    pass_on(server, client, UPGRADED)?;
    pass_on(server, client, PING)?;
    pass_on(client, server, PONG)
}

/// Writes at one end and reads at the other.
fn pass_on(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    from.write_all(bytes)?;
    to.read_exact(&mut vec![0; bytes.len()])
}

/// The dialling end's FIN, until the accepting end has it.
fn finish(client: &TcpStream, server: &TcpStream) -> io::Result<()> {
    client.shutdown(Shutdown::Write)?;
    // Not among nix's flags.
    wait(server.as_fd(), PollFlags::from_bits_retain(nix::libc::POLLRDHUP))
}
