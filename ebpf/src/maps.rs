//! The maps that more than one program uses.

use ackbeat_abi::{COUNTER_COUNT, FlowKey, WATCHED_PORT_WORDS};
use aya_ebpf::{
    bindings::BPF_F_NO_PREALLOC,
    macros::map,
    maps::{Array, HashMap, PerCpuArray, RingBuf},
};

use crate::wire::state::FlowState;

/// Records for userspace.
#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(4 * 1024 * 1024, 0);

/// One bit for each port that is watched: bit `port % 64` of word `port / 64`.
#[map]
pub(crate) static WATCHED_PORTS: Array<u64> = Array::with_max_entries(WATCHED_PORT_WORDS, 0);

/// Totals, indexed by `Counter`.
#[map]
pub(crate) static COUNTERS: PerCpuArray<u64> = PerCpuArray::with_max_entries(COUNTER_COUNT, 0);

/// What is known of each tracked connection. Memory is taken as connections come, not ahead of them.
#[map]
pub(crate) static FLOWS: HashMap<FlowKey, FlowState> = HashMap::with_max_entries(65_536, BPF_F_NO_PREALLOC);
