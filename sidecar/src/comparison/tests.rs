//! A made-up night: a slow reader whom the host kills, a peer whose path is cut, and one that the host leaves in order.

use std::fmt::Write as _;
use std::io::{BufReader, Cursor};
use std::path::Path;

use ackbeat_liveness::{
    Deployment, Direction, Frame, FrameKind, HeartbeatProfile, Process, Role, Seq, Snapshot, TcpState,
    Transition, Upgrade,
};

use super::*;
use crate::recording::replay::replay;
use crate::recording::{FORMAT, Header};

const SLOW: ConnectionId = ConnectionId(0xa1);
const CUT: ConnectionId = ConnectionId(0xb2);
/// When the slow reader's connection was opened.
const OPENED_MS: u64 = 1_000;
/// When the host closed it.
const SLOW_CLOSED_MS: u64 = 8_002;
/// Sequence numbers of the slow reader's stream start just below their wrapping.
const START: u32 = u32::MAX - 1_000_000;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ms(ms)
}

fn header(thresholds: Policy) -> Header {
    Header {
        ackbeat_recording: FORMAT,
        version: "0.1.0".to_owned(),
        mode: "ebpf".to_owned(),
        policy: "default".to_owned(),
        thresholds,
        leaks: ackbeat_liveness::leak::LeakSettings::default(),
        deployment: Deployment::default(),
        ticks: false,
        began_at: at(0),
        began_unix_ns: 0,
        segment: None,
    }
}

/// Lines of a recording with their times; written in the order of time.
#[derive(Default)]
struct Night {
    inputs: Vec<Input>,
}

impl Night {
    fn open(&mut self, connection: ConnectionId, ms: u64, peer_port: u16) {
        self.inputs.push(Input::Opened(Opened {
            connection,
            at: at(ms),
            endpoints: Endpoints {
                local_address: [10, 87, 1, 2].into(),
                local_port: 8_080,
                peer_address: "::ffff:10.87.2.2".parse().unwrap(),
                peer_port,
            },
            role: Role::Server,
            preexisting: false,
            frames_visible: true,
        }));
        self.inputs.push(Input::Upgrade(Upgrade {
            connection,
            at: at(ms + 1),
            path: Some("/mux".to_owned()),
            traceparent: None,
            forwarding_headers: Vec::new(),
        }));
    }

    fn frame(&mut self, connection: ConnectionId, ms: u64, kind: FrameKind, start: u32, payload: &[u8]) {
        let direction = if kind == FrameKind::Pong { Direction::Ingress } else { Direction::Egress };
        self.inputs.push(Input::Frame(Frame {
            connection,
            at: at(ms),
            direction,
            kind,
            profile: HeartbeatProfile::Rfc6455,
            seq_start: Some(Seq(start)),
            seq_end: Some(Seq(start.wrapping_add(6))),
            payload: payload.to_vec(),
            close_code: None,
            close_reason: None,
        }));
    }

    fn transition(&mut self, snapshot: Snapshot, old_state: TcpState, by: Option<&str>) {
        let process = by.map(|command| Process {
            pid: 7,
            command: command.to_owned(),
            exiting: false,
            ancestors: Vec::new(),
        });
        self.inputs.push(Input::Transition(Transition {
            old_state,
            new_state: snapshot.state,
            process,
            snapshot,
        }));
    }

    fn text(&self, header: &Header) -> String {
        let mut inputs = self.inputs.clone();
        inputs.sort_by_key(Input::at);
        let mut text = format!("{}\n", serde_json::to_string(header).unwrap());
        for input in inputs {
            writeln!(text, "{}", serde_json::to_string(&input).unwrap()).unwrap();
        }
        text
    }

    fn reader(&self, header: &Header) -> Reader {
        let lines = Box::new(BufReader::new(Cursor::new(self.text(header))));
        Reader::new(Path::new("night.jsonl"), lines).unwrap()
    }
}

