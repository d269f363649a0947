//! Heads of requests, kept until their answer: bounded in number and length, the oldest make room.
//!
//! Only the head of a request that was answered with 101 by a WebSocket leaves the kernel.

use core::ffi::c_void;

use ackbeat_abi::{Counter, FlowKey, HEAD_MAX_BYTES, Header, RecordKind, UpgradeHead};
use ackbeat_wire::handshake::{begins_get, blank_line};
use aya_ebpf::{
    bindings::{__sk_buff, BPF_ANY},
    helpers::generated::{bpf_ktime_get_ns, bpf_loop, bpf_skb_load_bytes},
    macros::map,
    maps::{Array, LruHashMap},
    programs::TcContext,
};

use super::{kernel::masked, packet::Packet};
use crate::maps::{EVENTS, count};

/// Connections between their request and its answer. 512 heads are 2.4 MB; an answer takes milliseconds.
const HEADS_MAX: u32 = 512;
/// Bytes that one round of the copying loop moves at most.
const CHUNK_BYTES: u32 = 256;
/// Rounds for the longest head.
const CHUNKS_MAX: u32 = HEAD_MAX_BYTES as u32 / CHUNK_BYTES;

/// A request's head.
#[repr(C)]
struct Kept {
    /// Ready to be sent, but for its header.
    record: UpgradeHead,
    /// Room behind the head that is never used: the verifier adds the largest offset to the largest chunk.
    tail: [u8; CHUNK_BYTES as usize],
    /// Sequence number of the head's first byte.
    seq: u32,
    /// Bytes kept.
    kept_bytes: u32,
}

#[map]
static HEADS: LruHashMap<FlowKey, Kept> = LruHashMap::with_max_entries(HEADS_MAX, 0);

/// One entry that nobody writes, to begin an entry of `HEADS` with: it is larger than a program's stack.
#[map]
static NO_HEAD: Array<Kept> = Array::with_max_entries(1, 0);

/// Keeps bytes of a request's head: `offset` counts from the packet's begin.
#[inline(always)]
pub(super) fn keep(skb: *mut __sk_buff, offset: u32, flow: &FlowKey, seq: u32, length: u32, fresh: bool) {
    let kept = match HEADS.get_ptr_mut(flow) {
        Some(kept) => kept,
        None if fresh => {
            let Some(none) = NO_HEAD.get_ptr(0) else { return };
            // SAFETY: the array's entry lives as long as the map and is never written.
            if HEADS.insert(flow, unsafe { &*none }, u64::from(BPF_ANY)).is_err() {
                return;
            }
            let Some(kept) = HEADS.get_ptr_mut(flow) else { return };
            kept
        }
        None => return,
    };
    // SAFETY: the map keeps the memory until the program ends. If the entry is given to another connection meanwhile,
    // its bytes are mixed up but stay inside; `take` then finds that the positions do not fit.
    unsafe {
        if fresh {
            (*kept).seq = seq;
            (*kept).kept_bytes = 0;
        } else if seq != (*kept).seq.wrapping_add((*kept).kept_bytes) {
            return;
        }
    }
    let mut copy = Copying { skb, kept, offset, left: length };
    // SAFETY: the callback takes exactly this context, and the loop ends before `copy` does.
    unsafe {
        bpf_loop(CHUNKS_MAX + 1, copy_chunk as *mut c_void, (&raw mut copy).cast(), 0);
    }
}

#[repr(C)]
struct Copying {
    skb: *mut __sk_buff,
    kept: *mut Kept,
    offset: u32,
    left: u32,
}

unsafe extern "C" fn copy_chunk(_index: u64, context: *mut c_void) -> i64 {
    let copy = context.cast::<Copying>();
    // SAFETY: `context` is what `keep` gave; the place is bounded by the masks and the room behind the head.
    unsafe {
        let kept = (*copy).kept;
        let at = (*kept).kept_bytes;
        if at >= HEAD_MAX_BYTES as u32 || (*copy).left == 0 {
            return 1;
        }
        let length = (*copy).left.min(CHUNK_BYTES).min(HEAD_MAX_BYTES as u32 - at);
        let at = masked::<{ HEAD_MAX_BYTES as u32 - 1 }>(at);
        let length = masked::<{ CHUNK_BYTES - 1 }>(length.wrapping_sub(1)) + 1;
        let to = (&raw mut (*kept).record.head).cast::<u8>().add(at as usize);
        if bpf_skb_load_bytes((*copy).skb.cast_const().cast(), (*copy).offset, to.cast(), length) != 0 {
            return 1;
        }
        (*kept).kept_bytes = at + length;
        (*copy).offset = (*copy).offset.wrapping_add(length);
        (*copy).left = (*copy).left.wrapping_sub(length);
    }
    0
}

