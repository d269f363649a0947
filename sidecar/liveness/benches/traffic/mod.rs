//! Traffic for benchmarks and for the count of allocations: what a driver feeds the engine, made beforehand.

use std::net::IpAddr;

use ackbeat_liveness::*;

/// A watchdog's interval, in milliseconds.
const INTERVAL_MS: u64 = 2_000;
/// Bytes of a masked Pong, and of the Ping that it answers.
const PING_BYTES: u32 = 6;
/// What a slow reader takes between two samples, in bytes.
const DRAINED_BYTES: u32 = 20_000;

/// Connections that a watchdog pings, and whose peers answer.
pub(crate) struct Steady {
    connections: u64,
    now_ms: u64,
    sent: u32,
}

fn connection_id(number: u64) -> ConnectionId {
    // Cookies are handed out in sequence, by each CPU from a block of its own.
    ConnectionId(0x1000 + number * 3)
}

fn opened(number: u64, at: Timestamp) -> Input {
    let [high, low] = u16::try_from(number % 50_000).unwrap_or(0).to_be_bytes();
    Input::Opened(Opened {
        connection: connection_id(number),
        at,
        endpoints: Endpoints {
            local_address: IpAddr::from([10, 0, 0, 1]),
            local_port: 8080,
            peer_address: IpAddr::from([10, 1, high, low]),
            peer_port: 40_000,
        },
        role: Role::Server,
        preexisting: false,
        frames_visible: true,
    })
}

fn upgraded(number: u64, at: Timestamp) -> Input {
    Input::Upgrade(Upgrade {
        connection: connection_id(number),
        at,
        path: Some("/api/remote.mux".into()),
        traceparent: None,
        forwarding_headers: Vec::new(),
    })
}

fn frame(number: u64, at: Timestamp, kind: FrameKind, seq_end: u32) -> Input {
    Input::Frame(Frame {
        connection: connection_id(number),
        at,
        direction: if kind == FrameKind::Ping { Direction::Egress } else { Direction::Ingress },
        kind,
        profile: HeartbeatProfile::Rfc6455,
        seq_start: Some(Seq(seq_end.wrapping_sub(PING_BYTES))),
        seq_end: Some(Seq(seq_end)),
        payload: Vec::new(),
        close_code: None,
        close_reason: None,
    })
}

/// A socket whose peer has acknowledged all but `in_flight` bytes, with `unsent` more behind a closed window.
fn sample(number: u64, at: Timestamp, acked: u32, in_flight: u32, unsent: u32, received: u32) -> Snapshot {
    let una = Seq(acked);
    Snapshot {
        connection: connection_id(number),
        at,
        state: TcpState::Established,
        write_seq: Some(una.plus(in_flight).plus(unsent)),
        snd_nxt: Some(una.plus(in_flight)),
        snd_una: Some(una),
        snd_wnd_bytes: Some(if unsent > 0 { in_flight } else { 65_536 }),
        rcv_nxt: Some(Seq(received)),
        copied_seq: Some(Seq(received)),
        send_queue_bytes: Some(in_flight + unsent),
        unsent_bytes: Some(unsent),
        unread_bytes: Some(0),
        last_ack_at: Some(at.minus_ms(4)),
        last_send_at: Some(at.minus_ms(5)),
        last_inbound_at: Some(at.minus_ms(4)),
        bytes_acked: Some(u64::from(acked)),
        bytes_received: Some(u64::from(received)),
        srtt_us: Some(900),
        rto_ms: Some(204),
        backoff: Some(0),
        retransmits: Some(0),
        probes_out: Some(0),
        packets_out: Some(in_flight.div_ceil(1_460)),
        total_retransmits: Some(0),
        retransmitting_since: None,
        socket_error: Some(0),
        soft_error: Some(0),
        shutdown: Some(0),
        queued_memory_bytes: Some(in_flight * 2),
    }
}

