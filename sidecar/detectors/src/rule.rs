//! What all detectors have in common: they decide once, and nothing after the connection's end.

use ackbeat_liveness::{Direction, Input, Snapshot, TcpState, Timestamp};

use crate::{Detector, Fact, Kill, NotJudged};

/// How far the host's timer and a detector's may be apart when both are the same timer: a host that closes this little
/// before a detector's time did so because of its own timer.
pub(crate) const SAME_TIMER_MS: u64 = 50;

/// A rule for one open connection.
pub(crate) trait Rule: core::fmt::Debug {
    /// Something was seen, and the connection is still open.
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill>;

    /// When it wants to be called.
    fn poll_timeout(&self) -> Option<Timestamp>;

    /// This much time has passed.
    fn on_timeout(&mut self, now: Timestamp) -> Option<Kill>;

    /// The connection ends with this fact. A rule that would have killed by now says so for the last time.
    fn on_end(&mut self, fact: &Fact<'_>, by_host: bool) -> Option<Kill>;

    /// Why it cannot decide at present.
    fn not_judged(&self) -> Option<NotJudged>;
}

/// A rule that is applied until it decides or the connection ends.
#[derive(Debug)]
pub(crate) struct UntilEnd<R> {
    rule: R,
    is_over: bool,
}

impl<R: Rule> UntilEnd<R> {
    pub(crate) const fn new(rule: R) -> Self {
        Self { rule, is_over: false }
    }

    fn decided(&mut self, kill: Option<Kill>) -> Option<Kill> {
        self.is_over |= kill.is_some();
        kill
    }
}

impl<R: Rule> Detector for UntilEnd<R> {
    fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill> {
        if self.is_over {
            return None;
        }
        if let Some(by_host) = end(fact) {
            self.is_over = true;
            return self.rule.on_end(fact, by_host);
        }
        let kill = self.rule.on_fact(fact);
        self.decided(kill)
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        if self.is_over { None } else { self.rule.poll_timeout() }
    }

    fn on_timeout(&mut self, now: Timestamp) -> Option<Kill> {
        if self.is_over {
            return None;
        }
        let kill = self.rule.on_timeout(now);
        self.decided(kill)
    }

    fn not_judged(&self) -> Option<NotJudged> {
        if self.is_over { None } else { self.rule.not_judged() }
    }
}

/// Whether a fact ends the connection, and whether the host ended it.
fn end(fact: &Fact<'_>) -> Option<bool> {
    let Fact::Input(input) = fact else { return None };
    match input {
        Input::Transition(transition) if transition.new_state != TcpState::Established => {
            // From ESTABLISHED to CLOSE without a process: the kernel gave up, or a reset came in.
            let by_host = match transition.new_state {
                TcpState::FinWait1 => true,
                TcpState::Close => transition.process.is_some(),
                _ => false,
            };
            Some(by_host)
        }
        Input::Reset(reset) => Some(reset.direction == Direction::Egress && !reset.answers_segment),
        Input::Sample(snapshot) if !is_open(snapshot) => Some(false),
        _ => None,
    }
}

const fn is_open(snapshot: &Snapshot) -> bool {
    matches!(snapshot.state, TcpState::Established | TcpState::SynRecv | TcpState::SynSent)
}

/// The reading that a fact carries.
pub(crate) const fn snapshot<'a>(fact: &Fact<'a>) -> Option<&'a Snapshot> {
    match fact {
        Fact::Input(Input::Sample(snapshot)) => Some(snapshot),
        Fact::Input(Input::Transition(transition)) => Some(&transition.snapshot),
        _ => None,
    }
}

/// Bytes written and not acknowledged.
pub(crate) fn send_queue_bytes(snapshot: &Snapshot) -> Option<u32> {
    snapshot.send_queue_bytes.or_else(|| Some(snapshot.write_seq?.bytes_since(snapshot.snd_una?)))
}
