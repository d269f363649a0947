//! A small world for scenarios: sockets that behave as the kernel's do, peers that read or do not, a host with a
//! heartbeat watchdog, and a driver that runs the engine as the sidecar does.
//!
//! Time goes in steps of 10 ms. Timers are those that were measured on a LAN: first retransmission after 204 ms,
//! doubling; window probes the same way.

use std::collections::{BTreeMap, VecDeque};

use ackbeat_liveness::*;

pub(crate) const STEP_MS: u64 = 10;
pub(crate) const START_MS: u64 = 1_000_000;
const RTO_MS: u64 = 204;
const SEGMENT: u64 = 1_460;

/// The code of a Close frame that has none (RFC 6455 section 7.4.1: it is never on the wire).
pub(crate) const NO_CODE: u16 = 1005;

/// What the peer does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Peer {
    /// Reads at once and answers Pings.
    Healthy,
    /// Reads this many bytes a second; answers a Ping once it has read it.
    Reads(u64),
    /// Its kernel acknowledges, its application does nothing.
    Stopped,
    /// Reads everything and never writes anything.
    Mute,
    /// Nothing comes from it any more.
    Gone,
}

/// What waits in a stream, with the bytes that it takes.
#[derive(Clone, Debug)]
enum Piece {
    Data(u64),
    Ping,
    Close(u16, &'static str),
}

impl Piece {
    fn bytes(&self) -> u64 {
        match self {
            Self::Data(bytes) => *bytes,
            Self::Ping => 2,
            Self::Close(_, reason) => 4 + reason.len() as u64,
        }
    }
}

pub(crate) struct Socket {
    pub(crate) id: ConnectionId,
    pub(crate) peer: Peer,
    pub(crate) state: TcpState,
    /// The host's event loop hangs: it reads nothing and its watchdog does not tick.
    pub(crate) blocked: bool,
    /// The host reads nothing, but its watchdog ticks.
    pub(crate) paused: bool,
    pub(crate) shutdown: u8,
    pub(crate) error: u32,
    /// The host's own queue, before the kernel.
    backlog: VecDeque<Piece>,
    /// Control frames in the kernel's queue: start, end.
    frames: VecDeque<(u64, u64, Piece)>,
    /// Control frames on their way to the peer's application.
    unread_by_peer: VecDeque<(u64, Piece)>,
    pub(crate) write_seq: u64,
    pub(crate) snd_nxt: u64,
    pub(crate) snd_una: u64,
    read_by_peer: u64,
    budget: u64,
    pub(crate) edge: u64,
    receive_buffer: u64,
    send_buffer: u64,
    pub(crate) received: u64,
    pub(crate) copied: u64,
    fin: bool,
    fin_at: Option<u64>,
    pub(crate) last_ack: u64,
    pub(crate) last_inbound: u64,
    last_send: u64,
    timer_at: Option<u64>,
    pub(crate) retransmits: u8,
    pub(crate) probes_out: u8,
    pub(crate) backoff: u8,
    pub(crate) srtt_us: u32,
    pub(crate) total_retransmits: u32,
    pub(crate) retransmitting_since: Option<u64>,
    missed: u32,
    watched: bool,
}

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) now: u64,
    pub(crate) sockets: BTreeMap<u64, Socket>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) samples: u64,
    /// Those that came sooner than the policy's interval after the one before.
    pub(crate) early_samples: u64,
    /// Added to every sequence number.
    pub(crate) shift: u32,
    /// The sidecar is stopped: nothing reaches the engine.
    pub(crate) stopped: bool,
    /// The source of connections that are opened from now on would see their frames.
    pub(crate) frames_visible: bool,
    /// The wire parser has lost its place in the host's direction of every socket but 8.
    pub(crate) hidden: bool,
    /// Frames that the engine was told of since records were lost.
    frames_since_loss: BTreeMap<u64, u64>,
    waiting: VecDeque<Input>,
    interval: Option<(u64, u64)>,
    pub(crate) tolerance: u32,
    pub(crate) port: u16,
    /// How heartbeats look.
    pub(crate) profile: HeartbeatProfile,
    /// When the sampler last looked, in milliseconds.
    pub(crate) last_pass: u64,
    /// Peers answer own window probes, as RFC 9293 asks; else they drop them, as RFC 7323 allows.
    pub(crate) probes_answered: bool,
    /// Own window probes leave the host.
    pub(crate) probes_sent: bool,
    /// Every input as the engine had it, and each call of `handle_timeout`.
    pub(crate) told: Vec<Told>,
}

