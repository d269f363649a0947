//! What the parser needs from the kernel: bytes, bounded loops, records, counters.

use core::ffi::c_void;

use ackbeat_abi::{
    CONTROL_PAYLOAD_MAX_BYTES, Counter, Direction, FRAMES_PER_BUFFER_MAX, Frame, HEAD_MAX_BYTES, Header,
    LossReason, RecordKind, Synchronization,
    patterns::{Lengths, Pattern, Word},
};
use ackbeat_wire::{
    Environment, ReportedFrame, Segment, frame, handshake,
    state::{DirectionState, HEADER_ROOM_BYTES, PAYLOAD_ROOM_BYTES},
    stream, text,
};
use aya_ebpf::{
    bindings::__sk_buff,
    helpers::generated::{bpf_ktime_get_ns, bpf_loop, bpf_skb_load_bytes},
    programs::TcContext,
};

use super::{heads, kept, packet::Packet};
use crate::{
    maps::{COUNTERS, add_alone, reserve},
    members,
};

/// One segment in the kernel. Each direction has its own copy of the loops: what a client masks, and what is kept behind
/// a hole, is then no case that the verifier must look at for both.
#[repr(C)]
pub(super) struct Kernel<const FROM_PEER: bool> {
    skb: *mut __sk_buff,
    packet: *mut Packet,
}

impl<const FROM_PEER: bool> Kernel<FROM_PEER> {
    const DIRECTION: Direction = if FROM_PEER { Direction::Ingress } else { Direction::Egress };

    #[inline(always)]
    pub(super) fn new(context: &TcContext, packet: *mut Packet) -> Self {
        Self { skb: context.skb.skb, packet }
    }

    #[inline(always)]
    fn packet(&self) -> &Packet {
        // SAFETY: an element of a per-CPU array, which only this run uses.
        unsafe { &*self.packet }
    }

    #[inline(always)]
    fn header(&self, kind: RecordKind, size_bytes: usize) -> Header {
        Header {
            kind: kind.number(),
            size_bytes: size_bytes as u32,
            // SAFETY: a helper without arguments.
            time_ns: unsafe { bpf_ktime_get_ns() },
            cookie: self.packet().cookie,
        }
    }
}

/// `value & MASK`, done even where the compiler knows that it changes nothing.
///
/// It drops a mask that it can prove useless; the verifier does not follow that proof ("R4 unbounded memory access, use
/// 'var &= const'"). Assembly that only hides the value from the compiler will not do: it emits no instruction, and the
/// kernel refuses two lines for one ("Invalid `line_info[274].insn_off:984` (`prev_offset:984` ...)").
#[inline(always)]
pub(super) fn masked<const MASK: u32>(value: u32) -> u32 {
    let mut value = u64::from(value);
    // SAFETY: one instruction on one register.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("{0} &= {mask}", inout(reg) value, mask = const MASK, options(pure, nomem, nostack));
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        value &= u64::from(MASK);
    }
    value as u32
}

/// An offset up to `MASK` and a length from 1 to `MASK + 1`, as the verifier can see.
///
/// The length is masked below its 1, and not compared with 0 after the mask: the compiler compares before the mask,
/// and the verifier then says "R4 invalid zero-sized read: u64=[0,127]".
#[inline(always)]
pub(super) fn bounded<const MASK: u32>(at: u32, length: u32) -> (u32, u32) {
    (masked::<MASK>(at), masked::<MASK>(length.wrapping_sub(1)) + 1)
}

/// What the callbacks of the loops get.
#[repr(C)]
struct Looping<const FROM_PEER: bool> {
    kernel: Kernel<FROM_PEER>,
    state: *mut DirectionState,
}

unsafe extern "C" fn frame_callback<const FROM_PEER: bool>(_index: u64, context: *mut c_void) -> i64 {
    let looping = context.cast::<Looping<FROM_PEER>>();
    // SAFETY: `context` is what `walk_frames` gave; nobody else uses it while the loop runs.
    let go_on = unsafe { stream::go_on(&mut (*looping).kernel, &mut *(*looping).state, FROM_PEER) };
    i64::from(!go_on)
}

unsafe extern "C" fn search_callback<const FROM_PEER: bool>(_index: u64, context: *mut c_void) -> i64 {
    let looping = context.cast::<Looping<FROM_PEER>>();
    // SAFETY: `context` is what `search_words` gave; nobody else uses it while the loop runs.
    let go_on = unsafe { text::search_step(&mut (*looping).kernel, &mut *(*looping).state, FROM_PEER) };
    i64::from(!go_on)
}

unsafe extern "C" fn answer_callback<const FROM_PEER: bool>(_index: u64, context: *mut c_void) -> i64 {
    let looping = context.cast::<Looping<FROM_PEER>>();
    // SAFETY: as in `frame_callback`.
    let go_on = unsafe { handshake::answer_step(&mut (*looping).kernel, &mut *(*looping).state) };
    i64::from(!go_on)
}

impl<const FROM_PEER: bool> Environment for Kernel<FROM_PEER> {
    #[inline(always)]
    fn load<const N: usize>(&mut self, offset: u32, room: &mut [u8; N], at: u32, length: u32) -> bool {
        if length == 0 {
            return true;
        }
        let place = self.packet().kept_place;
        if FROM_PEER && place != 0 {
            return kept::load(&self.packet().flow, place - 1, offset, room, at, length);
        }
        // Both rooms are a power of two: 32 and 256 bytes.
        let (at, length) = match N {
            HEADER_ROOM_BYTES => bounded::<{ HEADER_ROOM_BYTES as u32 / 2 - 1 }>(at, length),
            PAYLOAD_ROOM_BYTES => bounded::<{ PAYLOAD_ROOM_BYTES as u32 / 2 - 1 }>(at, length),
            _ => return false,
        };
        // SAFETY: `at` is below half of the room and `length` at most half, so they fit.
        unsafe {
            bpf_skb_load_bytes(
                self.skb.cast_const().cast(),
                self.packet().payload_offset.wrapping_add(offset),
                room.as_mut_ptr().add(at as usize).cast(),
                length,
            ) == 0
        }
    }

