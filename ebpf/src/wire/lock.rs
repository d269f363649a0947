//! One processor at a time in each direction of a connection.
//!
//! Segments of one direction can be handled on two processors: on `lo` and `veth` a packet's receive queue is the
//! sending processor's, and the sender may move. The verifier allows no helper call under a `bpf_spin_lock`, and the
//! parser reads packets with helpers, so this is a flag with a bounded wait. These hooks run with soft interrupts
//! off, so the holder is not preempted by a waiter on its own processor.

use core::ffi::c_void;

use ackbeat_wire::state::DirectionState;
use aya_ebpf::helpers::generated::bpf_loop;

/// Tries before the wait is given up: some tens of microseconds, many times what a segment takes.
const TRIES_MAX: u32 = 2_000;

/// Takes a direction if nobody holds it. Returns whether it is held now.
#[inline(always)]
pub(super) fn try_acquire(state: *mut DirectionState) -> bool {
    exchange(state, 1) == 0
}

/// Waits for a direction. Returns whether it is held now.
#[inline(always)]
pub(super) fn acquire(state: *mut DirectionState) -> bool {
    if try_acquire(state) {
        return true;
    }
    let mut waiting = Waiting { state, acquired: 0 };
    // SAFETY: the callback takes exactly this context, and the loop ends before `waiting` does.
    unsafe {
        bpf_loop(TRIES_MAX, try_again as *mut c_void, (&raw mut waiting).cast(), 0);
    }
    waiting.acquired != 0
}

/// Gives a direction back.
#[inline(always)]
pub(super) fn release(state: *mut DirectionState) {
    exchange(state, 0);
}

#[repr(C)]
struct Waiting {
    state: *mut DirectionState,
    acquired: u64,
}

unsafe extern "C" fn try_again(_index: u64, context: *mut c_void) -> i64 {
    let waiting = context.cast::<Waiting>();
    // SAFETY: `context` is what `acquire` gave.
    unsafe {
        if exchange((*waiting).state, 1) == 0 {
            (*waiting).acquired = 1;
            return 1;
        }
    }
    0
}

/// Writes the flag and gives its old value, atomically and with a full barrier (BPF_XCHG, Linux 5.12).
#[inline(always)]
fn exchange(state: *mut DirectionState, value: u64) -> u64 {
    // SAFETY: makes no reference; the entry is alive.
    let busy = unsafe { &raw mut (*state).busy };
    let mut old = value;
    // SAFETY: one aligned 8-byte read-modify-write of a live map value; the verifier checks the place. Assembly, because
    // `core` declares no atomic read-modify-write operations for this target.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("{old} = xchg_64({busy} + 0, {old})", old = inout(reg) old, busy = in(reg) busy);
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        old = busy as u64;
    }
    old
}
