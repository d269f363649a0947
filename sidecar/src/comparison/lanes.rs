//! Runs detectors over the facts of their connections, in the order of time.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;

use ackbeat_detectors::{Detector, Evidence, Fact, Kill, NotJudged, Report};
use ackbeat_liveness::{ConnectionId, Input, Opened, TcpState, Timestamp};

use super::{PeerReport, peer_of};

/// Lines of a recording are in the order in which the sidecar read them. What came through the ring and what the
/// sampler saw may be swapped by the length of a pass; so facts are put in order over this long.
const ORDER_MS: u64 = 1_000;

/// A detector is called so often in a row without a fact about its connection: for two days by one that ticks every 2 s.
/// One stray date in a recording asks for thousands of millions of calls.
const CALLS_MAX: u32 = 100_000;

/// What one detector said.
#[derive(Debug, Default)]
pub(super) struct Word {
    pub(super) kill: Option<Kill>,
    /// Why it could not decide at the connection's end.
    pub(super) not_judged: Option<NotJudged>,
    /// When it would have looked again.
    pub(super) due: Option<Timestamp>,
}

/// Makes a detector for a connection of which these kinds of facts are to be had.
pub(super) type Start<'a> = Box<dyn Fn(&Opened, Evidence) -> Result<Box<dyn Detector>, NotJudged> + 'a>;

/// All detectors of all connections.
pub(super) struct Lanes<'a> {
    starts: Vec<Start<'a>>,
    /// Oldest first.
    reports: VecDeque<PeerReport>,
    reports_unmatched: u64,
    /// Facts that wait for earlier ones.
    waiting: BTreeMap<(Timestamp, u64), Input>,
    arrivals: u64,
    latest: Timestamp,
    lanes: BTreeMap<ConnectionId, Lane>,
    by_peer: HashMap<SocketAddr, ConnectionId>,
    timeouts: BTreeSet<(Timestamp, ConnectionId, usize)>,
    /// When the last report about a peer came.
    reported_until: HashMap<SocketAddr, Timestamp>,
    said: HashMap<ConnectionId, Vec<Word>>,
}

struct Lane {
    peer: SocketAddr,
    running: Vec<Running>,
}

struct Running {
    /// `None` once it has decided, and where it lacks its facts.
    detector: Option<Box<dyn Detector>>,
    due: Option<Timestamp>,
    /// Calls since the last fact.
    calls: u32,
    word: Word,
}

impl Running {
    /// Lets it know that time has passed, unless it was told of nothing else for too long.
    fn pass(&mut self, at: Timestamp) {
        self.calls += 1;
        if self.calls > CALLS_MAX {
            self.word = Word { not_judged: Some(NotJudged::NothingSeen), ..Word::default() };
            self.detector = None;
            return;
        }
        self.look(|detector| detector.on_timeout(at));
    }

    /// Lets it look at something, and keeps what it decides.
    fn look(&mut self, at: impl FnOnce(&mut dyn Detector) -> Option<Kill>) {
        let Some(detector) = self.detector.as_deref_mut() else { return };
        // One that the connection's end stops has no doubts any more: those it had before it are kept.
        (self.word.not_judged, self.word.due) = (detector.not_judged(), detector.poll_timeout());
        if let Some(kill) = at(detector) {
            self.word = Word { kill: Some(kill), ..Word::default() };
            self.detector = None;
        }
    }
}

impl<'a> Lanes<'a> {
    pub(super) fn new(starts: Vec<Start<'a>>, reports: &[PeerReport]) -> Self {
        let mut reports: Vec<PeerReport> = reports.to_vec();
        reports.sort_by_key(|report| report.at);
        let reported_until = reports.iter().map(|report| (reported_peer(report), report.at)).collect();
        Self {
            starts,
            reports: reports.into(),
            reports_unmatched: 0,
            waiting: BTreeMap::new(),
            arrivals: 0,
            latest: Timestamp::default(),
            lanes: BTreeMap::new(),
            by_peer: HashMap::new(),
            timeouts: BTreeSet::new(),
            reported_until,
            said: HashMap::new(),
        }
    }

    /// The recording says this.
    pub(super) fn input(&mut self, input: Input) {
        // Of no connection and of no concern: when the sampler ran, and what all sockets are.
        if matches!(input, Input::SamplingDone { .. } | Input::Census(_)) {
            self.pass(input.at());
            return;
        }
        let at = input.at();
        self.arrivals += 1;
        self.waiting.insert((at, self.arrivals), input);
        self.pass(at);
    }

    /// Lines are missing here.
    pub(super) fn gap(&mut self, count: u64) {
        self.input(Input::RecordsLost { at: self.latest, count });
    }

    /// The recording was at this time.
    pub(super) fn pass(&mut self, at: Timestamp) {
        self.latest = self.latest.max(at);
        self.release(self.latest.minus_ms(ORDER_MS));
    }