/// A reading of a socket that has `written` bytes since `start`, of which `acked` are acknowledged.
fn reading(connection: ConnectionId, ms: u64, start: u32, written: u32, acked: u32) -> Snapshot {
    let in_flight = (written - acked).min(400_000);
    let seq = |bytes: u32| Some(Seq(start.wrapping_add(bytes)));
    Snapshot {
        connection,
        at: at(ms),
        state: TcpState::Established,
        write_seq: seq(written),
        snd_nxt: seq(acked + in_flight),
        snd_una: seq(acked),
        snd_wnd_bytes: Some(if written - acked > 400_000 { (ms / 200 % 3) as u32 * 60_000 } else { 400_000 }),
        rcv_nxt: Some(Seq(50)),
        copied_seq: Some(Seq(50)),
        send_queue_bytes: Some(written - acked),
        unsent_bytes: Some(written - acked - in_flight),
        unread_bytes: Some(0),
        last_ack_at: Some(at(ms - 20)),
        last_send_at: Some(at(ms - 20)),
        last_inbound_at: None,
        bytes_acked: Some(u64::from(acked)),
        bytes_received: Some(50),
        srtt_us: Some(400),
        rto_ms: Some(204),
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

/// A peer that reads 200 kB/s while 2.6 MB wait, with the Pings behind them; the host closes when it would have sent
/// the next one. The peer reads on.
fn slow_reader(night: &mut Night) {
    night.open(SLOW, OPENED_MS, 46_502);
    night.frame(SLOW, 2_000, FrameKind::Ping, START, b"1");
    night.frame(SLOW, 2_010, FrameKind::Pong, 50, b"1");
    let acked = |ms: u64| 6 + 200 * (u32::try_from(ms.max(3_000)).unwrap() - 3_000);
    for ms in (2_200..14_000).step_by(200) {
        let written = if ms < 3_000 { 6 } else { 2_600_000 };
        let mut reading = reading(SLOW, ms, START, written, acked(ms));
        if ms > SLOW_CLOSED_MS {
            (reading.state, reading.shutdown) = (TcpState::FinWait1, Some(2));
        }
        night.inputs.push(Input::Sample(reading));
    }
    // A Ping is seen when it leaves the send queue: at the end of what is in flight then.
    for (ms, payload) in [(4_005, b"2"), (6_005, b"3")] {
        night.frame(SLOW, ms, FrameKind::Ping, START.wrapping_add(acked(ms) + 400_000 - 6), payload);
    }
    let mut fin = reading(SLOW, SLOW_CLOSED_MS, START, 2_600_000, acked(SLOW_CLOSED_MS));
    fin.state = TcpState::FinWait1;
    night.transition(fin, TcpState::Established, Some("mux-host"));
    let mut gone = reading(SLOW, 14_200, START, 2_600_000, acked(14_200));
    gone.state = TcpState::Close;
    night.transition(gone, TcpState::FinWait1, None);
}

/// A peer whose path is cut at 5 s with a Ping outstanding; nobody closes.
fn cut_path(night: &mut Night) {
    night.open(CUT, 1_500, 32_818);
    for (tick, payload) in
        [(2_000, b"a"), (4_000, b"b"), (6_000, b"c"), (8_000, b"d"), (10_000, b"e"), (12_000, b"f")]
    {
        let number = u32::try_from((tick - 2_000) / 2_000).unwrap();
        night.frame(CUT, tick + 1, FrameKind::Ping, 100 + 6 * number, payload);
        if tick < 5_000 {
            night.frame(CUT, tick + 3, FrameKind::Pong, 50 + 6 * number, payload);
        }
    }
    for ms in (6_200..20_000).step_by(200) {
        let pings = u32::try_from(((ms - 6_000) / 2_000 + 1).min(4)).unwrap();
        let mut reading = reading(CUT, ms, 100, 12 + 6 * pings, 12);
        let elapsed = ms - 6_001;
        let timeouts = (0..10).take_while(|k| 420 << k <= elapsed).count();
        reading.retransmits = Some(u8::try_from(timeouts).unwrap());
        reading.backoff = reading.retransmits;
        reading.total_retransmits = Some(u32::try_from(timeouts).unwrap());
        reading.last_ack_at = Some(at(4_003));
        reading.last_inbound_at = Some(at(4_003));
        reading.retransmitting_since = (timeouts > 0).then(|| at(6_421));
        night.inputs.push(Input::Sample(reading));
    }
}

fn night() -> Night {
    let mut night = Night::default();
    slow_reader(&mut night);
    cut_path(&mut night);
    night
}

fn contestants(list: &str) -> Vec<Contestant> {
    Contestant::list(list).unwrap()
}

#[test]
fn each_is_told_when_it_would_have_killed_against_what_the_host_did() {
    let list = contestants("ackbeat,ackbeat-fast,ackbeat:silent_after=30s,ws-2,ws-2-slow,phi,buffered-gate");
    let comparison = compare(&mut night().reader(&header(Policy::default_policy())), &[], &list).unwrap();
    insta::assert_snapshot!(table::render(&comparison));

    let [slow, cut] = comparison.connections.as_slice() else { panic!("{:#?}", comparison.connections) };
    assert_eq!(slow.host_closed_at(), Some(at(SLOW_CLOSED_MS)));
    assert_eq!((cut.host_closed_at(), cut.ended_at), (None, None));
    let ackbeat = &cut.outcomes[0];
    assert_eq!(ackbeat.justified.len(), 1, "{ackbeat:#?}");
    assert_eq!(ackbeat.justified[0].from, ackbeat.kill.as_ref().unwrap().at);
    assert!(ackbeat.unreachable_at.unwrap() < ackbeat.justified[0].from);
    let fast = &cut.outcomes[1];
    assert!(fast.kill.as_ref().unwrap().at < ackbeat.kill.as_ref().unwrap().at);
}

#[test]
fn the_first_policy_decides_as_a_plain_replay_does() {
    let header = header(Policy::fast_policy());
    let night = night();
    for policy in [Policy::default_policy(), Policy::fast_policy()] {
        let mut plain = Vec::new();
        replay(&mut night.reader(&header), policy.clone(), |output| plain.push(output.clone())).unwrap();
        let list =
            [contestants("ws-2"), vec![Contestant::Policy { name: "this".to_owned(), policy }]].concat();
        let mut compared = Vec::new();
        let options = Options {
            draw: &mut |_| false,
            decided: &mut |contestant, output| {
                assert_eq!(contestant, 1);
                compared.push(output.clone());
            },
        };
        compare_with(&mut night.reader(&header), &[], &list, options).unwrap();
        assert_eq!(compared, plain);
        assert!(plain.len() > 4, "{plain:#?}");
    }
}

#[test]
fn a_report_belongs_to_the_open_connection_of_its_peer() {
    let tick = |port: u16, ms: u64| PeerReport {
        peer: SocketAddr::new([10, 87, 2, 2].into(), port),
        at: at(ms),
        what: Reported::Tick { buffered_bytes: 30 << 20 },
    };
    let reports: Vec<PeerReport> = [8_000, 2_000, 4_000, 6_000, 10_000]
        .into_iter()
        .map(|ms| tick(46_502, ms))
        .chain([tick(1, 3_000), tick(46_502, 500)])
        .collect();
    let list = contestants("buffered-gate,ws-2");
    let comparison =
        compare(&mut night().reader(&header(Policy::default_policy())), &reports, &list).unwrap();
    let [slow, cut] = comparison.connections.as_slice() else { panic!("{:#?}", comparison.connections) };
    let gate = &slow.outcomes[0];
    assert_eq!(
        (gate.not_judged.as_deref(), &gate.kill),
        (None, &None),
        "what waits in the host holds it back"
    );
    assert!(slow.outcomes[1].kill.is_some(), "the same ticks, without the gate");
    assert_eq!(cut.outcomes[0].not_judged.as_deref(), Some("needs application reports"));
    // Another peer's, one before the connection opened, one after it was closed.
    assert_eq!(comparison.reports_unmatched, 3);
}

#[test]
fn a_timeline_is_drawn() {
    let header = header(Policy::default_policy());
    let list = contestants("ackbeat,ackbeat-fast,ws-2,phi,aiohttp,buffered-gate");
    for (connection, truth) in [(SLOW, Truth::Alive), (CUT, Truth::Gone)] {
        let options =
            Options { draw: &mut |opened| opened.connection == connection, decided: &mut |_, _| {} };
        let (_, timelines) = compare_with(&mut night().reader(&header), &[], &list, options).unwrap();
        let [timeline] = timelines.as_slice() else { panic!("{timelines:#?}") };
        let bands = vec![TruthBand { from: at(5_000), until: None, truth }];
        let svg = timeline.clone().with_truth(bands).svg().unwrap();
        insta::assert_snapshot!(format!("timeline_of_{}", timeline.compared.endpoints.peer_port), svg);
    }
}

#[test]
fn a_timeline_counts_on_where_sequence_numbers_wrap() {
    let header = header(Policy::default_policy());
    let options = Options { draw: &mut |opened| opened.connection == SLOW, decided: &mut |_, _| {} };
    let (_, timelines) =
        compare_with(&mut night().reader(&header), &[], &contestants("ws-2"), options).unwrap();
    let timeline = &timelines[0];
    let last = timeline.points.last().unwrap();
    let (first, span) = (timeline.points.first().unwrap(), last.acked_bytes.unwrap());
    assert_eq!(last.acked_bytes.unwrap() - first.acked_bytes.unwrap(), 200 * 11_200);
    assert!(span > 2_000_000, "{span}");
    let pings: Vec<&Mark> = timeline
        .marks
        .iter()
        .filter(|mark| mark.kind == FrameKind::Ping && mark.position_bytes.unwrap() > 100)
        .collect();
    let [second, third] = pings.as_slice() else { panic!("{pings:#?}") };
    // 400 kB stood before each, at 200 kB/s: they were acknowledged 2 s later, as far as readings 0.2 s apart show.
    for ping in [second, third] {
        let waited = ping.acked_at.unwrap().ms_since(ping.at);
        assert!((1_900..2_300).contains(&waited), "{waited}");
    }
}

#[test]
fn names_are_those_that_exist() {
    let names = |list: &str| contestants(list).iter().map(Contestant::name).collect::<Vec<_>>();
    assert_eq!(
        names(
            "ws-2, ws-2:interval_ms=30000,missed=3,ackbeat-fast,ackbeat:silent_after=30s,stalled_after_ms=70000"
        ),
        [
            "ws-2",
            "ws-2:interval_ms=30000,missed=3",
            "ackbeat-fast",
            "ackbeat:silent_after_ms=30000,stalled_after_ms=70000"
        ]
    );
    assert_eq!(names("ackbeat:silent_after_ms=20000"), ["ackbeat"], "the default's own");
    assert_eq!(names("ws-2, missed=3,phi"), ["ws-2:missed=3", "phi"], "a comma goes on with the parameters");
    assert_eq!(names("ackbeat,silent_after=30s"), ["ackbeat:silent_after_ms=30000"]);
    assert!(names("all").len() > 12);
    for name in names("all") {
        assert_eq!(name.parse::<Contestant>().unwrap().name(), name);
    }
    for (list, named) in [
        ("ws-3", "ws-2"),
        ("ackbeat-slow", "ackbeat-fast"),
        ("ws-2:patience=3", "interval_ms"),
        ("ackbeat:patience=3", "silent_after_ms"),
        ("ackbeat:silent_after=never", "never"),
        ("missed=3", "ackbeat-fast"),
    ] {
        let message = Contestant::list(list).unwrap_err().to_string();
        assert!(message.contains(named), "{list}: {message}");
    }
}

#[test]
fn nobody_and_the_same_one_twice_are_refused() {
    let header = header(Policy::default_policy());
    let error = compare(&mut night().reader(&header), &[], &[]).unwrap_err();
    assert!(matches!(error, CompareError::NoContestant), "{error}");
    let error = compare(&mut night().reader(&header), &[], &contestants("ws-2,ws-2")).unwrap_err();
    assert!(error.to_string().contains("ws-2"), "{error}");
}

#[test]
fn a_bad_line_is_named() {
    let text = format!("{}sneeze\n", Night::default().text(&header(Policy::default_policy())));
    let mut reader =
        Reader::new(Path::new("night.jsonl"), Box::new(BufReader::new(Cursor::new(text)))).unwrap();
    let error = compare(&mut reader, &[], &contestants("ws-2")).unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
}
