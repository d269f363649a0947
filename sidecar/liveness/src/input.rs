//! What the engine is told.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::{HeartbeatProfile, Seq, Timestamp};

/// The socket's cookie: the identity of a connection. Addresses and ports are reused, cookies are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct ConnectionId(pub u64);

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Endpoints {
    /// Address of the pod's side.
    pub local_address: IpAddr,
    /// Port of the pod's side.
    pub local_port: u16,
    /// Address of the other side.
    pub peer_address: IpAddr,
    /// Port of the other side.
    pub peer_port: u16,
}

/// Which side dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Role {
    /// The pod accepted the connection.
    Server,
    /// The pod dialled.
    Client,
}

/// State of a TCP connection (RFC 9293 section 3.3.2, with the kernel's names).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum TcpState {
    /// Data flows.
    Established,
    /// An active open waits for its answer.
    SynSent,
    /// A passive open waits for its last ACK.
    SynRecv,
    /// This side closed first; its FIN is not acknowledged.
    FinWait1,
    /// This side closed first; its FIN is acknowledged.
    FinWait2,
    /// Both sides are closed, old segments die out.
    TimeWait,
    /// No connection.
    Close,
    /// The peer closed first; this side has not closed.
    CloseWait,
    /// The peer closed first, then this side; its FIN is not acknowledged.
    LastAck,
    /// No connection yet: a listener.
    Listen,
    /// Both sides closed at once.
    Closing,
}

impl TcpState {
    /// Every state.
    pub const ALL: [Self; 11] = [
        Self::Established,
        Self::SynSent,
        Self::SynRecv,
        Self::FinWait1,
        Self::FinWait2,
        Self::TimeWait,
        Self::Close,
        Self::CloseWait,
        Self::LastAck,
        Self::Listen,
        Self::Closing,
    ];
}

/// One thing that was seen, with its own time.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "input", rename_all = "snake_case")
)]
pub enum Input {
    /// A connection was established, or was found when the sidecar started.
    Opened(Opened),
    /// A TCP state transition.
    Transition(Transition),
    /// A reset was sent or received.
    Reset(Reset),
    /// The kernel's accounting of one socket.
    Sample(Snapshot),
    /// A heartbeat or Close frame on the wire.
    Frame(Frame),
    /// The wire parser found or lost its place.
    Synchronization(Synchronization),
    /// The connection was upgraded to WebSocket.
    Upgrade(Upgrade),
    /// Data went out after a quiet time: sampling is worth while again.
    Outstanding {
        /// The connection.
        connection: ConnectionId,
        /// When.
        at: Timestamp,
    },
    /// An own window probe was sent to the peer ([`Output::ProbeWanted`](crate::Output::ProbeWanted)).
    ProbeSent {
        /// The connection.
        connection: ConnectionId,
        /// When: at the latest when it left.
        at: Timestamp,
    },
    /// A process, or everything in the pod, was told to stop: what the host closes from now on is planned.
    Terminating {
        /// When.
        at: Timestamp,
        /// Process id, as the node numbers it; `None` for everything.
        process: Option<u32>,
    },
    /// Records were lost between the kernel and here; what they said is unknown.
    RecordsLost {
        /// When the loss was noticed.
        at: Timestamp,
        /// How many records.
        count: u64,
    },
    /// What changed among all TCP sockets of the pod ([`leak`](crate::leak)).
    Census(alloc::boxed::Box<crate::leak::Census>),
    /// A pass of the sampler ended: a tracked socket that was not in it is gone.
    SamplingDone {
        /// When the pass began.
        began_at: Timestamp,
        /// When it ended.
        at: Timestamp,
    },
}

impl Input {
    /// When it was seen.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        match self {
            Self::Opened(opened) => opened.at,
            Self::Transition(transition) => transition.snapshot.at,
            Self::Reset(reset) => reset.at,
            Self::Sample(snapshot) => snapshot.at,
            Self::Frame(frame) => frame.at,
            Self::Synchronization(synchronization) => synchronization.at,
            Self::Upgrade(upgrade) => upgrade.at,
            Self::Census(census) => census.at,
            Self::Outstanding { at, .. }
            | Self::ProbeSent { at, .. }
            | Self::Terminating { at, .. }
            | Self::RecordsLost { at, .. }
            | Self::SamplingDone { at, .. } => *at,
        }
    }

    /// The connection that it is about, if it is about one.
    #[must_use]
    pub const fn connection(&self) -> Option<ConnectionId> {
        match self {
            Self::Opened(opened) => Some(opened.connection),
            Self::Transition(transition) => Some(transition.snapshot.connection),
            Self::Reset(reset) => Some(reset.connection),
            Self::Sample(snapshot) => Some(snapshot.connection),
            Self::Frame(frame) => Some(frame.connection),
            Self::Synchronization(synchronization) => Some(synchronization.connection),
            Self::Upgrade(upgrade) => Some(upgrade.connection),
            Self::Outstanding { connection, .. } | Self::ProbeSent { connection, .. } => Some(*connection),
            Self::Census(_)
            | Self::Terminating { .. }
            | Self::RecordsLost { .. }
            | Self::SamplingDone { .. } => None,
        }
    }
}

