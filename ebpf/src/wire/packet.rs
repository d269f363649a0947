//! From an `sk_buff` to a flow and a segment.

use ackbeat_abi::{Direction, FlowKey};
use aya_ebpf::{macros::map, maps::PerCpuArray, programs::TcContext};

use crate::maps::watched;

/// `ETH_P_IP`, as it stands in `__sk_buff.protocol` (network order).
const ETH_P_IP: u32 = (0x0800_u16.to_be()) as u32;
/// `ETH_P_IPV6`, likewise.
const ETH_P_IPV6: u32 = (0x86dd_u16.to_be()) as u32;
const IPPROTO_TCP: u8 = 6;
const IPV4_BYTES: u32 = 20;
const IPV6_BYTES: u32 = 40;
const TCP_BYTES: u32 = 20;
/// IPv6 extension headers that are stepped over (RFC 8200 section 4.1 has each at most once, one of them twice).
const EXTENSION_HEADERS_MAX: u32 = 4;
/// Bits of the IPv4 fragment field that make a packet a fragment: MF and the offset.
const FRAGMENT: u16 = 0x3fff;
const SYN: u8 = 0x02;

/// A segment with payload, and whose it is.
///
/// It lies in a map and not on the stack: 512 bytes of stack are for the program and its callbacks together
/// ("combined stack size of 2 calls is 560. Too large"), and what the verifier reads from a map has no history that
/// would multiply the cases.
#[repr(C)]
pub(super) struct Packet {
    /// The connection.
    pub(super) flow: FlowKey,
    /// Its socket's cookie, 0 while not known.
    pub(super) cookie: u64,
    /// Sequence number of the first payload byte.
    pub(super) seq: u32,
    /// Acknowledgement number.
    pub(super) ack_seq: u32,
    /// Where the payload begins in the packet, in bytes.
    pub(super) payload_offset: u32,
    /// Bytes of payload.
    pub(super) payload_bytes: u32,
    /// A [`Direction`] as a number.
    pub(super) direction: u32,
    /// Always zero.
    pub(super) padding: u32,
}

/// The packet at hand, one for each processor: these hooks run with soft interrupts off, and none runs inside another.
#[map]
static PACKET: PerCpuArray<Packet> = PerCpuArray::with_max_entries(1, 0);

/// Room for the packet at hand.
#[inline(always)]
pub(super) fn room() -> Option<*mut Packet> {
    PACKET.get_ptr_mut(0)
}

/// Whether the packet may belong to a watched port: `false` is certain. Reads the packet in place, calls no helper
/// but for the bitmap.
#[inline(always)]
pub(super) fn may_be_watched(context: &TcContext, direction: Direction, link_bytes: u32) -> bool {
    // SAFETY: a field of the context.
    let protocol = unsafe { (*context.skb.skb).protocol };
    let data = context.data();
    let data_end = context.data_end();
    let ip = data + link_bytes as usize;
    let tcp = if protocol == ETH_P_IP {
        if ip + IPV4_BYTES as usize > data_end {
            return true;
        }
        // SAFETY: the 20 bytes are inside the packet, as just checked.
        let (version_length, next) = unsafe { (*(ip as *const u8), *((ip + 9) as *const u8)) };
        if next != IPPROTO_TCP {
            return false;
        }
        ip + usize::from((version_length & 0x0f) << 2)
    } else if protocol == ETH_P_IPV6 {
        if ip + IPV6_BYTES as usize > data_end {
            return true;
        }
        // SAFETY: the 40 bytes are inside the packet, as just checked.
        let next = unsafe { *((ip + 6) as *const u8) };
        if next != IPPROTO_TCP {
            // An extension header, or another protocol: the slow way finds out.
            return true;
        }
        ip + IPV6_BYTES as usize
    } else {
        return false;
    };
    let port = match direction {
        Direction::Ingress => tcp + 2,
        Direction::Egress => tcp,
    };
    if port + 2 > data_end {
        return true;
    }
    // SAFETY: the two bytes are inside the packet, as just checked; unaligned.
    let port = u16::from_be_bytes(unsafe { *(port as *const [u8; 2]) });
    watched(port)
}

/// Bytes of the packet at an offset.
#[inline(always)]
fn load<const N: usize>(context: &TcContext, offset: u32) -> Option<[u8; N]> {
    context.load::<[u8; N]>(offset as usize).ok()
}

