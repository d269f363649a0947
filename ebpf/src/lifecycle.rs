//! Connections open and close (`tp_btf/inet_sock_set_state`, Linux 4.16).
//!
//! The tracepoint fires before the new state is stored, in whatever context the transition happens: in the task that
//! called `close()`, or in the softirq that handled the peer's segment or a timer. A task owns the socket while it
//! works on it (`sk_lock.owned`), a softirq never does: that tells the two apart.

use core::ffi::c_void;

use ackbeat_abi::{
    ANCESTORS_MAX, COMM_BYTES, Counter, Header, Lifecycle, Member, RecordKind, TCP_LISTEN, task_flags,
};
use aya_ebpf::{
    helpers::{
        bpf_get_current_pid_tgid,
        generated::{bpf_get_current_comm, bpf_get_current_task_btf, bpf_ktime_get_ns, bpf_skc_to_tcp_sock},
    },
    macros::btf_tracepoint,
    programs::BtfTracePointContext,
};

use crate::{
    flow,
    maps::{FLOWS, count, reserve, watch, watched},
    members::{has, in_our_namespace, read, watch_all_listeners},
    snapshot,
};

/// States of a TCP connection (`include/net/tcp_states.h`).
const TCP_ESTABLISHED: u8 = 1;
const TCP_SYN_RECV: u8 = 3;
const TCP_CLOSE: u8 = 7;

/// The task is exiting (`PF_EXITING`, `include/linux/sched.h`).
const PF_EXITING: u64 = 4;

/// Reports listeners, and the transitions of tracked connections.
#[btf_tracepoint(function = "inet_sock_set_state")]
pub(crate) fn lifecycle(ctx: BtfTracePointContext) -> i32 {
    let sk: *const c_void = ctx.arg(0);
    // SAFETY: the first argument of this tracepoint is a `struct sock`.
    if unsafe { !in_our_namespace(sk) } {
        return 0;
    }
    count(Counter::Transitions);
    // The argument is typed `struct sock`: a load behind its end is refused ("access beyond struct sock") until it is
    // converted. Sockets of other protocols that use the same tracepoint (MPTCP) convert to null.
    // SAFETY: the helper takes a socket and gives a `struct tcp_sock` or null.
    let tcp = unsafe { bpf_skc_to_tcp_sock(sk.cast_mut()) }.cast_const().cast::<c_void>();
    if tcp.is_null() {
        return 0;
    }
    let old_state = ctx.arg::<i32>(1) as u8;
    let new_state = ctx.arg::<i32>(2) as u8;
    // SAFETY: `tcp` is a `struct tcp_sock`.
    unsafe { handle(&ctx, tcp, old_state, new_state) };
    0
}

/// # Safety
/// `tcp` is a `struct tcp_sock`, as the verifier knows.
#[inline(always)]
unsafe fn handle(ctx: &BtfTracePointContext, tcp: *const c_void, old_state: u8, new_state: u8) {
    // SAFETY: passed on to the caller.
    let (key, cookie) = unsafe { (flow::key(tcp), flow::cookie(tcp)) };
    let opens = old_state == TCP_SYN_RECV && new_state == TCP_ESTABLISHED;
    if watch_all_listeners() && (new_state == TCP_LISTEN || opens) && key.local_port != 0 {
        // Set here and not by userspace, so that not even the first connection can come too early. Also at an open: a
        // listener that was not bound gets its port only after its transition. The bit is never cleared: a host that stops
        // listening and still serves what it accepted goes on being watched.
        watch(key.local_port);
    }
    if new_state == TCP_LISTEN {
        if !watched(key.local_port) {
            return;
        }
    } else if old_state == TCP_LISTEN {
        // The other way out of LISTEN is that of a socket that a listener was copied to: it opens later.
        if new_state != TCP_CLOSE || !watched(key.local_port) {
            return;
        }
    } else if opens {
        if !watched(key.local_port) || !flow::track_opened(&key, cookie) {
            return;
        }
    } else if flow::tracked(&key, cookie).is_none() {
        return;
    }
    aya_log_ebpf::debug!(ctx, "socket {}: state {} to {}", cookie, old_state, new_state);
    if let Some(mut entry) = reserve::<Lifecycle>() {
        let record = entry.as_mut_ptr();
        // SAFETY: the ring gave room for one record, and every member of it is written here. The helpers write no
        // further than the lengths that they are given.
        unsafe {
            (*record).header = Header {
                kind: RecordKind::Lifecycle.number(),
                size_bytes: size_of::<Lifecycle>() as u32,
                time_ns: bpf_ktime_get_ns(),
                cookie,
            };
            (*record).old_state = old_state;
            (*record).new_state = new_state;
            (*record).task_flags = context(tcp);
            (*record).padding = 0;
            let ids = bpf_get_current_pid_tgid();
            (*record).thread_id = ids as u32;
            (*record).process_id = (ids >> 32) as u32;
            (*record).ancestors = ancestors();
            bpf_get_current_comm((&raw mut (*record).comm).cast(), COMM_BYTES as u32);
            snapshot::fill(&raw mut (*record).snapshot, tcp, &key, cookie, new_state);
        }
        entry.submit(0);
    }
    if new_state == TCP_CLOSE && old_state != TCP_LISTEN {
        // What is there belongs to this socket: it was found with its cookie above.
        let _gone = FLOWS.remove(&key);
    }
}

/// Process ids of the current task's parent, that one's parent and so on.
#[inline(always)]
fn ancestors() -> [u32; ANCESTORS_MAX] {
    let mut processes = [0; ANCESTORS_MAX];
    // SAFETY: there is always a current task, and the verifier knows the pointer as a `struct task_struct`.
    let mut task: *const c_void = unsafe { bpf_get_current_task_btf() }.cast_const().cast();
    for process in &mut processes {
        // Where this kernel lacks the member it reads as 0, and nothing is loaded from it.
        if !has(Member::TaskParent) || !has(Member::TaskProcess) {
            break;
        }
        // SAFETY: `real_parent` is a typed pointer to a `struct task_struct`, which the first task of all has, too: itself.
        // Programs at tracepoints run in a read-side critical section of RCU, which protects it.
        unsafe {
            task = read(task, Member::TaskParent) as *const c_void;
            *process = read(task, Member::TaskProcess) as u32;
        }
    }
    processes
}

/// Bits of [`task_flags`].
///
/// # Safety
/// `tcp` is a `struct tcp_sock`, as the verifier knows.
#[inline(always)]
unsafe fn context(tcp: *const c_void) -> u8 {
    let mut flags = 0;
    if has(Member::SkLockOwned) {
        flags |= task_flags::CONTEXT_KNOWN;
        // SAFETY: passed on to the caller.
        if unsafe { read(tcp, Member::SkLockOwned) } == 0 {
            flags |= task_flags::INTERRUPT;
        }
    }
    // SAFETY: there is always a current task, and the verifier knows the pointer as a `struct task_struct`.
    let task = unsafe { read(bpf_get_current_task_btf().cast_const().cast(), Member::TaskFlags) };
    if task & PF_EXITING != 0 {
        flags |= task_flags::EXITING;
    }
    flags
}
