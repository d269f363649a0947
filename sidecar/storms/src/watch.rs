//! All listening ports.

use std::collections::{BTreeMap, HashMap, VecDeque};

use ackbeat_liveness::{CONNECTION_LIMIT_DEFAULT, ConnectionId, Output, Timestamp, Verdict};

use crate::port::{Port, Said};
use crate::{Fact, Outage, PortArrivals, Settings, Storm, StormBegan};

/// Listening ports that are told apart at most.
pub const PORTS_MAX: usize = 64;

/// Something happened on a listening port.
#[derive(Clone, Debug, PartialEq)]
pub enum StormEvent {
    /// A reconnect storm began.
    Began(StormBegan),
    /// A reconnect storm is over.
    Ended(Box<Storm>),
    /// Nothing comes from any peer.
    OutageBegan(Outage),
    /// Something comes again.
    OutageEnded(Outage),
}

/// Sums over all ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Arrivals.
    pub arrivals: u64,
    /// Of them, those on ports beyond [`PORTS_MAX`], whose storms nobody sees.
    pub arrivals_unwatched: u64,
    /// Storms that began.
    pub storms: u64,
    /// Outages that began.
    pub outages: u64,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    local_port: u16,
    opened_at: Timestamp,
    /// `None` while it is open.
    closed_at: Option<Timestamp>,
    /// Its verdict.
    is_unreachable: bool,
    /// The latest reading of its socket.
    is_unanswering: bool,
    /// The round in which it counts among those that were given up.
    given_up: Option<u32>,
}

impl Peer {
    const fn is_open(&self) -> bool {
        self.closed_at.is_none()
    }

    const fn is_silent(&self) -> bool {
        self.is_unreachable || self.is_unanswering
    }
}

/// Watches the arrivals of all listening ports. See the [crate's documentation](crate).
///
/// Tell it each [`Fact`] after the engine took the input, then each output; [`StormWatch::late`] when the engine counted a late
/// tick; and [`StormWatch::pass`] now and then. Call [`StormWatch::poll`] until it gives `None`.
#[derive(Debug)]
pub struct StormWatch {
    settings: Settings,
    ports: BTreeMap<u16, Port>,
    peers: HashMap<ConnectionId, Peer>,
    events: VecDeque<StormEvent>,
    said: Vec<Said>,
    totals: Totals,
    now: Timestamp,
    /// Arrivals up to here may have waited for a sidecar that slept.
    blind_until: Timestamp,
    /// A pass over the sockets has ended: what is found from now on is new.
    has_passed: bool,
}

