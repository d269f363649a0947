//! `struct tcp_info` (`include/uapi/linux/tcp.h`), as far as a kernel fills it.
//!
//! The structure only ever grew at its end: a member that lies beyond the length that the kernel gave is unavailable.

/// Members that are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TcpInfo {
    pub(super) retransmits: Option<u8>,
    pub(super) probes: Option<u8>,
    pub(super) backoff: Option<u8>,
    pub(super) rto_us: Option<u32>,
    pub(super) unacked_segments: Option<u32>,
    pub(super) last_data_sent_ms: Option<u32>,
    pub(super) last_data_recv_ms: Option<u32>,
    pub(super) last_ack_recv_ms: Option<u32>,
    pub(super) rtt_us: Option<u32>,
    pub(super) total_retrans: Option<u32>,
    /// Linux 4.1.
    pub(super) bytes_acked: Option<u64>,
    /// Linux 4.1.
    pub(super) bytes_received: Option<u64>,
    /// Linux 4.6.
    pub(super) notsent_bytes: Option<u32>,
    /// Linux 5.4.
    pub(super) snd_wnd_bytes: Option<u32>,
}

impl TcpInfo {
    /// Reads what is there.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        Self {
            retransmits: bytes.get(2).copied(),
            probes: bytes.get(3).copied(),
            backoff: bytes.get(4).copied(),
            rto_us: u32_at(bytes, 8),
            unacked_segments: u32_at(bytes, 24),
            last_data_sent_ms: u32_at(bytes, 44),
            last_data_recv_ms: u32_at(bytes, 52),
            last_ack_recv_ms: u32_at(bytes, 56),
            rtt_us: u32_at(bytes, 68),
            total_retrans: u32_at(bytes, 100),
            bytes_acked: u64_at(bytes, 120),
            bytes_received: u64_at(bytes, 128),
            notsent_bytes: u32_at(bytes, 144),
            snd_wnd_bytes: u32_at(bytes, 228),
        }
    }
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let member = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_ne_bytes(member.try_into().ok()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let member = bytes.get(offset..offset.checked_add(8)?)?;
    Some(u64::from_ne_bytes(member.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn a_short_answer_leaves_the_later_members_unknown() {
        let info = TcpInfo::parse(&[7; 130]);
        assert_eq!(info.retransmits, Some(7));
        assert_eq!(info.bytes_acked, Some(u64::from_ne_bytes([7; 8])));
        assert_eq!((info.bytes_received, info.notsent_bytes, info.snd_wnd_bytes), (None, None, None));
        assert_eq!(TcpInfo::parse(&[]), TcpInfo::default());
    }

    #[test]
    fn the_first_offsets_are_those_of_the_c_library() {
        type C = libc::tcp_info;
        assert!(size_of::<C>() >= 104);
        assert_eq!(offset_of!(C, tcpi_retransmits), 2);
        assert_eq!(offset_of!(C, tcpi_probes), 3);
        assert_eq!(offset_of!(C, tcpi_backoff), 4);
        assert_eq!(offset_of!(C, tcpi_rto), 8);
        assert_eq!(offset_of!(C, tcpi_unacked), 24);
        assert_eq!(offset_of!(C, tcpi_last_data_sent), 44);
        assert_eq!(offset_of!(C, tcpi_last_data_recv), 52);
        assert_eq!(offset_of!(C, tcpi_last_ack_recv), 56);
        assert_eq!(offset_of!(C, tcpi_rtt), 68);
        assert_eq!(offset_of!(C, tcpi_total_retrans), 100);
    }
}
