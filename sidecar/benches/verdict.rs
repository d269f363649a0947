//! How long `GET /v1/verdict` takes while the driver is busy: `cargo bench -p ackbeat --bench verdict`. 10,000 connections
//! with heartbeats; the goal is a p99 below 1 ms.
//!
//! Everything is real but the source: driver, engine, recording off, server, and clients over loopback TCP with a connection
//! each that they keep. The source feeds at a rate, in portions of 10 ms. Run as a test it looks only whether it works.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ackbeat::api::listen::Listeners;
use ackbeat::api::server::Serving;
use ackbeat::api::{About, Api, REPORTS_MAX, events, router};
use ackbeat::config::ApiSettings;
use ackbeat::connections::Connections;
use ackbeat::driver::clock::{Clock as _, MonotonicClock};
use ackbeat::driver::{Driver, Housekeeping, Sink};
use ackbeat::source::{Mode, Source, SourceCounters, SourceError};
use ackbeat::telemetry::pipeline::SpanCounts;
use ackbeat_liveness::{
    ConnectionId, Direction, Endpoints, Engine, Frame, FrameKind, HeartbeatProfile, Input, Opened, Output,
    Policy, Role, Seq, Snapshot, TcpState, Timestamp, Upgrade,
};
use anyhow::{Context as _, Result, bail};
use tokio::sync::mpsc;

const CONNECTIONS: u32 = 10_000;
const PORTION: Duration = Duration::from_millis(10);

/// Feeds at a rate: a Ping, its acknowledgement and its Pong, one connection after the other.
struct Steady {
    per_portion: u32,
    due: tokio::time::Interval,
    is_due: bool,
    next: u32,
    round: u32,
    fed: Arc<AtomicU64>,
}

impl Source for Steady {
    fn mode(&self) -> Mode {
        Mode::Ebpf
    }

    fn announces_outstanding(&self) -> bool {
        true
    }

    async fn readable(&mut self) -> Result<(), SourceError> {
        self.due.tick().await;
        self.is_due = true;
        Ok(())
    }

    fn drain(&mut self, _limit: usize, inputs: &mut Vec<Input>) -> Result<bool, SourceError> {
        if std::mem::take(&mut self.is_due) {
            for _ in 0..self.per_portion / 4 {
                let at = MonotonicClock.now();
                let connection = connection(self.next);
                let seq = self.round.wrapping_mul(6).wrapping_add(1_000);
                inputs.push(Input::Outstanding { connection, at });
                inputs.push(frame(connection, FrameKind::Ping, seq, at));
                inputs.push(Input::Sample(snapshot(connection, seq.wrapping_add(6), at)));
                inputs.push(frame(connection, FrameKind::Pong, seq, at));
                self.next = (self.next + 1) % CONNECTIONS;
                self.round = self.round.wrapping_add(u32::from(self.next == 0));
            }
            self.fed.fetch_add(u64::from(self.per_portion / 4 * 4), Ordering::Relaxed);
        }
        Ok(false)
    }

    fn discover(&mut self, inputs: &mut Vec<Input>) -> Result<(), SourceError> {
        let at = MonotonicClock.now();
        for number in 0..CONNECTIONS {
            let id = connection(number);
            inputs.push(Input::Opened(Opened {
                connection: id,
                at,
                endpoints: Endpoints {
                    local_address: IpAddr::from([10, 0, 0, 1]),
                    local_port: 8080,
                    peer_address: peer(number).ip(),
                    peer_port: peer(number).port(),
                },
                role: Role::Server,
                preexisting: false,
                frames_visible: true,
            }));
            inputs.push(Input::Upgrade(Upgrade {
                connection: id,
                at,
                path: Some("/api/remote.mux".to_owned()),
                traceparent: None,
                forwarding_headers: Vec::new(),
            }));
            inputs.push(Input::Sample(snapshot(id, 1_000, at)));
        }
        Ok(())
    }

    fn sample(&mut self, inputs: &mut Vec<Input>) -> Result<(), SourceError> {
        let began_at = MonotonicClock.now();
        let seq = self.round.wrapping_mul(6).wrapping_add(1_000);
        inputs.extend(
            (0..CONNECTIONS).map(|number| Input::Sample(snapshot(connection(number), seq, began_at))),
        );
        inputs.push(Input::SamplingDone { began_at, at: MonotonicClock.now() });
        self.fed.fetch_add(u64::from(CONNECTIONS) + 1, Ordering::Relaxed);
        Ok(())
    }

    fn counters(&self) -> SourceCounters {
        SourceCounters::default()
    }
}

fn connection(number: u32) -> ConnectionId {
    ConnectionId(0x1000 + u64::from(number) * 3)
}

fn peer(number: u32) -> SocketAddr {
    let [_, high, middle, low] = number.to_be_bytes();
    SocketAddr::from(([10, 100 + high, middle, low], 40_000))
}

fn frame(connection: ConnectionId, kind: FrameKind, seq: u32, at: Timestamp) -> Input {
    Input::Frame(Frame {
        connection,
        at,
        direction: if kind == FrameKind::Ping { Direction::Egress } else { Direction::Ingress },
        kind,
        profile: HeartbeatProfile::Rfc6455,
        seq_start: Some(Seq(seq)),
        seq_end: Some(Seq(seq.wrapping_add(6))),
        payload: Vec::new(),
        close_code: None,
        close_reason: None,
    })
}

