//! From an `sk_buff` to a flow and a segment.

use core::mem::{offset_of, transmute};

use ackbeat_abi::{Direction, FlowKey};
use aya_ebpf::{helpers::generated::bpf_skb_load_bytes, macros::map, maps::PerCpuArray, programs::TcContext};

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
const RST: u8 = 0x04;

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
    /// Room for the IP header.
    ip: [u8; IPV6_BYTES as usize],
    /// Room for the TCP header, or an extension header of IPv6.
    tcp: [u8; TCP_BYTES as usize],
    /// 0 while bytes come from the packet, else one more than the place of the kept segment that they come from.
    ///
    /// A number here and not a pointer on the stack: eight pointers with eight offsets are eight cases, and the verifier
    /// told 434,000 instructions apart instead of some 50,000.
    pub(super) kept_place: u32,
}

/// The packet at hand, one for each processor: these hooks run with soft interrupts off, and none runs inside another.
#[map]
static PACKET: PerCpuArray<Packet> = PerCpuArray::with_max_entries(1, 0);

/// Room for the packet at hand.
#[inline(always)]
pub(super) fn room() -> Option<*mut Packet> {
    PACKET.get_ptr_mut(0)
}

/// What a first look at a packet says. Numbers and no `enum`: of one the compiler makes branches that the verifier follows
/// each by itself.
pub(super) mod glance {
    /// No segment with payload of a watched port.
    pub(in super::super) const NO: u32 = 0;
    /// A packet of a watched port, with payload if it is a whole segment.
    pub(in super::super) const YES: u32 = 1;
    /// Its headers are not in the linear part, or IPv6 has extension headers.
    pub(in super::super) const UNKNOWN: u32 = 2;
}

/// Looks whether the packet is a segment with payload of a watched port. Reads the packet in place, calls no helper but for
/// the bitmap.
#[inline(always)]
pub(super) fn glance(context: &TcContext, direction: Direction, link_bytes: u32) -> u32 {
    // SAFETY: a field of the context.
    let protocol = unsafe { (*context.skb.skb).protocol };
    let data = context.data();
    let data_end = context.data_end();
    let ip = data + link_bytes as usize;
    // Where the TCP header begins, and bytes of it and the payload together (0: not known).
    let (tcp, tcp_bytes) = if protocol == ETH_P_IP {
        if ip + IPV4_BYTES as usize > data_end {
            return glance::UNKNOWN;
        }
        // SAFETY: the 20 bytes are inside the packet, as just checked; unaligned.
        let (version_length, total, next) =
            unsafe { (*(ip as *const u8), *((ip + 2) as *const [u8; 2]), *((ip + 9) as *const u8)) };
        if next != IPPROTO_TCP {
            return glance::NO;
        }
        let header_bytes = (version_length & 0x0f) << 2;
        (
            ip + usize::from(header_bytes),
            u32::from(u16::from_be_bytes(total)).saturating_sub(u32::from(header_bytes)),
        )
    } else if protocol == ETH_P_IPV6 {
        if ip + IPV6_BYTES as usize > data_end {
            return glance::UNKNOWN;
        }
        // SAFETY: the 40 bytes are inside the packet, as just checked; unaligned.
        let (payload, next) = unsafe { (*((ip + 4) as *const [u8; 2]), *((ip + 6) as *const u8)) };
        if next != IPPROTO_TCP {
            // An extension header, or another protocol: the slow way finds out.
            return glance::UNKNOWN;
        }
        (ip + IPV6_BYTES as usize, u32::from(u16::from_be_bytes(payload)))
    } else {
        return glance::NO;
    };
    if tcp + TCP_BYTES as usize > data_end {
        return glance::UNKNOWN;
    }
    let port = match direction {
        Direction::Ingress => tcp + 2,
        Direction::Egress => tcp,
    };
    // SAFETY: the 20 bytes are inside the packet, as just checked; unaligned.
    let (port, offset) = unsafe { (*(port as *const [u8; 2]), *((tcp + 12) as *const u8)) };
    // An acknowledgement without payload ends here: its header is all that there is.
    if watched(u16::from_be_bytes(port)) && tcp_bytes != u32::from(offset >> 4) << 2 {
        glance::YES
    } else {
        glance::NO
    }
}

/// Copies a header that begins at `offset` into `to`, whose beginning is aligned: in words where it lies in the buffer's
/// linear part, as it mostly does, else by the helper. `N` is its length, a multiple of 4. Returns whether it is there.
#[inline(always)]
fn load_header<const N: u32>(context: &TcContext, offset: u32, to: &mut [u8]) -> bool {
    let from = context.data() + offset as usize;
    if from + N as usize > context.data_end() {
        // SAFETY: every caller gives a room that the length fits in.
        return unsafe {
            bpf_skb_load_bytes(context.skb.skb.cast_const().cast(), offset, to.as_mut_ptr().cast(), N) == 0
        };
    }
    for word in 0..N as usize / 4 {
        // SAFETY: inside the packet, as just checked; every caller gives an aligned room that the length fits in.
        unsafe { to.as_mut_ptr().cast::<u32>().add(word).write(word_at(from + word * 4)) };
    }
    true
}

/// 4 bytes of the packet, as they lie there.
///
/// Assembly, because it need not be aligned: of an unaligned read the compiler makes four loads and shifts.
///
/// # Safety
/// The caller has compared `at + 4` with the packet's end.
#[inline(always)]
unsafe fn word_at(at: usize) -> u32 {
    let word: u64;
    // SAFETY: as the caller promises; the verifier checks it.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("{0} = *(u32 *)({1} + 0)", out(reg) word, in(reg) at, options(pure, readonly, nostack));
    }
    // SAFETY: as the caller promises.
    #[cfg(not(target_arch = "bpf"))]
    unsafe {
        word = u64::from((at as *const u32).read_unaligned());
    }
    word as u32
}

