//! One socket of a dump.

use ackbeat_liveness::leak::CensusSocket;
use ackbeat_liveness::{ConnectionId, Endpoints, Role, Snapshot, TcpState, Timestamp};
use netlink_packet_sock_diag::constants::{
    TCP_CLOSE, TCP_CLOSE_WAIT, TCP_CLOSING, TCP_ESTABLISHED, TCP_FIN_WAIT1, TCP_FIN_WAIT2, TCP_LAST_ACK,
    TCP_LISTEN, TCP_SYN_RECV, TCP_SYN_SENT, TCP_TIME_WAIT,
};
use netlink_packet_sock_diag::inet::InetResponse;
use netlink_packet_sock_diag::inet::nlas::Nla;

use super::tcp_info::TcpInfo;

/// One socket, as `inet_diag` tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its cookie: the same number that eBPF programs see.
    pub cookie: ConnectionId,
    /// Its state.
    pub state: TcpState,
    /// Its two ends.
    pub endpoints: Endpoints,
    /// Its inode; 0 where no process has it open any more.
    pub inode: u32,
    recv_queue_bytes: u32,
    send_queue_bytes: u32,
    shutdown: Option<u8>,
    info: Option<TcpInfo>,
}

impl Row {
    /// Reads an answer; `None` for a state that this version does not know.
    pub(super) fn read(response: &InetResponse) -> Option<Self> {
        let header = &response.header;
        let cookie = u64::from_ne_bytes(header.socket_id.cookie);
        let mut row = Self {
            cookie: ConnectionId(cookie),
            state: state(header.state)?,
            endpoints: Endpoints {
                local_address: header.socket_id.source_address,
                local_port: header.socket_id.source_port,
                peer_address: header.socket_id.destination_address,
                peer_port: header.socket_id.destination_port,
            },
            inode: header.inode,
            recv_queue_bytes: header.recv_queue,
            send_queue_bytes: header.send_queue,
            shutdown: None,
            info: None,
        };
        for attribute in &response.nlas {
            match attribute {
                Nla::TcpInfo(bytes) => row.info = Some(TcpInfo::parse(bytes)),
                // INET_DIAG_SHUTDOWN has the kernel's bits (`RCV_SHUTDOWN`, `SEND_SHUTDOWN`).
                Nla::Shutdown(bits) => row.shutdown = Some(*bits),
                _ => {}
            }
        }
        Some(row)
    }

    /// A row for tests, without accounting.
    #[cfg(test)]
    pub(super) fn made(cookie: ConnectionId, state: TcpState, local_port: u16) -> Self {
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let endpoints =
            Endpoints { local_address: address, local_port, peer_address: address, peer_port: 40_001 };
        Self {
            cookie,
            state,
            endpoints,
            inode: 0,
            recv_queue_bytes: 0,
            send_queue_bytes: 0,
            shutdown: None,
            info: None,
        }
    }

    /// What a census tells of it; `at` is the time of the pass. The pod accepted it where something listens on its local
    /// port.
    #[must_use]
    pub fn census_socket(&self, at: Timestamp, is_listening: bool, pid: Option<u32>) -> CensusSocket {
        let snapshot = self.snapshot(at);
        CensusSocket {
            connection: self.cookie,
            endpoints: self.endpoints,
            role: if is_listening { Role::Server } else { Role::Client },
            state: self.state,
            busy: false,
            last_send_at: snapshot.last_send_at,
            last_inbound_at: snapshot.last_inbound_at,
            last_ack_at: snapshot.last_ack_at,
            send_queue_bytes: snapshot.send_queue_bytes,
            unread_bytes: snapshot.unread_bytes,
            bytes_acked: snapshot.bytes_acked,
            bytes_received: snapshot.bytes_received,
            pid,
        }
    }

    /// The socket's accounting; `at` is the time of the pass.
    #[must_use]
    pub fn snapshot(&self, at: Timestamp) -> Snapshot {
        let info = self.info.unwrap_or_default();
        // TIME_WAIT has no queues and no tcp_info any more: what it shows as 0 is unknown.
        let has_queues = self.info.is_some();
        let ago = |age_ms: Option<u32>| age_ms.map(|age_ms| at.minus_ms(u64::from(age_ms)));
        Snapshot {
            connection: self.cookie,
            at,
            state: self.state,
            write_seq: None,
            snd_nxt: None,
            snd_una: None,
            snd_wnd_bytes: info.snd_wnd_bytes,
            rcv_nxt: None,
            copied_seq: None,
            send_queue_bytes: has_queues.then_some(self.send_queue_bytes),
            unsent_bytes: info.notsent_bytes,
            unread_bytes: has_queues.then_some(self.recv_queue_bytes),
            last_ack_at: ago(info.last_ack_recv_ms),
            last_send_at: ago(info.last_data_sent_ms),
            // The kernel counts from the handshake as long as no payload has come.
            last_inbound_at: ago(info.last_data_recv_ms).filter(|_| info.bytes_received != Some(0)),
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
            srtt_us: info.rtt_us,
            rto_ms: info.rto_us.map(|rto_us| rto_us / 1_000),
            backoff: info.backoff,
            retransmits: info.retransmits,
            probes_out: info.probes,
            packets_out: info.unacked_segments,
            total_retransmits: info.total_retrans,
            retransmitting_since: None,
            socket_error: None,
            soft_error: None,
            shutdown: self.shutdown,
            queued_memory_bytes: None,
        }
    }
}

const fn state(number: u8) -> Option<TcpState> {
    Some(match number {
        TCP_ESTABLISHED => TcpState::Established,
        TCP_SYN_SENT => TcpState::SynSent,
        TCP_SYN_RECV => TcpState::SynRecv,
        TCP_FIN_WAIT1 => TcpState::FinWait1,
        TCP_FIN_WAIT2 => TcpState::FinWait2,
        TCP_TIME_WAIT => TcpState::TimeWait,
        TCP_CLOSE => TcpState::Close,
        TCP_CLOSE_WAIT => TcpState::CloseWait,
        TCP_LAST_ACK => TcpState::LastAck,
        TCP_LISTEN => TcpState::Listen,
        TCP_CLOSING => TcpState::Closing,
        _ => return None,
    })
}
