//! The wire parser: WebSocket control frames, read off the wire at their exact positions.
//!
//! | program | hook (TCX, Linux 6.6, or clsact) | interfaces |
//! |---|---|---|
//! | `wire_ingress`, `wire_egress` | both directions | with an Ethernet header (and `lo`) |
//! | `wire_ingress_ip`, `wire_egress_ip` | both directions | without one (tun, WireGuard) |
//!
//! A packet whose local port nobody watches costs one look at its headers and one at a bitmap. On `lo` both programs
//! see every packet; only the one for which the watched port is the *local* one goes on, so nothing is seen twice.
//!
//! - [`packet`]: from an `sk_buff` to a flow and a segment.
//! - [`kernel`]: what the parser (package `ackbeat-wire`) needs from the kernel.
//! - [`heads`]: heads of upgrade requests, kept until the answer.
//! - [`kept`]: segments from the peer that came before a hole in front of them was filled.
//! - [`lock`]: one processor at a time in each direction.
//! - [`state`]: the entry of a connection.
//!
//! Needs `bpf_loop` (Linux 5.17) and atomic exchange (Linux 5.12).

mod heads;
mod kept;
mod kernel;
mod lock;
mod packet;
pub(crate) mod state;

use ackbeat_abi::{Counter, Direction, Header, Outstanding, RecordKind};
use ackbeat_wire::{
    Environment as _, Segment,
    state::{DirectionState, FlowState, phase},
    stream,
};
use aya_ebpf::{
    helpers::{bpf_get_socket_cookie, generated::bpf_ktime_get_ns},
    macros::classifier,
    programs::TcContext,
};
use kernel::Kernel;
use packet::{Packet, glance};

use crate::maps::{FLOWS, reserve, watched};

/// Goes on with the next program, or with the packet's way: this one never decides (`TCX_NEXT`, `TC_ACT_UNSPEC`).
const NEXT: i32 = -1;
/// Length of an Ethernet header, in bytes. A VLAN tag is taken out before these hooks.
const ETHERNET_BYTES: u32 = 14;

/// From the peer, interfaces with an Ethernet header.
#[classifier]
pub(crate) fn wire_ingress(context: TcContext) -> i32 {
    run::<true>(&context, ETHERNET_BYTES)
}

/// To the peer, interfaces with an Ethernet header.
#[classifier]
pub(crate) fn wire_egress(context: TcContext) -> i32 {
    run::<false>(&context, ETHERNET_BYTES)
}

/// From the peer, interfaces without a link-layer header.
#[classifier]
pub(crate) fn wire_ingress_ip(context: TcContext) -> i32 {
    run::<true>(&context, 0)
}

/// To the peer, interfaces without a link-layer header.
#[classifier]
pub(crate) fn wire_egress_ip(context: TcContext) -> i32 {
    run::<false>(&context, 0)
}

#[inline(always)]
fn run<const FROM_PEER: bool>(context: &TcContext, link_bytes: u32) -> i32 {
    let direction = if FROM_PEER { Direction::Ingress } else { Direction::Egress };
    let seen = packet::glance(context, direction, link_bytes);
    if seen != glance::NO
        && let Some(packet) = packet::room()
    {
        // SAFETY: an element of a per-CPU array, which only this run uses.
        let packet = unsafe { &mut *packet };
        if packet::read(context, direction, link_bytes, packet)
            && (seen == glance::YES || watched(packet.flow.local_port))
        {
            handle::<FROM_PEER>(context, direction, packet);
        }
    }
    NEXT
}