impl StormWatch {
    /// One that knows of nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ports: BTreeMap::new(),
            peers: HashMap::new(),
            events: VecDeque::new(),
            said: Vec::new(),
            totals: Totals::default(),
            now: Timestamp::default(),
            blind_until: Timestamp::default(),
            has_passed: false,
        }
    }

    /// The engine was told this.
    pub fn fact(&mut self, fact: &Fact) {
        match *fact {
            Fact::Opened { connection, at, local_port, peer, found } => {
                self.pass(at);
                // Told of twice, it is one connection.
                let is_new = self.opened(connection, at, local_port);
                if is_new && (!found || (self.settings.found && self.has_passed)) {
                    self.totals.arrivals = self.totals.arrivals.saturating_add(1);
                    let is_blind = self.settings.found && at <= self.blind_until;
                    match self.ports.get_mut(&local_port) {
                        Some(port) if !is_blind => port.arrived(at, peer, &self.settings),
                        Some(_) => {}
                        None => {
                            self.totals.arrivals_unwatched = self.totals.arrivals_unwatched.saturating_add(1);
                        }
                    }
                    if !found {
                        self.heard(local_port, at);
                    }
                }
            }
            Fact::Heard { connection, at, heard_at, timeouts } => {
                self.pass(at);
                if let Some(peer) = self.peers.get(&connection) {
                    let local_port = peer.local_port;
                    self.heard(local_port, heard_at);
                }
                if let Some(timeouts) = timeouts {
                    let is_unanswering = timeouts >= self.settings.outage_timeouts;
                    self.read(connection, is_unanswering);
                }
            }
            Fact::Lost { at } => {
                self.pass(at);
                self.unknown();
            }
            Fact::Passed { at } => {
                self.pass(at);
                self.has_passed = true;
            }
            Fact::Time { at } => self.pass(at),
        }
    }

    /// The engine decided this.
    pub fn output(&mut self, output: &Output) {
        match output {
            Output::VerdictChanged(change) => {
                self.pass(change.at);
                let is_unreachable = change.to == Verdict::Unreachable;
                self.set_silence(change.connection, |peer| peer.is_unreachable = is_unreachable);
            }
            Output::Closing { connection, at, .. } => {
                self.pass(*at);
                self.closing(*connection, *at);
            }
            Output::Closed(record) => {
                if !record.still_open {
                    // Where the close itself was not told, the record is.
                    self.closing(record.connection, record.closed_at);
                }
                self.end_silence(record.connection);
                if let Some(peer) = self.peers.remove(&record.connection)
                    && let Some(port) = self.ports.get_mut(&peer.local_port)
                {
                    if peer.is_open() {
                        port.reach.open = port.reach.open.saturating_sub(1);
                    }
                    if let Some(round) = peer.given_up {
                        port.reach.forget(round);
                    }
                }
            }
            _ => {}
        }
        self.look_for_outages();
    }

    /// The sidecar slept until now, or came late. Where arrivals are found by a pass ([`Settings::found`]), it is not known when
    /// those of meanwhile came. Where they are seen, each has its own date, given by the kernel: nothing is lost then, and
    /// what was lost is told by itself.
    pub fn late(&mut self, at: Timestamp) {
        self.pass(at);
        if !self.settings.found {
            return;
        }
        self.blind_until = self.blind_until.max(at.plus_ms(self.settings.bin_ms));
        self.unknown();
    }

    /// This much time has passed.
    pub fn pass(&mut self, now: Timestamp) {
        if now <= self.now {
            return;
        }
        let is_new_bin = self.now.as_ns() / (self.settings.bin_ms * 1_000_000)
            != now.as_ns() / (self.settings.bin_ms * 1_000_000);
        self.now = now;
        if !is_new_bin {
            return;
        }
        for port in self.ports.values_mut() {
            port.pass(now, &self.settings, &mut self.said);
        }
        self.tell();
        self.look_for_outages();
    }

    /// Ends every storm that is still on, as of now.
    pub fn shut_down(&mut self, now: Timestamp) {
        self.pass(now);
        for port in self.ports.values_mut() {
            port.shut_down(&mut self.said);
        }
        self.tell();
    }

    /// What happened next. Call it until it gives `None`.
    pub fn poll(&mut self) -> Option<StormEvent> {
        self.events.pop_front()
    }

    /// How each port stands, in their order.
    pub fn ports(&self) -> impl Iterator<Item = PortArrivals> {
        self.ports.values().map(|port| port.standing(&self.settings))
    }

    /// Sums over all ports.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns whether it was not known before.
    fn opened(&mut self, connection: ConnectionId, at: Timestamp, local_port: u16) -> bool {
        if self.peers.contains_key(&connection) {
            return false;
        }
        if self.peers.len() >= CONNECTION_LIMIT_DEFAULT {
            return true;
        }
        if !self.ports.contains_key(&local_port) && self.ports.len() >= PORTS_MAX {
            // One that is at rest makes room: listening ports come and go.
            let Some(at_rest) =
                self.ports.iter().find(|(_, port)| port.is_at_rest()).map(|(number, _)| *number)
            else {
                return true;
            };
            self.ports.remove(&at_rest);
        }
        let settings = &self.settings;
        let port = self.ports.entry(local_port).or_insert_with(|| Port::new(local_port, at, settings));
        port.reach.opened();
        self.peers.insert(
            connection,
            Peer {
                local_port,
                opened_at: at,
                closed_at: None,
                is_unreachable: false,
                is_unanswering: false,
                given_up: None,
            },
        );
        true
    }

    fn heard(&mut self, local_port: u16, heard_at: Timestamp) {
        if let Some(port) = self.ports.get_mut(&local_port)
            && let Some(ended) = port.reach.heard(heard_at, &self.settings)
        {
            self.events.push_back(StormEvent::OutageEnded(ended));
        }
    }

    fn closing(&mut self, connection: ConnectionId, at: Timestamp) {
        let Some(peer) = self.peers.get_mut(&connection).filter(|peer| peer.is_open()) else { return };
        peer.closed_at = Some(at);
        if let Some(port) = self.ports.get_mut(&peer.local_port) {
            port.reach.open = port.reach.open.saturating_sub(1);
            // Short lives end as often as they begin: where more come, more go, and nobody comes back.
            if at.ms_since(peer.opened_at) >= self.settings.burst_ms {
                port.closed(at, connection, &self.settings);
            }
        }
        // Whoever was given up is expected back on another connection. Its silence on this one says something only until anybody is
        // heard.
        self.end_silence(connection);
    }

    /// A reading of a peer's socket. After a close it is read on, for the post-mortem.
    fn read(&mut self, connection: ConnectionId, is_unanswering: bool) {
        let Some(peer) = self.peers.get_mut(&connection) else { return };
        let Some(closed_at) = peer.closed_at else {
            self.set_silence(connection, |peer| peer.is_unanswering = is_unanswering);
            return;
        };
        let Some(port) = self.ports.get_mut(&peer.local_port) else { return };
        match peer.given_up {
            None if is_unanswering => peer.given_up = port.reach.give_up(closed_at),
            Some(round) if !is_unanswering => {
                port.reach.forget(round);
                peer.given_up = None;
            }
            _ => {}
        }
    }

    fn end_silence(&mut self, connection: ConnectionId) {
        self.set_silence(connection, |peer| {
            peer.is_unreachable = false;
            peer.is_unanswering = false;
        });
    }

    fn set_silence(&mut self, connection: ConnectionId, set: impl FnOnce(&mut Peer)) {
        let Some(peer) = self.peers.get_mut(&connection) else { return };
        let was_silent = peer.is_silent();
        set(peer);
        if peer.is_silent() != was_silent
            && let Some(port) = self.ports.get_mut(&peer.local_port)
        {
            let count = &mut port.reach.unreachable;
            *count = if was_silent { count.saturating_sub(1) } else { count.saturating_add(1) };
        }
    }

    fn look_for_outages(&mut self) {
        for (local_port, port) in &mut self.ports {
            if let Some(began) = port.reach.look(*local_port, self.now, &self.settings) {
                self.totals.outages = self.totals.outages.saturating_add(1);
                self.events.push_back(StormEvent::OutageBegan(began));
            }
        }
    }

    fn unknown(&mut self) {
        for port in self.ports.values_mut() {
            port.unknown();
        }
    }

    fn tell(&mut self) {
        for said in self.said.drain(..) {
            self.events.push_back(match said {
                Said::Began(began) => {
                    self.totals.storms = self.totals.storms.saturating_add(1);
                    StormEvent::Began(began)
                }
                Said::Ended(storm) => StormEvent::Ended(storm),
            });
        }
    }
}
