//! Which profiles a listening port speaks, where nobody said it: only evidence counts.
//!
//! A text that looks like a heartbeat may be anything: somebody types `ping`, a sensor reports the value 2. A profile is
//! adopted for a port once one connection showed a question and its answer twice, always asked by the same side; or the
//! same question three times at even distances, nobody answering. engine.io's `2` is too short for that: it needs answers.

use std::collections::{HashMap, HashSet};

use ackbeat_liveness::{ConnectionId, Direction, FrameKind, HeartbeatProfile, Timestamp};

use super::Decision;

/// Answered questions on one connection that prove a profile.
const EXCHANGES_NEEDED: u8 = 2;
/// Distances between questions on one connection, each like the one before, that prove a profile.
const EVEN_GAPS_NEEDED: u8 = 2;
/// How much two such distances may differ: a fifth. A timer of a busy host is late by some tens of milliseconds.
const UNEVENNESS: u64 = 5;
/// Questions that follow each other faster are no heartbeat.
const GAP_MIN_NS: u64 = 400_000_000;
/// Connections, and sides of them, that may be on their way to a proof at once. The one that was quiet longest gives way.
const TRAILS_MAX: usize = 1_024;

/// What was seen of one side's questions.
#[derive(Debug)]
struct Trail {
    asked_at: Timestamp,
    /// The question that is not answered yet.
    open: Option<Vec<u8>>,
    exchanges: u8,
    gap_ns: Option<u64>,
    even_gaps: u8,
}

/// Connection, profile, and the direction of the questions.
type Side = (ConnectionId, HeartbeatProfile, Direction);

/// What was proven, and what is on its way.
#[derive(Debug, Default)]
pub struct Adoption {
    adopted: HashSet<(u16, HeartbeatProfile)>,
    trails: HashMap<Side, Trail>,
}

impl Adoption {
    /// Whether a profile was adopted for a port.
    #[must_use]
    pub fn is_adopted(&self, port: u16, profile: HeartbeatProfile) -> bool {
        self.adopted.contains(&(port, profile))
    }

    /// Nothing listens on a port any more: what listens there next may speak another profile.
    pub fn forget(&mut self, port: u16) {
        self.adopted.retain(|(adopted, _)| *adopted != port);
    }

    /// Takes what looks like a heartbeat as evidence. Returns whether it proved its profile for this port.
    pub fn weigh(
        &mut self,
        port: u16,
        connection: ConnectionId,
        at: Timestamp,
        direction: Direction,
        decision: &Decision,
    ) -> bool {
        let profile = decision.profile;
        let proven = match decision.kind {
            FrameKind::Ping => self.question((connection, profile, direction), at, &decision.id),
            FrameKind::Pong => {
                let asker = match direction {
                    Direction::Ingress => Direction::Egress,
                    Direction::Egress => Direction::Ingress,
                };
                self.answer((connection, profile, asker), &decision.id)
            }
            FrameKind::Close => false,
        };
        if proven {
            self.adopted.insert((port, profile));
            self.trails.retain(|(trailed, of, _), _| *trailed != connection || *of != profile);
        }
        proven
    }

    fn question(&mut self, side: Side, at: Timestamp, id: &[u8]) -> bool {
        let Some(trail) = self.trails.get_mut(&side) else {
            self.make_room();
            let open = Some(id.to_vec());
            self.trails.insert(side, Trail { asked_at: at, open, exchanges: 0, gap_ns: None, even_gaps: 0 });
            return false;
        };
        let gap_ns = at.as_ns().saturating_sub(trail.asked_at.as_ns());
        let even = trail.gap_ns.is_some_and(|before| gap_ns.abs_diff(before) <= before / UNEVENNESS);
        if gap_ns < GAP_MIN_NS {
            (trail.exchanges, trail.even_gaps, trail.gap_ns) = (0, 0, None);
        } else {
            trail.even_gaps = if even { trail.even_gaps.saturating_add(1) } else { 1 };
            trail.gap_ns = Some(gap_ns);
        }
        trail.asked_at = at;
        trail.open = Some(id.to_vec());
        side.1 != HeartbeatProfile::EngineIo && trail.even_gaps >= EVEN_GAPS_NEEDED
    }

    fn answer(&mut self, side: Side, id: &[u8]) -> bool {
        let Some(trail) = self.trails.get_mut(&side) else { return false };
        if trail.open.as_deref() != Some(id) {
            return false;
        }
        trail.open = None;
        trail.exchanges = trail.exchanges.saturating_add(1);
        trail.exchanges >= EXCHANGES_NEEDED
    }

