//! The contract between ackbeat's kernel programs and its userspace.
//!
//! Every record that crosses the border is a `repr(C)` struct with explicit padding and a size that is asserted at
//! compile time. Records are read by [`Record::decode`], which is total: any byte string either decodes or gives a
//! [`DecodeError`]; it never panics. All integers are in the byte order of the machine; ports are numbers
//! (host order), addresses are in network order.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

mod decode;
mod member;
mod names;
pub mod patterns;

pub use decode::{DecodeError, Record, decode_snapshots};
pub use member::{MEMBER_COUNT, Member, MemberLocation};
pub use names::*;

/// Version of this contract. Userspace refuses an object that carries another one.
pub const ABI_VERSION: u32 = 4;

/// Longest payload of a control frame, in bytes (RFC 6455 section 5.5).
pub const CONTROL_PAYLOAD_MAX_BYTES: usize = 125;
/// Longest head of an upgrade request that is kept, in bytes. A longer one is cut here.
pub const HEAD_MAX_BYTES: usize = 4096;
/// Length of a task's command name in the kernel (`TASK_COMM_LEN`), with its terminating zero.
pub const COMM_BYTES: usize = 16;
/// Ancestors of a task that a record names: enough for a shell that runs a package manager that runs a shell that runs a
/// server.
pub const ANCESTORS_MAX: usize = 3;
/// Number of 64-bit words in the bitmap of watched ports: one bit for each of the 65,536 ports.
pub const WATCHED_PORT_WORDS: u32 = 1024;
/// Frames that one buffer may hold before the wire parser gives the stream up (`LossReason::TooManyFrames`).
pub const FRAMES_PER_BUFFER_MAX: u32 = 1024;

/// The two ends of a connection, seen from the pod. IPv4 is kept as an IPv4-mapped IPv6 address (RFC 4291 2.5.5.2).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowKey {
    /// Address of the pod's side, network order.
    pub local_address: [u8; 16],
    /// Address of the other side, network order.
    pub peer_address: [u8; 16],
    /// Port of the pod's side.
    pub local_port: u16,
    /// Port of the other side.
    pub peer_port: u16,
    /// Always zero (the key is compared byte by byte).
    pub padding: u32,
}

/// First part of every record in the ring buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// A [`RecordKind`] as a number.
    pub kind: u32,
    /// Length of the whole record in bytes, this header included.
    pub size_bytes: u32,
    /// `CLOCK_MONOTONIC` in nanoseconds (`bpf_ktime_get_ns`).
    pub time_ns: u64,
    /// Socket cookie; 0 where the socket is not known (yet).
    pub cookie: u64,
}