impl Steady {
    /// Connections that are open and upgraded.
    pub(crate) fn open(engine: &mut Engine, connections: u64) -> Self {
        let this = Self { connections, now_ms: 1_000_000, sent: 1_000 };
        for number in 0..connections {
            let at = Timestamp::from_ms(this.now_ms);
            engine.handle_input(opened(number, at));
            engine.handle_input(upgraded(number, at));
        }
        this
    }

    /// One interval of the watchdog: a Ping and its Pong for each, and a pass of the sampler every 200 ms.
    ///
    /// The Pings are spread over the interval, so that something is always outstanding and every pass is wanted.
    pub(crate) fn interval(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        let steps = INTERVAL_MS / 200;
        let received = self.sent;
        for step in 0..steps {
            let start = self.now_ms + step * 200;
            for number in (step..self.connections).step_by(10) {
                let at = Timestamp::from_ms(start + number * 150 / self.connections);
                inputs.push(Input::Outstanding { connection: connection_id(number), at });
                inputs.push(frame(number, at, FrameKind::Ping, self.sent + PING_BYTES));
                // Every fourth Pong needs longer than a pass of the sampler.
                if number % 4 != 3 {
                    inputs.push(frame(number, at.plus_ms(1), FrameKind::Pong, received + PING_BYTES));
                }
            }
            let at = Timestamp::from_ms(start + 180);
            for number in 0..self.connections {
                let has_pinged = step >= number % 10;
                let in_flight = if step == number % 10 && number % 4 == 3 { PING_BYTES } else { 0 };
                let acked = if has_pinged && in_flight == 0 { self.sent + PING_BYTES } else { self.sent };
                let received = if has_pinged { received + PING_BYTES } else { received };
                inputs.push(Input::Sample(sample(number, at, acked, in_flight, 0, received)));
            }
            inputs.push(Input::SamplingDone { began_at: at, at });
            for number in (step..self.connections).step_by(10).filter(|number| number % 4 == 3) {
                let at = Timestamp::from_ms(start + 190);
                inputs.push(frame(number, at, FrameKind::Pong, received + PING_BYTES));
            }
        }
        inputs.sort_by_key(Input::at);
        self.now_ms += INTERVAL_MS;
        self.sent = self.sent.wrapping_add(PING_BYTES);
        inputs
    }
}

/// Connections whose peers ask, as Phoenix channels do, and as many whose host reports its own Pings and their Pongs.
pub(crate) struct Asking {
    connections: u64,
    now_ms: u64,
    sent: u32,
}

impl Asking {
    pub(crate) fn open(engine: &mut Engine, connections: u64) -> Self {
        let Steady { now_ms, sent, .. } = Steady::open(engine, connections);
        for number in connections..2 * connections {
            engine.handle_input(opened(number, Timestamp::from_ms(now_ms)));
        }
        Self { connections, now_ms, sent }
    }

    /// One interval, with a pass of the sampler in its middle.
    pub(crate) fn interval(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        let at = Timestamp::from_ms(self.now_ms);
        self.sent = self.sent.wrapping_add(PING_BYTES);
        for number in 0..self.connections {
            let Input::Frame(mut ping) = frame(number, at, FrameKind::Ping, self.sent) else { continue };
            (ping.direction, ping.profile) = (Direction::Ingress, HeartbeatProfile::Phoenix);
            inputs.push(Input::Frame(ping));
            for (kind, at) in [(FrameKind::Ping, at), (FrameKind::Pong, at.plus_ms(20))] {
                let Input::Frame(mut report) = frame(self.connections + number, at, kind, self.sent) else {
                    continue;
                };
                (report.seq_start, report.seq_end) = (None, None);
                inputs.push(Input::Frame(report));
            }
        }
        let middle = at.plus_ms(INTERVAL_MS / 2);
        for number in 0..2 * self.connections {
            inputs.push(Input::Sample(sample(number, middle, self.sent, 0, 0, self.sent)));
        }
        inputs.push(Input::SamplingDone { began_at: middle, at: middle });
        inputs.sort_by_key(Input::at);
        self.now_ms += INTERVAL_MS;
        inputs
    }
}

