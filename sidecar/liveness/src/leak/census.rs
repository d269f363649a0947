//! What a census says, and what of it is new.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::{ConnectionId, Endpoints, Role, TcpState, Timestamp};

/// Sockets that a census tells of at most; what is over is counted ([`Census::left_out`]).
pub const SOCKETS_MAX: usize = 16_384;
/// Every so many censuses a whole one is told.
const WHOLE_EVERY: u32 = 60;

/// What changed among the TCP sockets of the pod's network namespace.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Census {
    /// When the sockets were read.
    pub at: Timestamp,
    /// Every socket is in `changed`: what is known from before and not in it is gone.
    pub whole: bool,
    /// Sockets that are new, changed their state or their owner, or began or ceased to carry bytes.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub changed: Vec<CensusSocket>,
    /// Sockets that are gone.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub gone: Vec<ConnectionId>,
    /// Sockets that are there and not told of: there are more than [`SOCKETS_MAX`].
    #[cfg_attr(feature = "serde", serde(default))]
    pub left_out: u64,
    /// Processes that own most of these sockets, as far as `/proc` shows them; at most 16.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub owners: Vec<Owner>,
}

/// A process that owns sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Owner {
    /// Process id, as the sidecar's own PID namespace numbers it.
    pub pid: u32,
    /// Command name, at most 15 bytes.
    pub command: String,
    /// File descriptors that it has open.
    pub fd_count: u32,
}

/// One socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CensusSocket {
    /// The socket's cookie.
    pub connection: ConnectionId,
    /// Its two ends.
    pub endpoints: Endpoints,
    /// Who dialled: the pod accepted it where something listens on its local port.
    pub role: Role,
    /// Its state.
    pub state: TcpState,
    /// It carried bytes since the census before.
    pub busy: bool,
    /// Last data segment sent; the handshake where none was.
    pub last_send_at: Option<Timestamp>,
    /// Last data segment received; `None` where none was.
    pub last_inbound_at: Option<Timestamp>,
    /// Last segment with an ACK from the peer. A FIN is one: the peer closed then at the latest.
    pub last_ack_at: Option<Timestamp>,
    /// Bytes written and not acknowledged.
    pub send_queue_bytes: Option<u32>,
    /// Bytes received and not read by the application.
    pub unread_bytes: Option<u32>,
    /// Bytes acknowledged since the connection was made.
    pub bytes_acked: Option<u64>,
    /// Payload bytes received since the connection was made.
    pub bytes_received: Option<u64>,
    /// The process that owns it; `None` where `/proc` does not show it, or nobody does any more.
    pub pid: Option<u32>,
}

impl CensusSocket {
    /// Since when it has carried no byte either way; `None` where the kernel does not say.
    #[must_use]
    pub fn idle_since(&self) -> Option<Timestamp> {
        [self.last_send_at, self.last_inbound_at].into_iter().flatten().max()
    }

    /// Whether nothing waits in it: nothing to be acknowledged, and nothing to be read. What the kernel does not say may wait.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.send_queue_bytes == Some(0) && self.unread_bytes == Some(0)
    }

    /// Whether bytes were carried between `earlier` and this reading of the same socket.
    fn has_carried_since(&self, earlier: &Seen) -> bool {
        let counted =
            |now: Option<u64>, before: Option<u64>| now.zip(before).map(|(now, before)| now != before);
        match (
            counted(self.bytes_acked, earlier.bytes_acked),
            counted(self.bytes_received, earlier.bytes_received),
        ) {
            (None, _) | (_, None) => self.idle_since() > Some(earlier.at),
            (acked, received) => acked == Some(true) || received == Some(true),
        }
    }
}

/// What was told of a socket last.
#[derive(Debug)]
struct Seen {
    at: Timestamp,
    state: TcpState,
    busy: bool,
    is_queue_empty: bool,
    pid: Option<u32>,
    bytes_acked: Option<u64>,
    bytes_received: Option<u64>,
    round: u32,
}

/// Makes censuses: remembers what was told, and tells what is new. At most [`SOCKETS_MAX`] sockets are remembered.
#[derive(Debug, Default)]
pub struct Changes {
    seen: BTreeMap<ConnectionId, Seen>,
    round: u32,
}

impl Changes {
    /// The census of these sockets, read at `at`. Their [`busy`](CensusSocket::busy) is found out here.
    pub fn census(
        &mut self,
        at: Timestamp,
        sockets: impl IntoIterator<Item = CensusSocket>,
        owners: Vec<Owner>,
    ) -> Census {
        let whole = self.round.is_multiple_of(WHOLE_EVERY);
        self.round = self.round.wrapping_add(1);
        let mut census = Census { at, whole, owners, ..Census::default() };
        for mut socket in sockets {
            let is_queue_empty = socket.send_queue_bytes == Some(0);
            let before = self.seen.get(&socket.connection);
            if before.is_none() && self.seen.len() >= SOCKETS_MAX {
                census.left_out += 1;
                continue;
            }
            socket.busy = before.is_some_and(|before| socket.has_carried_since(before));
            let is_news = before.is_none_or(|before| {
                (before.state, before.busy, before.is_queue_empty, before.pid)
                    != (socket.state, socket.busy, is_queue_empty, socket.pid)
            });
            let seen = Seen {
                at,
                state: socket.state,
                busy: socket.busy,
                is_queue_empty,
                pid: socket.pid,
                bytes_acked: socket.bytes_acked,
                bytes_received: socket.bytes_received,
                round: self.round,
            };
            self.seen.insert(socket.connection, seen);
            if is_news || whole {
                census.changed.push(socket);
            }
        }
        let round = self.round;
        self.seen.retain(|connection, seen| {
            let is_there = seen.round == round;
            if !is_there && !whole {
                census.gone.push(*connection);
            }
            is_there
        });
        census
    }
}
