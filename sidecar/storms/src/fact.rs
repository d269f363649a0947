//! What is worth knowing of an input.

use ackbeat_liveness::{ConnectionId, Direction, Input, Opened, Role, Timestamp};
use std::net::IpAddr;

/// What a [`StormWatch`](crate::StormWatch) is told of an [`Input`]. Small and without memory of its own, so it can be taken
/// before the engine takes the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A connection that the peer dialled was established, or found.
    Opened {
        /// The connection.
        connection: ConnectionId,
        /// When it was established, or found.
        at: Timestamp,
        /// The listening port.
        local_port: u16,
        /// Who dialled.
        peer: IpAddr,
        /// It was found: when it was established is unknown.
        found: bool,
    },
    /// Something came from the peer, at this time at the latest.
    Heard {
        /// The connection.
        connection: ConnectionId,
        /// When it was seen.
        at: Timestamp,
        /// When it came.
        heard_at: Timestamp,
        /// How many retransmission timeouts of the oldest segment in flight nothing has answered since; `None` where it is not
        /// known.
        timeouts: Option<u8>,
    },
    /// Records were lost.
    Lost {
        /// When the loss was noticed.
        at: Timestamp,
    },
    /// A pass over the sockets ended.
    Passed {
        /// When.
        at: Timestamp,
    },
    /// Nothing but that time has passed.
    Time {
        /// The input's time.
        at: Timestamp,
    },
}

impl Fact {
    /// What `input` says.
    #[must_use]
    pub fn of(input: &Input) -> Self {
        let at = input.at();
        match input {
            Input::Opened(Opened { connection, endpoints, role: Role::Server, preexisting, .. }) => {
                Self::Opened {
                    connection: *connection,
                    at,
                    local_port: endpoints.local_port,
                    peer: endpoints.peer_address.to_canonical(),
                    found: *preexisting,
                }
            }
            Input::Sample(snapshot) => match snapshot.last_ack_at.max(snapshot.last_inbound_at) {
                Some(heard_at) => Self::Heard {
                    connection: snapshot.connection,
                    at,
                    heard_at,
                    timeouts: snapshot.retransmits,
                },
                None => Self::Time { at },
            },
            Input::Frame(frame) if frame.direction == Direction::Ingress => {
                Self::Heard { connection: frame.connection, at, heard_at: at, timeouts: None }
            }
            Input::RecordsLost { .. } => Self::Lost { at },
            Input::SamplingDone { .. } => Self::Passed { at },
            _ => Self::Time { at },
        }
    }

    /// When it was seen.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        match self {
            Self::Opened { at, .. }
            | Self::Heard { at, .. }
            | Self::Lost { at }
            | Self::Passed { at }
            | Self::Time { at } => *at,
        }
    }
}
