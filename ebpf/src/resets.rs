//! Resets, and which way they went (`tp_btf/tcp_send_reset`, `tp_btf/tcp_receive_reset`, Linux 4.16).

use core::ffi::c_void;

use ackbeat_abi::{Direction, Header, Member, RecordKind, Reset, TCP_LISTEN};
use aya_ebpf::{
    helpers::generated::{bpf_ktime_get_ns, bpf_skc_to_tcp_sock},
    macros::btf_tracepoint,
    programs::BtfTracePointContext,
};

use crate::{
    flow,
    maps::{reserve, watched},
    members::{in_our_namespace, read, send_reset_has_reason},
};

/// This host sends a reset.
///
/// When it resets on its own account (close with unread data, linger 0), the socket has entered `CLOSE` just before
/// and is not tracked any more: so what counts is the watched port.
#[btf_tracepoint(function = "tcp_send_reset")]
pub(crate) fn send_reset(ctx: BtfTracePointContext) -> i32 {
    let sk: *const c_void = ctx.arg(0);
    let segment: *const c_void = ctx.arg(1);
    // The argument does not exist before Linux 6.10; there this read is dead code, which the verifier removes.
    let reason = if send_reset_has_reason() { Some(ctx.arg::<u32>(2)) } else { None };
    report(&ctx, sk, Direction::Egress, !segment.is_null(), reason);
    0
}

/// The peer's reset arrived.
#[btf_tracepoint(function = "tcp_receive_reset")]
pub(crate) fn receive_reset(ctx: BtfTracePointContext) -> i32 {
    report(&ctx, ctx.arg(0), Direction::Ingress, false, None);
    0
}

#[inline(always)]
fn report(
    ctx: &BtfTracePointContext,
    sk: *const c_void,
    direction: Direction,
    answers_segment: bool,
    reason: Option<u32>,
) {
    // Null where no socket wanted the segment. A request or a time-wait socket converts to null: those have no cookie
    // that anybody knows.
    // SAFETY: the first argument of both tracepoints is a `struct sock` or null.
    if sk.is_null() || unsafe { !in_our_namespace(sk) } {
        return;
    }
    // SAFETY: the helper takes a socket and gives a `struct tcp_sock` or null.
    let tcp = unsafe { bpf_skc_to_tcp_sock(sk.cast_mut()) }.cast_const().cast::<c_void>();
    if tcp.is_null() {
        return;
    }
    // SAFETY: `tcp` is a `struct tcp_sock`.
    let state = unsafe { read(tcp, Member::State) } as u8;
    // SAFETY: `tcp` is a `struct tcp_sock`.
    if state == TCP_LISTEN || unsafe { !watched(flow::local_port(tcp)) } {
        return;
    }
    aya_log_ebpf::debug!(ctx, "reset: direction {} in state {}", direction.number(), state);
    let Some(mut entry) = reserve::<Reset>() else { return };
    let record = entry.as_mut_ptr();
    // SAFETY: the ring gave room for one record, and every member of it is written here; `tcp` is a
    // `struct tcp_sock`.
    unsafe {
        (*record).header = Header {
            kind: RecordKind::Reset.number(),
            size_bytes: size_of::<Reset>() as u32,
            time_ns: bpf_ktime_get_ns(),
            cookie: flow::cookie(tcp),
        };
        (*record).direction = direction.number();
        (*record).state = state;
        (*record).answers_segment = u8::from(answers_segment);
        (*record).has_reason = u8::from(reason.is_some());
        (*record).reason = reason.unwrap_or(0);
        (*record).flow = flow::key(tcp);
    }
    entry.submit(0);
}
