//! The driver with a made source and the real engine and clock.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ackbeat_liveness::{
    ConnectionId, Deployment, Direction, Endpoints, Engine, Frame, FrameKind, HeartbeatProfile, Opened,
    Policy, ProbeWanted, Role, Seq, Snapshot, Synchronization, TcpState, Transition, Upgrade, WindowProbes,
};

use super::clock::MonotonicClock;
use super::*;
use crate::probe::SendError;
use crate::recording::replay::replay;
use crate::recording::{FORMAT, Header, Reader};
use crate::source::Mode;

const DEADLINE: Duration = Duration::from_secs(30);
const CONNECTION: ConnectionId = ConnectionId(11);

/// Thresholds that are reached within a test.
fn policy() -> Policy {
    Policy {
        fresh_ms: 60,
        pong_budget_ms: 80,
        unreachable_floor_ms: 50,
        unreachable_after_ms: 150,
        silent_after_ms: 200,
        stalled_after_ms: 250,
        progress_window_ms: 200,
        postmortem_window_ms: 300,
        sample_interval_ms: 20,
        late_tick_ms: 2_000,
        ..Policy::default_policy()
    }
}

/// What a script does to its connection.
#[derive(Clone, Copy, Debug)]
enum Step {
    Open(ConnectionId),
    Upgrade,
    Ping(u32),
    Pong(u32),
    /// The peer acknowledges up to here.
    Acknowledge(u32),
    /// The host writes up to here, and the peer's window is closed.
    WriteIntoClosedWindow(u32),
    HostCloses,
    PeerAcknowledgesFin,
    Lose(u64),
}

/// A source that plays a script: each step comes this many milliseconds after the one before.
struct Script {
    steps: VecDeque<(u64, Step)>,
    next_at: Option<tokio::time::Instant>,
    open: Vec<ConnectionId>,
    state: TcpState,
    written: u32,
    acknowledged: u32,
    acknowledged_at: Timestamp,
    counters: SourceCounters,
    is_window_closed: bool,
    is_announcing: bool,
    played: usize,
    /// Steps whose inputs the engine has.
    fed: Arc<AtomicUsize>,
}

impl Script {
    fn new(steps: &[(u64, Step)], fed: Arc<AtomicUsize>) -> Self {
        Self {
            played: 0,
            fed,
            steps: steps.iter().copied().collect(),
            next_at: None,
            open: Vec::new(),
            state: TcpState::Established,
            written: 1_000,
            acknowledged: 1_000,
            acknowledged_at: MonotonicClock.now(),
            counters: SourceCounters::default(),
            is_window_closed: false,
            is_announcing: true,
        }
    }

    fn snapshot(&self, connection: ConnectionId) -> Snapshot {
        let queued = self.written - self.acknowledged;
        let in_flight = if self.is_window_closed { 0 } else { queued };
        Snapshot {
            connection,
            at: MonotonicClock.now(),
            state: self.state,
            write_seq: Some(Seq(self.written)),
            snd_nxt: Some(Seq(self.acknowledged + in_flight)),
            snd_una: Some(Seq(self.acknowledged)),
            snd_wnd_bytes: Some(if self.is_window_closed { 0 } else { 65_535 }),
            rcv_nxt: Some(Seq(1)),
            copied_seq: Some(Seq(1)),
            send_queue_bytes: Some(queued),
            unsent_bytes: Some(queued - in_flight),
            unread_bytes: Some(0),
            last_ack_at: Some(self.acknowledged_at),
            last_send_at: None,
            last_inbound_at: None,
            bytes_acked: Some(u64::from(self.acknowledged)),
            bytes_received: Some(0),
            srtt_us: Some(200),
            rto_ms: Some(200),
            backoff: Some(0),
            retransmits: Some(0),
            probes_out: Some(0),
            packets_out: Some(u32::from(in_flight > 0)),
            total_retransmits: Some(0),
            retransmitting_since: None,
            socket_error: Some(0),
            soft_error: Some(0),
            shutdown: Some(0),
            queued_memory_bytes: None,
        }
    }

