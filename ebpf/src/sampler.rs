//! Snapshots on demand (`iter/tcp`, Linux 5.9): userspace reads a pass to its end.
//!
//! The kernel walks the sockets of the reader's network namespace, listeners first, and holds each socket's lock
//! (before Linux 5.15 that of its hash bucket) while the program looks at it. Request and time-wait sockets are not full sockets: they convert to null.

use core::{ffi::c_void, mem::MaybeUninit};

use ackbeat_abi::{Member, Snapshot, TCP_LISTEN};
use aya_ebpf::{
    bindings::seq_file,
    helpers::generated::{bpf_seq_write, bpf_skc_to_tcp_sock},
};

use crate::{
    flow,
    maps::{FLOWS, watch, watched},
    members::{read, watch_all_listeners},
    snapshot,
};

/// `struct bpf_iter__tcp` (`net/ipv4/tcp_ipv4.c`): part of the interface to programs, so its layout stands here.
#[repr(C)]
pub(crate) struct IteratorContext {
    meta: *const IteratorMeta,
    sk_common: *const c_void,
    uid: u32,
}

/// `struct bpf_iter_meta` (`include/linux/bpf.h`), the member that is used.
#[repr(C)]
struct IteratorMeta {
    seq: *mut seq_file,
}

/// States of a connection that is established or closes. `SYN_RECV` is left to the program that sees it open.
const fn is_connected(state: u8) -> bool {
    /// `ESTABLISHED`, `FIN_WAIT1`, `FIN_WAIT2`, `CLOSE_WAIT`, `LAST_ACK`, `CLOSING` (`include/net/tcp_states.h`).
    const CONNECTED: u32 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
    (CONNECTED >> (state & 31)) & 1 == 1
}

/// The full socket that this call is about.
#[inline(always)]
fn socket(ctx: *mut IteratorContext) -> Option<*const c_void> {
    // SAFETY: the context lives as long as the call. At the end of a pass there is one call more, without a socket.
    let sk = unsafe { (*ctx).sk_common };
    if sk.is_null() {
        return None;
    }
    // SAFETY: the helper takes a socket and gives a `struct tcp_sock` or null.
    let tcp = unsafe { bpf_skc_to_tcp_sock(sk.cast_mut()) }.cast_const().cast::<c_void>();
    if tcp.is_null() { None } else { Some(tcp) }
}

/// Writes a snapshot to the reader. Returns false where the reader's buffer is full: the kernel then shows the same
/// socket again.
#[inline(always)]
fn write(ctx: *mut IteratorContext, snapshot: &MaybeUninit<Snapshot>) -> bool {
    // SAFETY: the context and what it points to live as long as the call; the snapshot was filled.
    unsafe { bpf_seq_write((*(*ctx).meta).seq, snapshot.as_ptr().cast(), size_of::<Snapshot>() as u32) == 0 }
}

/// The tracked connections. Also notes which of them have nothing to send: the wire programs say when that changes.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/tcp")]
pub(crate) fn sample_tracked(ctx: *mut IteratorContext) -> i32 {
    let Some(tcp) = socket(ctx) else { return 0 };
    // SAFETY: `tcp` is a `struct tcp_sock`.
    let state = unsafe { read(tcp, Member::State) } as u8;
    if !is_connected(state) {
        return 0;
    }
    // SAFETY: `tcp` is a `struct tcp_sock`.
    let (key, cookie) = unsafe { (flow::key(tcp), flow::cookie(tcp)) };
    let Some(state_of_flow) = flow::tracked(&key, cookie) else { return 0 };
    let mut snapshot = MaybeUninit::<Snapshot>::uninit();
    // SAFETY: `tcp` is a `struct tcp_sock`.
    unsafe { snapshot::fill(snapshot.as_mut_ptr(), tcp, &key, cookie, state) };
    if write(ctx, &snapshot) {
        // SAFETY: the snapshot was filled above.
        let quiet = unsafe { (*snapshot.as_ptr()).write_seq == (*snapshot.as_ptr()).snd_una };
        flow::set_quiet(state_of_flow, quiet);
    }
    0
}

/// Every listener, and every connection; those of watched ports that are not tracked yet are from now on.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/tcp")]
pub(crate) fn sample_all(ctx: *mut IteratorContext) -> i32 {
    let Some(tcp) = socket(ctx) else { return 0 };
    // SAFETY: `tcp` is a `struct tcp_sock`.
    let state = unsafe { read(tcp, Member::State) } as u8;
    // SAFETY: `tcp` is a `struct tcp_sock`.
    let (key, cookie) = unsafe { (flow::key(tcp), flow::cookie(tcp)) };
    let mut adopted = false;
    if state == TCP_LISTEN {
        if watch_all_listeners() {
            watch(key.local_port);
        }
    } else if !is_connected(state) {
        return 0;
    } else if watched(key.local_port) {
        // SAFETY: `tcp` is a `struct tcp_sock`.
        let quiet = unsafe { read(tcp, Member::WriteSeq) as u32 == read(tcp, Member::SndUna) as u32 };
        adopted = flow::track_midstream(&key, cookie, quiet);
    }
    let mut snapshot = MaybeUninit::<Snapshot>::uninit();
    // SAFETY: `tcp` is a `struct tcp_sock`; the snapshot can be written.
    unsafe {
        snapshot::fill(snapshot.as_mut_ptr(), tcp, &key, cookie, state);
        (*snapshot.as_mut_ptr()).adopted = u8::from(adopted);
    }
    if !write(ctx, &snapshot) && adopted {
        // The reader did not learn of it; it is adopted when the kernel shows it again.
        let _gone = FLOWS.remove(&key);
    }
    0
}
