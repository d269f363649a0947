//! When the peer that is gone was first asked something that it never answered.

use ackbeat_liveness::{Direction, Input, Seq, Snapshot, Timestamp};

/// The first transmission of each byte that matters, as far as the recording shows it.
///
/// A segment stays unanswered if its bytes are never acknowledged: it begins at the last `snd_una` that the connection
/// ever had, *U*. When it was first sent is read from, in this order:
///
/// 1. a Ping on the wire that holds U: its own time, which is the moment of its first transmission;
/// 2. the samples: U was sent after the last sample whose `snd_nxt` is U, and not after the first one whose `snd_nxt`
///    is beyond it. With one segment in flight that is `last_send_at`, else the earlier end is taken, which makes
///    everybody's detection look slower and nobody's faster.
///
/// What was in flight when the path was cut is asked from the cut on, not earlier: until then its answer could still
/// come. A peer behind a closed window is asked by window probes, which carry no new byte; then this time is not known.
#[derive(Clone, Debug, Default)]
pub struct Contact {
    /// The furthest `snd_una`.
    unacknowledged_from: Option<Seq>,
    pings: Vec<(Timestamp, Seq, Seq)>,
    sent: Vec<Sent>,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Timestamp,
    snd_nxt: Seq,
    last_send_at: Option<Timestamp>,
    packets_out: Option<u32>,
}

impl Contact {
    /// Takes note of an input; inputs of other connections must not be handed over.
    pub fn note(&mut self, input: &Input) {
        match input {
            Input::Sample(snapshot) => self.sample(snapshot),
            Input::Transition(transition) => self.sample(&transition.snapshot),
            Input::Frame(frame) if frame.direction == Direction::Egress => {
                if let (Some(start), Some(end)) = (frame.seq_start, frame.seq_end) {
                    self.pings.push((frame.at, start, end));
                }
            }
            _ => {}
        }
    }

    fn sample(&mut self, snapshot: &Snapshot) {
        let (Some(snd_una), Some(snd_nxt)) = (snapshot.snd_una, snapshot.snd_nxt) else { return };
        if self.unacknowledged_from.is_none_or(|known| snd_una.after(known)) {
            self.unacknowledged_from = Some(snd_una);
        }
        self.sent.push(Sent {
            at: snapshot.at,
            snd_nxt,
            last_send_at: snapshot.last_send_at,
            packets_out: snapshot.packets_out,
        });
    }

    /// When the first segment that stays unanswered was sent, for a peer that was gone from `gone_at` on.
    #[must_use]
    pub fn first_unanswered(&self, gone_at: Timestamp) -> Option<Timestamp> {
        let from = self.unacknowledged_from?;
        let ping = self.pings.iter().find(|(_, start, end)| from.reached(*start) && end.after(from));
        if let Some((at, ..)) = ping {
            return Some((*at).max(gone_at));
        }
        let beyond = self.sent.iter().position(|sent| sent.snd_nxt.after(from))?;
        let first = self.sent.get(beyond)?;
        let exact = first.last_send_at.filter(|at| first.packets_out == Some(1) && *at >= gone_at);
        let earliest = beyond.checked_sub(1).and_then(|before| self.sent.get(before)).map(|before| before.at);
        Some(exact.or(earliest).unwrap_or(first.at).max(gone_at))
    }
}

#[cfg(test)]
mod tests {
    use ackbeat_liveness::{ConnectionId, Frame, FrameKind, HeartbeatProfile, TcpState};

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn ping(at_ms: u64, start: u32) -> Input {
        Input::Frame(Frame {
            connection: ConnectionId(1),
            at: at(at_ms),
            direction: Direction::Egress,
            kind: FrameKind::Ping,
            profile: HeartbeatProfile::Rfc6455,
            seq_start: Some(Seq(start)),
            seq_end: Some(Seq(start).plus(6)),
            payload: Vec::new(),
            close_code: None,
            close_reason: None,
        })
    }

    fn sample(at_ms: u64, snd_una: u32, snd_nxt: u32, packets_out: u32, last_send_ms: u64) -> Input {
        Input::Sample(Snapshot {
            write_seq: Some(Seq(snd_nxt)),
            snd_nxt: Some(Seq(snd_nxt)),
            snd_una: Some(Seq(snd_una)),
            snd_wnd_bytes: Some(64_000),
            last_send_at: Some(at(last_send_ms)),
            packets_out: Some(packets_out),
            ..Snapshot::unavailable(ConnectionId(1), at(at_ms), TcpState::Established)
        })
    }

    fn contact(inputs: &[Input]) -> Contact {
        let mut contact = Contact::default();
        inputs.iter().for_each(|input| contact.note(input));
        contact
    }

    #[test]
    fn the_first_ping_that_is_never_acknowledged_counts_across_the_wrap() {
        let start = u32::MAX - 8;
        let seen = contact(&[
            ping(1_000, start),
            sample(1_100, start.wrapping_add(6), start.wrapping_add(6), 0, 1_000),
            ping(3_000, start.wrapping_add(6)),
            ping(5_000, start.wrapping_add(12)),
            sample(5_100, start.wrapping_add(6), start.wrapping_add(18), 2, 5_000),
        ]);
        assert_eq!(seen.first_unanswered(at(2_000)), Some(at(3_000)));
        // It was on its way when the path was cut: its answer could have come until then.
        assert_eq!(seen.first_unanswered(at(3_500)), Some(at(3_500)));
    }

    #[test]
    fn without_a_ping_the_samples_bound_it() {
        let one = contact(&[sample(1_000, 10, 10, 0, 500), sample(1_200, 10, 90, 1, 1_150)]);
        assert_eq!(one.first_unanswered(at(900)), Some(at(1_150)));
        let many = contact(&[sample(1_000, 10, 10, 0, 500), sample(1_200, 10, 9_000, 6, 1_190)]);
        assert_eq!(many.first_unanswered(at(900)), Some(at(1_000)));
    }

    #[test]
    fn a_peer_that_was_asked_nothing_leaves_nothing_unanswered() {
        assert_eq!(contact(&[sample(1_000, 10, 10, 0, 500)]).first_unanswered(at(900)), None);
        assert_eq!(Contact::default().first_unanswered(at(900)), None);
    }
}
