//! The packet of an own window probe.

use std::net::IpAddr;

use ackbeat_liveness::{Endpoints, ProbeWanted};
use etherparse::PacketBuilder;

/// Linux's default (`net.ipv4.ip_default_ttl`, `net.ipv6.conf.*.hop_limit`).
const HOP_LIMIT: u8 = 64;
/// The window field; the module says why.
const WINDOW: u16 = u16::MAX;

/// A probe cannot be written as a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// One end is IPv4, the other IPv6.
    #[error("the ends of an own window probe are of two IP versions")]
    MixedVersions,
    /// A link-local address means nothing without its interface, which is not read.
    #[error("the peer of an own window probe has a link-local address")]
    LinkLocal,
    /// The packet could not be written.
    #[error("writing the packet of an own window probe failed")]
    Unwritable,
}

/// The packet from its IP header on. An IPv4-mapped address is IPv4 on the wire (RFC 4291 section 2.5.5.2).
///
/// # Errors
/// [`PacketError`] for ends that no packet can join.
pub fn packet(wanted: &ProbeWanted) -> Result<Vec<u8>, PacketError> {
    let Endpoints { local_address, local_port, peer_address, peer_port } = wanted.endpoints;
    let ip = match (local_address.to_canonical(), peer_address.to_canonical()) {
        (IpAddr::V4(local), IpAddr::V4(peer)) => {
            PacketBuilder::ipv4(local.octets(), peer.octets(), HOP_LIMIT)
        }
        (IpAddr::V6(_), IpAddr::V6(peer)) if peer.is_unicast_link_local() => {
            return Err(PacketError::LinkLocal);
        }
        (IpAddr::V6(local), IpAddr::V6(peer)) => {
            PacketBuilder::ipv6(local.octets(), peer.octets(), HOP_LIMIT)
        }
        _ => return Err(PacketError::MixedVersions),
    };
    let tcp = ip.tcp(local_port, peer_port, wanted.seq.0, WINDOW).ack(wanted.ack.0);
    let mut bytes = Vec::with_capacity(tcp.size(0));
    tcp.write(&mut bytes, &[]).map_err(|_| PacketError::Unwritable)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use ackbeat_liveness::{ConnectionId, Seq, Timestamp};
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};

    use super::*;

    fn wanted(local: &str, peer: &str) -> ProbeWanted {
        ProbeWanted {
            connection: ConnectionId(1),
            at: Timestamp::default(),
            endpoints: Endpoints {
                local_address: local.parse().unwrap(),
                local_port: 8080,
                peer_address: peer.parse().unwrap(),
                peer_port: 40_001,
            },
            seq: Seq(u32::MAX),
            ack: Seq(7),
        }
    }

    #[test]
    fn it_is_a_bare_ack_before_the_window() {
        for (local, peer, bytes) in [
            ("10.0.0.1", "10.0.0.2", 40),
            ("::ffff:10.0.0.1", "::ffff:10.0.0.2", 40),
            ("fd87::1", "fd87::2", 60),
        ] {
            let written = packet(&wanted(local, peer)).unwrap();
            assert_eq!(written.len(), bytes);
            let read = SlicedPacket::from_ip(&written).unwrap();
            let Some(TransportSlice::Tcp(tcp)) = &read.transport else { panic!("{read:?}") };
            assert_eq!((tcp.source_port(), tcp.destination_port()), (8080, 40_001));
            assert_eq!((tcp.sequence_number(), tcp.acknowledgment_number()), (u32::MAX, 7));
            assert!(tcp.ack() && !(tcp.syn() || tcp.fin() || tcp.rst() || tcp.psh() || tcp.urg()));
            assert!(tcp.payload().is_empty() && tcp.options().is_empty());
            let checksum = match &read.net {
                Some(NetSlice::Ipv4(ip)) => {
                    tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination())
                }
                Some(NetSlice::Ipv6(ip)) => {
                    tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination())
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(tcp.checksum(), checksum.unwrap());
        }
    }

    #[test]
    fn ends_that_no_packet_can_join_are_refused() {
        assert_eq!(packet(&wanted("10.0.0.1", "fd87::2")), Err(PacketError::MixedVersions));
        assert_eq!(packet(&wanted("fe80::1", "fe80::2")), Err(PacketError::LinkLocal));
    }
}