/// A segment with payload of a watched port.
#[inline(always)]
fn handle<const FROM_PEER: bool>(context: &TcContext, direction: Direction, packet: &mut Packet) {
    let Some(flow) = FLOWS.get_ptr_mut(&packet.flow) else {
        if matches!(direction, Direction::Ingress) {
            heads::keep_early(context, packet);
        }
        return;
    };
    let egress = matches!(direction, Direction::Egress);
    // SAFETY: the map keeps the entry's memory until the program ends. `cookie` and `quiet` are single aligned fields
    // that the sampler and the lifecycle program also write; no reader depends on two of them at once.
    unsafe {
        if egress {
            // On the way out the packet knows its socket: an entry that another socket left behind is not used.
            let cookie = bpf_get_socket_cookie(context.skb.skb.cast());
            if (*flow).cookie == 0 {
                (*flow).cookie = cookie;
            }
            if (*flow).cookie != cookie {
                if cookie != 0 {
                    let _tracked = state::open_flow(&packet.flow, cookie, true);
                }
                return;
            }
        }
        packet.cookie = (*flow).cookie;
        if egress && (*flow).quiet != 0 {
            (*flow).quiet = 0;
            outstanding(packet);
        }
    }
    // SAFETY: as above; `addr_of_mut` makes no reference.
    let (own, other) = unsafe {
        if egress {
            (&raw mut (*flow).egress, &raw mut (*flow).ingress)
        } else {
            (&raw mut (*flow).ingress, &raw mut (*flow).egress)
        }
    };
    // SAFETY: one byte, read once more under the lock where it decides.
    let seen_phase = unsafe { (*own).phase };
    if seen_phase == phase::OPAQUE {
        return;
    }
    let mut kernel = Kernel::<FROM_PEER>::new(context, packet);
    kernel.count(Counter::WireBuffers, 1);
    if !lock::acquire(own) {
        // The segment goes by unseen. Whoever holds the direction says so when it gives it back.
        // SAFETY: one byte of a live entry.
        unsafe { core::ptr::write_volatile(&raw mut (*own).contended, 1) };
        // One try more: a holder that looked before the line above has given the direction back by now, or this try
        // fails and comes before its release, after which it looks again.
        if lock::try_acquire(own) {
            settle(&mut kernel, own, direction);
        }
        return;
    }
    // The answer's end starts the other direction as well, and an acknowledgement can show that its hole will never be
    // filled. It is never the other way round, so this cannot deadlock.
    // SAFETY: one byte of a live entry, read once more under the lock where it decides.
    let waits = unsafe { (*other).kept != 0 };
    let both = egress && (seen_phase == phase::HTTP || seen_phase == phase::ANSWER || waits);
    if both && !lock::acquire(other) {
        // SAFETY: one byte of a live entry.
        unsafe { core::ptr::write_volatile(&raw mut (*own).contended, 1) };
        settle(&mut kernel, own, direction);
        return;
    }
    let segment = Segment { seq: packet.seq, length_bytes: packet.payload_bytes, ack_seq: packet.ack_seq };
    // SAFETY: the lock of `own` is held, and that of `other` where the parser follows it. What the parser touches of
    // the other direction without its lock is single bytes (`turn`, `phase`).
    let flow: &mut FlowState = unsafe { &mut *flow };
    stream::on_segment(&mut kernel, flow, direction, &segment);
    if both {
        lock::release(other);
    }
    lock::release(own);
    // SAFETY: one byte of a live entry.
    if unsafe { core::ptr::read_volatile(&raw const (*own).contended) } != 0 && lock::try_acquire(own) {
        settle(&mut kernel, own, direction);
    }
}

/// Says that a segment went by unseen because this direction was held for too long, and gives the direction back.
///
/// Only who holds the direction says it: a waiter that said it itself could be overtaken by a frame that the holder
/// reports at the same moment.
#[inline(always)]
fn settle<const FROM_PEER: bool>(
    kernel: &mut Kernel<FROM_PEER>,
    own: *mut DirectionState,
    direction: Direction,
) {
    // SAFETY: the lock of `own` is held.
    stream::contended(kernel, unsafe { &mut *own }, direction);
    lock::release(own);
}

/// Data goes out after a quiet time.
#[inline(always)]
fn outstanding(packet: &Packet) {
    let Some(mut entry) = reserve::<Outstanding>() else { return };
    let record = entry.as_mut_ptr();
    // SAFETY: the ring gave room for one record, and every member of it is written.
    unsafe {
        (*record).header = Header {
            kind: RecordKind::Outstanding.number(),
            size_bytes: size_of::<Outstanding>() as u32,
            time_ns: bpf_ktime_get_ns(),
            cookie: packet.cookie,
        };
        (*record).flow = packet.flow;
    }
    entry.submit(0);
}