    /// The recording has ended. Gives what each connection's detectors said, and how many reports belonged to no
    /// connection.
    pub(super) fn finish(mut self) -> (HashMap<ConnectionId, Vec<Word>>, u64) {
        let end = self.latest;
        self.release(end);
        self.run_timeouts(Timestamp::from_ns(end.as_ns().saturating_add(1)));
        while let Some((id, lane)) = self.lanes.pop_first() {
            self.said.insert(id, lane.into_words(false));
        }
        // What was reported after the end is not part of the recording.
        (self.said, self.reports_unmatched)
    }

    fn release(&mut self, until: Timestamp) {
        loop {
            let input_at = self.waiting.keys().next().map(|(at, _)| *at).filter(|at| *at <= until);
            let report_at = self.reports.front().map(|report| report.at).filter(|at| *at <= until);
            match (input_at, report_at) {
                (None, None) => return,
                (Some(at), report) if report.is_none_or(|report| at <= report) => {
                    self.run_timeouts(at);
                    if let Some((_, input)) = self.waiting.pop_first() {
                        self.deliver_input(&input);
                    }
                }
                (_, Some(at)) => {
                    self.run_timeouts(at);
                    if let Some(report) = self.reports.pop_front() {
                        self.deliver_report(report);
                    }
                }
                (Some(_), None) => return,
            }
        }
    }

    fn deliver_input(&mut self, input: &Input) {
        match input {
            Input::Opened(opened) => self.open(opened),
            Input::RecordsLost { .. } => {
                let ids: Vec<ConnectionId> = self.lanes.keys().copied().collect();
                for id in ids {
                    self.tell(id, &Fact::Input(input));
                }
            }
            _ => {
                let Some(id) = input.connection() else { return };
                self.tell(id, &Fact::Input(input));
                if ends(input) {
                    self.end(id);
                }
            }
        }
    }

    fn deliver_report(&mut self, report: PeerReport) {
        let Some(id) = self.by_peer.get(&reported_peer(&report)).copied() else {
            self.reports_unmatched += 1;
            return;
        };
        self.tell(id, &Fact::Report(&Report { connection: id, at: report.at, what: report.what }));
    }

    fn open(&mut self, opened: &Opened) {
        let id = opened.connection;
        if self.lanes.contains_key(&id) || self.said.contains_key(&id) {
            return;
        }
        let peer = peer_of(&opened.endpoints);
        let evidence = Evidence {
            frames: opened.frames_visible,
            reports: self.reported_until.get(&peer).is_some_and(|until| *until >= opened.at),
            samples: true,
        };
        let running = self
            .starts
            .iter()
            .map(|start| match start(opened, evidence) {
                Ok(detector) => {
                    Running { detector: Some(detector), due: None, calls: 0, word: Word::default() }
                }
                Err(why) => Running {
                    detector: None,
                    due: None,
                    calls: 0,
                    word: Word { not_judged: Some(why), ..Word::default() },
                },
            })
            .collect();
        self.lanes.insert(id, Lane { peer, running });
        self.by_peer.insert(peer, id);
        for index in 0..self.starts.len() {
            self.reschedule(id, index, None);
        }
    }

    /// Hands a fact to every detector of a connection that has not decided.
    fn tell(&mut self, id: ConnectionId, fact: &Fact<'_>) {
        for index in 0..self.starts.len() {
            if let Some(running) = self.lanes.get_mut(&id).and_then(|lane| lane.running.get_mut(index)) {
                running.calls = 0;
                running.look(|detector| detector.on_fact(fact));
                self.reschedule(id, index, None);
            }
        }
    }

    /// Lets every timeout before `before` expire, each on time and in order.
    fn run_timeouts(&mut self, before: Timestamp) {
        while let Some((at, id, index)) = self.timeouts.first().copied().filter(|(at, ..)| *at < before) {
            self.timeouts.remove(&(at, id, index));
            if let Some(running) = self.lanes.get_mut(&id).and_then(|lane| lane.running.get_mut(index)) {
                running.due = None;
                running.pass(at);
                self.reschedule(id, index, Some(at));
            }
        }
    }

    /// Files when a detector wants to be called. One that asks for a time that has just `passed` stands still and must
    /// not hold the others: it waits for its next fact.
    fn reschedule(&mut self, id: ConnectionId, index: usize, passed: Option<Timestamp>) {
        let running = self.lanes.get_mut(&id).and_then(|lane| lane.running.get_mut(index));
        let Some(running) = running else { return };
        let due = running
            .detector
            .as_ref()
            .and_then(|detector| detector.poll_timeout())
            .filter(|due| passed.is_none_or(|passed| *due > passed));
        if running.due == due {
            return;
        }
        if let Some(old) = running.due.take() {
            self.timeouts.remove(&(old, id, index));
        }
        if let Some(new) = due {
            self.timeouts.insert((new, id, index));
        }
        running.due = due;
    }

    fn end(&mut self, id: ConnectionId) {
        let Some(lane) = self.lanes.remove(&id) else { return };
        for (index, running) in lane.running.iter().enumerate() {
            if let Some(due) = running.due {
                self.timeouts.remove(&(due, id, index));
            }
        }
        if self.by_peer.get(&lane.peer) == Some(&id) {
            self.by_peer.remove(&lane.peer);
        }
        self.said.insert(id, lane.into_words(true));
    }
}

