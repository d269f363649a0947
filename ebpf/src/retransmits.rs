//! Retransmissions, counted per socket (`tp_btf/tcp_retransmit_skb`, Linux 4.15). Never one event each.

use core::ffi::c_void;

use ackbeat_abi::{Counter, Member};
use aya_ebpf::{
    bindings::BPF_ANY,
    helpers::generated::{bpf_ktime_get_ns, bpf_skc_to_tcp_sock},
    macros::btf_tracepoint,
    programs::BtfTracePointContext,
};

use crate::{
    flow,
    maps::{RETRANSMITS, Retransmitting, count, watched},
    members::{in_our_namespace, read},
};

/// Remembers since when a connection repeats itself.
#[btf_tracepoint(function = "tcp_retransmit_skb")]
pub(crate) fn retransmits(ctx: BtfTracePointContext) -> i32 {
    let sk: *const c_void = ctx.arg(0);
    // SAFETY: the first argument of this tracepoint is a `struct sock`.
    if unsafe { !in_our_namespace(sk) } {
        return 0;
    }
    count(Counter::Retransmits);
    // SAFETY: the helper takes a socket and gives a `struct tcp_sock` or null.
    let tcp = unsafe { bpf_skc_to_tcp_sock(sk.cast_mut()) }.cast_const().cast::<c_void>();
    // SAFETY: `tcp` is a `struct tcp_sock` where it is not null.
    if tcp.is_null() || unsafe { !watched(flow::local_port(tcp)) } {
        return 0;
    }
    // SAFETY: `tcp` is a `struct tcp_sock`.
    let (cookie, snd_una) = unsafe { (flow::cookie(tcp), read(tcp, Member::SndUna) as u32) };
    if let Some(retransmitting) = RETRANSMITS.get_ptr_mut(cookie) {
        // SAFETY: the pointer is to a live, aligned value of the map; the socket's lock is held, so nobody else writes.
        let retransmitting = unsafe { &mut *retransmitting };
        if retransmitting.snd_una == snd_una {
            retransmitting.count = retransmitting.count.wrapping_add(1);
            return 0;
        }
    }
    // The first one, or the first since the peer acknowledged something new.
    // SAFETY: the helper has no preconditions.
    let since_ns = unsafe { bpf_ktime_get_ns() };
    let _full =
        RETRANSMITS.insert(cookie, Retransmitting { since_ns, snd_una, count: 1 }, u64::from(BPF_ANY));
    0
}