    #[inline(always)]
    fn walk_frames(&mut self, state: &mut DirectionState) {
        let mut looping = Looping { kernel: Self { skb: self.skb, packet: self.packet }, state };
        // SAFETY: the callback takes exactly this context, and the loop ends before `looping` does. One round more
        // than frames: the last finds that nothing is left.
        unsafe {
            bpf_loop(
                FRAMES_PER_BUFFER_MAX + 1,
                frame_callback::<FROM_PEER> as *mut c_void,
                (&raw mut looping).cast(),
                0,
            );
        }
    }

    #[inline(always)]
    fn walk_answer(&mut self, state: &mut DirectionState) {
        let mut looping = Looping { kernel: Self { skb: self.skb, packet: self.packet }, state };
        // SAFETY: as in `walk_frames`.
        unsafe {
            bpf_loop(
                HEAD_MAX_BYTES as u32 + 1,
                answer_callback::<FROM_PEER> as *mut c_void,
                (&raw mut looping).cast(),
                0,
            );
        }
    }

    #[inline(always)]
    fn keep_head(&mut self, seq: u32, offset: u32, length: u32, fresh: bool) {
        heads::keep(
            self.skb,
            self.packet().payload_offset.wrapping_add(offset),
            &self.packet().flow,
            seq,
            length,
            fresh,
        );
    }

    #[inline(always)]
    fn continues_head(&mut self, seq: u32) -> bool {
        heads::continues(&self.packet().flow, seq)
    }

    #[inline(always)]
    fn take_head(&mut self, end_seq: u32) -> u32 {
        heads::take(&self.packet().flow, self.packet().cookie, end_seq)
    }

    #[inline(always)]
    fn keep_segment(&mut self, taken: &mut u8, segment: &Segment) -> bool {
        // What this host sends passes in order the first time.
        FROM_PEER && kept::keep(self.skb, self.packet().payload_offset, &self.packet().flow, taken, segment)
    }

    #[inline(always)]
    fn next_kept(&mut self, state: &mut DirectionState) -> bool {
        if !FROM_PEER {
            return false;
        }
        let place = kept::next(&self.packet().flow, state);
        // SAFETY: as in `packet`; this is the one place that writes.
        unsafe { (*self.packet).kept_place = place };
        place != 0
    }

    #[inline(always)]
    fn text_lengths(&mut self, opcode: u8) -> Lengths {
        // Two known places and not one that depends on the opcode: of that the verifier would know nothing.
        if opcode == frame::TEXT {
            members::pattern_lengths(Self::DIRECTION, false)
        } else {
            members::pattern_lengths(Self::DIRECTION, true)
        }
    }

    #[inline(always)]
    fn pattern(&mut self, index: usize) -> Option<Pattern> {
        members::pattern(index)
    }

    #[inline(always)]
    fn word(&mut self, index: usize) -> Option<Word> {
        members::pattern_word(index)
    }

    #[inline(always)]
    fn payload_byte(&mut self, state: &DirectionState, position: u32) -> u8 {
        let position = masked::<{ PAYLOAD_ROOM_BYTES as u32 / 2 - 1 }>(position);
        // SAFETY: the place is bounded by the mask.
        unsafe { *state.payload.as_ptr().add(position as usize) }
    }

    #[inline(always)]
    fn search_words(&mut self, state: &mut DirectionState) {
        let mut looping = Looping { kernel: Self { skb: self.skb, packet: self.packet }, state };
        // SAFETY: as in `walk_frames`.
        unsafe {
            bpf_loop(
                CONTROL_PAYLOAD_MAX_BYTES as u32,
                search_callback::<FROM_PEER> as *mut c_void,
                (&raw mut looping).cast(),
                0,
            );
        }
    }

    #[inline(always)]
    fn frame(&mut self, frame: &ReportedFrame<'_>) {
        if frame.opcode & frame::CONTROL != 0 {
            self.count(Counter::WireControlFrames, 1);
        }
        let Some(mut entry) = reserve::<Frame>() else { return };
        let record = entry.as_mut_ptr();
        // SAFETY: the ring gave room for one record, and every member of it is written.
        unsafe {
            (*record).header = self.header(RecordKind::Frame, size_of::<Frame>());
            (*record).flow = self.packet().flow;
            (*record).seq_start = frame.seq_start;
            (*record).seq_end = frame.seq_end;
            (*record).mask = if FROM_PEER { frame.mask } else { [0; 4] };
            (*record).direction = u8::from(!FROM_PEER);
            (*record).opcode = frame.opcode;
            (*record).masked = u8::from(FROM_PEER);
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
            (*record).flow = self.packet().flow;
            (*record).seq = seq;
            (*record).direction = direction.number();
            (*record).synchronized = u8::from(reason.is_none());
            (*record).reason = reason.map_or(0, LossReason::number);
            (*record).padding = 0;
        }
        entry.submit(0);
    }

    #[inline(always)]
    fn now_ns(&mut self) -> u64 {
        // SAFETY: a helper without arguments.
        unsafe { bpf_ktime_get_ns() }
    }

    #[inline(always)]
    fn count(&mut self, counter: Counter, amount: u64) {
        if let Some(slot) = COUNTERS.get_ptr_mut(counter.number()) {
            // The parser counts what nobody else does.
            add_alone(slot, amount);
        }
    }
}
