//! Rules that hold whatever happens.

use std::collections::BTreeMap;

use ackbeat_liveness::*;
use proptest::prelude::*;

use crate::world::{Peer, World, process};

const ID: u64 = 7;
const SIBLING: u64 = 8;

/// Something that happens to a world.
#[derive(Clone, Debug)]
enum Happening {
    Run(u64),
    Write(u64),
    Ping,
    PeerWrites(u64),
    PeerReads(u64),
    PeerStops,
    PeerRecovers,
    PeerIsGone,
    Lost,
    SidecarStops(u64),
    HalfClose,
    PeerFin,
    PeerReset,
    Close,
    Exit,
    Linger,
}

fn alive_happenings() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => (10u64..3_000).prop_map(Happening::Run),
        3 => (1u64..3_000_000).prop_map(Happening::Write),
        3 => Just(Happening::Ping),
        2 => (1u64..100_000).prop_map(Happening::PeerWrites),
        1 => (1_000u64..1_000_000).prop_map(Happening::PeerReads),
        1 => Just(Happening::PeerStops),
        1 => Just(Happening::PeerRecovers),
    ]
}

fn any_happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        10 => alive_happenings(),
        2 => Just(Happening::PeerIsGone),
        1 => Just(Happening::Lost),
        1 => (100u64..20_000).prop_map(Happening::SidecarStops),
        1 => Just(Happening::HalfClose),
        1 => Just(Happening::PeerFin),
        1 => Just(Happening::PeerReset),
        1 => Just(Happening::Close),
        1 => Just(Happening::Exit),
        1 => Just(Happening::Linger),
    ]
}

fn happen(world: &mut World, happening: &Happening) {
    let state = world.sockets[&ID].state;
    let is_open = state == TcpState::Established;
    match happening {
        Happening::Run(ms) => world.run_ms(*ms),
        Happening::SidecarStops(ms) => {
            world.stopped = true;
            world.run_ms(*ms);
            world.resume();
        }
        Happening::PeerReads(speed) => world.socket(ID).peer = Peer::Reads(*speed),
        Happening::PeerStops => world.socket(ID).peer = Peer::Stopped,
        Happening::PeerRecovers => world.socket(ID).peer = Peer::Healthy,
        Happening::PeerIsGone => world.socket(ID).peer = Peer::Gone,
        Happening::Lost => world.lose_records(1),
        Happening::Write(bytes) if is_open => world.write(ID, *bytes),
        Happening::Ping if is_open => world.ping(ID),
        Happening::PeerWrites(bytes) if is_open => world.peer_writes(ID, *bytes),
        Happening::HalfClose if is_open => world.half_close(ID),
        Happening::PeerFin if is_open || state == TcpState::FinWait2 => world.peer_fin(ID),
        Happening::PeerReset if is_open => world.peer_reset(ID),
        Happening::Close if is_open || state == TcpState::CloseWait => world.close(ID),
        Happening::Exit if is_open => world.close_by(ID, process(true)),
        Happening::Linger if is_open => world.close_linger_zero(ID),
        _ => {}
    }
}

fn play(mut world: World, happenings: &[Happening]) -> World {
    world.open_websocket(ID, Peer::Healthy);
    world.open_websocket(SIBLING, Peer::Healthy);
    world.run_ms(500);
    for happening in happenings {
        happen(&mut world, happening);
    }
    world
}

/// Everything that an output says, but for the sequence numbers themselves.
fn without_sequence_numbers(outputs: &[Output]) -> Vec<Output> {
    let mut outputs = outputs.to_vec();
    for output in &mut outputs {
        if let Output::Closed(record) = output
            && let Some(snapshot) = record.snapshot.as_mut()
        {
            for seq in [&mut snapshot.write_seq, &mut snapshot.snd_nxt, &mut snapshot.snd_una] {
                *seq = None;
            }
            (snapshot.rcv_nxt, snapshot.copied_seq) = (None, None);
        }
    }
    outputs
}