/// A call of the engine.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Input(Box<Input>),
    Timeout(Timestamp),
}

/// A number that fits; sequence numbers of a scenario stay below 4 GiB.
fn low(number: u64) -> u32 {
    u32::try_from(number).unwrap()
}

pub(crate) fn process(exiting: bool) -> Option<Process> {
    Some(Process { pid: 4242, command: "node".into(), exiting, ancestors: Vec::new() })
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with_policy(Policy::default_policy())
    }

    pub(crate) fn with_policy(policy: Policy) -> Self {
        Self {
            engine: Engine::new(policy),
            now: START_MS,
            sockets: BTreeMap::new(),
            outputs: Vec::new(),
            samples: 0,
            early_samples: 0,
            shift: 0,
            stopped: false,
            frames_visible: true,
            hidden: false,
            frames_since_loss: BTreeMap::new(),
            waiting: VecDeque::new(),
            interval: None,
            tolerance: 2,
            port: 8080,
            profile: HeartbeatProfile::Rfc6455,
            last_pass: 0,
            probes_answered: true,
            probes_sent: true,
            told: Vec::new(),
        }
    }

    pub(crate) fn shifted(shift: u32) -> Self {
        Self { shift, ..Self::new() }
    }

    pub(crate) fn at(&self) -> Timestamp {
        Timestamp::from_ms(self.now)
    }

    pub(crate) fn give(&mut self, input: Input) {
        if self.stopped {
            self.waiting.push_back(input);
            return;
        }
        self.take(input);
    }

    fn take(&mut self, input: Input) {
        match &input {
            Input::RecordsLost { .. } => self.frames_since_loss.clear(),
            Input::Frame(frame) => *self.frames_since_loss.entry(frame.connection.0).or_default() += 1,
            _ => {}
        }
        self.told.push(Told::Input(Box::new(input.clone())));
        self.engine.handle_input(input);
        self.drain();
    }

    /// The prober: what was asked for leaves the host, and a peer that is there may answer at once.
    fn send_probe(&mut self, wanted: &ProbeWanted) {
        let at = self.at();
        let (seq, ack) = {
            let socket = &self.sockets[&wanted.connection.0];
            assert_eq!(socket.snd_nxt, socket.snd_una, "something is in flight");
            (self.seq(socket.snd_una).minus(1), self.seq(socket.received))
        };
        assert_eq!((wanted.seq, wanted.ack, wanted.at), (seq, ack, at));
        if !self.probes_sent {
            return;
        }
        let is_answered = self.probes_answered;
        let now = self.now;
        let socket = self.socket(wanted.connection.0);
        if is_answered && socket.peer != Peer::Gone {
            socket.last_ack = now;
            socket.probes_out = 0;
            // `tcp_ack_probe()` starts the persist timer anew.
            socket.timer_at = Some(now + (RTO_MS << socket.backoff.min(9)));
        }
        self.take(Input::ProbeSent { connection: wanted.connection, at });
    }

    pub(crate) fn frames_since_loss(&self, id: u64) -> u64 {
        self.frames_since_loss.get(&id).copied().unwrap_or(0)
    }

    fn drain(&mut self) {
        while let Some(output) = self.engine.poll() {
            let wanted = match &output {
                Output::ProbeWanted(wanted) => Some(*wanted),
                _ => None,
            };
            self.outputs.push(output);
            if let Some(wanted) = wanted {
                self.send_probe(&wanted);
            }
        }
    }

    fn seq(&self, relative: u64) -> Seq {
        Seq(low(relative).wrapping_add(self.shift))
    }

    // ---- what happens -----------------------------------------------------------------------------------------

    /// A connection without an upgrade.
    pub(crate) fn open(&mut self, id: u64, peer: Peer) {
        self.open_as(id, peer, false);
    }

    pub(crate) fn open_as(&mut self, id: u64, peer: Peer, preexisting: bool) {
        let receive_buffer = 400_000;
        self.sockets.insert(
            id,
            Socket {
                id: ConnectionId(id),
                peer,
                state: TcpState::Established,
                blocked: false,
                paused: false,
                shutdown: 0,
                error: 0,
                backlog: VecDeque::new(),
                frames: VecDeque::new(),
                unread_by_peer: VecDeque::new(),
                write_seq: 0,
                snd_nxt: 0,
                snd_una: 0,
                read_by_peer: 0,
                budget: 0,
                edge: receive_buffer,
                receive_buffer,
                send_buffer: 2_500_000,
                received: 0,
                copied: 0,
                fin: false,
                fin_at: None,
                last_ack: self.now,
                last_inbound: self.now,
                last_send: self.now,
                timer_at: None,
                retransmits: 0,
                probes_out: 0,
                backoff: 0,
                srtt_us: 100,
                total_retransmits: 0,
                retransmitting_since: None,
                missed: 0,
                watched: false,
            },
        );
        let address = core::net::IpAddr::from([10, 0, 0, 1]);
        self.give(Input::Opened(Opened {
            connection: ConnectionId(id),
            at: self.at(),
            endpoints: Endpoints {
                local_address: address,
                local_port: self.port,
                peer_address: core::net::IpAddr::from([10, 0, 0, 2]),
                peer_port: 40_000 + u16::try_from(id).unwrap(),
            },
            role: Role::Server,
            preexisting,
            frames_visible: self.frames_visible,
        }));
    }

    /// A connection that is upgraded to WebSocket, and watched by the host's watchdog if there is one.
    pub(crate) fn open_websocket(&mut self, id: u64, peer: Peer) {
        self.open(id, peer);
        self.upgrade(id, &[]);
    }

    pub(crate) fn upgrade(&mut self, id: u64, forwarding: &[&str]) {
        self.socket(id).watched = true;
        let socket = self.socket(id);
        socket.received += 300;
        socket.copied += 300;
        let upgrade = Upgrade {
            connection: ConnectionId(id),
            at: self.at(),
            path: Some("/api/remote.mux".into()),
            traceparent: None,
            forwarding_headers: forwarding.iter().map(|name| (*name).into()).collect(),
        };
        self.give(Input::Upgrade(upgrade));
    }

    /// Starts the host's watchdog of report A: each `interval_ms` for every socket, terminate if two are missed.
    pub(crate) fn watchdog(&mut self, interval_ms: u64) {
        self.interval = Some((interval_ms, self.now + interval_ms));
    }

    pub(crate) fn socket(&mut self, id: u64) -> &mut Socket {
        self.sockets.get_mut(&id).expect("socket")
    }

    /// The host's application writes.
    pub(crate) fn write(&mut self, id: u64, bytes: u64) {
        self.socket(id).backlog.push_back(Piece::Data(bytes));
        self.flush(id);
    }

    pub(crate) fn ping(&mut self, id: u64) {
        self.socket(id).backlog.push_back(Piece::Ping);
        self.flush(id);
    }

    pub(crate) fn close_frame(&mut self, id: u64, code: u16, reason: &'static str) {
        self.socket(id).backlog.push_back(Piece::Close(code, reason));
        self.flush(id);
    }

    /// The peer's application writes payload.
    pub(crate) fn peer_writes(&mut self, id: u64, bytes: u64) {
        let now = self.now;
        let socket = self.socket(id);
        if socket.state == TcpState::Close {
            return;
        }
        if socket.shutdown == 3 {
            // An orphan refuses late payload with a RST.
            self.reset(id, Direction::Ingress, false);
            self.transition(id, TcpState::Close, None);
            self.reset(id, Direction::Egress, true);
            return;
        }
        socket.received += bytes;
        socket.last_inbound = now;
        socket.last_ack = now;
        if !socket.blocked && !socket.paused {
            socket.copied = socket.received;
        }
    }

    pub(crate) fn peer_frame(&mut self, id: u64, kind: FrameKind, code: Option<u16>) {
        let start = self.socket(id).received;
        let frame = self.frame(id, Direction::Ingress, kind, start, start + 2, code, "");
        self.give(Input::Frame(frame));
        self.peer_writes(id, 2);
    }

    /// The host answers a Ping of the peer.
    pub(crate) fn answer(&mut self, id: u64) {
        let start = self.socket(id).write_seq;
        let frame = self.frame(id, Direction::Egress, FrameKind::Pong, start, start + 2, None, "");
        self.write(id, 2);
        self.give(Input::Frame(frame));
    }

    /// The host tells of a Ping or Pong that it saw itself this long ago.
    pub(crate) fn report(&mut self, id: u64, kind: FrameKind, age_ms: u64, payload: &[u8]) {
        let direction = if kind == FrameKind::Ping { Direction::Egress } else { Direction::Ingress };
        if !self.stopped {
            // What is told may be old, the engine has to know how old.
            let now = self.at();
            self.told.push(Told::Timeout(now));
            self.engine.handle_timeout(now);
            self.drain();
        }
        self.give(Input::Frame(Frame {
            at: Timestamp::from_ms(self.now - age_ms),
            profile: HeartbeatProfile::Rfc6455,
            seq_start: None,
            seq_end: None,
            payload: payload.to_vec(),
            ..self.frame(id, direction, kind, 0, 0, None, "")
        }));
    }

    #[expect(clippy::too_many_arguments, reason = "a frame has this many parts")]
    fn frame(
        &self,
        id: u64,
        direction: Direction,
        kind: FrameKind,
        start: u64,
        end: u64,
        code: Option<u16>,
        reason: &str,
    ) -> Frame {
        Frame {
            connection: ConnectionId(id),
            at: self.at(),
            direction,
            kind,
            profile: self.profile,
            seq_start: Some(self.seq(start)),
            seq_end: Some(self.seq(end)),
            payload: Vec::new(),
            close_code: code,
            close_reason: (!reason.is_empty()).then(|| reason.into()),
        }
    }

    /// The host closes the socket: FIN, or RST where something lies unread.
    pub(crate) fn close(&mut self, id: u64) {
        self.close_by(id, process(false));
    }

    pub(crate) fn close_by(&mut self, id: u64, process: Option<Process>) {
        let socket = self.socket(id);
        socket.backlog.clear();
        socket.shutdown = 3;
        if socket.received > socket.copied {
            self.transition(id, TcpState::Close, process);
            self.reset(id, Direction::Egress, false);
            return;
        }
        let next = if socket.state == TcpState::CloseWait { TcpState::LastAck } else { TcpState::FinWait1 };
        if socket.state == TcpState::FinWait2 {
            self.transition(id, TcpState::Close, process);
            return;
        }
        self.transition(id, next, process);
        self.queue_fin(id);
    }

    /// `shutdown(SHUT_WR)`.
    pub(crate) fn half_close(&mut self, id: u64) {
        self.socket(id).shutdown = 2;
        self.transition(id, TcpState::FinWait1, process(false));
        self.queue_fin(id);
    }

    fn queue_fin(&mut self, id: u64) {
        let socket = self.socket(id);
        if !socket.fin {
            socket.fin = true;
            socket.write_seq += 1;
            socket.fin_at = Some(socket.write_seq);
        }
        self.transmit(id);
    }

    /// `SO_LINGER` with 0, then `close()`.
    pub(crate) fn close_linger_zero(&mut self, id: u64) {
        self.socket(id).shutdown = 3;
        self.transition(id, TcpState::Close, process(false));
        self.reset(id, Direction::Egress, false);
    }

    pub(crate) fn peer_fin(&mut self, id: u64) {
        let now = self.now;
        let socket = self.socket(id);
        socket.received += 1;
        socket.copied = socket.received;
        socket.last_ack = now;
        socket.shutdown |= 1;
        match socket.state {
            TcpState::FinWait1 => self.transition(id, TcpState::Closing, None),
            TcpState::FinWait2 => self.transition(id, TcpState::Close, None),
            _ => self.transition(id, TcpState::CloseWait, None),
        }
    }

    pub(crate) fn peer_reset(&mut self, id: u64) {
        self.reset(id, Direction::Ingress, false);
        self.socket(id).error = 104;
        self.transition(id, TcpState::Close, None);
    }

    pub(crate) fn kernel_gives_up(&mut self, id: u64, error: u32) {
        self.socket(id).error = error;
        self.transition(id, TcpState::Close, None);
    }

    pub(crate) fn reset(&mut self, id: u64, direction: Direction, answers_segment: bool) {
        let at = self.at();
        self.give(Input::Reset(Reset {
            connection: ConnectionId(id),
            at,
            direction,
            answers_segment,
            reason: None,
        }));
    }

    pub(crate) fn transition(&mut self, id: u64, new_state: TcpState, process: Option<Process>) {
        let old_state = core::mem::replace(&mut self.socket(id).state, new_state);
        let snapshot = self.snapshot(id);
        self.give(Input::Transition(Transition { old_state, new_state, process, snapshot }));
    }

    pub(crate) fn lose_records(&mut self, count: u64) {
        let at = self.at();
        self.give(Input::RecordsLost { at, count });
    }

    pub(crate) fn synchronize(&mut self, id: u64, direction: Direction, synchronized: bool) {
        let at = self.at();
        let reason = (!synchronized).then(|| "hole".into());
        self.give(Input::Synchronization(Synchronization {
            connection: ConnectionId(id),
            at,
            direction,
            synchronized,
            reason,
        }));
    }

    pub(crate) fn snapshot(&self, id: u64) -> Snapshot {
        let socket = &self.sockets[&id];
        let probing = socket.write_seq > socket.snd_nxt && socket.snd_nxt == socket.snd_una;
        Snapshot {
            connection: socket.id,
            at: self.at(),
            state: socket.state,
            write_seq: Some(self.seq(socket.write_seq)),
            snd_nxt: Some(self.seq(socket.snd_nxt)),
            snd_una: Some(self.seq(socket.snd_una)),
            snd_wnd_bytes: Some(low(socket.edge - socket.snd_una.min(socket.edge))),
            rcv_nxt: Some(self.seq(socket.received)),
            copied_seq: Some(self.seq(socket.copied)),
            send_queue_bytes: Some(low(socket.write_seq - socket.snd_una)),
            unsent_bytes: Some(low(socket.write_seq - socket.snd_nxt)),
            unread_bytes: Some(low(socket.received - socket.copied)),
            last_ack_at: Some(Timestamp::from_ms(socket.last_ack)),
            last_send_at: Some(Timestamp::from_ms(socket.last_send)),
            last_inbound_at: Some(Timestamp::from_ms(socket.last_inbound)),
            bytes_acked: Some(socket.snd_una),
            bytes_received: Some(socket.received),
            srtt_us: Some(socket.srtt_us),
            rto_ms: Some(low(RTO_MS << socket.retransmits.min(9))),
            backoff: Some(socket.backoff),
            retransmits: Some(socket.retransmits),
            probes_out: Some(socket.probes_out),
            packets_out: Some(if probing {
                0
            } else {
                low((socket.snd_nxt - socket.snd_una).div_ceil(SEGMENT))
            }),
            total_retransmits: Some(socket.total_retransmits),
            retransmitting_since: socket.retransmitting_since.map(Timestamp::from_ms),
            socket_error: Some(socket.error),
            soft_error: Some(0),
            shutdown: Some(socket.shutdown),
            queued_memory_bytes: None,
        }
    }

    // ---- how it goes on ---------------------------------------------------------------------------------------

    pub(crate) fn run_ms(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.step();
        }
    }

    /// Time goes on, but no pass of the sampler runs.
    pub(crate) fn run_ms_unsampled(&mut self, ms: u64) {
        for _ in 0..ms / STEP_MS {
            self.now += STEP_MS;
            let ids: Vec<u64> = self.sockets.keys().copied().collect();
            for id in ids {
                self.live(id);
            }
        }
    }

    /// Runs until the connection's record is out.
    pub(crate) fn run_to_record(&mut self, id: u64) -> CloseRecord {
        for _ in 0..12_000 {
            if let Some(record) = self.record(id) {
                return record;
            }
            self.step();
        }
        panic!("no record of connection {id} within two minutes: {:#?}", self.outputs.last());
    }

    /// Runs until the host has closed the connection.
    pub(crate) fn run_to_close(&mut self, id: u64) {
        for _ in 0..12_000 {
            if self.closing(id).is_some() {
                return;
            }
            self.step();
        }
        panic!("connection {id} was not closed within two minutes");
    }

    pub(crate) fn step(&mut self) {
        self.now += STEP_MS;
        let ids: Vec<u64> = self.sockets.keys().copied().collect();
        for id in &ids {
            if self.sockets[id].state != TcpState::Close {
                self.live(*id);
            }
        }
        if let Some((interval, next)) = self.interval
            && self.now >= next
        {
            self.interval = Some((interval, next + interval));
            self.tick(&ids);
        }
        self.drive();
    }

    fn tick(&mut self, ids: &[u64]) {
        let mut kills = Vec::new();
        for id in ids {
            let tolerance = self.tolerance;
            let socket = self.socket(*id);
            if !socket.watched || socket.state != TcpState::Established || socket.blocked {
                continue;
            }
            if socket.missed >= tolerance {
                kills.push(*id);
            } else {
                socket.missed += 1;
                self.ping(*id);
            }
        }
        for id in kills {
            self.close(id);
        }
    }

    /// The sidecar: waiting inputs first, then timeouts, then a pass of the sampler if it is wanted.
    fn drive(&mut self) {
        if self.stopped {
            return;
        }
        while let Some(input) = self.waiting.pop_front() {
            self.take(input);
        }
        let now = self.at();
        if self.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.told.push(Told::Timeout(now));
            self.engine.handle_timeout(now);
            self.drain();
        }
        if self.engine.next_sample_at().is_some_and(|at| at <= now) {
            self.pass();
        }
    }

    pub(crate) fn pass(&mut self) {
        // Every 200 ms, and now and then sooner, where a timeout that decides is over.
        let gap = self.now - self.last_pass;
        assert!(gap == 0 || gap >= 40 || self.last_pass == 0, "sampled too often");
        self.early_samples += u64::from(gap > 0 && gap < 200);
        self.last_pass = self.now;
        self.samples += 1;
        let ids: Vec<u64> = self.sockets.keys().copied().collect();
        for id in ids {
            if self.sockets[&id].state != TcpState::Close {
                let snapshot = self.snapshot(id);
                self.give(Input::Sample(snapshot));
            }
        }
        let at = self.at();
        self.give(Input::SamplingDone { began_at: at, at });
    }

    /// From the host's queue to the kernel's, and from there to the wire.
    fn flush(&mut self, id: u64) {
        let was_empty = {
            let socket = self.socket(id);
            socket.write_seq == socket.snd_una
        };
        let socket = self.socket(id);
        while let Some(piece) = socket.backlog.front_mut() {
            let room = socket.send_buffer.saturating_sub(socket.write_seq - socket.snd_una);
            let fits = match piece {
                Piece::Data(bytes) => {
                    let taken = (*bytes).min(room);
                    socket.write_seq += taken;
                    *bytes -= taken;
                    *bytes == 0
                }
                piece if piece.bytes() <= room => {
                    let start = socket.write_seq;
                    socket.write_seq += piece.bytes();
                    socket.frames.push_back((start, socket.write_seq, piece.clone()));
                    true
                }
                _ => false,
            };
            if !fits {
                break;
            }
            socket.backlog.pop_front();
        }
        let has_data = socket.write_seq > socket.snd_una;
        self.transmit(id);
        if was_empty && has_data {
            let at = self.at();
            self.give(Input::Outstanding { connection: ConnectionId(id), at });
        }
    }

    fn transmit(&mut self, id: u64) {
        let now = self.now;
        let socket = self.socket(id);
        // After a retransmission timeout nothing new is sent before an ACK (cwnd 1).
        if socket.retransmits == 0 && socket.write_seq > socket.snd_nxt {
            let sent = socket.write_seq.min(socket.edge);
            if sent > socket.snd_nxt {
                socket.snd_nxt = sent;
                socket.last_send = now;
            }
        }
        if socket.write_seq > socket.snd_una && socket.timer_at.is_none() {
            socket.timer_at = Some(now + RTO_MS);
        }
        let mut sent = Vec::new();
        while socket.frames.front().is_some_and(|(_, end, _)| *end <= socket.snd_nxt) {
            sent.extend(socket.frames.pop_front());
        }
        for (start, end, piece) in sent {
            let (kind, code, reason) = match &piece {
                Piece::Close(code, reason) => {
                    (FrameKind::Close, Some(*code).filter(|code| *code != NO_CODE), *reason)
                }
                Piece::Ping | Piece::Data(_) => (FrameKind::Ping, None, ""),
            };
            let frame = self.frame(id, Direction::Egress, kind, start, end, code, reason);
            if !self.hidden || id == 8 {
                self.give(Input::Frame(frame));
            }
            self.socket(id).unread_by_peer.push_back((end, piece));
        }
    }

    /// One step of one socket: the peer's kernel, its application, and this side's timers.
    fn live(&mut self, id: u64) {
        let now = self.now;
        let socket = self.socket(id);
        let reachable = socket.peer != Peer::Gone;
        if reachable {
            if socket.snd_nxt > socket.snd_una {
                socket.snd_una = socket.snd_nxt;
                socket.last_ack = now;
                socket.retransmits = 0;
                socket.backoff = 0;
                socket.probes_out = 0;
                socket.retransmitting_since = None;
                socket.timer_at = None;
            }
            let speed = match socket.peer {
                Peer::Healthy | Peer::Mute => u64::MAX / 2,
                Peer::Reads(bytes_per_second) => bytes_per_second,
                Peer::Stopped | Peer::Gone => 0,
            };
            socket.budget = (socket.budget.saturating_add(speed.saturating_mul(STEP_MS))).min(u64::MAX / 4);
            let can_read = socket.budget / 1_000;
            let delivered = socket.snd_una;
            let read = (delivered - socket.read_by_peer).min(can_read);
            socket.read_by_peer += read;
            socket.budget = if socket.read_by_peer == delivered { 0 } else { socket.budget - read * 1_000 };
            // Silly window avoidance: the window opens by a segment at least (RFC 9293 section 3.8.6.2.2).
            let edge = socket.read_by_peer + socket.receive_buffer;
            if edge >= socket.edge + 2 * SEGMENT {
                socket.edge = edge;
                socket.last_ack = now;
                socket.probes_out = 0;
            }
        }
        if socket.timer_at.is_some_and(|at| now >= at) {
            if socket.snd_nxt > socket.snd_una {
                socket.retransmits += 1;
                socket.total_retransmits += 1;
                socket.backoff = socket.retransmits;
                socket.last_send = now;
                socket.retransmitting_since = socket.retransmitting_since.or(Some(now));
                socket.timer_at = Some(now + (RTO_MS << socket.retransmits.min(9)));
            } else if socket.write_seq > socket.snd_nxt {
                socket.backoff += 1;
                if reachable {
                    socket.last_ack = now;
                } else {
                    socket.probes_out += 1;
                }
                socket.timer_at = Some(now + (RTO_MS << socket.backoff.min(9)));
            } else {
                socket.timer_at = None;
            }
        }
        self.flush(id);
        let socket = self.socket(id);
        let read = socket.read_by_peer;
        let mut seen = Vec::new();
        while socket.unread_by_peer.front().is_some_and(|(end, _)| *end <= read) {
            seen.extend(socket.unread_by_peer.pop_front());
        }
        let answers = matches!(socket.peer, Peer::Healthy | Peer::Reads(_));
        for (_, piece) in seen.into_iter().filter(|_| answers) {
            if matches!(piece, Piece::Ping) {
                if self.sockets[&id].state != TcpState::Close {
                    self.peer_frame(id, FrameKind::Pong, None);
                }
                if !self.sockets[&id].blocked && !self.sockets[&id].paused {
                    self.socket(id).missed = 0;
                }
            }
        }
        let socket = self.socket(id);
        if socket.fin_at.is_some_and(|fin| socket.snd_una >= fin) {
            match socket.state {
                TcpState::FinWait1 => {
                    let orphan = socket.shutdown == 3;
                    self.transition(id, TcpState::FinWait2, None);
                    if orphan {
                        self.transition(id, TcpState::Close, None);
                    }
                }
                TcpState::Closing | TcpState::LastAck => self.transition(id, TcpState::Close, None),
                _ => {}
            }
        }
    }

    /// The sidecar runs again after a stop.
    pub(crate) fn resume(&mut self) {
        self.stopped = false;
    }

    // ---- what came out ----------------------------------------------------------------------------------------

    pub(crate) fn record(&self, id: u64) -> Option<CloseRecord> {
        let mut found = self.outputs.iter().filter_map(|output| match output {
            Output::Closed(record) if record.connection == ConnectionId(id) => Some((**record).clone()),
            _ => None,
        });
        let first = found.next();
        assert!(found.next().is_none(), "two records of one connection");
        first
    }

    pub(crate) fn closing(&self, id: u64) -> Option<(Timestamp, CloseInitiator)> {
        self.outputs.iter().find_map(|output| match output {
            Output::Closing { connection, at, initiator } if *connection == ConnectionId(id) => {
                Some((*at, *initiator))
            }
            _ => None,
        })
    }

    pub(crate) fn verdicts(&self, id: u64) -> Vec<Verdict> {
        self.outputs
            .iter()
            .filter_map(|output| match output {
                Output::VerdictChanged(change)
                    if change.connection == ConnectionId(id) && !change.is_turn() =>
                {
                    Some(change.to)
                }
                _ => None,
            })
            .collect()
    }

    /// Moments at which a kill became justified, or was justified no longer.
    pub(crate) fn justifications(&self, id: u64) -> Vec<(Timestamp, bool)> {
        let mut is_justified = false;
        let mut turns = Vec::new();
        for output in &self.outputs {
            if let Output::VerdictChanged(change) = output
                && change.connection == ConnectionId(id)
                && change.kill_justified != is_justified
            {
                is_justified = change.kill_justified;
                turns.push((change.at, is_justified));
            }
        }
        turns
    }

    pub(crate) fn assessed(&self, id: u64) -> Assessed {
        self.engine.assess(ConnectionId(id), self.at()).expect("tracked")
    }
}
