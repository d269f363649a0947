//! Text heartbeats: Pings and Pongs that are no control frames.
//!
//! The wire parser hands over short data frames that a pattern fits ([`Selection::patterns`]); here it is decided whether
//! they are heartbeats ([`Selection::decide`]), and, where nobody said which ones a port speaks, whether that is proven
//! ([`adoption`]). What is none is dropped at once: it is not logged, recorded or kept.
//!
//! | profile | question | answer | who asks |
//! |---|---|---|---|
//! | [`ping_pong`] | `ping` | `pong` | either |
//! | [`json`] | an object with `"type":"ping"` | an object with `"type":"pong"` | either |
//! | [`engine_io`] | `2` | `3` | the server (protocol revision 4), the client (revision 3) |
//! | [`phoenix`] | the event `heartbeat` on the topic `phoenix` | `phx_reply` on it, with the same `ref` | the client |
//! | [`signalr`] | `{"type":6}` and 0x1e, or its `MessagePack` form | none | each side for itself |
//! | [`custom`] | as the settings say | as the settings say | as the settings say |

pub mod adoption;
pub mod custom;
mod engine_io;
mod json;
mod phoenix;
mod ping_pong;
mod reader;
mod signalr;

use ackbeat_abi as abi;
use ackbeat_abi::patterns::{NoRoom, Patterns};
use ackbeat_liveness::{Direction, FrameKind, HeartbeatProfile};

pub use custom::{AskedBy, Custom, Match};
pub use reader::{DataFrame, HeartbeatReader, ReaderCounters};

/// Opcode of a text frame (RFC 6455 section 11.8).
const TEXT: u8 = 1;
/// Opcode of a binary frame.
const BINARY: u8 = 2;
/// Bit of a pattern that looks at what comes from the peer.
const FROM_PEER: u8 = 1 << abi::Direction::Ingress as u8;
/// Bit of a pattern that looks at what goes to the peer.
const TO_PEER: u8 = 1 << abi::Direction::Egress as u8;
/// Both.
const BOTH_WAYS: u8 = FROM_PEER | TO_PEER;
/// Longest payload that the kernel hands over, in bytes.
const LONGEST: u8 = 125;

/// The built-in profiles, besides that of RFC 6455, which is always on.
pub const BUILT_IN: [HeartbeatProfile; 5] = [
    HeartbeatProfile::PingPong,
    HeartbeatProfile::Json,
    HeartbeatProfile::EngineIo,
    HeartbeatProfile::Phoenix,
    HeartbeatProfile::SignalR,
];

/// A whole message in one data frame, unmasked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Which way it went.
    pub direction: Direction,
    /// Whether its frame is a binary one.
    pub binary: bool,
    /// What it says; at most 125 bytes.
    pub payload: &'a [u8],
}

impl Message<'_> {
    /// Whether it is this text.
    fn is_text(&self, text: &[u8]) -> bool {
        !self.binary && self.payload == text
    }
}

/// What a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whose heartbeat.
    pub profile: HeartbeatProfile,
    /// Question (`Ping`) or answer (`Pong`).
    pub kind: FrameKind,
    /// What a question and its answer have in common; empty where they have nothing.
    pub id: Vec<u8>,
}

/// Which profiles are looked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    profiles: Vec<HeartbeatProfile>,
    custom: Option<Custom>,
    needs_evidence: bool,
}

impl Selection {
    /// None: data frames are not read at all.
    #[must_use]
    pub const fn off() -> Self {
        Self { profiles: Vec::new(), custom: None, needs_evidence: false }
    }

    /// Every built-in profile, each on a listening port only after evidence; and `custom`, which was described and needs
    /// none.
    #[must_use]
    pub fn auto(custom: Option<Custom>) -> Self {
        Self { profiles: BUILT_IN.to_vec(), custom, needs_evidence: true }
    }

    /// These built-in profiles, and `custom`, at once. [`HeartbeatProfile::Rfc6455`] and [`HeartbeatProfile::Custom`]
    /// mean nothing here.
    #[must_use]
    pub fn listed(profiles: &[HeartbeatProfile], custom: Option<Custom>) -> Self {
        let profiles = BUILT_IN.into_iter().filter(|profile| profiles.contains(profile)).collect();
        Self { profiles, custom, needs_evidence: false }
    }

    /// Whether nothing is looked for.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        self.profiles.is_empty() && self.custom.is_none()
    }

    /// Whether a profile must be proven on a port before its heartbeats count.
    #[must_use]
    pub fn needs_evidence(&self, profile: HeartbeatProfile) -> bool {
        self.needs_evidence && profile != HeartbeatProfile::Custom
    }

    /// What the kernel looks for.
    ///
    /// # Errors
    /// [`NoRoom`] if that is more than it can; the built-in profiles and a custom one fit together.
    pub fn patterns(&self) -> Result<Patterns, NoRoom> {
        let mut patterns = Patterns::default();
        for profile in &self.profiles {
            match profile {
                HeartbeatProfile::PingPong => ping_pong::add_patterns(&mut patterns)?,
                HeartbeatProfile::Json => json::add_patterns(&mut patterns)?,
                HeartbeatProfile::EngineIo => engine_io::add_patterns(&mut patterns)?,
                HeartbeatProfile::Phoenix => phoenix::add_patterns(&mut patterns)?,
                HeartbeatProfile::SignalR => signalr::add_patterns(&mut patterns)?,
                HeartbeatProfile::Rfc6455 | HeartbeatProfile::Custom => {}
            }
        }
        if let Some(custom) = &self.custom {
            custom.add_patterns(&mut patterns)?;
        }
        Ok(patterns)
    }

    /// What a message is; `None` where it is no heartbeat of these profiles. What the settings describe comes first.
    #[must_use]
    pub fn decide(&self, message: &Message<'_>) -> Option<Decision> {
        let custom = self.custom.as_ref().and_then(|custom| custom.decide(message)).map(|kind| Decision {
            profile: HeartbeatProfile::Custom,
            kind,
            id: Vec::new(),
        });
        custom.or_else(|| self.profiles.iter().find_map(|profile| decide(*profile, message)))
    }
}

/// What a message is in the words of one built-in profile.
#[must_use]
pub fn decide(profile: HeartbeatProfile, message: &Message<'_>) -> Option<Decision> {
    let without_id = |kind| (kind, Vec::new());
    let (kind, id) = match profile {
        HeartbeatProfile::PingPong => ping_pong::decide(message).map(without_id),
        HeartbeatProfile::Json => json::decide(message).map(without_id),
        HeartbeatProfile::EngineIo => engine_io::decide(message).map(without_id),
        HeartbeatProfile::Phoenix => phoenix::decide(message),
        HeartbeatProfile::SignalR => signalr::decide(message).map(without_id),
        HeartbeatProfile::Rfc6455 | HeartbeatProfile::Custom => None,
    }?;
    Some(Decision { profile, kind, id })
}

#[cfg(test)]
mod tests;