/// A connection was established or found.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Opened {
    /// The connection.
    pub connection: ConnectionId,
    /// When it was established, or found.
    pub at: Timestamp,
    /// Its two ends.
    pub endpoints: Endpoints,
    /// Who dialled.
    pub role: Role,
    /// It is older than the sidecar, or was found only after it had opened: its start, its head and its heartbeat's history
    /// are unknown.
    pub preexisting: bool,
    /// The source would see control frames if there were any. Where it would not, a Close frame may have passed
    /// unseen, and nobody is accused of a close without one.
    #[cfg_attr(feature = "serde", serde(default = "frames_visible_default"))]
    pub frames_visible: bool,
}

/// The kernel's accounting of one socket at one moment. `None` means *unavailable*, never 0.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    /// The connection.
    pub connection: ConnectionId,
    /// When it was read.
    pub at: Timestamp,
    /// TCP state.
    pub state: TcpState,
    /// Sequence number after the last byte that the application wrote.
    pub write_seq: Option<Seq>,
    /// Sequence number of the next byte to send.
    pub snd_nxt: Option<Seq>,
    /// Oldest sequence number that is not acknowledged.
    pub snd_una: Option<Seq>,
    /// The peer's receive window in bytes.
    pub snd_wnd_bytes: Option<u32>,
    /// Next sequence number expected from the peer.
    pub rcv_nxt: Option<Seq>,
    /// Next sequence number that the application has not read.
    pub copied_seq: Option<Seq>,
    /// Bytes written and not acknowledged (`write_seq - snd_una`).
    pub send_queue_bytes: Option<u32>,
    /// Bytes written and not sent (`write_seq - snd_nxt`).
    pub unsent_bytes: Option<u32>,
    /// Bytes received and not read by the application (`rcv_nxt - copied_seq`).
    pub unread_bytes: Option<u32>,
    /// Last segment with an ACK from the peer.
    pub last_ack_at: Option<Timestamp>,
    /// Last data segment sent.
    pub last_send_at: Option<Timestamp>,
    /// Last data segment received.
    pub last_inbound_at: Option<Timestamp>,
    /// Bytes acknowledged since the connection was made.
    pub bytes_acked: Option<u64>,
    /// Payload bytes received since the connection was made.
    pub bytes_received: Option<u64>,
    /// Smoothed round-trip time in microseconds.
    pub srtt_us: Option<u32>,
    /// Retransmission timeout in milliseconds.
    pub rto_ms: Option<u32>,
    /// Exponent of the retransmission back-off.
    pub backoff: Option<u8>,
    /// Unanswered retransmissions of the oldest segment.
    pub retransmits: Option<u8>,
    /// Unanswered window probes.
    pub probes_out: Option<u8>,
    /// Segments in flight.
    pub packets_out: Option<u32>,
    /// Segments retransmitted since the connection was made.
    pub total_retransmits: Option<u32>,
    /// Oldest retransmission since which nothing new was acknowledged; `None` also where there is none.
    pub retransmitting_since: Option<Timestamp>,
    /// Pending error of the socket, a positive errno; 0 is none.
    pub socket_error: Option<u32>,
    /// What the network last said against the path since something was last acknowledged (`sk_err_soft`), a positive errno;
    /// 0 is nothing. `EHOSTUNREACH` (113) and `ENETUNREACH` (101) are ICMP errors of a router, or a route that is missing
    /// here. It hints at why nothing comes; a router may be wrong for a while (RFC 9293 section 3.9.2.2), so it decides
    /// nothing.
    #[cfg_attr(feature = "serde", serde(default))]
    pub soft_error: Option<u32>,
    /// `RCV_SHUTDOWN` (1) and `SEND_SHUTDOWN` (2).
    pub shutdown: Option<u8>,
    /// Bytes of memory queued for sending, payload and overhead.
    pub queued_memory_bytes: Option<u32>,
}