/// What the kernel's accounting says about one socket, at one moment.
///
/// `available` has bit `1 << member as u64` set for each [`Member`] that this kernel has and that was read; a
/// member whose bit is clear holds 0 and means *unknown*.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The connection's two ends.
    pub flow: FlowKey,
    /// Socket cookie, never 0.
    pub cookie: u64,
    /// `CLOCK_MONOTONIC` in nanoseconds at the reading.
    pub time_ns: u64,
    /// `jiffies` at the reading: the base of the time stamps below (they hold its low 32 bits).
    pub jiffies: u64,
    /// Bits of the members that were read.
    pub available: u64,
    /// Bytes that the peer acknowledged since the connection was made.
    pub bytes_acked: u64,
    /// Payload bytes that the peer sent since the connection was made.
    pub bytes_received: u64,
    /// Time of the oldest retransmission since which the peer acknowledged nothing new, in nanoseconds of
    /// `CLOCK_MONOTONIC`; 0 if there is none. Kept by the retransmit program, not by the kernel.
    pub retransmitting_since_ns: u64,
    /// Sequence number after the last byte that the application wrote.
    pub write_seq: u32,
    /// Sequence number of the next byte to send.
    pub snd_nxt: u32,
    /// Sequence number of the oldest byte that is not acknowledged.
    pub snd_una: u32,
    /// The peer's advertised receive window in bytes, scaled.
    pub snd_wnd: u32,
    /// Sequence number of the next byte expected from the peer.
    pub rcv_nxt: u32,
    /// Sequence number of the next byte that the application has not read.
    pub copied_seq: u32,
    /// Jiffies at the last segment with an ACK from the peer (`tcp_sock.rcv_tstamp`).
    pub rcv_tstamp: u32,
    /// Jiffies at the last data segment that was sent.
    pub lsndtime: u32,
    /// Jiffies at the last data segment that came in (`icsk_ack.lrcvtime`).
    pub lrcvtime: u32,
    /// Smoothed round-trip time in 1/8 microseconds, as the kernel keeps it.
    pub srtt_eighth_us: u32,
    /// Retransmission timeout in jiffies.
    pub rto_jiffies: u32,
    /// Segments in flight.
    pub packets_out: u32,
    /// Segments that were retransmitted and are in flight.
    pub retrans_out: u32,
    /// Segments retransmitted since the connection was made.
    pub total_retrans: u32,
    /// Pending error of the socket, a positive errno.
    pub sk_err: u32,
    /// Bytes of memory queued for sending (`sk_wmem_queued`): payload and overhead.
    pub sk_wmem_queued: u32,
    /// What the network last said against this path (`sk_err_soft`), a positive errno: an ICMP error, or no route. Any ACK
    /// from the peer that acknowledges something sets it back to 0 (`tcp_ack()`).
    pub sk_err_soft: u32,
    /// Always zero.
    pub padding: u32,
    /// State, a number of the kernel's `TCP_*` list (`include/net/tcp_states.h`).
    pub state: u8,
    /// `RCV_SHUTDOWN` (1) and `SEND_SHUTDOWN` (2).
    pub sk_shutdown: u8,
    /// Exponent of the retransmission back-off.
    pub backoff: u8,
    /// Unanswered retransmissions of the oldest segment.
    pub retransmits: u8,
    /// Unanswered window probes.
    pub probes_out: u8,
    /// Which timer is armed (`icsk_pending`): 0 none, 1 retransmit, 3 probe0, 5 loss probe, 6 reorder.
    pub pending_timer: u8,
    /// 4 or 6.
    pub ip_version: u8,
    /// 1 if this pass of the sampler put the connection into the map of flows: it is older than the sidecar. Else 0.
    pub adopted: u8,
}

/// A TCP state transition (`tp_btf/inet_sock_set_state`), with the socket as it was at that moment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifecycle {
    /// Kind [`RecordKind::Lifecycle`].
    pub header: Header,
    /// The state left.
    pub old_state: u8,
    /// The state entered.
    pub new_state: u8,
    /// Bits of [`task_flags`].
    pub task_flags: u8,
    /// Always zero.
    pub padding: u8,
    /// Thread that was running, in the pid namespace of the node. Meaningful only outside softirq.
    pub thread_id: u32,
    /// Its process.
    pub process_id: u32,
    /// Process ids of its parent, that one's parent and so on (`real_parent`); 0 where it is not known. Meaningful only
    /// outside softirq.
    pub ancestors: [u32; ANCESTORS_MAX],
    /// Command name of the thread, zero-terminated.
    pub comm: [u8; COMM_BYTES],
    /// The socket at the transition.
    pub snapshot: Snapshot,
}

/// Bits of [`Lifecycle::task_flags`].
pub mod task_flags {
    /// The task is exiting (`PF_EXITING`).
    pub const EXITING: u8 = 1;
    /// The transition ran in softirq or hard interrupt context: the task is only whom it interrupted.
    pub const INTERRUPT: u8 = 2;
    /// Whether the context could be told at all. Clear: `INTERRUPT` is unknown.
    pub const CONTEXT_KNOWN: u8 = 4;
}

