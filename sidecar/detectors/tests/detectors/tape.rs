//! Facts written by hand, and a driver that plays them to a detector. All times are milliseconds after the opening.

use ackbeat_detectors::{Detector, Evidence, Fact, Kill, NotJudged, Report, Reported, Spec};
use ackbeat_liveness::*;

pub(crate) const START_MS: u64 = 5_000_000;
pub(crate) const ID: ConnectionId = ConnectionId(7);

pub(crate) const WIRE: Evidence = Evidence { frames: true, reports: false, samples: true };
pub(crate) const REPORTED: Evidence = Evidence { frames: false, reports: true, samples: true };

#[derive(Clone, Debug)]
pub(crate) enum Told {
    Input(Box<Input>),
    Report(Report),
}

impl Told {
    pub(crate) fn fact(&self) -> Fact<'_> {
        match self {
            Self::Input(input) => Fact::Input(input),
            Self::Report(report) => Fact::Report(report),
        }
    }
}

pub(crate) fn ms(after_opening: u64) -> Timestamp {
    Timestamp::from_ms(START_MS + after_opening)
}

pub(crate) fn opened() -> Opened {
    let address = std::net::IpAddr::from([10, 0, 0, 1]);
    Opened {
        connection: ID,
        at: ms(0),
        endpoints: Endpoints {
            local_address: address,
            local_port: 8080,
            peer_address: address,
            peer_port: 50_000,
        },
        role: Role::Server,
        preexisting: false,
        frames_visible: true,
    }
}

pub(crate) fn reading(at: u64) -> Snapshot {
    Snapshot::unavailable(ID, ms(at), TcpState::Established)
}

pub(crate) fn frame(at: u64, direction: Direction, kind: FrameKind, payload: &[u8]) -> Input {
    Input::Frame(Frame {
        connection: ID,
        at: ms(at),
        direction,
        kind,
        profile: HeartbeatProfile::Rfc6455,
        seq_start: None,
        seq_end: None,
        payload: payload.to_vec(),
        close_code: None,
        close_reason: None,
    })
}

/// What is told, in the order of its time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tape(pub(crate) Vec<Told>);

impl Tape {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn input(mut self, input: Input) -> Self {
        self.0.push(Told::Input(Box::new(input)));
        self
    }

    pub(crate) fn ping(self, at: u64) -> Self {
        self.input(frame(at, Direction::Egress, FrameKind::Ping, &[]))
    }

    pub(crate) fn pong(self, at: u64) -> Self {
        self.input(frame(at, Direction::Ingress, FrameKind::Pong, &[]))
    }

    /// Pings at an interval, each answered after a millisecond.
    pub(crate) fn answered(mut self, first: u64, every: u64, until: u64) -> Self {
        for at in (first..=until).step_by(usize::try_from(every).unwrap()) {
            self = self.ping(at).pong(at + 1);
        }
        self
    }

    /// Pings at an interval that nothing answers.
    pub(crate) fn unanswered(mut self, first: u64, every: u64, until: u64) -> Self {
        for at in (first..=until).step_by(usize::try_from(every).unwrap()) {
            self = self.ping(at);
        }
        self
    }

    pub(crate) fn report(mut self, at: u64, what: Reported) -> Self {
        self.0.push(Told::Report(Report { connection: ID, at: ms(at), what }));
        self
    }

    pub(crate) fn tick(self, at: u64, buffered_bytes: u64) -> Self {
        self.report(at, Reported::Tick { buffered_bytes })
    }

    pub(crate) fn read_pong(self, at: u64) -> Self {
        self.report(at, Reported::Pong)
    }

    pub(crate) fn sample(self, at: u64, change: impl FnOnce(&mut Snapshot)) -> Self {
        let mut snapshot = reading(at);
        change(&mut snapshot);
        self.input(Input::Sample(snapshot))
    }

    /// Readings every 200 ms in which something is queued and the last byte came then.
    pub(crate) fn silent(mut self, from: u64, until: u64, last_inbound: u64) -> Self {
        for at in (from..=until).step_by(200) {
            self = self.sample(at, |snapshot| {
                snapshot.send_queue_bytes = Some(2);
                snapshot.last_inbound_at = Some(ms(last_inbound));
            });
        }
        self
    }

    pub(crate) fn closed(self, at: u64, new_state: TcpState) -> Self {
        self.input(Input::Transition(Transition {
            old_state: TcpState::Established,
            new_state,
            process: None,
            snapshot: Snapshot { state: new_state, ..reading(at) },
        }))
    }

    /// In the order of time; facts of one time keep their order.
    pub(crate) fn sorted(mut self) -> Self {
        self.0.sort_by_key(|told| told.fact().at());
        self
    }
}

/// What came of playing a tape.
#[derive(Debug)]
pub(crate) struct Played {
    /// When, in milliseconds after the opening.
    pub(crate) killed_at: Option<u64>,
    pub(crate) reason: Option<String>,
    pub(crate) not_judged: Option<NotJudged>,
}

/// Plays a tape, and nothing more until the given time.
pub(crate) fn play(spec: &str, evidence: Evidence, tape: &Tape, until: u64) -> Played {
    let spec: Spec = spec.parse().unwrap();
    let mut detector = spec.start(&opened(), evidence).unwrap();
    let kills = drive(detector.as_mut(), tape, ms(until));
    let kill = kills.into_iter().next();
    Played {
        killed_at: kill.as_ref().map(|kill| kill.at.ms_since(ms(0))),
        reason: kill.map(|kill| kill.reason),
        not_judged: detector.not_judged(),
    }
}

/// Tells a detector everything, whether it kills or not.
pub(crate) fn drive(detector: &mut dyn Detector, tape: &Tape, until: Timestamp) -> Vec<Kill> {
    let mut kills = Vec::new();
    for told in &tape.0 {
        let at = told.fact().at();
        advance(detector, at, &mut kills);
        kills.extend(detector.on_fact(&told.fact()));
    }
    advance(detector, until, &mut kills);
    kills
}

fn advance(detector: &mut dyn Detector, until: Timestamp, kills: &mut Vec<Kill>) {
    let mut now = Timestamp::from_ns(0);
    while let Some(due) = detector.poll_timeout().filter(|due| *due <= until) {
        now = now.max(due);
        kills.extend(detector.on_timeout(now));
        let next = detector.poll_timeout();
        assert!(next.is_none_or(|next| next > now), "wants to be called at {next:?} again, at {now:?}");
    }
}
