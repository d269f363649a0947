//! Members of kernel structs that the programs read, and where they lie.

/// Where a member lies in its struct, read by userspace from the running kernel's BTF and written into the
/// object's `.rodata` before it is loaded.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberLocation {
    /// Offset in bytes from the start of the outermost struct.
    pub offset_bytes: u32,
    /// Width in bytes: 1, 2, 4 or 8; 0 where this kernel lacks the member. For a bit field the width of the
    /// storage unit that holds it whole.
    pub width_bytes: u32,
    /// For a bit field: bits to shift right. Else 0.
    pub shift_bits: u32,
    /// For a bit field: its size in bits. Else 0.
    pub size_bits: u32,
}

macro_rules! members {
    ($($(#[$meta:meta])* $variant:ident = $number:literal, $outer:literal, $path:literal);+ $(;)?) => {
        /// A member of a kernel struct that the programs read.
        #[repr(u32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Member {
            $($(#[$meta])* $variant = $number),+
        }
        impl Member {
            /// Every member, in the order of its number.
            pub const ALL: &[Self] = &[$(Self::$variant),+];
            /// The outermost struct that the offset counts from.
            #[must_use]
            pub const fn struct_name(self) -> &'static str {
                match self { $(Self::$variant => $outer),+ }
            }
            /// Dotted path of the member below [`Self::struct_name`]; anonymous structs and unions are not named.
            #[must_use]
            pub const fn path(self) -> &'static str {
                match self { $(Self::$variant => $path),+ }
            }
            /// The member's bit in [`crate::Snapshot::available`].
            #[must_use]
            pub const fn bit(self) -> u64 {
                1 << (self as u32)
            }
        }
    };
}

members! {
    /// TCP state.
    State = 0, "tcp_sock", "inet_conn.icsk_inet.sk.__sk_common.skc_state";
    /// Address family.
    Family = 1, "tcp_sock", "inet_conn.icsk_inet.sk.__sk_common.skc_family";
    /// Local IPv4 address.
    LocalAddressV4 = 2, "tcp_sock", "inet_conn.icsk_inet.sk.__sk_common.skc_rcv_saddr";
    /// Peer IPv4 address.
    PeerAddressV4 = 3, "tcp_sock", "inet_conn.icsk_inet.sk.__sk_common.skc_daddr";
    /// Local IPv6 address (16 bytes; width is given as 8).
    LocalAddressV6 = 4, "tcp_sock", "inet_conn.icsk_inet.sk.__sk_common.skc_v6_rcv_saddr";
    /// Peer IPv6 address (16 bytes; width is given as 8).
    PeerAddressV6 = 5, "tcp_sock", "inet_conn.icsk_inet.sk.__sk_common.skc_v6_daddr";
    /// Local port, host order.
    LocalPort = 6, "tcp_sock", "inet_conn.icsk_inet.sk.__sk_common.skc_num";
    /// Peer port, network order.
    PeerPort = 7, "tcp_sock", "inet_conn.icsk_inet.sk.__sk_common.skc_dport";
    /// Pointer to the network namespace.
    NetworkNamespace = 8, "tcp_sock", "inet_conn.icsk_inet.sk.__sk_common.skc_net.net";
    /// Socket cookie.
    Cookie = 9, "tcp_sock", "inet_conn.icsk_inet.sk.__sk_common.skc_cookie.counter";
    /// Inode number of a network namespace.
    NamespaceInode = 10, "net", "ns.inum";
    /// Flags of a task.
    TaskFlags = 11, "task_struct", "flags";
    /// `write_seq`.
    WriteSeq = 12, "tcp_sock", "write_seq";
    /// `snd_nxt`.
    SndNxt = 13, "tcp_sock", "snd_nxt";
    /// `snd_una`.
    SndUna = 14, "tcp_sock", "snd_una";
    /// `snd_wnd`.
    SndWnd = 15, "tcp_sock", "snd_wnd";
    /// `rcv_nxt`.
    RcvNxt = 16, "tcp_sock", "rcv_nxt";
    /// `copied_seq`.
    CopiedSeq = 17, "tcp_sock", "copied_seq";
    /// `rcv_tstamp`.
    RcvTstamp = 18, "tcp_sock", "rcv_tstamp";
    /// `lsndtime`.
    Lsndtime = 19, "tcp_sock", "lsndtime";
    /// `lrcvtime`.
    Lrcvtime = 20, "tcp_sock", "inet_conn.icsk_ack.lrcvtime";
    /// `bytes_acked`.
    BytesAcked = 21, "tcp_sock", "bytes_acked";
    /// `bytes_received`.
    BytesReceived = 22, "tcp_sock", "bytes_received";
    /// `srtt_us` (eighths).
    Srtt = 23, "tcp_sock", "srtt_us";
    /// `icsk_rto`.
    Rto = 24, "tcp_sock", "inet_conn.icsk_rto";
    /// `icsk_backoff`.
    Backoff = 25, "tcp_sock", "inet_conn.icsk_backoff";
    /// `icsk_retransmits`.
    Retransmits = 26, "tcp_sock", "inet_conn.icsk_retransmits";
    /// `icsk_probes_out`.
    ProbesOut = 27, "tcp_sock", "inet_conn.icsk_probes_out";
    /// `icsk_pending`.
    PendingTimer = 28, "tcp_sock", "inet_conn.icsk_pending";
    /// `packets_out`.
    PacketsOut = 29, "tcp_sock", "packets_out";
    /// `retrans_out`.
    RetransOut = 30, "tcp_sock", "retrans_out";
    /// `total_retrans`.
    TotalRetrans = 31, "tcp_sock", "total_retrans";
    /// `sk_err`.
    SkErr = 32, "tcp_sock", "inet_conn.icsk_inet.sk.sk_err";
    /// `sk_shutdown`.
    SkShutdown = 33, "tcp_sock", "inet_conn.icsk_inet.sk.sk_shutdown";
    /// `sk_wmem_queued`.
    SkWmemQueued = 34, "tcp_sock", "inet_conn.icsk_inet.sk.sk_wmem_queued";
    /// 1 while a task owns the socket (`lock_sock`), 0 while a softirq works on it.
    SkLockOwned = 35, "tcp_sock", "inet_conn.icsk_inet.sk.sk_lock.owned";
    /// Local port, network order. Unlike [`Member::LocalPort`] it is still there when an accepted socket enters
    /// `CLOSE`: `tcp_set_state` gives the port back (`inet_put_port`) before it stores the state.
    LocalPortSent = 36, "tcp_sock", "inet_conn.icsk_inet.inet_sport";
    /// `sk_err_soft`.
    SkErrSoft = 37, "tcp_sock", "inet_conn.icsk_inet.sk.sk_err_soft";
    /// Process of a task (its thread group).
    TaskProcess = 38, "task_struct", "tgid";
    /// Pointer to the task that made this one.
    TaskParent = 39, "task_struct", "real_parent";
    /// Pointer to a task's namespaces; null while it exits.
    TaskNamespaces = 40, "task_struct", "nsproxy";
    /// Pointer to the network namespace among them.
    NamespacesNetwork = 41, "nsproxy", "net_ns";
}

/// Number of [`Member`]s.
pub const MEMBER_COUNT: usize = 42;

const _: () = {
    assert!(Member::ALL.len() == MEMBER_COUNT);
    assert!(MEMBER_COUNT <= 64);
};