/// Copies bytes of the packet from `offset` on. Returns whether they are there.
#[inline(always)]
fn load<const N: usize>(context: &TcContext, offset: u32, to: &mut [u8; N], length: u32) -> bool {
    // SAFETY: every caller gives a constant length that fits.
    unsafe {
        bpf_skb_load_bytes(context.skb.skb.cast_const().cast(), offset, to.as_mut_ptr().cast(), length) == 0
    }
}

/// Reads the headers of a TCP segment with payload. Returns whether it is one.
#[inline(always)]
pub(super) fn read(context: &TcContext, direction: Direction, link_bytes: u32, packet: &mut Packet) -> bool {
    // SAFETY: a field of the context.
    let protocol = unsafe { (*context.skb.skb).protocol };
    let (tcp_offset, ip_end) = if protocol == ETH_P_IP {
        if !load_header::<IPV4_BYTES>(context, link_bytes, &mut packet.ip) {
            return false;
        }
        let ip = &packet.ip;
        let fragment = u16::from_be_bytes([ip[6], ip[7]]);
        if ip[0] >> 4 != 4 || ip[9] != IPPROTO_TCP || fragment & FRAGMENT != 0 {
            return false;
        }
        // SAFETY: both are inside of the room, 4 bytes each, and aligned, as is asserted below.
        let (source, destination) = unsafe {
            (mapped(*ip.as_ptr().add(12).cast::<u32>()), mapped(*ip.as_ptr().add(16).cast::<u32>()))
        };
        let total = u32::from(u16::from_be_bytes([ip[2], ip[3]]));
        let tcp_offset = link_bytes + (u32::from(ip[0] & 0x0f) << 2);
        set_addresses(packet, direction, source, destination);
        // More than 64 KiB (BIG TCP): 0 stands for "as long as the buffer".
        (tcp_offset, if total == 0 { context.len() } else { link_bytes + total })
    } else if protocol == ETH_P_IPV6 {
        if !load_header::<IPV6_BYTES>(context, link_bytes, &mut packet.ip) {
            return false;
        }
        let ip = &packet.ip;
        let payload = u32::from(u16::from_be_bytes([ip[4], ip[5]]));
        let mut source = [0; 16];
        source.copy_from_slice(&ip[8..24]);
        let mut destination = [0; 16];
        destination.copy_from_slice(&ip[24..40]);
        let next_header = ip[6];
        set_addresses(packet, direction, source, destination);
        let tcp_offset = step_over_extensions(context, next_header, link_bytes + IPV6_BYTES, &mut packet.tcp);
        if tcp_offset == 0 {
            return false;
        }
        (tcp_offset, if payload == 0 { context.len() } else { link_bytes + IPV6_BYTES + payload })
    } else {
        return false;
    };
    if !load_header::<TCP_BYTES>(context, tcp_offset, &mut packet.tcp) {
        return false;
    }
    let tcp = &packet.tcp;
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
    (packet.flow.local_port, packet.flow.peer_port) = match direction {
        Direction::Ingress => (destination_port, source_port),
        Direction::Egress => (source_port, destination_port),
    };
    packet.flow.padding = 0;
    // What the last packet left here must not be taken for this one's.
    packet.kept_place = 0;
    packet.seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    if tcp[13] & RST != 0 {
        // What a reset carries is a remark, not part of the stream (RFC 9293 section 3.10.7).
        return false;
    }
    if tcp[13] & SYN != 0 {
        // A SYN takes a sequence number of its own; it carries payload with TCP Fast Open.
        packet.seq = packet.seq.wrapping_add(1);
    }
    packet.ack_seq = u32::from_be_bytes([tcp[8], tcp[9], tcp[10], tcp[11]]);
    true
}

#[inline(always)]
fn set_addresses(packet: &mut Packet, direction: Direction, source: [u8; 16], destination: [u8; 16]) {
    (packet.flow.local_address, packet.flow.peer_address) = match direction {
        Direction::Ingress => (destination, source),
        Direction::Egress => (source, destination),
    };
}

/// The addresses of an IPv4 header in the room are aligned, so that each is one load; so are words of both headers.
const _: () = assert!(
    align_of::<Packet>() >= 4
        && offset_of!(Packet, ip).is_multiple_of(4)
        && offset_of!(Packet, tcp).is_multiple_of(4)
);

/// An IPv4 address, in network order, as an IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2).
///
/// In words: of bytes the compiler makes a call of `memset`, which here is a loop over each of them.
#[inline(always)]
const fn mapped(address: u32) -> [u8; 16] {
    // SAFETY: both are 16 bytes, and every byte string is an array of numbers.
    unsafe { transmute::<[u32; 4], [u8; 16]>([0, 0, u32::from_ne_bytes([0, 0, 0xff, 0xff]), address]) }
}

/// The offset of the TCP header behind IPv6 extension headers (RFC 8200 section 4). 0 for anything else, for a
/// fragment, and for more headers than anybody sends.
#[inline(always)]
fn step_over_extensions(
    context: &TcContext,
    next_header: u8,
    offset: u32,
    room: &mut [u8; TCP_BYTES as usize],
) -> u32 {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const DESTINATION_OPTIONS: u8 = 60;
    let mut next_header = next_header;
    let mut offset = offset;
    for _ in 0..EXTENSION_HEADERS_MAX {
        if next_header == IPPROTO_TCP {
            return offset;
        }
        if !matches!(next_header, HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS)
            || !load(context, offset, room, 2)
        {
            return 0;
        }
        next_header = room[0];
        offset += (u32::from(room[1]) + 1) << 3;
    }
    if next_header == IPPROTO_TCP { offset } else { 0 }
}