impl Snapshot {
    /// A reading of which nothing but the state is known.
    #[must_use]
    pub const fn unavailable(connection: ConnectionId, at: Timestamp, state: TcpState) -> Self {
        Self {
            connection,
            at,
            state,
            write_seq: None,
            snd_nxt: None,
            snd_una: None,
            snd_wnd_bytes: None,
            rcv_nxt: None,
            copied_seq: None,
            send_queue_bytes: None,
            unsent_bytes: None,
            unread_bytes: None,
            last_ack_at: None,
            last_send_at: None,
            last_inbound_at: None,
            bytes_acked: None,
            bytes_received: None,
            srtt_us: None,
            rto_ms: None,
            backoff: None,
            retransmits: None,
            probes_out: None,
            packets_out: None,
            total_retransmits: None,
            retransmitting_since: None,
            socket_error: None,
            soft_error: None,
            shutdown: None,
            queued_memory_bytes: None,
        }
    }
}

/// A TCP state transition.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Transition {
    /// State that was left.
    pub old_state: TcpState,
    /// State that was entered.
    pub new_state: TcpState,
    /// Who ran; `None` where the kernel acted for nobody (softirq) or nobody could be told.
    pub process: Option<Process>,
    /// The socket at the transition; its `state` is `new_state`.
    pub snapshot: Snapshot,
}

/// The task that was running at a transition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Process {
    /// Process id, as the node numbers it.
    pub pid: u32,
    /// Command name, at most 15 bytes.
    pub command: String,
    /// The task was exiting.
    pub exiting: bool,
    /// Its parent's process id, that one's parent's, and so on, as far as they were looked at.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub ancestors: Vec<u32>,
}

/// Which way bytes go, seen from the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Direction {
    /// From the peer to the pod.
    Ingress,
    /// From the pod to the peer.
    Egress,
}

/// A reset was sent or received.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Reset {
    /// The connection.
    pub connection: ConnectionId,
    /// When.
    pub at: Timestamp,
    /// Egress: this host sent it. Ingress: the peer did.
    pub direction: Direction,
    /// A reset of ours that answers a segment of the peer, and is not sent on our own account.
    pub answers_segment: bool,
    /// The kernel's reset reason (`enum sk_rst_reason`, Linux 6.10), where it says.
    pub reason: Option<u32>,
}

/// What a heartbeat or Close frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum FrameKind {
    /// A Ping, or a text heartbeat's question.
    Ping,
    /// A Pong, or a text heartbeat's answer.
    Pong,
    /// A Close frame.
    Close,
}

/// A heartbeat or Close frame, with its position in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Frame {
    /// The connection.
    pub connection: ConnectionId,
    /// When it passed.
    pub at: Timestamp,
    /// Which way it went.
    pub direction: Direction,
    /// What it is.
    pub kind: FrameKind,
    /// How the heartbeat looks; meaningless for a Close frame.
    #[cfg_attr(feature = "serde", serde(default))]
    pub profile: HeartbeatProfile,
    /// Sequence number of its first byte; `None` where it was reported by the application.
    pub seq_start: Option<Seq>,
    /// Sequence number after its last byte; `None` where it was reported by the application.
    pub seq_end: Option<Seq>,
    /// Its application data, unmasked (RFC 6455 section 5.5.2: a Pong repeats its Ping's); at most 125 bytes.
    /// Empty for a Close frame.
    pub payload: Vec<u8>,
    /// Status code of a Close frame that has one (RFC 6455 section 7.1.5).
    pub close_code: Option<u16>,
    /// Reason of a Close frame (RFC 6455 section 7.1.6), at most 123 bytes of UTF-8; what is not UTF-8 is replaced.
    pub close_reason: Option<String>,
}

impl Frame {
    /// Whether it was read off the wire; the application reported it otherwise.
    #[must_use]
    pub const fn is_on_wire(&self) -> bool {
        self.seq_end.is_some()
    }
}

/// The wire parser found or lost its place in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Synchronization {
    /// The connection.
    pub connection: ConnectionId,
    /// When.
    pub at: Timestamp,
    /// Which direction.
    pub direction: Direction,
    /// Whether control frames of this direction are seen from now on.
    pub synchronized: bool,
    /// Why not, as a stable word (`midstream`, `hole`, `too_many_frames`, `invalid_header`, `not_http`, …).
    pub reason: Option<String>,
}

/// What userspace kept of an upgrade request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Upgrade {
    /// The connection.
    pub connection: ConnectionId,
    /// When the 101 answer went out.
    pub at: Timestamp,
    /// Path of the request, without its query; at most 256 bytes.
    pub path: Option<String>,
    /// Value of `traceparent`, if it is a valid one (W3C Trace Context, version 00).
    pub traceparent: Option<String>,
    /// Lower-case names of forwarding headers that the request had (`x-forwarded-for`, `via`, …).
    pub forwarding_headers: Vec<String>,
}

/// Recordings made before the field existed came from sources that see frames.
#[cfg(feature = "serde")]
const fn frames_visible_default() -> bool {
    true
}