const ACCUSING: [Verdict; 3] = [Verdict::Unreachable, Verdict::Silent, Verdict::Stalled];

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// A peer whose kernel answers is never unreachable, whatever its application does.
    #[test]
    fn peer_that_answers_is_never_unreachable(happenings in prop::collection::vec(alive_happenings(), 1..40)) {
        let world = play(World::new(), &happenings);
        prop_assert!(!world.verdicts(ID).contains(&Verdict::Unreachable));
        prop_assert_eq!(world.verdicts(SIBLING), vec![]);
    }

    /// A peer that reads all it gets, and answers, is only ever alive or congested.
    #[test]
    fn peer_that_keeps_up_is_alive(bytes in prop::collection::vec((1u64..2_000_000, 10u64..3_000), 1..30)) {
        let mut world = World::new();
        world.open_websocket(ID, Peer::Healthy);
        world.watchdog(2_000);
        for (bytes, ms) in bytes {
            world.write(ID, bytes);
            world.run_ms(ms);
            prop_assert!(!world.assessed(ID).kill_justified);
        }
        prop_assert!(world.verdicts(ID).iter().all(|verdict| matches!(verdict, Verdict::Alive | Verdict::Congested)));
    }

    /// Fresh progress is never called unreachable, silent or stalled: as long as data waits and a slow reader reads.
    #[test]
    fn peer_that_progresses_is_never_accused(speed in 5_000u64..1_000_000) {
        let mut world = World::new();
        world.open_websocket(ID, Peer::Reads(speed));
        world.write(ID, 28_000_000);
        world.ping(ID);
        world.run_ms(20_000);
        for verdict in world.verdicts(ID) {
            prop_assert!(!ACCUSING.contains(&verdict), "{verdict}");
        }
    }

    /// One record for each connection that was opened, and one `Closing` at most; time alone adds nothing.
    #[test]
    fn exactly_one_record(happenings in prop::collection::vec(any_happening(), 1..40)) {
        let mut world = play(World::new(), &happenings);
        let mut now = world.at();
        world.engine.shut_down(now);
        for _ in 0..20 {
            now = now.plus_ms(5_000);
            world.engine.handle_timeout(now);
        }
        while let Some(output) = world.engine.poll() {
            world.outputs.push(output);
        }
        for id in [ID, SIBLING] {
            prop_assert!(world.record(id).is_some());
            let closings = world.outputs.iter().filter(|output| {
                matches!(output, Output::Closing { connection, .. } if *connection == ConnectionId(id))
            });
            prop_assert!(closings.count() <= 1);
        }
        prop_assert_eq!(world.engine.poll_timeout(), None);
    }

    /// A second close never comes out of time alone.
    #[test]
    fn time_without_input_closes_once(happenings in prop::collection::vec(any_happening(), 1..20)) {
        let mut world = play(World::new(), &happenings);
        let before = world.closing(ID).is_some();
        let mut closings = 0;
        for _ in 0..50 {
            let Some(at) = world.engine.poll_timeout() else { break };
            world.engine.handle_timeout(at);
            while let Some(output) = world.engine.poll() {
                closings += u32::from(matches!(output, Output::Closing { .. }));
            }
        }
        prop_assert!(closings <= u32::from(!before));
    }

    /// Sequence numbers wrap: where they start changes nothing.
    #[test]
    fn sequence_numbers_may_start_anywhere(
        shift in prop_oneof![
            any::<u32>(),
            (0u32..8_000_000).prop_map(|before| u32::MAX - before),
            (0u32..8_000_000).prop_map(|before| (1 << 31) - before),
        ],
        happenings in prop::collection::vec(any_happening(), 1..30),
    ) {
        let plain = play(World::new(), &happenings);
        let shifted = play(World::shifted(shift), &happenings);
        prop_assert_eq!(without_sequence_numbers(&plain.outputs), without_sequence_numbers(&shifted.outputs));
    }

    /// The same inputs give the same outputs.
    #[test]
    fn deterministic(happenings in prop::collection::vec(any_happening(), 1..30)) {
        prop_assert_eq!(play(World::new(), &happenings).outputs, play(World::new(), &happenings).outputs);
    }

    /// A sidecar that was stopped accuses nobody when it runs again.
    #[test]
    fn late_tick_accuses_nobody(
        happenings in prop::collection::vec(alive_happenings(), 1..20),
        gone in any::<bool>(),
        stopped_ms in 3_000u64..120_000,
    ) {
        let mut world = play(World::new(), &happenings);
        if gone {
            world.socket(ID).peer = Peer::Gone;
        }
        world.ping(ID);
        world.run_ms(300);
        let before = world.assessed(ID).verdict;
        world.stopped = true;
        world.run_ms(stopped_ms);
        world.resume();
        let seen = world.outputs.len();
        world.run_ms(500);
        let assessed = world.assessed(ID);
        prop_assert!(!ACCUSING.contains(&assessed.verdict) || before == assessed.verdict, "{:?}", assessed);
        prop_assert!(!assessed.kill_justified);
        for output in &world.outputs[seen..] {
            if let Output::VerdictChanged(change) = output {
                prop_assert!(!ACCUSING.contains(&change.to) && !change.kill_justified);
            }
        }
    }

    /// After lost records a close accuses nobody until the wire is seen again.
    #[test]
    fn lost_records_accuse_nobody(
        happenings in prop::collection::vec(alive_happenings(), 1..20),
        wait_ms in 10u64..20_000,
    ) {
        let mut world = play(World::new(), &happenings);
        world.socket(ID).peer = Peer::Stopped;
        world.run_ms(1_000);
        world.lose_records(1);
        let seen = world.outputs.len();
        world.run_ms(wait_ms);
        let frames_since = world.frames_since_loss(ID);
        world.close(ID);
        let record = world.run_to_record(ID);
        if frames_since == 0 {
            prop_assert!(record.kind != CloseKind::HeartbeatKill && record.kind != CloseKind::Abort);
            prop_assert_eq!(record.assessment, Some(Assessment::Unknown));
            let silent = world.outputs[seen..].iter().any(|output| {
                matches!(output, Output::VerdictChanged(change) if change.to == Verdict::Silent)
            });
            prop_assert!(!silent);
        }
    }

    /// What the engine says when it is asked is what it said last, at every call; and it never says the same twice.
    #[test]
    fn answers_agree_with_outputs(happenings in prop::collection::vec(any_happening(), 1..40)) {
        let mut world = play(World::new(), &happenings);
        // A sidecar that was stopped to the end takes what waits for it.
        world.run_ms(10);
        let mut said = Said::default();
        for output in &world.outputs {
            said.hear(output);
        }
        said.agree(&world.engine, world.at());
    }

    /// Numbers that the kernel does not give are unknown, never dead.
    #[test]
    fn unknown_is_never_dead(present in any::<u16>(), steps in 1usize..100) {
        let mut world = World::new();
        world.open_websocket(ID, Peer::Gone);
        world.ping(ID);
        for _ in 0..steps {
            world.run_ms_unsampled(200);
            let mut snapshot = world.snapshot(ID);
            let has = |bit: u16| present & (1 << bit) != 0;
            // What absence is judged by is never all there.
            snapshot.last_ack_at = None;
            if !has(0) { snapshot.snd_una = None; }
            if !has(1) { snapshot.snd_nxt = None; }
            if !has(2) { snapshot.snd_wnd_bytes = None; }
            if !has(3) { snapshot.send_queue_bytes = None; }
            if !has(4) { snapshot.packets_out = None; }
            if !has(5) { snapshot.retransmits = None; }
            if !has(6) { snapshot.probes_out = None; }
            if !has(7) { snapshot.bytes_received = None; }
            if !has(8) { snapshot.retransmitting_since = None; }
            if !has(9) { snapshot.unsent_bytes = None; }
            if !has(10) { snapshot.rto_ms = None; }
            world.give(Input::Sample(snapshot));
        }
        for verdict in world.verdicts(ID) {
            prop_assert!(matches!(verdict, Verdict::Alive | Verdict::Unknown | Verdict::Congested), "{verdict}");
        }
    }
}

