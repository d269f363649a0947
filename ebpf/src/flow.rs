//! Who talks to whom: the key of a connection, and its entry in the map of flows.

use core::{ffi::c_void, mem::transmute};

use ackbeat_abi::{Counter, FlowKey, Member};
use aya_ebpf::helpers::bpf_get_socket_cookie;

use crate::{
    maps::{FLOWS, count},
    members::{read, read_at},
    wire::state::{FlowState, open_flow},
};

/// `AF_INET` (`include/linux/socket.h`).
const AF_INET: u64 = 2;
/// Third word of an IPv4-mapped IPv6 address (RFC 4291 section 2.5.5.2).
const MAPPED: u32 = u32::from_ne_bytes([0, 0, 0xff, 0xff]);

/// The socket's cookie; the kernel makes one up if there is none yet (Linux 5.12 for tracing programs).
///
/// # Safety
/// `sk` is a socket, as the verifier knows.
#[inline(always)]
pub(crate) unsafe fn cookie(sk: *const c_void) -> u64 {
    // SAFETY: passed on to the caller; the helper takes any `struct sock_common`.
    unsafe { bpf_get_socket_cookie(sk.cast_mut().cast()) }
}

/// The local port, 0 if the socket has none (yet).
///
/// # Safety
/// `tcp` is a `struct tcp_sock`, as the verifier knows.
#[inline(always)]
pub(crate) unsafe fn local_port(tcp: *const c_void) -> u16 {
    // SAFETY: passed on to the caller.
    let port = unsafe { read(tcp, Member::LocalPort) } as u16;
    if port != 0 {
        return port;
    }
    // An accepted socket that enters CLOSE has given its port back already: see `Member::LocalPortSent`.
    // SAFETY: passed on to the caller.
    u16::from_be(unsafe { read(tcp, Member::LocalPortSent) } as u16)
}

/// The two ends of a connection.
///
/// # Safety
/// `tcp` is a `struct tcp_sock`, as the verifier knows.
#[inline(always)]
pub(crate) unsafe fn key(tcp: *const c_void) -> FlowKey {
    // SAFETY: passed on to the caller; an `in6_addr` is 16 bytes long.
    unsafe {
        let (local, peer) = if read(tcp, Member::Family) == AF_INET {
            (
                [0, 0, MAPPED, read(tcp, Member::LocalAddressV4) as u32],
                [0, 0, MAPPED, read(tcp, Member::PeerAddressV4) as u32],
            )
        } else {
            (address(tcp, Member::LocalAddressV6), address(tcp, Member::PeerAddressV6))
        };
        FlowKey {
            local_address: transmute::<[u32; 4], [u8; 16]>(local),
            peer_address: transmute::<[u32; 4], [u8; 16]>(peer),
            local_port: local_port(tcp),
            peer_port: u16::from_be(read(tcp, Member::PeerPort) as u16),
            padding: 0,
        }
    }
}

/// An IPv6 address.
///
/// # Safety
/// `tcp` is a `struct tcp_sock`, as the verifier knows, and the member an `in6_addr`.
#[inline(always)]
unsafe fn address(tcp: *const c_void, member: Member) -> [u32; 4] {
    // SAFETY: passed on to the caller; two halves of 8 bytes.
    unsafe { transmute::<[u64; 2], [u32; 4]>([read_at(tcp, member, 0), read_at(tcp, member, 8)]) }
}

/// 4 or 6. An IPv4-mapped address on an IPv6 socket is IPv4 on the wire.
#[inline(always)]
pub(crate) fn ip_version(key: &FlowKey) -> u8 {
    // SAFETY: both are 16 bytes, and every byte string is an array of numbers.
    let words = unsafe { transmute::<[u8; 16], [u32; 4]>(key.peer_address) };
    if words[0] == 0 && words[1] == 0 && words[2] == MAPPED { 4 } else { 6 }
}

/// Tracks a connection that was just established. An older entry of the same ends belonged to another socket.
///
/// Nothing is outstanding yet: the first data is worth a record. Returns whether there was room. The caller holds the
/// socket's lock.
#[inline(always)]
pub(crate) fn track_opened(key: &FlowKey, cookie: u64) -> bool {
    track(key, cookie, false, true)
}

/// Tracks a connection that is older than the programs, unless it is tracked already. `quiet`: nothing is outstanding.
///
/// Returns whether it was added. The caller holds the socket's lock.
#[inline(always)]
pub(crate) fn track_midstream(key: &FlowKey, cookie: u64, quiet: bool) -> bool {
    tracked(key, cookie).is_none() && track(key, cookie, true, quiet)
}

#[inline(always)]
fn track(key: &FlowKey, cookie: u64, midstream: bool, quiet: bool) -> bool {
    if open_flow(key, cookie, midstream)
        && let Some(state) = FLOWS.get_ptr_mut(key)
    {
        set_quiet(state, quiet);
        return true;
    }
    count(Counter::FlowsRejected);
    false
}

/// Notes whether nothing is outstanding; then the wire programs say when that changes.
#[inline(always)]
pub(crate) fn set_quiet(flow: *mut FlowState, quiet: bool) {
    // SAFETY: the pointer is to a live, aligned value of the map. The socket's lock is held: its data cannot go out
    // between the look at the queue and this write.
    unsafe { core::ptr::write_volatile(&raw mut (*flow).quiet, u8::from(quiet)) };
}

/// The entry of this very socket, if it is tracked.
#[inline(always)]
pub(crate) fn tracked(key: &FlowKey, cookie: u64) -> Option<*mut FlowState> {
    let state = FLOWS.get_ptr_mut(key)?;
    // SAFETY: the pointer is to a live, aligned value of the map.
    if unsafe { (*state).cookie } == cookie { Some(state) } else { None }
}
