//! Segments from the peer that came before a hole in front of them was filled: a few of them, and a few bytes of each.
//!
//! After a lost segment the ones behind it pass these hooks before its repetition does. They are kept until then, so
//! that ordinary loss on the network does not cost the parser its place.

use ackbeat_abi::FlowKey;
use ackbeat_wire::{
    KEPT_BYTES_MAX, KEPT_SEGMENTS_MAX, Outcome, Segment, before,
    state::{DirectionState, HEADER_ROOM_BYTES, PAYLOAD_ROOM_BYTES},
};
use aya_ebpf::{
    bindings::{__sk_buff, BPF_ANY},
    helpers::generated::{bpf_probe_read_kernel, bpf_skb_load_bytes},
    macros::map,
    maps::{Array, LruHashMap},
};

use super::kernel::{bounded, masked};

/// Connections with a hole at the same time. 256 of them take 1.1 MB.
const CONNECTIONS_MAX: u32 = 256;

/// One segment.
#[repr(C)]
pub(super) struct Kept {
    seq: u32,
    /// Bytes of the segment.
    length_bytes: u32,
    /// Bytes of it that are in `bytes`.
    stored_bytes: u32,
    padding: u32,
    bytes: [u8; KEPT_BYTES_MAX],
    /// Never used: the verifier adds the largest offset to the largest read.
    tail: [u8; PAYLOAD_ROOM_BYTES / 2],
}

/// The segments of one connection; `DirectionState::kept` says which places are taken.
#[repr(C)]
struct Places {
    places: [Kept; KEPT_SEGMENTS_MAX],
}

#[map]
static KEPT_SEGMENTS: LruHashMap<FlowKey, Places> = LruHashMap::with_max_entries(CONNECTIONS_MAX, 0);

/// One entry that nobody writes, to begin an entry of `KEPT_SEGMENTS` with: it is larger than a program's stack.
#[map]
static NO_PLACES: Array<Places> = Array::with_max_entries(1, 0);

/// Keeps a segment. Returns whether it could.
#[inline(always)]
pub(super) fn keep(
    skb: *mut __sk_buff,
    payload_offset: u32,
    flow: &FlowKey,
    taken: &mut u8,
    segment: &Segment,
) -> bool {
    let places = match KEPT_SEGMENTS.get_ptr_mut(flow) {
        Some(places) => places,
        // The entry had to make room for another connection's.
        None if *taken != 0 => return false,
        None => {
            let Some(none) = NO_PLACES.get_ptr(0) else { return false };
            // SAFETY: the array's entry lives as long as the map and is never written.
            if KEPT_SEGMENTS.insert(flow, unsafe { &*none }, u64::from(BPF_ANY)).is_err() {
                return false;
            }
            let Some(places) = KEPT_SEGMENTS.get_ptr_mut(flow) else { return false };
            places
        }
    };
    let mut free: *mut Kept = core::ptr::null_mut();
    let mut free_bit = 0;
    for place in 0..KEPT_SEGMENTS_MAX {
        let bit = 1_u8 << place;
        // SAFETY: a place of a live entry. The direction's lock is held.
        unsafe {
            let kept = &raw mut (*places).places[place];
            if *taken & bit == 0 {
                free = kept;
                free_bit = bit;
                continue;
            }
            if (*kept).seq == segment.seq && (*kept).length_bytes >= segment.length_bytes {
                return true;
            }
            let follows = (*kept).seq.wrapping_add((*kept).length_bytes) == segment.seq;
            if follows && (*kept).length_bytes > (*kept).stored_bytes {
                // A large transfer: what was not stored of it just grows.
                (*kept).length_bytes = (*kept).length_bytes.wrapping_add(segment.length_bytes);
                return true;
            }
        }
    }
    if free.is_null() {
        return false;
    }
    // SAFETY: as above; the length is bounded by the mask.
    unsafe {
        let length = segment.length_bytes.min(KEPT_BYTES_MAX as u32);
        let length = masked::<{ KEPT_BYTES_MAX as u32 - 1 }>(length.wrapping_sub(1)) + 1;
        let to = (&raw mut (*free).bytes).cast();
        if bpf_skb_load_bytes(skb.cast_const().cast(), payload_offset, to, length) != 0 {
            return false;
        }
        (*free).seq = segment.seq;
        (*free).length_bytes = segment.length_bytes;
        (*free).stored_bytes = length;
    }
    *taken |= free_bit;
    true
}

/// The place of the kept segment that goes on where the parser is, plus 1; 0 if there is none. Sets `state.walk` to it.
#[inline(always)]
pub(super) fn next(flow: &FlowKey, state: &mut DirectionState) -> u32 {
    let Some(places) = KEPT_SEGMENTS.get_ptr(flow) else {
        // The entry had to make room for another connection's: what was kept is gone.
        state.kept = 0;
        state.walk.outcome = Outcome::Hole as u32;
        return 0;
    };
    for place in 0..KEPT_SEGMENTS_MAX {
        let bit = 1_u8 << place;
        if state.kept & bit == 0 {
            continue;
        }
        // SAFETY: a place of a live entry. The direction's lock is held.
        unsafe {
            let kept = &raw const (*places).places[place];
            if before(state.expected_seq, (*kept).seq) {
                continue;
            }
            state.kept &= !bit;
            let end = (*kept).seq.wrapping_add((*kept).length_bytes);
            if !before(state.expected_seq, end) {
                continue;
            }
            let position = state.expected_seq.wrapping_sub((*kept).seq);
            state.walk.position = position.min((*kept).stored_bytes);
            state.walk.length_bytes = (*kept).stored_bytes;
            state.walk.from_kept = 1;
            state.walk.kept_end = end;
            state.walk.outcome = Outcome::Unfinished as u32;
            return place as u32 + 1;
        }
    }
    0
}

/// Copies bytes of the kept segment in `place`, as `Environment::load` wants it.
#[inline(always)]
pub(super) fn load<const N: usize>(
    flow: &FlowKey,
    place: u32,
    offset: u32,
    room: &mut [u8; N],
    at: u32,
    length: u32,
) -> bool {
    let Some(places) = KEPT_SEGMENTS.get_ptr(flow) else { return false };
    let place = masked::<{ KEPT_SEGMENTS_MAX as u32 - 1 }>(place);
    let offset = masked::<{ KEPT_BYTES_MAX as u32 - 1 }>(offset);
    let (at, length) = match N {
        HEADER_ROOM_BYTES => bounded::<{ HEADER_ROOM_BYTES as u32 / 2 - 1 }>(at, length),
        PAYLOAD_ROOM_BYTES => bounded::<{ PAYLOAD_ROOM_BYTES as u32 / 2 - 1 }>(at, length),
        _ => return false,
    };
    // SAFETY: both places are bounded by the masks, and inside their rooms.
    unsafe {
        let kept = places.cast::<Kept>().add(place as usize);
        let from = (&raw const (*kept).bytes).cast::<u8>().add(offset as usize);
        bpf_probe_read_kernel(room.as_mut_ptr().add(at as usize).cast(), length, from.cast()) == 0
    }
}
