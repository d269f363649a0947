//! Packets as the kernel's hooks see them.

use ackbeat_abi::{Direction, FlowKey};

use crate::random::Random;

/// Builds Ethernet packets of one connection.
pub(crate) struct Packets {
    pub(crate) flow: FlowKey,
    version: u8,
}

impl Packets {
    pub(crate) fn new(random: &mut Random, local_port: u16) -> Self {
        let version = if random.one_in(2) { 4 } else { 6 };
        let address = |random: &mut Random| {
            let mut address = [0; 16];
            address.copy_from_slice(&random.bytes(16));
            if version == 4 {
                address[..12].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
            }
            address
        };
        let flow = FlowKey {
            local_address: address(random),
            peer_address: address(random),
            local_port,
            peer_port: random.between(1_024, 65_535) as u16,
            padding: 0,
        };
        Self { flow, version }
    }

    /// One packet, with random options at every layer.
    pub(crate) fn build(
        &self,
        random: &mut Random,
        direction: Direction,
        seq: u32,
        ack_seq: u32,
        payload: &[u8],
    ) -> Vec<u8> {
        let flow = &self.flow;
        let (source, destination, source_port, destination_port) = match direction {
            Direction::Ingress => (flow.peer_address, flow.local_address, flow.peer_port, flow.local_port),
            Direction::Egress => (flow.local_address, flow.peer_address, flow.local_port, flow.peer_port),
        };
        let tcp_options = random.below(11) * 4;
        let mut tcp = Vec::new();
        tcp.extend_from_slice(&source_port.to_be_bytes());
        tcp.extend_from_slice(&destination_port.to_be_bytes());
        tcp.extend_from_slice(&seq.to_be_bytes());
        tcp.extend_from_slice(&ack_seq.to_be_bytes());
        tcp.push((5 + tcp_options as u8 / 4) << 4);
        tcp.extend_from_slice(&[0x18, 1, 0, 0, 0, 0, 0]);
        tcp.extend(random.bytes(tcp_options));
        tcp.extend_from_slice(payload);

        let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if self.version == 4 {
            let options = random.below(11) * 4;
            packet.extend_from_slice(&[8, 0]);
            packet.push(0x40 | (5 + options as u8 / 4));
            packet.push(0);
            packet.extend_from_slice(&((20 + options + tcp.len()) as u16).to_be_bytes());
            // DF set, protocol TCP; nobody here looks at the checksum.
            packet.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
            packet.extend_from_slice(&source[12..]);
            packet.extend_from_slice(&destination[12..]);
            packet.extend(random.bytes(options));
        } else {
            let extensions = random.below(3);
            packet.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
            packet.extend_from_slice(&((tcp.len() + extensions * 16) as u16).to_be_bytes());
            packet.push(if extensions > 0 { 60 } else { 6 });
            packet.push(64);
            packet.extend_from_slice(&source);
            packet.extend_from_slice(&destination);
            for left in (0..extensions).rev() {
                packet.push(if left > 0 { 60 } else { 6 });
                packet.push(1);
                packet.extend(random.bytes(14));
            }
        }
        packet.extend_from_slice(&tcp);
        while packet.len() < 60 {
            // Ethernet pads short frames.
            packet.push(random.number() as u8);
        }
        packet
    }
}
