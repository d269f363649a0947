//! Self-tests of other ackbeats in the same network namespace: nobody's connections, so they are left out.
//!
//! Whoever watches every listening port sees the listener of another ackbeat's [`selftest`](super::selftest) like any
//! other. Its mark: a process named `ackbeat` began to listen on the loopback interface. Everything on that port is left
//! out until the listener is closed, which is after its last connection.

use std::net::{IpAddr, Ipv6Addr};

use ackbeat_abi::{FlowKey, Record, TCP_LISTEN};

/// Name of an ackbeat's process, as the kernel shows it (`comm`).
const COMMAND: &[u8] = b"ackbeat";
/// Self-tests that are known at once. A listener whose close was lost stays in the list; the oldest gives way.
const PORTS_MAX: usize = 16;

/// The self-tests that run now.
#[derive(Debug, Default)]
pub(super) struct Neighbors {
    ports: Vec<u16>,
}

impl Neighbors {
    /// Whether a record is about another ackbeat's self-test. Records come in order: the listener's first.
    pub(super) fn own(&mut self, record: &Record) -> bool {
        let Some(flow) = flow(record).filter(|flow| is_loopback(flow)) else { return false };
        if let Record::Lifecycle(found) = record {
            if found.new_state == TCP_LISTEN {
                // Whoever listens there now: an earlier self-test on this port is over.
                self.ports.retain(|port| *port != flow.local_port);
                if !is_ackbeat(&found.comm) {
                    return false;
                }
                if self.ports.len() == PORTS_MAX {
                    self.ports.remove(0);
                }
                self.ports.push(flow.local_port);
                return true;
            }
            if found.old_state == TCP_LISTEN {
                let known = self.ports.len();
                self.ports.retain(|port| *port != flow.local_port);
                return self.ports.len() < known;
            }
        }
        self.ports.contains(&flow.local_port)
    }
}

/// The connection that a record is about, if it is about one.
pub(super) const fn flow(record: &Record) -> Option<&FlowKey> {
    Some(match record {
        Record::Lifecycle(found) => &found.snapshot.flow,
        Record::Reset(found) => &found.flow,
        Record::Frame(found) => &found.flow,
        Record::Synchronization(found) => &found.flow,
        Record::Outstanding(found) => &found.flow,
        Record::UpgradeHead(found) => &found.flow,
        Record::Termination(_) => return None,
    })
}

fn is_ackbeat(comm: &[u8]) -> bool {
    comm.strip_prefix(COMMAND).is_some_and(|rest| rest.first().is_none_or(|byte| *byte == 0))
}

fn is_loopback(flow: &FlowKey) -> bool {
    match Ipv6Addr::from(flow.local_address).to_canonical() {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => address.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use ackbeat_abi::{Lifecycle, Outstanding, Snapshot};

    use super::*;

    const ESTABLISHED: u8 = 1;
    const SYN_RECV: u8 = 3;
    const CLOSE: u8 = 7;

    fn at(address: Ipv4Addr, local_port: u16) -> FlowKey {
        FlowKey { local_address: address.to_ipv6_mapped().octets(), local_port, ..FlowKey::default() }
    }

    fn change(flow: FlowKey, name: &str, old_state: u8, new_state: u8) -> Record {
        let mut found = Lifecycle {
            old_state,
            new_state,
            snapshot: Snapshot { flow, ..Snapshot::default() },
            ..Lifecycle::default()
        };
        found.comm[..name.len()].copy_from_slice(name.as_bytes());
        Record::Lifecycle(found)
    }

    #[test]
    fn a_self_test_is_left_out_from_its_listener_to_the_close_of_it() {
        let mut neighbors = Neighbors::default();
        let (test, app) = (at(Ipv4Addr::LOCALHOST, 40_001), at(Ipv4Addr::LOCALHOST, 8_080));
        assert!(!neighbors.own(&change(app, "node", CLOSE, TCP_LISTEN)));
        assert!(neighbors.own(&change(test, "ackbeat", CLOSE, TCP_LISTEN)));
        // The kernel opens in whatever task it interrupts.
        assert!(neighbors.own(&change(test, "swapper/0", SYN_RECV, ESTABLISHED)));
        assert!(neighbors.own(&Record::Outstanding(Outstanding { flow: test, ..Outstanding::default() })));
        assert!(!neighbors.own(&change(app, "ackbeat", SYN_RECV, ESTABLISHED)));
        assert!(!neighbors.own(&change(
            at(Ipv4Addr::new(10, 0, 0, 1), 40_001),
            "node",
            SYN_RECV,
            ESTABLISHED
        )));
        assert!(neighbors.own(&change(test, "ackbeat", ESTABLISHED, CLOSE)));
        assert!(neighbors.own(&change(test, "ackbeat", TCP_LISTEN, CLOSE)));
        assert!(!neighbors.own(&change(test, "node", SYN_RECV, ESTABLISHED)), "the port is anybody's again");
    }

    #[test]
    fn only_ackbeat_on_the_loopback_interface_is_meant() {
        let mut neighbors = Neighbors::default();
        for (address, name) in [
            (Ipv4Addr::LOCALHOST, "ackbeat-demo"),
            (Ipv4Addr::LOCALHOST, "node"),
            (Ipv4Addr::LOCALHOST, ""),
            (Ipv4Addr::UNSPECIFIED, "ackbeat"),
            (Ipv4Addr::new(10, 0, 0, 1), "ackbeat"),
        ] {
            assert!(!neighbors.own(&change(at(address, 1), name, CLOSE, TCP_LISTEN)), "{address} {name}");
            assert!(!neighbors.own(&change(at(address, 1), name, SYN_RECV, ESTABLISHED)), "{address} {name}");
        }
        let v6 = FlowKey { local_address: Ipv6Addr::LOCALHOST.octets(), local_port: 1, ..FlowKey::default() };
        assert!(neighbors.own(&change(v6, "ackbeat", CLOSE, TCP_LISTEN)));
    }

    #[test]
    fn closes_that_were_lost_leave_no_port_behind_for_good() {
        let mut neighbors = Neighbors::default();
        for port in 1..=100 {
            assert!(neighbors.own(&change(at(Ipv4Addr::LOCALHOST, port), "ackbeat", CLOSE, TCP_LISTEN)));
        }
        assert!(neighbors.ports.len() <= PORTS_MAX);
        assert!(!neighbors.own(&change(at(Ipv4Addr::LOCALHOST, 100), "node", CLOSE, TCP_LISTEN)));
        assert!(!neighbors.own(&change(at(Ipv4Addr::LOCALHOST, 100), "node", SYN_RECV, ESTABLISHED)));
    }
}