/// A reset that was sent or received (`tp_btf/tcp_send_reset`, `tp_btf/tcp_receive_reset`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reset {
    /// Kind [`RecordKind::Reset`].
    pub header: Header,
    /// A [`Direction`] as a number: egress is a reset that this host sent.
    pub direction: u8,
    /// State of the socket at that moment.
    pub state: u8,
    /// 1 if the reset answers a segment from the peer, 0 if this host sent it on its own account.
    pub answers_segment: u8,
    /// 1 if `reason` holds the kernel's `enum sk_rst_reason` (Linux 6.10), 0 if this kernel does not say.
    pub has_reason: u8,
    /// The kernel's reset reason.
    pub reason: u32,
    /// The connection's two ends.
    pub flow: FlowKey,
}

/// One whole control frame, or a data frame that one of the [`patterns`] fits, at its exact position in the stream.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Kind [`RecordKind::Frame`].
    pub header: Header,
    /// The connection's two ends.
    pub flow: FlowKey,
    /// Sequence number of the frame's first byte.
    pub seq_start: u32,
    /// Sequence number after the frame's last byte.
    pub seq_end: u32,
    /// Masking key as on the wire; meaningful if `masked` is 1.
    pub mask: [u8; 4],
    /// A [`Direction`] as a number.
    pub direction: u8,
    /// Opcode: 8 Close, 9 Ping, 10 Pong; 1 text, 2 binary (RFC 6455 section 11.8).
    pub opcode: u8,
    /// 1 if the payload is masked.
    pub masked: u8,
    /// Bytes of payload, 0 to 125.
    pub payload_bytes: u8,
    /// The payload as on the wire (masked if `masked`), zero-filled.
    pub payload: [u8; CONTROL_PAYLOAD_MAX_BYTES],
    /// Always zero.
    pub padding: [u8; 3],
}

/// The wire parser found or lost its place in one direction of a stream.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Synchronization {
    /// Kind [`RecordKind::Synchronization`].
    pub header: Header,
    /// The connection's two ends.
    pub flow: FlowKey,
    /// Sequence number at which it happened.
    pub seq: u32,
    /// A [`Direction`] as a number.
    pub direction: u8,
    /// 1 if the parser now follows the stream, 0 if it does not.
    pub synchronized: u8,
    /// A [`LossReason`] as a number where it does not, else 0.
    pub reason: u8,
    /// Always zero.
    pub padding: u8,
}

/// Data went out on a connection whose send queue had been empty at the last sample: sampling is worth while again.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// Kind [`RecordKind::Outstanding`].
    pub header: Header,
    /// The connection's two ends.
    pub flow: FlowKey,
}

/// A process was sent SIGTERM, and does not ignore it (`tp_btf/signal_generate`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Termination {
    /// Kind [`RecordKind::Termination`]; its cookie is 0.
    pub header: Header,
    /// The process, in the pid namespace of the node.
    pub process_id: u32,
    /// Always zero.
    pub padding: u32,
}

/// The head of an upgrade request whose answer was 101, at most [`HEAD_MAX_BYTES`] of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpgradeHead {
    /// Kind [`RecordKind::UpgradeHead`].
    pub header: Header,
    /// The connection's two ends.
    pub flow: FlowKey,
    /// Bytes of `head` that are filled.
    pub head_bytes: u32,
    /// Always zero.
    pub padding: u32,
    /// The request's bytes from its first line on.
    pub head: [u8; HEAD_MAX_BYTES],
}

/// What a socket listens on (found by the iterator, or by its transition to `LISTEN`).
pub const TCP_LISTEN: u8 = 10;

const _: () = {
    assert!(size_of::<FlowKey>() == 40);
    assert!(size_of::<Header>() == 24);
    assert!(size_of::<Snapshot>() == 176);
    assert!(size_of::<Lifecycle>() == 24 + 24 + 16 + 176);
    assert!(size_of::<Reset>() == 24 + 8 + 40);
    assert!(size_of::<Frame>() == 24 + 40 + 16 + 128);
    assert!(size_of::<Synchronization>() == 24 + 40 + 8);
    assert!(size_of::<Outstanding>() == 24 + 40);
    assert!(size_of::<Termination>() == 24 + 8);
    assert!(size_of::<UpgradeHead>() == 24 + 40 + 8 + HEAD_MAX_BYTES);
};
