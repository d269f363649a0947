//! Which new connection is the return of a peer whose last one ended.
//!
//! A peer is known by its address and by the path that it asks for at the same local port; its own port is new each time. So
//! only connections whose upgrade was seen take part, and none whose address is a proxy's: behind one, all peers have the
//! same.
//!
//! Every end is remembered, whoever began it, and each is followed by one connection at most. Of several that fit, the
//! *latest* end before the new connection opened is taken. Peers behind one address translation share their address: some
//! of them do not come back, and an old end that nobody followed is most likely theirs, while whoever comes back comes soon. An
//! end that the peer chose itself (a page that is loaded anew) must take its own return, or that would be counted for
//! somebody's kill.

use alloc::collections::VecDeque;
use alloc::string::String;
use core::net::IpAddr;

use crate::{
    Assessment, CloseInitiator, CloseKind, CloseRecord, ConnectionId, Endpoints, Reconnect, Timestamp,
};

/// Ends that are remembered; of more the oldest is forgotten. A storm of that many at once is followed whole.
const ENDS_MAX: usize = 4_096;
/// How long an end is remembered, in milliseconds. Clients' back-off ends at 30 s to a minute.
pub const RECONNECT_WITHIN_MS: u64 = 60_000;

/// What was decided about an end, once its record is out.
#[derive(Clone, Copy, Debug)]
struct Decided {
    kind: CloseKind,
    initiator: CloseInitiator,
    assessment: Option<Assessment>,
}

#[derive(Clone, Debug)]
struct End {
    connection: ConnectionId,
    at: Timestamp,
    local_port: u16,
    peer_address: IpAddr,
    path: String,
    decided: Option<Decided>,
    /// The connection that followed, and when it opened.
    followed_by: Option<(ConnectionId, Timestamp)>,
}

/// The ends of the last minute.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reconnects {
    ends: VecDeque<End>,
}

impl End {
    fn reconnect(&self) -> Option<Reconnect> {
        let (connection, opened_at) = self.followed_by?;
        let Decided { kind, initiator, assessment } = self.decided?;
        Some(Reconnect {
            connection,
            at: opened_at,
            follows: self.connection,
            after_ms: opened_at.ms_since(self.at),
            kind,
            initiator,
            assessment,
        })
    }
}

impl Reconnects {
    /// A connection ended at `at`.
    pub(crate) fn on_end(&mut self, connection: ConnectionId, at: Timestamp, ends: Endpoints, path: &str) {
        while self.ends.front().is_some_and(|end| at.ms_since(end.at) > RECONNECT_WITHIN_MS)
            || self.ends.len() >= ENDS_MAX
        {
            self.ends.pop_front();
        }
        self.ends.push_back(End {
            connection,
            at,
            local_port: ends.local_port,
            peer_address: ends.peer_address,
            path: String::from(path),
            decided: None,
            followed_by: None,
        });
    }

    /// Its record is out. Gives the connection that has followed it already.
    pub(crate) fn on_record(&mut self, record: &CloseRecord) -> Option<Reconnect> {
        let end = self.ends.iter_mut().rev().find(|end| end.connection == record.connection)?;
        end.decided =
            Some(Decided { kind: record.kind, initiator: record.initiator, assessment: record.assessment });
        end.reconnect()
    }

    /// The path of a connection that opened at `opened_at` is known. Gives the end that it follows, if that one's record is
    /// out; else [`Self::on_record`] gives it later.
    pub(crate) fn on_upgrade(
        &mut self,
        connection: ConnectionId,
        opened_at: Timestamp,
        ends: Endpoints,
        path: &str,
    ) -> Option<Reconnect> {
        let end = self
            .ends
            .iter_mut()
            .filter(|end| {
                end.connection != connection
                    && end.followed_by.is_none()
                    && end.local_port == ends.local_port
                    && end.peer_address == ends.peer_address
                    && end.at <= opened_at
                    && opened_at.ms_since(end.at) <= RECONNECT_WITHIN_MS
                    && end.path == path
            })
            .max_by_key(|end| end.at)?;
        end.followed_by = Some((connection, opened_at));
        end.reconnect()
    }
}