fn snapshot(connection: ConnectionId, acked: u32, at: Timestamp) -> Snapshot {
    Snapshot {
        write_seq: Some(Seq(acked)),
        snd_nxt: Some(Seq(acked)),
        snd_una: Some(Seq(acked)),
        snd_wnd_bytes: Some(65_535),
        rcv_nxt: Some(Seq(1)),
        copied_seq: Some(Seq(1)),
        send_queue_bytes: Some(0),
        unsent_bytes: Some(0),
        unread_bytes: Some(0),
        last_ack_at: Some(at),
        retransmits: Some(0),
        probes_out: Some(0),
        packets_out: Some(0),
        srtt_us: Some(900),
        rto_ms: Some(204),
        ..Snapshot::unavailable(connection, at, TcpState::Established)
    }
}

struct Nobody;

impl Sink for Nobody {
    fn output(&mut self, _output: &Output) {}
    fn housekeeping(&mut self, _now: &Housekeeping) {}
}

/// A client that keeps its connection.
struct Client {
    stream: BufReader<TcpStream>,
    body: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), body: Vec::new() })
    }

    /// Asks for a verdict, and gives how long it took.
    fn ask(&mut self, number: u32) -> Result<Duration> {
        let request = format!("GET /v1/verdict?peer={} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", peer(number));
        let start = Instant::now();
        self.stream.get_mut().write_all(request.as_bytes())?;
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            if line.starts_with("HTTP/1.1 ") && !line.starts_with("HTTP/1.1 200") {
                bail!("the answer is {line}");
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse()?;
            }
            if line == "\r\n" {
                break;
            }
        }
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body)?;
        Ok(start.elapsed())
    }
}

/// One run: so many inputs a second, so many clients, so many requests of each.
fn run(inputs_per_second: u32, clients: u32, requests: u32) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let fed = Arc::new(AtomicU64::new(0));
    let (address, serving, stop) = {
        let _entered = runtime.enter();
        let listeners = Listeners::bind(&ApiSettings { listen: Some("127.0.0.1:0".parse()?), socket: None });
        let address = listeners.address().context("nothing is listened on")?;
        let connections = Arc::new(Connections::new(Engine::new(Policy::default_policy())));
        let (_publisher, events) = events::channel();
        let (report, reports) = mpsc::channel(REPORTS_MAX);
        let about = About { mode: Mode::Ebpf, policy: "default", missing_signals: Vec::new() };
        let api = Api::new(about, Arc::clone(&connections), Arc::new(SpanCounts::default()), events, report)
            // As many as there can be are measured.
            .with_rate(NonZeroU32::MAX);
        let counters = api.counters();
        let serving = Serving::start(listeners, &router(Arc::new(api)), &counters);
        let mut due = tokio::time::interval(PORTION);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
        let source = Steady {
            per_portion: inputs_per_second / 100,
            due,
            is_due: false,
            next: 0,
            round: 0,
            fed: Arc::clone(&fed),
        };
        let driver = Driver::new(source, connections, MonotonicClock, Nobody, None, Duration::ZERO)
            .with_reports(reports);
        let (stop, stopped) = mpsc::channel(1);
        runtime.spawn(driver.run(stopped));
        (address, serving, stop)
    };
    let start = Instant::now();
    while Client::connect(address)?.ask(0).is_err() {
        if start.elapsed() > Duration::from_secs(60) {
            bail!("it does not get ready");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let (began, fed_before) = (Instant::now(), fed.load(Ordering::Relaxed));
    let is_failed = Arc::new(AtomicBool::new(false));
    let asking: Vec<_> = (0..clients)
        .map(|client| {
            let is_failed = Arc::clone(&is_failed);
            std::thread::spawn(move || -> Result<Vec<Duration>> {
                let mut asking = Client::connect(address)?;
                let mut took = Vec::new();
                for request in 0..requests {
                    let number = (client * 7_919 + request * 104_729) % CONNECTIONS;
                    took.push(asking.ask(number).inspect_err(|_| is_failed.store(true, Ordering::Relaxed))?);
                }
                Ok(took)
            })
        })
        .collect();
    let mut took = Vec::new();
    for thread in asking {
        match thread.join() {
            Ok(result) => took.extend(result?),
            Err(_) => bail!("a client panicked"),
        }
    }
    let elapsed = began.elapsed().as_secs_f64();
    let rate = (fed.load(Ordering::Relaxed) - fed_before) as f64 / elapsed;
    took.sort_unstable();
    let at = |per_mille: usize| {
        let place = (took.len() * per_mille / 1_000).min(took.len().saturating_sub(1));
        took.get(place).map_or(0, Duration::as_micros)
    };
    writeln!(
        io::stdout(),
        "{CONNECTIONS} connections, {rate:>7.0} inputs/s, {clients} client(s): {:>6.0} requests/s, \
         p50 {:>5} us, p90 {:>5} us, p99 {:>5} us, p99.9 {:>6} us, max {:>6} us",
        took.len() as f64 / elapsed,
        at(500),
        at(900),
        at(990),
        at(999),
        at(1_000),
    )?;
    drop((serving, stop));
    runtime.shutdown_background();
    Ok(())
}

fn main() -> Result<()> {
    if !std::env::args().any(|argument| argument == "--bench") {
        return run(1_000, 2, 50);
    }
    run(0, 1, 20_000)?;
    run(10_000, 1, 20_000)?;
    run(10_000, 8, 20_000)?;
    run(50_000, 1, 20_000)
}
