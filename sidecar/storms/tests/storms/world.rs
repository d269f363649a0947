//! A watch and what it said.

use std::net::{IpAddr, Ipv4Addr};

use ackbeat_liveness::{CloseInitiator, ConnectionId, Output, Rung, Timestamp, Verdict, VerdictChange};
use ackbeat_storms::{Fact, Outage, PortArrivals, Settings, Storm, StormBegan, StormEvent, StormWatch};

/// The listening port.
pub(crate) const PORT: u16 = 8_080;

/// A watch, and everything that it said.
pub(crate) struct World {
    pub(crate) watch: StormWatch,
    pub(crate) began: Vec<StormBegan>,
    pub(crate) ended: Vec<Storm>,
    pub(crate) outages: Vec<Outage>,
    next: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        Self { watch: StormWatch::new(settings), began: vec![], ended: vec![], outages: vec![], next: 1 }
    }

    pub(crate) fn fact(&mut self, fact: &Fact) {
        self.watch.fact(fact);
        self.take();
    }

    /// A peer arrives.
    pub(crate) fn arrive(&mut self, at_ms: u64, peer: u32) -> ConnectionId {
        self.open(at_ms, peer, PORT, false)
    }

    pub(crate) fn open(&mut self, at_ms: u64, peer: u32, local_port: u16, found: bool) -> ConnectionId {
        let connection = ConnectionId(self.next);
        self.next += 1;
        let peer = IpAddr::V4(Ipv4Addr::from(0x0A00_0000 + peer));
        self.fact(&Fact::Opened { connection, at: Timestamp::from_ms(at_ms), local_port, peer, found });
        connection
    }

    pub(crate) fn hear(&mut self, at_ms: u64, connection: ConnectionId, heard_ms: u64) {
        let (at, heard_at) = (Timestamp::from_ms(at_ms), Timestamp::from_ms(heard_ms));
        self.fact(&Fact::Heard { connection, at, heard_at, timeouts: None });
    }

    /// A reading finds so many retransmission timeouts that nothing has answered.
    pub(crate) fn time_out(&mut self, at_ms: u64, connection: ConnectionId, heard_ms: u64, timeouts: u8) {
        let (at, heard_at) = (Timestamp::from_ms(at_ms), Timestamp::from_ms(heard_ms));
        self.fact(&Fact::Heard { connection, at, heard_at, timeouts: Some(timeouts) });
    }

    pub(crate) fn close(&mut self, at_ms: u64, connection: ConnectionId) {
        let at = Timestamp::from_ms(at_ms);
        self.watch.output(&Output::Closing { connection, at, initiator: CloseInitiator::Host });
        self.take();
    }

    pub(crate) fn turn(&mut self, at_ms: u64, connection: ConnectionId, to: Verdict) {
        self.watch.output(&Output::VerdictChanged(VerdictChange {
            connection,
            at: Timestamp::from_ms(at_ms),
            from: if to == Verdict::Alive { Verdict::Unreachable } else { Verdict::Alive },
            to,
            rung: Rung::None,
            kill_justified: false,
        }));
        self.take();
    }

    pub(crate) fn pass(&mut self, at_ms: u64) {
        self.watch.pass(Timestamp::from_ms(at_ms));
        self.take();
    }

    pub(crate) fn port(&self) -> PortArrivals {
        let port = self.watch.ports().find(|port| port.local_port == PORT);
        match port {
            Some(port) => port,
            None => unreachable!("the port has had a connection"),
        }
    }

    pub(crate) fn take(&mut self) {
        while let Some(event) = self.watch.poll() {
            match event {
                StormEvent::Began(began) => self.began.push(began),
                StormEvent::Ended(storm) => self.ended.push(*storm),
                StormEvent::OutageBegan(_) => {}
                StormEvent::OutageEnded(outage) => self.outages.push(outage),
            }
        }
    }
}