/// Reads the headers of a TCP segment with payload. Returns whether it is one of a watched port.
#[inline(always)]
pub(super) fn read(context: &TcContext, direction: Direction, link_bytes: u32, packet: &mut Packet) -> bool {
    // SAFETY: a field of the context.
    let protocol = unsafe { (*context.skb.skb).protocol };
    let (source, destination, tcp_offset, ip_end) = if protocol == ETH_P_IP {
        let Some(header) = load::<20>(context, link_bytes) else { return false };
        let fragment = u16::from_be_bytes([header[6], header[7]]);
        if header[0] >> 4 != 4 || header[9] != IPPROTO_TCP || fragment & FRAGMENT != 0 {
            return false;
        }
        let total = u32::from(u16::from_be_bytes([header[2], header[3]]));
        (
            mapped([header[12], header[13], header[14], header[15]]),
            mapped([header[16], header[17], header[18], header[19]]),
            link_bytes + (u32::from(header[0] & 0x0f) << 2),
            // More than 64 KiB (BIG TCP): 0 stands for "as long as the buffer".
            if total == 0 { context.len() } else { link_bytes + total },
        )
    } else if protocol == ETH_P_IPV6 {
        let Some(header) = load::<40>(context, link_bytes) else { return false };
        let payload = u32::from(u16::from_be_bytes([header[4], header[5]]));
        let Some(tcp_offset) = step_over_extensions(context, header[6], link_bytes + IPV6_BYTES) else {
            return false;
        };
        let mut source = [0; 16];
        source.copy_from_slice(&header[8..24]);
        let mut destination = [0; 16];
        destination.copy_from_slice(&header[24..40]);
        (
            source,
            destination,
            tcp_offset,
            if payload == 0 { context.len() } else { link_bytes + IPV6_BYTES + payload },
        )
    } else {
        return false;
    };
    let Some(tcp) = load::<20>(context, tcp_offset) else { return false };
    let header_bytes = u32::from(tcp[12] >> 4) << 2;
    if header_bytes < TCP_BYTES {
        return false;
    }
    packet.payload_offset = tcp_offset + header_bytes;
    // The IP header's length decides and not the buffer's: short Ethernet frames are padded.
    let end = ip_end.min(context.len());
    if end <= packet.payload_offset {
        return false;
    }
    packet.payload_bytes = end - packet.payload_offset;
    let source_port = u16::from_be_bytes([tcp[0], tcp[1]]);
    let destination_port = u16::from_be_bytes([tcp[2], tcp[3]]);
    packet.flow = match direction {
        Direction::Ingress => FlowKey {
            local_address: destination,
            peer_address: source,
            local_port: destination_port,
            peer_port: source_port,
            padding: 0,
        },
        Direction::Egress => FlowKey {
            local_address: source,
            peer_address: destination,
            local_port: source_port,
            peer_port: destination_port,
            padding: 0,
        },
    };
    packet.seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    if tcp[13] & SYN != 0 {
        // A SYN takes a sequence number of its own; it carries payload with TCP Fast Open.
        packet.seq = packet.seq.wrapping_add(1);
    }
    packet.direction = u32::from(direction.number());
    packet.ack_seq = u32::from_be_bytes([tcp[8], tcp[9], tcp[10], tcp[11]]);
    watched(packet.flow.local_port)
}

/// An IPv4 address as an IPv4-mapped IPv6 address.
#[inline(always)]
const fn mapped(address: [u8; 4]) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, address[0], address[1], address[2], address[3]]
}

/// The offset of the TCP header behind IPv6 extension headers (RFC 8200 section 4). `None` for anything else, for a
/// fragment, and for more headers than anybody sends.
#[inline(always)]
fn step_over_extensions(context: &TcContext, next_header: u8, offset: u32) -> Option<u32> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const DESTINATION_OPTIONS: u8 = 60;
    let mut next_header = next_header;
    let mut offset = offset;
    for _ in 0..EXTENSION_HEADERS_MAX {
        if next_header == IPPROTO_TCP {
            return Some(offset);
        }
        if !matches!(next_header, HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS) {
            return None;
        }
        let header = load::<2>(context, offset)?;
        next_header = header[0];
        offset += (u32::from(header[1]) + 1) << 3;
    }
    (next_header == IPPROTO_TCP).then_some(offset)
}