impl Lane {
    /// What they said; `is_over` if the connection's end stopped them, else the recording's end did.
    fn into_words(self, is_over: bool) -> Vec<Word> {
        self.running
            .into_iter()
            .map(|running| match running.detector {
                Some(detector) if !is_over => {
                    Word { not_judged: detector.not_judged(), due: detector.poll_timeout(), ..running.word }
                }
                _ => running.word,
            })
            .collect()
    }
}

fn reported_peer(report: &PeerReport) -> SocketAddr {
    SocketAddr::new(report.peer.ip().to_canonical(), report.peer.port())
}

/// Whether a fact ends what a watchdog of the host could still kill: detectors look at nothing after it.
fn ends(input: &Input) -> bool {
    let is_open = |state| matches!(state, TcpState::Established | TcpState::SynRecv | TcpState::SynSent);
    match input {
        Input::Transition(transition) => !is_open(transition.new_state),
        Input::Sample(snapshot) => !is_open(snapshot.state),
        Input::Reset(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use ackbeat_liveness::{Endpoints, Role};

    use super::*;

    /// Writes down what it is told and when it is called.
    #[derive(Debug)]
    struct Witness {
        log: Rc<RefCell<Vec<String>>>,
        /// When it wants to be called next.
        due: Timestamp,
        every_ms: u64,
        kills_at: Timestamp,
    }

    impl Detector for Witness {
        fn on_fact(&mut self, fact: &Fact<'_>) -> Option<Kill> {
            self.log.borrow_mut().push(format!("fact {}", fact.at().ms_since(Timestamp::default())));
            None
        }

        fn poll_timeout(&self) -> Option<Timestamp> {
            Some(self.due)
        }

        fn on_timeout(&mut self, now: Timestamp) -> Option<Kill> {
            self.log.borrow_mut().push(format!("time {}", now.ms_since(Timestamp::default())));
            self.due = self.due.plus_ms(self.every_ms);
            (now >= self.kills_at).then(|| Kill { at: now, reason: "enough".to_owned() })
        }

        fn not_judged(&self) -> Option<NotJudged> {
            None
        }
    }

    fn run(every_ms: u64, kills_at_ms: u64, facts_ms: &[u64], end_ms: u64) -> (Vec<String>, Word) {
        let log = Rc::new(RefCell::new(Vec::new()));
        let start: Start<'_> = {
            let log = Rc::clone(&log);
            Box::new(move |opened, _| {
                Ok(Box::new(Witness {
                    log: Rc::clone(&log),
                    due: opened.at.plus_ms(1_000),
                    every_ms,
                    kills_at: Timestamp::from_ms(kills_at_ms),
                }))
            })
        };
        let mut lanes = Lanes::new(vec![start], &[]);
        let connection = ConnectionId(1);
        lanes.input(Input::Opened(Opened {
            connection,
            at: Timestamp::from_ms(0),
            endpoints: Endpoints {
                local_address: [10, 0, 0, 1].into(),
                local_port: 80,
                peer_address: [10, 0, 0, 2].into(),
                peer_port: 4_000,
            },
            role: Role::Server,
            preexisting: false,
            frames_visible: true,
        }));
        for ms in facts_ms {
            lanes.input(Input::Outstanding { connection, at: Timestamp::from_ms(*ms) });
        }
        lanes.pass(Timestamp::from_ms(end_ms));
        let (mut said, _) = lanes.finish();
        let word = said.remove(&connection).unwrap().remove(0);
        let log = log.borrow().clone();
        (log, word)
    }

    #[test]
    fn facts_and_time_come_in_order() {
        // Two lines are swapped, as a pass of the sampler and the ring may swap them.
        let (log, word) = run(1_000, 9_999, &[500, 1_500, 1_400, 2_000], 3_000);
        assert_eq!(
            log,
            ["fact 500", "time 1000", "fact 1400", "fact 1500", "fact 2000", "time 2000", "time 3000"],
            "at the same moment what was seen comes before the time"
        );
        assert_eq!(word.kill, None);
    }

    #[test]
    fn time_passes_where_nothing_is_recorded_and_ends_with_a_kill() {
        let (log, word) = run(1_000, 4_000, &[], 60_000);
        assert_eq!(log, ["time 1000", "time 2000", "time 3000", "time 4000"]);
        assert_eq!(word.kill.unwrap().at, Timestamp::from_ms(4_000));
    }

    /// A damaged line's date may be centuries away.
    #[test]
    fn a_stray_date_has_an_end() {
        let (log, word) = run(1_000, u64::MAX, &[1_500, u64::MAX / 2_000_000], 0);
        assert!(log.len() < 2 * CALLS_MAX as usize, "{} calls", log.len());
        assert_eq!((word.kill, word.not_judged), (None, Some(NotJudged::NothingSeen)));
    }

    #[test]
    fn one_that_stands_still_holds_nobody() {
        let (log, _) = run(0, 9_999, &[5_000], 60_000);
        assert_eq!(log, ["time 1000", "fact 5000", "time 1000"], "it is asked again after its next fact");
    }
}