/// Keeps a request that came before its connection has an entry: with a batch of packets, the first payload can pass
/// this hook before the last step of the handshake is worked on.
#[inline(always)]
pub(super) fn keep_early(context: &TcContext, packet: &Packet) {
    let fresh = !continues(&packet.flow, packet.seq);
    if fresh {
        let Ok(bytes) = context.load::<[u8; 4]>(packet.payload_offset as usize) else { return };
        if !begins_get(&bytes, packet.payload_bytes) {
            return;
        }
    }
    keep(context.skb.skb, packet.payload_offset, &packet.flow, packet.seq, packet.payload_bytes, fresh);
}

/// Whether a head is kept that ends at `seq`.
#[inline(always)]
pub(super) fn continues(flow: &FlowKey, seq: u32) -> bool {
    match HEADS.get_ptr(flow) {
        // SAFETY: as in `keep`.
        Some(kept) => unsafe {
            (*kept).kept_bytes != 0 && (*kept).seq.wrapping_add((*kept).kept_bytes) == seq
        },
        None => false,
    }
}

/// Sends the head that ends at `end_seq`, or that was cut, and forgets it. Returns the sequence number after its blank
/// line, and `end_seq` where that is not known.
///
/// No `Option`: the compiler compares the number also where there is none, and the verifier says "R2 !read_ok".
#[inline(always)]
pub(super) fn take(flow: &FlowKey, cookie: u64, end_seq: u32) -> u32 {
    let Some(kept) = HEADS.get_ptr_mut(flow) else {
        count(Counter::HeadsMissing);
        return end_seq;
    };
    // SAFETY: as in `keep`.
    unsafe {
        let kept_bytes = (*kept).kept_bytes;
        let seq = (*kept).seq;
        // 0, or 1 where the peer closed its direction right after the request: a FIN takes a sequence number.
        let beyond = end_seq.wrapping_sub(seq).wrapping_sub(kept_bytes);
        let mut end = end_seq;
        if beyond <= 1 || kept_bytes >= HEAD_MAX_BYTES as u32 {
            let record = &raw mut (*kept).record;
            (*record).header = Header {
                kind: RecordKind::UpgradeHead.number(),
                size_bytes: size_of::<UpgradeHead>() as u32,
                time_ns: bpf_ktime_get_ns(),
                cookie,
            };
            (*record).flow = *flow;
            (*record).head_bytes = kept_bytes;
            (*record).padding = 0;
            count(Counter::RecordsSent);
            if EVENTS.output::<UpgradeHead>(&*record, 0).is_err() {
                count(Counter::RecordsDropped);
            }
            let mut search = Searching { kept, position: 0, matched: 0 };
            bpf_loop(HEAD_MAX_BYTES as u32, search_blank_line as *mut c_void, (&raw mut search).cast(), 0);
            if search.matched == 4 && search.position < kept_bytes {
                // Bytes behind the blank line: the client did not wait for its answer.
                end = seq.wrapping_add(search.position);
            }
        } else {
            count(Counter::HeadsMissing);
        }
        let _gone = HEADS.remove(flow);
        end
    }
}

#[repr(C)]
struct Searching {
    kept: *const Kept,
    position: u32,
    matched: u32,
}

unsafe extern "C" fn search_blank_line(_index: u64, context: *mut c_void) -> i64 {
    let search = context.cast::<Searching>();
    // SAFETY: `context` is what `take` gave; the place is bounded by the mask.
    unsafe {
        let position = (*search).position;
        if position >= (*(*search).kept).kept_bytes {
            return 1;
        }
        let at = masked::<{ HEAD_MAX_BYTES as u32 - 1 }>(position);
        let byte = *(&raw const (*(*search).kept).record.head).cast::<u8>().add(at as usize);
        (*search).position = position + 1;
        (*search).matched = u32::from(blank_line((*search).matched as u8, byte));
        i64::from((*search).matched == 4)
    }
}