// ---- any input in any order -----------------------------------------------------------------------------------------

fn seq() -> impl Strategy<Value = Option<Seq>> {
    prop::option::of(prop_oneof![any::<u32>(), 0u32..5_000, (u32::MAX - 5_000)..=u32::MAX].prop_map(Seq))
}

fn moment() -> impl Strategy<Value = Timestamp> {
    prop_oneof![9 => (0u64..200_000).prop_map(Timestamp::from_ms), 1 => any::<u64>().prop_map(Timestamp::from_ns)]
}

fn state() -> impl Strategy<Value = TcpState> {
    prop::sample::select(&TcpState::ALL)
}

fn connection() -> impl Strategy<Value = ConnectionId> {
    (1u64..4).prop_map(ConnectionId)
}

fn direction() -> impl Strategy<Value = Direction> {
    prop::sample::select(vec![Direction::Ingress, Direction::Egress])
}

prop_compose! {
    fn snapshot()(
        connection in connection(),
        at in moment(),
        state in state(),
        (write_seq, snd_nxt, snd_una, rcv_nxt, copied_seq) in (seq(), seq(), seq(), seq(), seq()),
        (window, queue, unsent, unread) in (
            prop::option::of(any::<u32>()), prop::option::of(any::<u32>()),
            prop::option::of(any::<u32>()), prop::option::of(any::<u32>())),
        (ack, send, inbound, since) in (
            prop::option::of(moment()), prop::option::of(moment()),
            prop::option::of(moment()), prop::option::of(moment())),
        (acked, received) in (prop::option::of(any::<u64>()), prop::option::of(any::<u64>())),
        (retransmits, probes, backoff, shutdown) in (
            prop::option::of(any::<u8>()), prop::option::of(any::<u8>()),
            prop::option::of(any::<u8>()), prop::option::of(0u8..4)),
        error in prop::option::of(prop::sample::select(vec![0u32, 32, 103, 104, 110, 113])),
        (srtt, rto, packets, total) in (
            prop::option::of(any::<u32>()), prop::option::of(any::<u32>()),
            prop::option::of(any::<u32>()), prop::option::of(any::<u32>())),
    ) -> Snapshot {
        Snapshot {
            connection, at, state, write_seq, snd_nxt, snd_una, snd_wnd_bytes: window, rcv_nxt, copied_seq,
            send_queue_bytes: queue, unsent_bytes: unsent, unread_bytes: unread, last_ack_at: ack, last_send_at: send,
            last_inbound_at: inbound, bytes_acked: acked, bytes_received: received, srtt_us: srtt, rto_ms: rto,
            backoff, retransmits, probes_out: probes, packets_out: packets, total_retransmits: total,
            retransmitting_since: since, socket_error: error, soft_error: error, shutdown, queued_memory_bytes: None,
        }
    }
}

