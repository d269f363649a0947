//! The value of the map `FLOWS`, and how an entry begins.

use ackbeat_abi::FlowKey;
pub(crate) use ackbeat_wire::state::{FlowState, phase};
use aya_ebpf::{bindings::BPF_NOEXIST, macros::map, maps::Array};

use crate::maps::FLOWS;

/// One entry that nobody writes: a connection that was just opened. A `FlowState` is larger than a program's stack.
#[map]
static OPENED: Array<FlowState> = Array::with_max_entries(1, 0);

/// Makes the entry of a connection, in place of one that another socket left behind.
///
/// `midstream` says that the connection is older than the parser, so that the position of the next frame header is
/// not known. An entry of the same socket is left as it is. Returns whether the connection has an entry now.
#[inline(always)]
pub(crate) fn open_flow(flow: &FlowKey, cookie: u64, midstream: bool) -> bool {
    if let Some(state) = FLOWS.get_ptr_mut(flow) {
        // SAFETY: the map keeps the entry's memory until the program ends; plain fields, written whole.
        let found = unsafe { (*state).cookie };
        if found == cookie {
            return true;
        }
        if FLOWS.remove(flow).is_err() {
            return false;
        }
    }
    let Some(opened) = OPENED.get_ptr(0) else { return false };
    // SAFETY: the array's entry lives as long as the map and is never written.
    if FLOWS.insert(flow, unsafe { &*opened }, u64::from(BPF_NOEXIST)).is_err() {
        return false;
    }
    let Some(state) = FLOWS.get_ptr_mut(flow) else { return false };
    // SAFETY: as above.
    unsafe {
        (*state).cookie = cookie;
        if midstream {
            (*state).ingress.phase = phase::MIDSTREAM;
            (*state).egress.phase = phase::MIDSTREAM;
        }
    }
    true
}
