//! The kernel programs, as the build embedded them.

/// Aligned as the ELF reader wants it.
#[repr(C, align(32))]
struct Aligned<Bytes: ?Sized>(Bytes);

/// The BPF object; empty if there was none at the build.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/ackbeat-ebpf")));

/// The BPF object, if the build embedded one.
#[must_use]
pub fn embedded() -> Option<&'static [u8]> {
    let bytes = &OBJECT.0;
    (!bytes.is_empty()).then_some(bytes)
}

/// Names in the object: programs, maps and constants. One place, so that a name is spelled once.
pub mod names {
    /// Ring buffer of records.
    pub const EVENTS: &str = "EVENTS";
    /// Per-CPU totals.
    pub const COUNTERS: &str = "COUNTERS";
    /// Bitmap of the watched ports.
    pub const WATCHED_PORTS: &str = "WATCHED_PORTS";
    /// Tracked connections.
    pub const FLOWS: &str = "FLOWS";
    /// Since when a connection repeats itself.
    pub const RETRANSMITS: &str = "RETRANSMITS";
    /// Section with the version of the contract.
    pub const ABI_SECTION: &str = ".rodata.abi";
    /// Inode number of the network namespace.
    pub const NETWORK_NAMESPACE_INODE: &str = "NETWORK_NAMESPACE_INODE";
    /// Whether every listening port is watched.
    pub const WATCH_ALL_LISTENERS: &str = "WATCH_ALL_LISTENERS";
    /// Whether `tcp_send_reset` has the reason as an argument.
    pub const SEND_RESET_HAS_REASON: &str = "SEND_RESET_HAS_REASON";
    /// Bits of the members that this kernel has.
    pub const AVAILABLE: &str = "AVAILABLE";
    /// What text heartbeats look like.
    pub const HEARTBEAT_PATTERNS: &str = "HEARTBEAT_PATTERNS";
    /// Where each member lies.
    pub const MEMBERS: &str = "MEMBERS";
}