/// One connection with a backlog that its peer reads slowly: it is sampled, and its Pings wait in the queue.
pub(crate) struct Congested {
    now_ms: u64,
    acked: u32,
}

impl Congested {
    pub(crate) fn open(engine: &mut Engine) -> Self {
        let this = Self { now_ms: 1_000_000, acked: 1_000 };
        let at = Timestamp::from_ms(this.now_ms);
        engine.handle_input(opened(0, at));
        engine.handle_input(upgraded(0, at));
        this
    }

    /// Ten intervals of the watchdog.
    pub(crate) fn intervals(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        for step in 0..100 {
            let at = Timestamp::from_ms(self.now_ms);
            if step % 10 == 0 {
                inputs.push(frame(0, at, FrameKind::Ping, self.acked.wrapping_add(400_000)));
            }
            inputs.push(Input::Sample(sample(0, at.plus_ms(10), self.acked, 400_000, 2_000_000, 500)));
            inputs.push(Input::SamplingDone { began_at: at.plus_ms(10), at: at.plus_ms(10) });
            self.acked = self.acked.wrapping_add(DRAINED_BYTES);
            self.now_ms += 200;
        }
        inputs
    }
}

/// Connections of a peer that goes away and comes back `rounds` times, is pinged all along with the largest payload, never
/// answers, and is half-closed by the host.
pub(crate) fn full(engine: &mut Engine, connections: u64, rounds: u64) {
    let start = engine.connections().last().map_or(1_000_000, |_| 1_000_000 + rounds * 2_000);
    for number in 0..connections {
        feed(
            engine,
            vec![opened(number, Timestamp::from_ms(start)), upgraded(number, Timestamp::from_ms(start))],
        );
    }
    for round in 0..rounds {
        let at = Timestamp::from_ms(start + round * 2_000);
        for number in 0..connections {
            let Input::Frame(mut ping) = frame(number, at, FrameKind::Ping, 10_000) else { continue };
            ping.payload = vec![u8::try_from(round % 256).unwrap_or(0); 125];
            let mut lost = sample(number, at.plus_ms(1_800), 1_000, 9_000, 0, 500);
            lost.last_ack_at = Some(at.minus_ms(10));
            lost.last_inbound_at = Some(at.minus_ms(10));
            lost.retransmits = Some(5);
            lost.retransmitting_since = Some(at.plus_ms(200));
            let found = sample(number, at.plus_ms(1_900), 1_000, 0, 0, 500);
            let mut inputs = vec![Input::Frame(ping), Input::Sample(lost), Input::Sample(found)];
            if round == 10 {
                let mut snapshot = sample(number, at.plus_ms(1_950), 1_000, 0, 0, 500);
                (snapshot.state, snapshot.shutdown) = (TcpState::FinWait2, Some(2));
                inputs.push(Input::Transition(Transition {
                    old_state: TcpState::FinWait1,
                    new_state: TcpState::FinWait2,
                    process: Some(Process {
                        pid: 1,
                        command: "fifteen-letters".into(),
                        exiting: false,
                        ancestors: Vec::new(),
                    }),
                    snapshot,
                }));
            }
            feed(engine, inputs);
        }
    }
}

/// Feeds the engine as a driver does, and gives how many outputs there were.
pub(crate) fn feed(engine: &mut Engine, inputs: Vec<Input>) -> u64 {
    let mut outputs = 0;
    for input in inputs {
        let at = input.at();
        engine.handle_input(input);
        if engine.poll_timeout().is_some_and(|due| due <= at) {
            engine.handle_timeout(at);
        }
        while engine.poll().is_some() {
            outputs += 1;
        }
    }
    outputs
}
