//! From a peer's address to its connections.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;

use ackbeat_liveness::{ConnectionId, Endpoints, Engine, Verdict};

/// What was found for an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// No connection.
    None,
    /// One.
    One(T),
    /// Several, at these local addresses.
    Several(Vec<SocketAddr>),
}

/// A place in the directory: the peer, and the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    address: IpAddr,
    port: u16,
    connection: ConnectionId,
}

impl Cursor {
    /// The connection that stands here.
    #[must_use]
    pub const fn connection(&self) -> ConnectionId {
        self.connection
    }
}

/// Connections by their peers' addresses, IPv4-mapped addresses (RFC 4291 section 2.5.5.2) as IPv4.
#[derive(Debug, Default)]
pub(super) struct Directory {
    places: BTreeSet<Cursor>,
}

fn place(connection: ConnectionId, endpoints: &Endpoints) -> Cursor {
    Cursor { address: endpoints.peer_address.to_canonical(), port: endpoints.peer_port, connection }
}

impl Directory {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn insert(&mut self, connection: ConnectionId, endpoints: &Endpoints) {
        self.places.insert(place(connection, endpoints));
    }

    pub(super) fn remove(&mut self, connection: ConnectionId, endpoints: &Endpoints) {
        self.places.remove(&place(connection, endpoints));
    }

    /// What stands after a place.
    pub(super) fn after(&self, cursor: Option<Cursor>) -> impl Iterator<Item = Cursor> + '_ {
        let start = cursor.map_or(Bound::Unbounded, Bound::Excluded);
        self.places.range((start, Bound::Unbounded)).copied()
    }

    /// The connection of a peer, at a local address if one is given. Of those that are over, the latest counts, and only
    /// if there is no other.
    pub(super) fn find(
        &self,
        peer: SocketAddr,
        local: Option<SocketAddr>,
        engine: &Engine,
    ) -> Found<ConnectionId> {
        let at = |cookie| Cursor {
            address: peer.ip().to_canonical(),
            port: peer.port(),
            connection: ConnectionId(cookie),
        };
        let (mut open, mut over) = (Vec::new(), None);
        for place in self.places.range(at(0)..=at(u64::MAX)) {
            let Some(info) = engine.connection(place.connection) else { continue };
            let ends = &info.endpoints;
            let found = SocketAddr::new(ends.local_address.to_canonical(), ends.local_port);
            if local
                .is_some_and(|local| (local.ip().to_canonical(), local.port()) != (found.ip(), found.port()))
            {
                continue;
            }
            if info.verdict == Verdict::Closed {
                over = over.max(Some((info.opened_at, place.connection)));
            } else {
                open.push((place.connection, found));
            }
        }
        match (open.as_slice(), over) {
            ([], None) => Found::None,
            ([], Some((_, connection))) => Found::One(connection),
            ([(connection, _)], _) => Found::One(*connection),
            _ => Found::Several(open.into_iter().map(|(_, local)| local).collect()),
        }
    }
}
