//! The host's Pings and Pongs, from its own reports where it gives them, otherwise from the wire.

use std::collections::VecDeque;

use ackbeat_liveness::{Direction, FrameKind, Input, Timestamp};

use crate::{Fact, Reported};

/// Pings that are remembered; a peer that is further behind is far beyond every detector's patience.
const PINGS_MAX: usize = 256;

/// What a fact says of the host's heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    /// The host sent a Ping, or reported that it is about to.
    Ping {
        /// Bytes in its own memory, where it reported them.
        buffered_bytes: Option<u64>,
    },
    /// A Pong came in, or the host reported that it read one.
    Pong {
        /// When the Ping that it answers was sent; `None` where that was not seen.
        asked_at: Option<Timestamp>,
    },
    /// What was known is no longer: begin again.
    Forgotten,
}

/// The heartbeat of the host on one connection.
///
/// A Pong answers the latest Ping with the same application data and all earlier ones with it (RFC 6455 section 5.5.3).
/// Where all Pings carry the same data (the npm package `ws` sends none), and in reports, Pongs are taken to answer one
/// Ping each, in order: browsers and the libraries here answer every Ping.
#[derive(Debug)]
pub(crate) struct HostHeartbeat {
    is_reported: bool,
    is_lost: [bool; 2],
    unanswered: VecDeque<(Timestamp, Vec<u8>)>,
    pub(crate) last_ping_at: Option<Timestamp>,
}

impl HostHeartbeat {
    pub(crate) const fn new(is_reported: bool) -> Self {
        Self { is_reported, is_lost: [false; 2], unanswered: VecDeque::new(), last_ping_at: None }
    }

    pub(crate) const fn is_reported(&self) -> bool {
        self.is_reported
    }

    /// A Ping or a Pong may pass unseen.
    pub(crate) const fn is_lost(&self) -> bool {
        self.is_lost[0] || self.is_lost[1]
    }

    /// A Ping of the host is unanswered.
    pub(crate) fn is_outstanding(&self) -> bool {
        !self.unanswered.is_empty()
    }

    pub(crate) fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Beat> {
        match fact {
            Fact::Report(report) if self.is_reported => Some(match report.what {
                Reported::Tick { buffered_bytes } => self.ping(report.at, &[], Some(buffered_bytes)),
                Reported::Pong => self.pong(&[]),
            }),
            Fact::Input(input) if !self.is_reported => self.on_input(input),
            _ => None,
        }
    }

    fn on_input(&mut self, input: &Input) -> Option<Beat> {
        match input {
            Input::Frame(frame) if !self.is_lost() => match (frame.direction, frame.kind) {
                (Direction::Egress, FrameKind::Ping) => Some(self.ping(frame.at, &frame.payload, None)),
                (Direction::Ingress, FrameKind::Pong) => Some(self.pong(&frame.payload)),
                _ => None,
            },
            Input::Synchronization(synchronization) => {
                let side = usize::from(synchronization.direction == Direction::Egress);
                let was_lost = self.is_lost();
                if let Some(is_lost) = self.is_lost.get_mut(side) {
                    *is_lost = !synchronization.synchronized;
                }
                (was_lost || self.is_lost()).then(|| self.forget())
            }
            Input::RecordsLost { .. } => Some(self.forget()),
            _ => None,
        }
    }

    fn ping(&mut self, at: Timestamp, payload: &[u8], buffered_bytes: Option<u64>) -> Beat {
        if self.unanswered.len() == PINGS_MAX {
            self.unanswered.pop_front();
        }
        self.unanswered.push_back((at, payload.to_vec()));
        self.last_ping_at = Some(at);
        Beat::Ping { buffered_bytes }
    }

    fn pong(&mut self, payload: &[u8]) -> Beat {
        // Data that tell Pings apart are told apart; among Pings with the same data the oldest is answered.
        let answered = self.unanswered.iter().position(|(_, asked)| asked == payload);
        let asked_at =
            answered.and_then(|index| self.unanswered.drain(..=index).next_back()).map(|(at, _)| at);
        Beat::Pong { asked_at }
    }

    fn forget(&mut self) -> Beat {
        self.unanswered.clear();
        Beat::Forgotten
    }
}
