//! What the kernel's accounting says about one socket.

use core::ffi::c_void;

use ackbeat_abi::{FlowKey, Member, Snapshot};
use aya_ebpf::helpers::{bpf_jiffies64, bpf_ktime_get_ns};

use crate::{
    flow::ip_version,
    maps::RETRANSMITS,
    members::{available, read},
};

/// Writes every member of a snapshot.
///
/// # Safety
/// `tcp` is a `struct tcp_sock`, as the verifier knows; `into` can be written.
#[inline(always)]
pub(crate) unsafe fn fill(into: *mut Snapshot, tcp: *const c_void, flow: &FlowKey, cookie: u64, state: u8) {
    // SAFETY: passed on to the caller; the helpers have no preconditions. Members are written one by one and in place,
    // because a snapshot on the stack besides the one in the ring would not leave room for much else.
    unsafe {
        let snd_una = read(tcp, Member::SndUna) as u32;
        (*into).flow = *flow;
        (*into).cookie = cookie;
        (*into).time_ns = bpf_ktime_get_ns();
        (*into).jiffies = bpf_jiffies64();
        (*into).available = available();
        (*into).bytes_acked = read(tcp, Member::BytesAcked);
        (*into).bytes_received = read(tcp, Member::BytesReceived);
        (*into).retransmitting_since_ns = match RETRANSMITS.get(cookie) {
            Some(retransmitting) if retransmitting.snd_una == snd_una => retransmitting.since_ns,
            _ => 0,
        };
        (*into).write_seq = read(tcp, Member::WriteSeq) as u32;
        (*into).snd_nxt = read(tcp, Member::SndNxt) as u32;
        (*into).snd_una = snd_una;
        (*into).snd_wnd = read(tcp, Member::SndWnd) as u32;
        (*into).rcv_nxt = read(tcp, Member::RcvNxt) as u32;
        (*into).copied_seq = read(tcp, Member::CopiedSeq) as u32;
        (*into).rcv_tstamp = read(tcp, Member::RcvTstamp) as u32;
        (*into).lsndtime = read(tcp, Member::Lsndtime) as u32;
        (*into).lrcvtime = read(tcp, Member::Lrcvtime) as u32;
        (*into).srtt_eighth_us = read(tcp, Member::Srtt) as u32;
        (*into).rto_jiffies = read(tcp, Member::Rto) as u32;
        (*into).packets_out = read(tcp, Member::PacketsOut) as u32;
        (*into).retrans_out = read(tcp, Member::RetransOut) as u32;
        (*into).total_retrans = read(tcp, Member::TotalRetrans) as u32;
        (*into).sk_err = read(tcp, Member::SkErr) as u32;
        (*into).sk_wmem_queued = read(tcp, Member::SkWmemQueued) as u32;
        (*into).sk_err_soft = read(tcp, Member::SkErrSoft) as u32;
        (*into).padding = 0;
        (*into).state = state;
        (*into).sk_shutdown = read(tcp, Member::SkShutdown) as u8;
        (*into).backoff = read(tcp, Member::Backoff) as u8;
        (*into).retransmits = read(tcp, Member::Retransmits) as u8;
        (*into).probes_out = read(tcp, Member::ProbesOut) as u8;
        (*into).pending_timer = read(tcp, Member::PendingTimer) as u8;
        (*into).ip_version = ip_version(flow);
        (*into).adopted = 0;
    }
}