    fn make_room(&mut self) {
        if self.trails.len() < TRAILS_MAX {
            return;
        }
        let oldest = self.trails.iter().min_by_key(|(_, trail)| trail.asked_at).map(|(side, _)| *side);
        if let Some(side) = oldest {
            self.trails.remove(&side);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 8_080;

    struct Port {
        adoption: Adoption,
        profile: HeartbeatProfile,
    }

    impl Port {
        fn speaking(profile: HeartbeatProfile) -> Self {
            Self { adoption: Adoption::default(), profile }
        }

        fn see(
            &mut self,
            at_ms: u64,
            connection: u64,
            direction: Direction,
            kind: FrameKind,
            id: &str,
        ) -> bool {
            let decision = Decision { profile: self.profile, kind, id: id.as_bytes().to_vec() };
            let at = Timestamp::from_ns(at_ms * 1_000_000);
            self.adoption.weigh(PORT, ConnectionId(connection), at, direction, &decision)
        }
    }

    use Direction::{Egress, Ingress};
    use FrameKind::{Ping, Pong};

    #[test]
    fn two_answered_questions_prove_a_profile_for_its_port() {
        let mut port = Port::speaking(HeartbeatProfile::EngineIo);
        assert!(!port.see(0, 1, Egress, Ping, ""));
        assert!(!port.see(3, 1, Ingress, Pong, ""));
        assert!(!port.adoption.is_adopted(PORT, port.profile));
        assert!(!port.see(25_000, 1, Egress, Ping, ""));
        assert!(port.see(25_003, 1, Ingress, Pong, ""));
        assert!(port.adoption.is_adopted(PORT, port.profile));
        assert!(!port.adoption.is_adopted(PORT + 1, port.profile));
        assert!(!port.adoption.is_adopted(PORT, HeartbeatProfile::Json));
        port.adoption.forget(PORT);
        assert!(!port.adoption.is_adopted(PORT, port.profile));
    }

    #[test]
    fn three_questions_at_even_distances_do_where_nobody_answers() {
        let mut port = Port::speaking(HeartbeatProfile::SignalR);
        assert!(!port.see(0, 1, Ingress, Ping, ""));
        assert!(!port.see(7_000, 1, Egress, Ping, ""), "the other side's own");
        assert!(!port.see(15_000, 1, Ingress, Ping, ""));
        assert!(port.see(30_900, 1, Ingress, Ping, ""));
    }

    #[test]
    fn what_people_type_proves_nothing() {
        let mut port = Port::speaking(HeartbeatProfile::PingPong);
        for at_ms in [0, 700, 9_000, 11_000, 40_000] {
            assert!(!port.see(at_ms, 1, Ingress, Ping, ""), "{at_ms}");
        }
        assert!(!port.see(40_100, 1, Egress, Pong, ""), "once is a joke");
        assert!(!port.see(40_200, 1, Egress, Pong, ""), "an answer to nothing");
        assert!(!port.see(40_300, 1, Ingress, Ping, ""), "too soon");
        assert!(!port.see(40_350, 1, Egress, Pong, ""));
        assert!(!port.see(41_000, 2, Egress, Pong, ""), "another connection's");
    }

    #[test]
    fn a_value_that_a_sensor_reports_is_no_heartbeat() {
        let mut port = Port::speaking(HeartbeatProfile::EngineIo);
        for second in 0..100 {
            assert!(!port.see(second * 1_000, 1, Ingress, Ping, ""));
        }
    }

    #[test]
    fn an_answer_names_its_question() {
        let mut port = Port::speaking(HeartbeatProfile::Phoenix);
        assert!(!port.see(0, 1, Ingress, Ping, "1"));
        assert!(!port.see(1, 1, Egress, Pong, "7"));
        assert!(!port.see(2, 1, Egress, Pong, "1"));
        assert!(!port.see(30_000, 1, Ingress, Ping, "2"));
        assert!(port.see(30_001, 1, Egress, Pong, "2"));
    }

    #[test]
    fn what_is_on_its_way_is_bounded() {
        let mut port = Port::speaking(HeartbeatProfile::Json);
        for connection in 0..5_000 {
            port.see(connection, connection, Ingress, Ping, "");
        }
        assert_eq!(port.adoption.trails.len(), TRAILS_MAX);
        assert!(port.adoption.trails.contains_key(&(ConnectionId(4_999), port.profile, Ingress)));
    }
}
