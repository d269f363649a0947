//! Members of kernel structs, at the places that userspace found in the running kernel's BTF.
//!
//! The offsets are constants for the verifier: `.rodata` is frozen before the programs are loaded, and a load from
//! a frozen map at a known place is a known number. So `typed pointer + offset` is a direct, checked load, and the
//! branches of other widths are dead code that the verifier removes.

use core::ffi::c_void;

use ackbeat_abi::{
    ABI_VERSION, Direction, MEMBER_COUNT, Member, MemberLocation,
    patterns::{Lengths, PATTERNS_MAX, Pattern, Patterns, WORDS_MAX, Word},
};

/// Version of the contract that this object was built for. Userspace compares it before loading.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".rodata.abi")]
static ACKBEAT_ABI_VERSION: u32 = ABI_VERSION;

/// Inode number of the network namespace that is watched.
#[unsafe(no_mangle)]
static NETWORK_NAMESPACE_INODE: u32 = 0;

/// 1 if every port that something listens on is watched.
#[unsafe(no_mangle)]
static WATCH_ALL_LISTENERS: u8 = 0;

/// 1 if `tcp_send_reset` has the reason as its third argument (Linux 6.10).
#[unsafe(no_mangle)]
static SEND_RESET_HAS_REASON: u8 = 0;

/// Bits of the members that this kernel has, as [`ackbeat_abi::Snapshot::available`] shows them.
#[unsafe(no_mangle)]
static AVAILABLE: u64 = 0;

/// Where each [`Member`] lies, by its number.
#[unsafe(no_mangle)]
static MEMBERS: [MemberLocation; MEMBER_COUNT] =
    [MemberLocation { offset_bytes: 0, width_bytes: 0, shift_bits: 0, size_bits: 0 }; MEMBER_COUNT];

/// What text heartbeats look like. All zeros: data frames are stepped over unread, and the verifier removes the code that
/// would read them.
#[unsafe(no_mangle)]
static HEARTBEAT_PATTERNS: Patterns = Patterns {
    patterns: [Pattern {
        start: [0; 2],
        start_mask: [0; 2],
        words: 0,
        directions: 0,
        opcode: 0,
        length_min_bytes: 0,
        length_max_bytes: 0,
        padding: [0; 3],
    }; PATTERNS_MAX],
    words: [Word { value: 0, mask: 0 }; WORDS_MAX],
    lengths: [[Lengths { min_bytes: 0, max_bytes: 0 }; 2]; 2],
    count: 0,
    word_count: 0,
};

/// A number from `.rodata`. Volatile, because the compiler must not believe the value that stands here.
#[inline(always)]
fn constant<T: Copy>(place: &'static T) -> T {
    // SAFETY: a plain read of a static that lives as long as the program.
    unsafe { core::ptr::read_volatile(place) }
}

/// Whether every listening port is watched.
#[inline(always)]
pub(crate) fn watch_all_listeners() -> bool {
    constant(&WATCH_ALL_LISTENERS) != 0
}

/// Lengths of the text (`binary`: binary) payloads in this direction that a pattern may fit.
#[inline(always)]
pub(crate) fn pattern_lengths(direction: Direction, binary: bool) -> Lengths {
    let lengths = &HEARTBEAT_PATTERNS.lengths[direction as usize][usize::from(binary)];
    Lengths { min_bytes: constant(&lengths.min_bytes), max_bytes: constant(&lengths.max_bytes) }
}

/// A pattern, `None` behind the last one.
///
/// Member by member: a volatile read of the whole would copy it to the stack, and the verifier does not know the bytes of
/// a number that was stored there whole.
#[inline(always)]
pub(crate) fn pattern(index: usize) -> Option<Pattern> {
    if index >= PATTERNS_MAX || index >= constant(&HEARTBEAT_PATTERNS.count) as usize {
        return None;
    }
    let pattern = &HEARTBEAT_PATTERNS.patterns[index];
    Some(Pattern {
        start: [constant(&pattern.start[0]), constant(&pattern.start[1])],
        start_mask: [constant(&pattern.start_mask[0]), constant(&pattern.start_mask[1])],
        words: constant(&pattern.words),
        directions: constant(&pattern.directions),
        opcode: constant(&pattern.opcode),
        length_min_bytes: constant(&pattern.length_min_bytes),
        length_max_bytes: constant(&pattern.length_max_bytes),
        padding: [0; 3],
    })
}