    fn play(&mut self, step: Step, inputs: &mut Vec<Input>) {
        let now = MonotonicClock.now();
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        match step {
            Step::Open(connection) => {
                self.open.push(connection);
                inputs.push(Input::Opened(Opened {
                    connection,
                    at: now,
                    endpoints: Endpoints {
                        local_address: localhost,
                        local_port: 8080,
                        peer_address: localhost,
                        peer_port: 40_001,
                    },
                    role: Role::Server,
                    preexisting: false,
                    frames_visible: true,
                }));
            }
            Step::Upgrade => {
                inputs.push(Input::Upgrade(Upgrade {
                    connection: CONNECTION,
                    at: now,
                    path: None,
                    traceparent: None,
                    forwarding_headers: Vec::new(),
                }));
                for direction in [Direction::Ingress, Direction::Egress] {
                    inputs.push(Input::Synchronization(Synchronization {
                        connection: CONNECTION,
                        at: now,
                        direction,
                        synchronized: true,
                        reason: None,
                    }));
                }
            }
            Step::Ping(seq_start) => {
                self.written = seq_start + 6;
                inputs.push(frame(FrameKind::Ping, Direction::Egress, seq_start, now));
                inputs.push(Input::Outstanding { connection: CONNECTION, at: now });
            }
            Step::Pong(seq_start) => inputs.push(frame(FrameKind::Pong, Direction::Ingress, seq_start, now)),
            Step::Acknowledge(seq) => {
                self.acknowledged = seq;
                self.acknowledged_at = now;
            }
            Step::WriteIntoClosedWindow(seq) => {
                self.written = seq;
                self.is_window_closed = true;
                inputs.push(Input::Outstanding { connection: CONNECTION, at: now });
            }
            Step::HostCloses => self.transition(TcpState::FinWait1, inputs),
            Step::PeerAcknowledgesFin => {
                self.acknowledged_at = now;
                self.transition(TcpState::FinWait2, inputs);
                self.transition(TcpState::Close, inputs);
                self.open.clear();
            }
            Step::Lose(count) => {
                self.counters.records_dropped += count;
                inputs.push(Input::RecordsLost { at: now, count });
            }
        }
    }

    fn transition(&mut self, new_state: TcpState, inputs: &mut Vec<Input>) {
        let old_state = std::mem::replace(&mut self.state, new_state);
        let snapshot = self.snapshot(CONNECTION);
        inputs.push(Input::Transition(Transition { old_state, new_state, process: None, snapshot }));
    }
}

fn frame(kind: FrameKind, direction: Direction, seq_start: u32, at: Timestamp) -> Input {
    Input::Frame(Frame {
        connection: CONNECTION,
        at,
        direction,
        kind,
        profile: HeartbeatProfile::Rfc6455,
        seq_start: Some(Seq(seq_start)),
        seq_end: Some(Seq(seq_start + 6)),
        payload: b"beat".to_vec(),
        close_code: None,
        close_reason: None,
    })
}

impl Source for Script {
    fn mode(&self) -> Mode {
        Mode::Ebpf
    }

    fn announces_outstanding(&self) -> bool {
        self.is_announcing
    }

    async fn readable(&mut self) -> Result<(), SourceError> {
        let Some((delay_ms, _)) = self.steps.front() else {
            return std::future::pending().await;
        };
        let delay = Duration::from_millis(*delay_ms);
        let at = *self.next_at.get_or_insert_with(|| tokio::time::Instant::now() + delay);
        tokio::time::sleep_until(at).await;
        Ok(())
    }

