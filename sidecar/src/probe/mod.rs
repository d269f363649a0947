//! Own window probes, on their way out.
//!
//! This is the only place from which ackbeat sends anything to a peer, and it does so only where it was asked to
//! (`probe.window`). What goes out is one segment without data, like the kernel's own probe of a closed window
//! (`tcp_xmit_probe_skb()` in net/ipv4/tcp_output.c): ACK, sequence number `snd_una - 1`, acknowledgement number `rcv_nxt`.
//! The peer has acknowledged that sequence number already, so it drops the segment and answers with an ACK (RFC 9293
//! section 3.10.7.4) before it looks at anything else in it (`tcp_validate_incoming()` in net/ipv4/tcp_input.c): neither its
//! stream nor its idea of this side's window can change.
//!
//! On this side the answer is an ACK as any other. Nothing is in flight, so it starts no fast retransmission; it carries the
//! peer's window as it is, and the kernel's persist timer starts anew (`tcp_ack_probe()`). Where data did get under way
//! between the reading and the probe, it is a single duplicate ACK, and three make a retransmission (RFC 5681 section 3.2).
//!
//! What differs from the kernel's probe: no timestamp (RFC 7323), no TCP-MD5 or TCP-AO, and the window field, which is not
//! read here. It is the largest one, so that no middle box can believe that there is less room than there is. A peer
//! may drop such a segment, and then its silence counts for nothing (see `probing` in `ackbeat_liveness`).

mod packet;
mod raw_socket;

pub use packet::{PacketError, packet};
pub use raw_socket::{CAPABILITY_FIX, OpenError, RawSocketProber};

use ackbeat_liveness::ProbeWanted;

/// Sends own window probes. Its method must not block.
pub trait Prober: Send {
    /// Sends one.
    ///
    /// # Errors
    /// [`SendError`] if it did not leave.
    fn send(&mut self, wanted: &ProbeWanted) -> Result<(), SendError>;
}

/// A probe did not leave.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// There is no such packet.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// This machine has no raw socket of that IP version.
    #[error("sending an own window probe failed: this kernel has no raw IPv6 sockets")]
    NoIpv6,
    /// The kernel refused it. `EAGAIN`: the device's queue is full; `EPERM`: a packet filter dropped it.
    #[error("sending an own window probe failed: {0}")]
    Refused(#[source] std::io::Error),
}