fn opened() -> impl Strategy<Value = Input> {
    (connection(), moment(), any::<bool>(), any::<bool>()).prop_map(
        |(connection, at, preexisting, client)| {
            let address = core::net::IpAddr::from([10, 0, 0, 1]);
            Input::Opened(Opened {
                connection,
                at,
                endpoints: Endpoints {
                    local_address: address,
                    local_port: 80,
                    peer_address: address,
                    peer_port: 81,
                },
                role: if client { Role::Client } else { Role::Server },
                preexisting,
                frames_visible: true,
            })
        },
    )
}

fn frame() -> impl Strategy<Value = Input> {
    let kinds = prop::sample::select(vec![FrameKind::Ping, FrameKind::Pong, FrameKind::Close]);
    let looks = (prop::sample::select(HeartbeatProfile::ALL.to_vec()), prop::collection::vec(0u8..2, 0..2));
    (connection(), moment(), direction(), kinds, seq(), seq(), looks).prop_map(
        |(connection, at, direction, kind, seq_start, seq_end, (profile, payload))| {
            Input::Frame(Frame {
                connection,
                at,
                direction,
                kind,
                profile,
                seq_start,
                seq_end,
                payload,
                close_code: None,
                close_reason: None,
            })
        },
    )
}

fn any_input() -> BoxedStrategy<Input> {
    // Boxed: the trees of so many parts need more stack than a test thread has.
    let snapshot = || snapshot().boxed();
    prop_oneof![
        3 => opened(),
        6 => snapshot().prop_map(Input::Sample),
        6 => (state(), snapshot(), prop::option::of(any::<bool>())).prop_map(|(old_state, snapshot, exiting)| {
            let process = exiting.and_then(process);
            Input::Transition(Transition { old_state, new_state: snapshot.state, process, snapshot })
        }),
        3 => (connection(), moment(), direction(), any::<bool>()).prop_map(|(connection, at, direction, answers)| {
            Input::Reset(Reset { connection, at, direction, answers_segment: answers, reason: None })
        }),
        6 => frame(),
        2 => (connection(), moment(), direction(), any::<bool>()).prop_map(
            |(connection, at, direction, synchronized)| {
                Input::Synchronization(Synchronization { connection, at, direction, synchronized, reason: None })
            }
        ),
        1 => (connection(), moment()).prop_map(|(connection, at)| {
            Input::Upgrade(Upgrade { connection, at, path: None, traceparent: None, forwarding_headers: vec![] })
        }),
        1 => (connection(), moment()).prop_map(|(connection, at)| Input::Outstanding { connection, at }),
        1 => (connection(), moment()).prop_map(|(connection, at)| Input::ProbeSent { connection, at }),
        1 => (moment(), any::<u64>()).prop_map(|(at, count)| Input::RecordsLost { at, count }),
        2 => (moment(), moment()).prop_map(|(began_at, at)| Input::SamplingDone { began_at, at }),
    ]
    .boxed()
}

/// What was said last of each connection.
#[derive(Default)]
struct Said(BTreeMap<ConnectionId, (Verdict, bool)>);