    fn drain(&mut self, _limit: usize, inputs: &mut Vec<Input>) -> Result<bool, SourceError> {
        // Whoever drains again has fed what came before.
        self.fed.store(self.played, Ordering::Release);
        if self.next_at.is_some_and(|at| at <= tokio::time::Instant::now()) {
            self.next_at = None;
            if let Some((_, step)) = self.steps.pop_front() {
                self.play(step, inputs);
                self.played += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn discover(&mut self, _inputs: &mut Vec<Input>) -> Result<(), SourceError> {
        Ok(())
    }

    fn sample(&mut self, inputs: &mut Vec<Input>) -> Result<(), SourceError> {
        let began_at = MonotonicClock.now();
        for connection in &self.open {
            inputs.push(Input::Sample(self.snapshot(*connection)));
        }
        inputs.push(Input::SamplingDone { began_at, at: MonotonicClock.now() });
        self.counters.sampler_passes += 1;
        Ok(())
    }

    fn counters(&self) -> SourceCounters {
        self.counters
    }
}

#[derive(Clone, Default)]
struct Collected(Arc<Mutex<(Vec<Output>, Vec<Housekeeping>)>>);

impl Sink for Collected {
    fn output(&mut self, output: &Output) {
        self.0.lock().unwrap().0.push(output.clone());
    }
    fn housekeeping(&mut self, now: &Housekeeping) {
        self.0.lock().unwrap().1.push(now.clone());
    }
}

impl Collected {
    fn outputs(&self) -> Vec<Output> {
        self.0.lock().unwrap().0.clone()
    }

    fn closed(&self) -> Vec<ConnectionId> {
        self.outputs()
            .iter()
            .filter_map(|output| match output {
                Output::Closed(record) => Some(record.connection),
                _ => None,
            })
            .collect()
    }

    async fn wait_for(&self, what: &str, holds: impl Fn(&[Output]) -> bool) {
        let start = Instant::now();
        while !holds(&self.outputs()) {
            assert!(start.elapsed() < DEADLINE, "{what} did not come: {:#?}", self.outputs());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

struct Running {
    fed: Arc<AtomicUsize>,
    collected: Collected,
    stop: mpsc::Sender<()>,
    task: tokio::task::JoinHandle<Result<Report, SourceError>>,
}

fn start(steps: &[(u64, Step)], recorder: Option<Recorder>, drain: Duration) -> Running {
    start_source(recorder, drain, |fed| Script::new(steps, fed))
}

fn start_source(
    recorder: Option<Recorder>,
    drain: Duration,
    source: impl FnOnce(Arc<AtomicUsize>) -> Script,
) -> Running {
    let collected = Collected::default();
    let (stop, stopped) = mpsc::channel(4);
    let fed = Arc::new(AtomicUsize::new(0));
    let driver = Driver::new(
        source(Arc::clone(&fed)),
        Arc::new(Connections::new(Engine::new(policy()))),
        MonotonicClock,
        collected.clone(),
        recorder,
        drain,
    );
    Running { fed, collected, stop, task: tokio::spawn(driver.run(stopped)) }
}

impl Running {
    async fn wait_until_fed(&self, steps: usize) {
        let start = Instant::now();
        while self.fed.load(Ordering::Acquire) < steps {
            assert!(start.elapsed() < DEADLINE, "step {steps} was not fed");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn end(self) -> Report {
        tokio::time::timeout(DEADLINE, self.task).await.unwrap().unwrap().unwrap()
    }
}

/// A connection whose Pong fails to come, that then goes on, and that its host closes.
const STORY: &[(u64, Step)] = &[
    (5, Step::Open(CONNECTION)),
    (5, Step::Upgrade),
    (10, Step::Ping(1_000)),
    (30, Step::Acknowledge(1_006)),
    (5, Step::Pong(1)),
    (40, Step::Ping(1_006)),
    (150, Step::Acknowledge(1_012)),
    (400, Step::Pong(7)),
    (20, Step::Ping(1_012)),
    (300, Step::HostCloses),
    (30, Step::PeerAcknowledgesFin),
];

/// The header of a recording that begins now.
fn header(thresholds: Policy) -> Header {
    Header {
        ackbeat_recording: FORMAT,
        version: "0.1.0".to_owned(),
        mode: "ebpf".to_owned(),
        policy: "default".to_owned(),
        thresholds,
        leaks: ackbeat_liveness::leak::LeakSettings::default(),
        deployment: Deployment::default(),
        ticks: true,
        began_at: MonotonicClock.now(),
        began_unix_ns: 0,
        segment: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_decides_what_the_live_run_decided() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let header = header(policy());
    let recorder = Recorder::begin(&path, 1 << 24, &header).unwrap();
    let running = start(STORY, Some(recorder), Duration::from_secs(5));
    running
        .collected
        .wait_for("the close", |outputs| outputs.iter().any(|output| matches!(output, Output::Closed(_))))
        .await;
    running.stop.send(()).await.unwrap();
    let live = running.collected.clone();
    let report = running.end().await;
    assert_eq!((report.closed, report.cut_short), (1, 0));
    let changes = live.outputs().iter().filter(|output| matches!(output, Output::VerdictChanged(_))).count();
    assert!(changes >= 2, "the story has too few turns to compare: {:#?}", live.outputs());

    let mut again = Vec::new();
    let mut reader = Reader::open(&path).unwrap();
    let summary = replay(&mut reader, policy(), |output| again.push(output.clone())).unwrap();
    assert_eq!(again, live.outputs());
    assert_eq!((summary.missing, summary.is_cut_off), (0, false));
    assert!(summary.inputs > 20, "{summary:?}");

    // Another policy may decide otherwise, but tells the same end once.
    let mut closed = 0;
    let mut reader = Reader::open(&path).unwrap();
    replay(&mut reader, Policy::default_policy(), |output| {
        closed += usize::from(matches!(output, Output::Closed(_)));
    })
    .unwrap();
    assert_eq!(closed, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_rules_take_effect_at_once_and_a_replay_follows_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let patient = Policy { unreachable_after_ms: 3_600_000, stalled_after_ms: 3_600_000, ..policy() };
    let header = header(patient.clone());
    let steps = [(5, Step::Open(CONNECTION)), (5, Step::WriteIntoClosedWindow(5_000))];
    let collected = Collected::default();
    let (stop, stopped) = mpsc::channel(4);
    let (rules, next_rules) = mpsc::channel(1);
    let driver = Driver::new(
        Script::new(&steps, Arc::new(AtomicUsize::new(0))),
        Arc::new(Connections::new(Engine::new(patient.clone()))),
        MonotonicClock,
        collected.clone(),
        Some(Recorder::begin(&path, 1 << 24, &header).unwrap()),
        Duration::ZERO,
    )
    .with_rules(next_rules);
    let task = tokio::spawn(driver.run(stopped));
    let justified = |outputs: &[Output]| {
        outputs.iter().any(|output| matches!(output, Output::VerdictChanged(change) if change.kill_justified))
    };
    let stalled = |outputs: &[Output]| {
        outputs.iter().any(
            |output| matches!(output, Output::VerdictChanged(change) if change.to == ackbeat_liveness::Verdict::Stalled),
        )
    };
    collected.wait_for("a stalled peer", stalled).await;
    // Longer than the other rules would have let it.
    tokio::time::sleep(Duration::from_millis(2 * policy().stalled_after_ms)).await;
    assert!(!justified(&collected.outputs()), "the first rules have all the time of the world");
    let others = Rules {
        at: MonotonicClock.now(),
        policy: "fast".to_owned(),
        thresholds: policy(),
        leaks: ackbeat_liveness::leak::LeakSettings::default(),
        deployment: Deployment::default(),
    };
    rules.send(others).await.unwrap();
    collected.wait_for("a kill that the other rules justify", justified).await;
    stop.send(()).await.unwrap();
    task.await.unwrap().unwrap();

    let mut again = Vec::new();
    let summary =
        replay(&mut Reader::open(&path).unwrap(), patient.clone(), |output| again.push(output.clone()))
            .unwrap();
    assert_eq!(again, collected.outputs());
    assert_eq!(summary.missing, 0);
    // Under rules of one's own the recorded ones are not followed.
    let mut again = Vec::new();
    let own = Policy { silent_after_ms: 3_600_000, ..patient };
    replay(&mut Reader::open(&path).unwrap(), own, |output| again.push(output.clone())).unwrap();
    assert!(!justified(&again));
}

/// Keeps what it is to send.
#[derive(Clone, Default)]
struct KeptProbes(Arc<Mutex<Vec<ProbeWanted>>>);

impl Prober for KeptProbes {
    fn send(&mut self, wanted: &ProbeWanted) -> Result<(), SendError> {
        let mut kept = self.0.lock().unwrap();
        kept.push(*wanted);
        // The second one does not leave.
        if kept.len() == 2 {
            return Err(SendError::Refused(std::io::ErrorKind::WouldBlock.into()));
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn own_window_probes_are_sent_recorded_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let header = header(policy());
    let steps = [(5, Step::Open(CONNECTION)), (5, Step::WriteIntoClosedWindow(5_000))];
    let fed = Arc::new(AtomicUsize::new(0));
    let collected = Collected::default();
    let (stop, stopped) = mpsc::channel(4);
    let mut engine = Engine::new(policy());
    engine.set_window_probes(Some(WindowProbes { interval_ms: 500, ..WindowProbes::default() }));
    let kept = KeptProbes::default();
    let driver = Driver::new(
        Script::new(&steps, fed),
        Arc::new(Connections::new(engine)),
        MonotonicClock,
        collected.clone(),
        Some(Recorder::begin(&path, 1 << 24, &header).unwrap()),
        Duration::ZERO,
    )
    .with_prober(Box::new(kept.clone()));
    let task = tokio::spawn(driver.run(stopped));
    collected
        .wait_for("the third probe", |outputs| {
            outputs.iter().filter(|output| matches!(output, Output::ProbeWanted(_))).count() >= 3
        })
        .await;
    let start = Instant::now();
    while kept.0.lock().unwrap().len() < 3 {
        assert!(start.elapsed() < DEADLINE, "the third probe was not sent");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.send(()).await.unwrap();
    let report = tokio::time::timeout(DEADLINE, task).await.unwrap().unwrap().unwrap();
    let kept = kept.0.lock().unwrap().clone();
    for probe in &kept {
        assert_eq!((probe.seq, probe.ack), (Seq(999), Seq(1)), "just before what is acknowledged");
        assert_eq!(probe.endpoints.peer_port, 40_001);
    }
    let probes = report.probes;
    assert_eq!((probes.failed, probes.dropped), (1, 0));
    assert_eq!(probes.sent + probes.failed, kept.len() as u64);

    let recorded = std::fs::read_to_string(&path).unwrap();
    let sent = recorded.lines().filter(|line| line.contains("\"probe_sent\"")).count();
    assert_eq!(sent as u64, probes.sent, "what was not sent is not told");
    let mut again = Vec::new();
    let mut reader = Reader::open(&path).unwrap();
    replay(&mut reader, policy(), |output| again.push(output.clone())).unwrap();
    let mut live = collected.outputs();
    live.retain(|output| !matches!(output, Output::ProbeWanted(_)));
    assert_eq!(again, live);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_watches_for_the_drain_at_most_and_tells_what_is_known() {
    let running = start(&[(5, Step::Open(CONNECTION))], None, Duration::from_millis(200));
    running.wait_until_fed(1).await;
    running.stop.send(()).await.unwrap();
    let collected = running.collected.clone();
    let report = running.end().await;
    assert_eq!(report.cut_short, 1);
    assert_eq!(collected.closed(), [CONNECTION]);
    assert!(!collected.0.lock().unwrap().1.is_empty(), "nobody was told how things stood at the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_a_post_mortem_and_takes_no_new_connections() {
    const LATE: ConnectionId = ConnectionId(12);
    let steps = [
        (5, Step::Open(CONNECTION)),
        (5, Step::Upgrade),
        (5, Step::HostCloses),
        (300, Step::Open(LATE)),
        (50, Step::PeerAcknowledgesFin),
    ];
    let running = start(&steps, None, DEADLINE);
    running
        .collected
        .wait_for("the start of the post-mortem", |outputs| {
            outputs.iter().any(|output| matches!(output, Output::Closing { .. }))
        })
        .await;
    let stopped = Instant::now();
    running.stop.send(()).await.unwrap();
    let collected = running.collected.clone();
    let report = running.end().await;
    assert!(stopped.elapsed() < DEADLINE, "it waited for more than the post-mortem");
    assert_eq!((report.closed, report.cut_short), (1, 0));
    assert_eq!(collected.closed(), [CONNECTION]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_tells_of_no_data_is_sampled_steadily() {
    let running = start_source(None, Duration::ZERO, |fed| Script {
        is_announcing: false,
        ..Script::new(&[(1, Step::Open(CONNECTION))], fed)
    });
    let housekeeping = Arc::clone(&running.collected.0);
    let start = Instant::now();
    while housekeeping.lock().unwrap().1.last().is_none_or(|state| state.source.sampler_passes < 2) {
        assert!(start.elapsed() < DEADLINE, "nobody looked at the socket");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.stop.send(()).await.unwrap();
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_drain() {
    let running = start(&[(1, Step::Open(CONNECTION))], None, Duration::from_secs(3_600));
    running.wait_until_fed(1).await;
    running.stop.send(()).await.unwrap();
    running.stop.send(()).await.unwrap();
    running.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_without_its_sender_drains_too() {
    let running = start(&[(1, Step::Open(CONNECTION))], None, Duration::from_millis(100));
    let Running { stop, task, .. } = running;
    drop(stop);
    tokio::time::timeout(DEADLINE, task).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_records_reach_the_engine_and_the_close_record() {
    let steps = [
        (5, Step::Open(CONNECTION)),
        (5, Step::Upgrade),
        (5, Step::Lose(17)),
        (20, Step::HostCloses),
        (20, Step::PeerAcknowledgesFin),
    ];
    let running = start(&steps, None, Duration::from_secs(5));
    running
        .collected
        .wait_for("the close", |outputs| outputs.iter().any(|output| matches!(output, Output::Closed(_))))
        .await;
    let lost = running.collected.outputs().iter().find_map(|output| match output {
        Output::Closed(record) => Some(record.records_lost),
        _ => None,
    });
    assert_eq!(lost, Some(17));
    running.stop.send(()).await.unwrap();
    running.end().await;
}
