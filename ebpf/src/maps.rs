//! The maps, and the few operations on them that several programs share.

use ackbeat_abi::{COUNTER_COUNT, Counter, FlowKey, WATCHED_PORT_WORDS};
use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    macros::map,
    maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf, ring_buf::RingBufEntry},
};

use crate::wire::state::FlowState;

/// Records for userspace. Userspace sets the size.
#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(4 << 20, 0);

/// Totals, one slot for each [`Counter`].
#[map]
pub(crate) static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(COUNTER_COUNT, 0);

/// Bitmap of the ports that are watched: port `p` is bit `p % 64` of word `p / 64`.
#[map]
pub(crate) static WATCHED_PORTS: Array<u64> = Array::with_max_entries(WATCHED_PORT_WORDS, 0);

/// The tracked connections. Not preallocated: a pod with ten connections does not pay for 65,536.
#[map]
pub(crate) static FLOWS: HashMap<FlowKey, FlowState> = HashMap::with_max_entries(65_536, BPF_F_NO_PREALLOC);

/// Since when a connection repeats what is not acknowledged; the key is the socket cookie.
#[map]
pub(crate) static RETRANSMITS: LruHashMap<u64, Retransmitting> = LruHashMap::with_max_entries(65_536, 0);

/// Value of [`RETRANSMITS`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Retransmitting {
    /// Time of the first retransmission since `snd_una` last moved, in nanoseconds.
    pub(crate) since_ns: u64,
    /// `snd_una` at that time.
    pub(crate) snd_una: u32,
    /// Retransmissions since then.
    pub(crate) count: u32,
}

/// Adds one.
#[inline(always)]
pub(crate) fn count(counter: Counter) {
    if let Some(slot) = COUNTERS.get_ptr_mut(counter.number()) {
        add(slot, 1);
    }
}

/// Adds to a counter, atomically (BPF_ATOMIC with BPF_ADD): the slot belongs to this processor, but a softirq may run its
/// own programs in the middle of one that a system call runs.
#[inline(always)]
pub(crate) fn add(slot: *mut u64, amount: u64) {
    // SAFETY: one aligned 8-byte read-modify-write of a live element of the map; the verifier checks the place. Assembly
    // for the same reason as in `atomic_or`.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("lock *(u64 *)({slot} + 0) += {amount}", slot = in(reg) slot, amount = in(reg) amount);
    }
    #[cfg(not(target_arch = "bpf"))]
    let _only_checked_here = (slot, amount);
}

/// Adds to a counter that only the wire programs write. They run with soft interrupts off and none of them inside another,
/// so nothing comes between reading and writing the slot of this processor; an atomic addition costs some five nanoseconds.
#[inline(always)]
pub(crate) fn add_alone(slot: *mut u64, amount: u64) {
    // SAFETY: one aligned element of a per-CPU map, which lives as long as the program.
    unsafe { slot.write(slot.read().wrapping_add(amount)) };
}

/// Room for one record in the ring. The caller writes every member of it in place, then submits it.
///
/// Counts the attempt, and the loss if the ring is full: sent = submitted + dropped, always.
#[inline(always)]
pub(crate) fn reserve<T: 'static>() -> Option<RingBufEntry<T>> {
    count(Counter::RecordsSent);
    let entry = EVENTS.reserve::<T>(0);
    if entry.is_none() {
        count(Counter::RecordsDropped);
    }
    entry
}

/// Whether this local port is watched.
#[inline(always)]
pub(crate) fn watched(port: u16) -> bool {
    match WATCHED_PORTS.get(u32::from(port) / 64) {
        Some(word) => (*word >> (port % 64)) & 1 == 1,
        None => false,
    }
}

/// Watches a port from now on.
#[inline(always)]
pub(crate) fn watch(port: u16) {
    if !watched(port)
        && let Some(word) = WATCHED_PORTS.get_ptr_mut(u32::from(port) / 64)
    {
        atomic_or(word, 1 << (port % 64));
    }
}

/// Sets bits, atomically (BPF_ATOMIC with BPF_OR, Linux 5.12): two ports of one word may begin to listen at once.
#[inline(always)]
fn atomic_or(word: *mut u64, bits: u64) {
    // SAFETY: one aligned 8-byte read-modify-write of a live element of the map; the verifier checks the place. Assembly,
    // because `core` declares no atomic read-modify-write operations for this target.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("lock *(u64 *)({word} + 0) |= {bits}", word = in(reg) word, bits = in(reg) bits);
    }
    #[cfg(not(target_arch = "bpf"))]
    let _only_checked_here = (word, bits);
}