impl Said {
    fn hear(&mut self, output: &Output) {
        match output {
            Output::VerdictChanged(change) => {
                let now = (change.to, change.kill_justified);
                let before = self.0.insert(change.connection, now);
                assert_ne!(before, Some(now), "the same twice");
                assert_eq!(before.map_or(change.from, |(verdict, _)| verdict), change.from);
                assert!(before.is_some() || change.from != change.to || change.kill_justified);
            }
            Output::Closing { connection, .. } => {
                self.0.insert(*connection, (Verdict::Closed, false));
            }
            Output::Closed(record) => {
                self.0.remove(&record.connection);
            }
            Output::Answered(_)
            | Output::ProbeWanted(_)
            | Output::Reconnected(_)
            | Output::Leak(_)
            | Output::ReapWanted(_) => {}
        }
    }

    /// At a moment at which the engine has nothing left to do.
    fn agree(&self, engine: &Engine, now: Timestamp) {
        for info in engine.connections() {
            let assessed = engine.assess(info.connection, now).unwrap();
            let start = if info.preexisting { Verdict::Unknown } else { Verdict::Alive };
            let said = self.0.get(&info.connection).copied().unwrap_or((start, false));
            if said.0 == Verdict::Closed || assessed.verdict == Verdict::Closed {
                // Between the socket's end and the decision what it was, the last verdict is still the last word.
                assert_eq!(assessed.verdict, Verdict::Closed);
                continue;
            }
            assert_eq!((assessed.verdict, assessed.kill_justified), said, "{info:?} at {now:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// What the engine says when it is asked is what it said last, whatever it was told, in any order, at any policy.
    #[test]
    fn any_answer_agrees_with_the_last_output(
        inputs in prop::collection::vec((any_input(), prop::option::of(moment())), 1..80),
        fast in any::<bool>(),
    ) {
        let mut engine = Engine::new(if fast { Policy::fast_policy() } else { Policy::default_policy() });
        let mut said = Said::default();
        let mut now = Timestamp::default();
        for (input, timeout) in inputs {
            now = now.max(input.at());
            engine.handle_input(input);
            while let Some(output) = engine.poll() {
                said.hear(&output);
            }
            // As a driver does: what is due is handled before anything is asked.
            for at in [Some(now), timeout].into_iter().flatten() {
                now = now.max(at);
                engine.handle_timeout(now);
                while let Some(output) = engine.poll() {
                    said.hear(&output);
                }
                said.agree(&engine, now);
            }
            // And up to its next deadline nothing changes by itself.
            if let Some(deadline) = engine.poll_timeout() {
                said.agree(&engine, Timestamp::from_ns(deadline.as_ns() - 1));
            }
        }
    }

    /// No input in any order panics, and each connection that was taken in gets exactly one record.
    #[test]
    fn any_inputs_in_any_order(
        inputs in prop::collection::vec((any_input(), prop::option::of(moment())), 1..80),
    ) {
        let mut engine = Engine::new(Policy::default());
        engine.set_window_probes(Some(WindowProbes::default()));
        let mut open: BTreeMap<ConnectionId, u32> = BTreeMap::new();
        let mut records = 0u64;
        let mut take = |engine: &mut Engine, open: &mut BTreeMap<ConnectionId, u32>| {
            while let Some(output) = engine.poll() {
                match output {
                    Output::Closing { connection, .. } => *open.entry(connection).or_default() += 1,
                    Output::Closed(record) => {
                        records += 1;
                        let closings = open.remove(&record.connection).unwrap_or(0);
                        assert!(closings == u32::from(!record.still_open));
                        assert!(record.last_proof_of_life_at <= record.closed_at.max(record.opened_at));
                        assert!(record.ended_at >= record.closed_at);
                        assert_eq!(record.postmortem.is_some(), record.initiator == CloseInitiator::Host);
                    }
                    Output::VerdictChanged(_)
                    | Output::Answered(_)
                    | Output::ProbeWanted(_)
                    | Output::Reconnected(_)
                    | Output::Leak(_)
                    | Output::ReapWanted(_) => {}
                }
            }
        };
        for (input, timeout) in inputs {
            engine.handle_input(input);
            take(&mut engine, &mut open);
            if let Some(at) = timeout {
                engine.handle_timeout(at);
                take(&mut engine, &mut open);
                assert!(engine.poll_timeout().is_none_or(|deadline| deadline > at));
            }
            let _ = engine.next_sample_at();
            for id in 1..4 {
                let _ = engine.assess(ConnectionId(id), Timestamp::from_ms(200_000));
            }
        }
        engine.shut_down(Timestamp::from_ms(300_000));
        take(&mut engine, &mut open);
        let counters = engine.counters();
        prop_assert_eq!(records, counters.connections_opened);
        prop_assert_eq!(counters.connections_closed, counters.connections_opened);
        prop_assert_eq!(engine.connections().count(), 0);
        prop_assert!(engine.poll_timeout().is_none() && engine.next_sample_at().is_none());
    }
}
