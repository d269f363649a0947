//! When nothing comes from any peer of a port.

use ackbeat_liveness::Timestamp;

use crate::Settings;

/// A time in which nothing came from any peer of a listening port, while data was outstanding to most of them.
///
/// Its beginning is the last sign of life of anybody, so it is at most as much too early as the peers had been silent anyway:
/// the interval of their heartbeat. Its end is the first sign of life of anybody, a new connection among them; so it is at most
/// as much too late as nobody tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The listening port.
    pub local_port: u16,
    /// The last sign of life before it.
    pub began_at: Timestamp,
    /// The first sign of life after it; `None` while it lasts.
    pub ended_at: Option<Timestamp>,
    /// Peers that were unreachable at once, at most.
    pub peers: u32,
}

/// The peers of one port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    /// Peers whose connection is open.
    pub(crate) open: u32,
    /// Of them, the unreachable ones.
    pub(crate) unreachable: u32,
    /// Peers that were given up since anybody was heard, and are as silent as before.
    given_up: u32,
    /// How often that count began anew.
    given_up_round: u32,
    /// How many were open lately, at most: a few that are left are not the port.
    crowd: u32,
    crowd_at: Timestamp,
    /// The last sign of life of anybody.
    heard_at: Option<Timestamp>,
    current: Option<Outage>,
}

impl Reach {
    /// Something came from a peer. Gives the outage that it ends.
    pub(crate) fn heard(&mut self, heard_at: Timestamp, settings: &Settings) -> Option<Outage> {
        if self.heard_at.is_none_or(|known| heard_at > known) {
            self.heard_at = Some(heard_at);
            // Who is heard now may be one of them, on another connection.
            self.given_up = 0;
            self.given_up_round = self.given_up_round.wrapping_add(1);
        }
        let outage = self.current.as_mut()?;
        if heard_at.ms_since(outage.began_at) < settings.outage_silence_ms {
            // Sockets are read one after the other: it came before the outage, and is seen only now.
            outage.began_at = outage.began_at.max(heard_at);
            return None;
        }
        let outage = *outage;
        self.current = None;
        Some(Outage { ended_at: Some(heard_at), ..outage })
    }

    /// A peer whose connection was closed at `closed_at` is silent still. Gives the round in which it counts; `None` where
    /// somebody was heard after that.
    pub(crate) fn give_up(&mut self, closed_at: Timestamp) -> Option<u32> {
        if self.heard_at.is_none_or(|heard_at| heard_at >= closed_at) {
            return None;
        }
        self.given_up = self.given_up.saturating_add(1);
        Some(self.given_up_round)
    }

    /// Nobody looks any more whether a peer that counted in this round is silent.
    pub(crate) fn forget(&mut self, round: u32) {
        if round == self.given_up_round {
            self.given_up = self.given_up.saturating_sub(1);
        }
    }

    /// A connection is open.
    pub(crate) fn opened(&mut self) {
        self.open = self.open.saturating_add(1);
    }

    /// A bin of time is over: those who left without an outage may come back for a while, and then no more.
    pub(crate) fn pass(&mut self, now: Timestamp, settings: &Settings) {
        if self.open >= self.crowd
            || (self.current.is_none() && now.ms_since(self.crowd_at) > settings.after_burst_ms)
        {
            self.crowd = self.open;
            self.crowd_at = now;
        }
    }

    /// Looks whether it is an outage by now. Gives one that begins.
    pub(crate) fn look(&mut self, local_port: u16, now: Timestamp, settings: &Settings) -> Option<Outage> {
        let silent = self.unreachable.saturating_add(self.given_up);
        if let Some(current) = &mut self.current {
            current.peers = current.peers.max(silent);
            return None;
        }
        let enough =
            silent >= settings.outage_peers && u64::from(silent) * 2 >= u64::from(self.crowd.max(self.open));
        let heard_at =
            self.heard_at.filter(|at| enough && now.ms_since(*at) >= settings.outage_silence_ms)?;
        let outage = Outage { local_port, began_at: heard_at, ended_at: None, peers: silent };
        self.current = Some(outage);
        Some(outage)
    }

    /// The outage that lasts.
    pub(crate) const fn current(&self) -> Option<Outage> {
        self.current
    }
}
