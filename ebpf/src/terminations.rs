//! Processes that are told to stop (`tp_btf/signal_generate`, Linux 2.6.33).
//!
//! Looked at where the signal is sent and not where it is delivered: a process that handles it nowhere is ended by a SIGKILL
//! of the kernel's own (`complete_signal()`), and one that reads its signals from a descriptor is delivered none.

use core::ffi::c_void;

use ackbeat_abi::{Header, Member, RecordKind, Termination};
use aya_ebpf::{
    helpers::generated::bpf_ktime_get_ns, macros::btf_tracepoint, programs::BtfTracePointContext,
};

use crate::{
    maps::reserve,
    members::{has, is_task_in_our_namespace, read},
};

/// Number of the signal, the same on every architecture that runs eBPF.
const SIGTERM: i32 = 15;
/// Nobody will see it: the task ignores it (`TRACE_SIGNAL_IGNORED`, include/trace/events/signal.h).
const IGNORED: i32 = 1;

/// Reports a SIGTERM to a process of the pod.
#[btf_tracepoint(function = "signal_generate")]
pub(crate) fn terminations(ctx: BtfTracePointContext) -> i32 {
    if ctx.arg::<i32>(0) != SIGTERM || ctx.arg::<i32>(4) == IGNORED {
        return 0;
    }
    let task: *const c_void = ctx.arg(2);
    // SAFETY: the third argument of this tracepoint is a `struct task_struct`.
    if unsafe { !is_task_in_our_namespace(task) } || !has(Member::TaskProcess) {
        return 0;
    }
    if let Some(mut entry) = reserve::<Termination>() {
        let record = entry.as_mut_ptr();
        // SAFETY: the ring gave room for one record, and every member of it is written here; `task` is a
        // `struct task_struct`.
        unsafe {
            (*record).header = Header {
                kind: RecordKind::Termination.number(),
                size_bytes: size_of::<Termination>() as u32,
                time_ns: bpf_ktime_get_ns(),
                cookie: 0,
            };
            (*record).process_id = read(task, Member::TaskProcess) as u32;
            (*record).padding = 0;
        }
        entry.submit(0);
    }
    0
}