/// A word of the patterns, `None` behind the last one.
#[inline(always)]
pub(crate) fn pattern_word(index: usize) -> Option<Word> {
    if index >= WORDS_MAX || index >= constant(&HEARTBEAT_PATTERNS.word_count) as usize {
        return None;
    }
    let word = &HEARTBEAT_PATTERNS.words[index];
    Some(Word { value: constant(&word.value), mask: constant(&word.mask) })
}

/// Whether `tcp_send_reset` says why.
#[inline(always)]
pub(crate) fn send_reset_has_reason() -> bool {
    constant(&SEND_RESET_HAS_REASON) != 0
}

/// Bits of the members that this kernel has.
#[inline(always)]
pub(crate) fn available() -> u64 {
    constant(&AVAILABLE)
}

/// Whether this kernel has the member.
#[inline(always)]
pub(crate) fn has(member: Member) -> bool {
    constant(&MEMBERS[member as usize].width_bytes) != 0
}

/// Reads a member; 0 where this kernel lacks it.
///
/// # Safety
/// `base` is a pointer to [`Member::struct_name`] that the verifier knows as such, or to a struct that begins with
/// the part that holds the member (`struct sock` is the beginning of `struct tcp_sock`).
#[inline(always)]
pub(crate) unsafe fn read(base: *const c_void, member: Member) -> u64 {
    // SAFETY: passed on to the caller.
    unsafe { read_at(base, member, 0) }
}

/// Reads a member that is longer than 8 bytes, from the byte `further_bytes` of it on.
///
/// # Safety
/// As for [`read`]; the member is at least `further_bytes` + its width long.
#[inline(always)]
pub(crate) unsafe fn read_at(base: *const c_void, member: Member, further_bytes: usize) -> u64 {
    let width_bytes = constant(&MEMBERS[member as usize].width_bytes);
    if width_bytes == 0 {
        return 0;
    }
    let offset_bytes = constant(&MEMBERS[member as usize].offset_bytes) as usize + further_bytes;
    let address = base.cast::<u8>().wrapping_add(offset_bytes);
    // SAFETY: the verifier checks the type, the offset and the width of each of these loads against the kernel's BTF,
    // and a fault in one (a struct that is gone) reads zero. Volatile, so that no load is widened, moved or merged.
    let raw = unsafe {
        match width_bytes {
            1 => u64::from(core::ptr::read_volatile(address)),
            2 => u64::from(core::ptr::read_volatile(address.cast::<u16>())),
            4 => u64::from(core::ptr::read_volatile(address.cast::<u32>())),
            _ => core::ptr::read_volatile(address.cast::<u64>()),
        }
    };
    let size_bits = constant(&MEMBERS[member as usize].size_bits);
    if size_bits == 0 {
        return raw;
    }
    let shift_bits = constant(&MEMBERS[member as usize].shift_bits);
    (raw >> (shift_bits & 63)) & ((1 << (size_bits & 63)) - 1)
}

/// Whether a socket is in the network namespace that is watched.
///
/// # Safety
/// `sk` is a `struct sock` or more, as the verifier knows.
#[inline(always)]
pub(crate) unsafe fn in_our_namespace(sk: *const c_void) -> bool {
    // SAFETY: `struct sock` begins with `struct sock_common`, which holds the namespace; the pointer read from it is
    // typed `struct net` for the verifier.
    unsafe {
        let namespace = read(sk, Member::NetworkNamespace) as *const c_void;
        read(namespace, Member::NamespaceInode) as u32 == constant(&NETWORK_NAMESPACE_INODE)
    }
}

/// Whether a task is in the network namespace that is watched. One that exits has left it: its pointer is null, and a load
/// through it reads 0, which is no inode.
///
/// # Safety
/// `task` is a `struct task_struct`, as the verifier knows.
#[inline(always)]
pub(crate) unsafe fn is_task_in_our_namespace(task: *const c_void) -> bool {
    if !has(Member::TaskNamespaces) || !has(Member::NamespacesNetwork) {
        return false;
    }
    // SAFETY: each pointer is typed for the verifier: `struct nsproxy`, then `struct net`.
    unsafe {
        let namespaces = read(task, Member::TaskNamespaces) as *const c_void;
        let namespace = read(namespaces, Member::NamespacesNetwork) as *const c_void;
        read(namespace, Member::NamespaceInode) as u32 == constant(&NETWORK_NAMESPACE_INODE)
    }
}
