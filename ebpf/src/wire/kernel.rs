//! What the parser needs from the kernel: bytes, bounded loops, records, counters.

use core::ffi::c_void;

use ackbeat_abi::{
    CONTROL_PAYLOAD_MAX_BYTES, Counter, Direction, FRAMES_PER_BUFFER_MAX, FlowKey, Frame, HEAD_MAX_BYTES, Header,
    LossReason, RecordKind, Synchronization,
};
use ackbeat_wire::{ControlFrame, Environment, Walk, handshake, state::DirectionState, stream};
use aya_ebpf::{
    bindings::__sk_buff,
    helpers::generated::{bpf_ktime_get_ns, bpf_loop, bpf_skb_load_bytes},
    programs::TcContext,
};

use super::{heads, packet::Packet};
use crate::maps::{COUNTERS, reserve};

/// One segment in the kernel.
#[repr(C)]
pub(super) struct Kernel {
    skb: *mut __sk_buff,
    payload_offset: u32,
    direction: u32,
    cookie: u64,
    flow: FlowKey,
}

impl Kernel {
    #[inline(always)]
    pub(super) fn new(context: &TcContext, packet: &Packet, cookie: u64, direction: Direction) -> Self {
        Self {
            skb: context.skb.skb,
            payload_offset: packet.payload_offset,
            direction: u32::from(direction.number()),
            cookie,
            flow: packet.flow,
        }
    }

    #[inline(always)]
    fn header(&self, kind: RecordKind, size_bytes: usize) -> Header {
        Header {
            kind: kind.number(),
            size_bytes: size_bytes as u32,
            // SAFETY: a helper without arguments.
            time_ns: unsafe { bpf_ktime_get_ns() },
            cookie: self.cookie,
        }
    }
}

/// Hides from the compiler what it knows of a number.
///
/// The compiler proves that a mask changes nothing and drops it; the verifier does not follow that proof ("R4 unbounded
/// memory access, use 'var &= const'"), so the mask must survive.
#[inline(always)]
pub(super) fn opaque(value: u32) -> u32 {
    let mut value = u64::from(value);
    // SAFETY: no instruction at all.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("/* {0} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags));
    }
    value as u32
}

/// What the callbacks of the loops get.
#[repr(C)]
struct Looping {
    kernel: *mut Kernel,
    state: *mut DirectionState,
    walk: *mut Walk,
}

unsafe extern "C" fn frame_callback(_index: u64, context: *mut c_void) -> i64 {
    let looping = context.cast::<Looping>();
    // SAFETY: `context` is what `walk_frames` gave; nobody else uses the three while the loop runs.
    let go_on = unsafe {
        let kernel = &mut *(*looping).kernel;
        let masked = kernel.direction == Direction::Ingress as u32;
        stream::step(kernel, &mut *(*looping).state, &mut *(*looping).walk, masked)
    };
    i64::from(!go_on)
}

unsafe extern "C" fn answer_callback(_index: u64, context: *mut c_void) -> i64 {
    let looping = context.cast::<Looping>();
    // SAFETY: as in `frame_callback`.
    let go_on = unsafe {
        handshake::answer_step(&mut *(*looping).kernel, &mut *(*looping).state, &mut *(*looping).walk)
    };
    i64::from(!go_on)
}

impl Environment for Kernel {
    #[inline(always)]
    fn load<const N: usize>(&mut self, offset: u32, room: &mut [u8; N], at: u32, length: u32) -> bool {
        let bound = (N / 2 - 1) as u32;
        let at = opaque(at) & bound;
        let length = opaque(length) & bound;
        if length == 0 {
            return true;
        }
        // SAFETY: `at` and `length` are both below half of the room, so they fit.
        unsafe {
            bpf_skb_load_bytes(
                self.skb.cast_const().cast(),
                self.payload_offset.wrapping_add(offset),
                room.as_mut_ptr().add(at as usize).cast(),
                length,
            ) == 0
        }
    }

    #[inline(always)]
    fn walk_frames(&mut self, state: &mut DirectionState, walk: &mut Walk) {
        let mut looping = Looping { kernel: self, state, walk };
        // SAFETY: the callback takes exactly this context, and the loop ends before `looping` does. One round more
        // than frames: the last finds that nothing is left.
        unsafe {
            bpf_loop(FRAMES_PER_BUFFER_MAX + 1, frame_callback as *mut c_void, (&raw mut looping).cast(), 0);
        }
    }

    #[inline(always)]
    fn walk_answer(&mut self, state: &mut DirectionState, walk: &mut Walk) {
        let mut looping = Looping { kernel: self, state, walk };
        // SAFETY: as in `walk_frames`.
        unsafe {
            bpf_loop(HEAD_MAX_BYTES as u32 + 1, answer_callback as *mut c_void, (&raw mut looping).cast(), 0);
        }
    }

    #[inline(always)]
    fn keep_head(&mut self, seq: u32, offset: u32, length: u32, fresh: bool) {
        heads::keep(self.skb, self.payload_offset.wrapping_add(offset), &self.flow, seq, length, fresh);
    }

    #[inline(always)]
    fn continues_head(&mut self, seq: u32) -> bool {
        heads::continues(&self.flow, seq)
    }

    #[inline(always)]
    fn take_head(&mut self, end_seq: u32) -> Option<u32> {
        heads::take(&self.flow, self.cookie, end_seq)
    }

    #[inline(always)]
    fn control_frame(&mut self, frame: &ControlFrame<'_>) {
        self.count(Counter::WireControlFrames, 1);
        let Some(mut entry) = reserve::<Frame>() else { return };
        let record = entry.as_mut_ptr();
        let masked = self.direction == Direction::Ingress as u32;
        // SAFETY: the ring gave room for one record, and every member of it is written.
        unsafe {
            (*record).header = self.header(RecordKind::Frame, size_of::<Frame>());
            (*record).flow = self.flow;
            (*record).seq_start = frame.seq_start;
            (*record).seq_end = frame.seq_end;
            (*record).mask = if masked { frame.mask } else { [0; 4] };
            (*record).direction = self.direction as u8;
            (*record).opcode = frame.opcode;
            (*record).masked = u8::from(masked);
            (*record).payload_bytes = frame.payload_bytes;
            (*record).payload = *frame.payload.as_ptr().cast::<[u8; CONTROL_PAYLOAD_MAX_BYTES]>();
            (*record).padding = [0; 3];
        }
        entry.submit(0);
    }

    #[inline(always)]
    fn synchronization(&mut self, direction: Direction, seq: u32, reason: Option<LossReason>) {
        let Some(mut entry) = reserve::<Synchronization>() else { return };
        let record = entry.as_mut_ptr();
        // SAFETY: the ring gave room for one record, and every member of it is written.
        unsafe {
            (*record).header = self.header(RecordKind::Synchronization, size_of::<Synchronization>());
            (*record).flow = self.flow;
            (*record).seq = seq;
            (*record).direction = direction.number();
            (*record).synchronized = u8::from(reason.is_none());
            (*record).reason = reason.map_or(0, LossReason::number);
            (*record).padding = 0;
        }
        entry.submit(0);
    }

    #[inline(always)]
    fn count(&mut self, counter: Counter, amount: u64) {
        if let Some(slot) = COUNTERS.get_ptr_mut(counter.number()) {
            // SAFETY: the slot belongs to this processor.
            unsafe { *slot = (*slot).wrapping_add(amount) };
        }
    }
}
