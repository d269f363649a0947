//! A driver with a made source, the API beside it, and clients.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ackbeat::api::counters::ApiCounters;
use ackbeat::api::listen::Listeners;
use ackbeat::api::server::Serving;
use ackbeat::api::{About, Api, MetricsPage, REPORTS_MAX, events, router};
use ackbeat::config::ApiSettings;
use ackbeat::connections::Connections;
use ackbeat::driver::Driver;
use ackbeat::driver::clock::{Clock as _, MonotonicClock};
use ackbeat::source::{Mode, Source, SourceCounters, SourceError};
use ackbeat::telemetry::Telemetry;
use ackbeat::telemetry::environment::Plan;
use ackbeat::telemetry::pipeline::{self, Pipeline};
use ackbeat_liveness::{
    ConnectionId, Direction, Endpoints, Engine, Frame, FrameKind, HeartbeatProfile, Input, Opened, Policy,
    Role, Seq, Snapshot, Synchronization, TcpState, Timestamp, Transition, Upgrade,
};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use tokio::sync::mpsc;

pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
pub(crate) const LOCAL: &str = "10.0.0.1:8080";

/// Thresholds that are reached within a test.
pub(crate) fn policy() -> Policy {
    Policy {
        fresh_ms: 500,
        pong_budget_ms: 500,
        silent_after_ms: 1_000,
        postmortem_window_ms: 200,
        // A busy machine is no reason to look away.
        late_tick_ms: 60_000,
        ..Policy::default_policy()
    }
}

/// A source that says what a test gives it, and whose sockets stay as they were last said to be.
pub(crate) struct Made {
    inputs: mpsc::Receiver<Vec<Input>>,
    waiting: Vec<Input>,
    sockets: BTreeMap<ConnectionId, Snapshot>,
    counters: SourceCounters,
}

impl Source for Made {
    fn mode(&self) -> Mode {
        Mode::Ebpf
    }

    fn announces_outstanding(&self) -> bool {
        true
    }

    async fn readable(&mut self) -> Result<(), SourceError> {
        match self.inputs.recv().await {
            Some(inputs) => {
                self.waiting.extend(inputs);
                Ok(())
            }
            None => std::future::pending().await,
        }
    }

    fn drain(&mut self, _limit: usize, inputs: &mut Vec<Input>) -> Result<bool, SourceError> {
        while let Ok(more) = self.inputs.try_recv() {
            self.waiting.extend(more);
        }
        for input in self.waiting.drain(..) {
            match &input {
                // A pass of the sampler that leaves it out would say that it is gone.
                Input::Opened(opened) => {
                    let id = opened.connection;
                    self.sockets.entry(id).or_insert_with(|| snapshot(id.0, 1_000, 0, opened.at));
                }
                Input::Sample(snapshot) => {
                    self.sockets.insert(snapshot.connection, snapshot.clone());
                }
                Input::Transition(transition) if transition.new_state != TcpState::Established => {
                    self.sockets.remove(&transition.snapshot.connection);
                }
                _ => {}
            }
            inputs.push(input);
        }
        Ok(false)
    }

    fn discover(&mut self, _inputs: &mut Vec<Input>) -> Result<(), SourceError> {
        Ok(())
    }

    fn sample(&mut self, inputs: &mut Vec<Input>) -> Result<(), SourceError> {
        let began_at = MonotonicClock.now();
        inputs.extend(
            self.sockets
                .values()
                .map(|socket| Input::Sample(Snapshot { at: MonotonicClock.now(), ..socket.clone() })),
        );
        inputs.push(Input::SamplingDone { began_at, at: MonotonicClock.now() });
        self.counters.sampler_passes += 1;
        Ok(())
    }

    fn counters(&self) -> SourceCounters {
        self.counters
    }
}

/// A page of metrics.
struct Page;

impl MetricsPage for Page {
    fn answer(&self, _headers: &HeaderMap) -> Response {
        ([(CONTENT_TYPE, "text/plain; version=0.0.4")], "ackbeat_connections 1\n").into_response()
    }
}

/// How a scene differs from the usual one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Differs {
    /// No driver: nothing is ready, and nobody takes reports.
    pub(crate) without_driver: bool,
    /// But what existed is found.
    pub(crate) ready: bool,
    /// There are no metrics.
    pub(crate) without_metrics: bool,
    /// So many verdicts are answered in a second.
    pub(crate) rate: Option<NonZeroU32>,
}

/// The sidecar without its kernel side.
pub(crate) struct Scene {
    pub(crate) address: SocketAddr,
    pub(crate) socket: PathBuf,
    pub(crate) connections: Arc<Connections>,
    pub(crate) counters: Arc<ApiCounters>,
    pub(crate) client: reqwest::Client,
    source: mpsc::Sender<Vec<Input>>,
    stop: mpsc::Sender<()>,
    serving: Option<Serving>,
    task: Option<tokio::task::JoinHandle<()>>,
    _reports: Option<mpsc::Receiver<Vec<Input>>>,
    _directory: tempfile::TempDir,
}

/// A client without a proxy.
pub(crate) fn client_builder() -> reqwest::ClientBuilder {
    // Fails where another test was first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(DEADLINE)
}

impl Scene {
    pub(crate) fn start() -> Self {
        Self::start_with(Differs::default())
    }

    pub(crate) fn start_with(differs: Differs) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("api.sock");
        let listeners = Listeners::bind(&ApiSettings {
            listen: Some("127.0.0.1:0".parse().unwrap()),
            socket: Some(socket.clone()),
        });
        let address = listeners.address().unwrap();
        let plan = Plan::read(|name| (name == "OTEL_TRACES_EXPORTER").then(|| "none".to_owned()));
        let pipeline = Pipeline::start(&plan, pipeline::resource()).unwrap();
        let connections = Arc::new(Connections::new(Engine::new(policy())));
        let (publisher, events) = events::channel();
        let (report, reports) = mpsc::channel(REPORTS_MAX);
        let about =
            About { mode: Mode::Ebpf, policy: "default", missing_signals: vec!["resets_sent".to_owned()] };
        let mut api = Api::new(about, Arc::clone(&connections), pipeline.counts(), events, report);
        if !differs.without_metrics {
            api = api.with_metrics(Arc::new(Page));
        }
        if let Some(rate) = differs.rate {
            api = api.with_rate(rate);
        }
        let counters = api.counters();
        let serving = Serving::start(listeners, &router(Arc::new(api)), &counters);
        let (source, inputs) = mpsc::channel(1_024);
        let (stop, stopped) = mpsc::channel(4);
        let (mut task, mut kept) = (None, None);
        if differs.without_driver {
            kept = Some(reports);
        } else {
            let made = Made {
                inputs,
                waiting: Vec::new(),
                sockets: BTreeMap::new(),
                counters: SourceCounters::default(),
            };
            let telemetry =
                Telemetry::new(pipeline.tracer(), Mode::Ebpf, pipeline.counts()).with_publisher(publisher);
            let driver =
                Driver::new(made, Arc::clone(&connections), MonotonicClock, telemetry, None, Duration::ZERO)
                    .with_reports(reports);
            task = Some(tokio::spawn(async move {
                let _pipeline = pipeline;
                driver.run(stopped).await.unwrap();
            }));
        }
        if differs.ready {
            connections.set_ready();
        }
        Self {
            address,
            socket,
            connections,
            counters,
            client: client_builder().build().unwrap(),
            source,
            stop,
            serving: Some(serving),
            task,
            _reports: kept,
            _directory: directory,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The source says this.
    pub(crate) async fn feed(&self, inputs: Vec<Input>) {
        self.source.send(inputs).await.unwrap();
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, serde_json::Value) {
        let response = self.client.get(self.url(path)).send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap())
    }

    /// Asks until an answer pleases.
    pub(crate) async fn get_until(
        &self,
        path: &str,
        what: &str,
        holds: impl Fn(u16, &serde_json::Value) -> bool,
    ) -> serde_json::Value {
        let start = Instant::now();
        loop {
            let (status, answer) = self.get(path).await;
            if holds(status, &answer) {
                return answer;
            }
            assert!(start.elapsed() < DEADLINE, "{what} did not come: {status} {answer:#}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn ready(&self) {
        self.get_until("/readyz", "readiness", |status, _| status == 200).await;
    }

    /// Opens these connections and waits until they are watched.
    pub(crate) async fn open(&self, all: Vec<Input>) {
        let total =
            self.connections.total() + all.iter().filter(|input| matches!(input, Input::Opened(_))).count();
        for some in all.chunks(1_000) {
            self.feed(some.to_vec()).await;
        }
        self.get_until("/v1/connections?limit=0", "the connections", |_, answer| answer["total"] == total)
            .await;
    }

    pub(crate) async fn post(&self, body: &str) -> (u16, serde_json::Value) {
        let response = self
            .client
            .post(self.url("/v1/heartbeats"))
            .header("content-type", "application/json")
            .body(body.to_owned())
            .send()
            .await
            .unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap())
    }

    /// Stops the driver, then the server.
    pub(crate) async fn stop(mut self) {
        self.stop.send(()).await.unwrap();
        if let Some(task) = self.task.take() {
            tokio::time::timeout(DEADLINE, task).await.unwrap().unwrap();
        }
        drop(self.serving.take());
        assert!(!Path::new(&self.socket).exists(), "the socket's file is left");
    }
}

// ---- inputs ---------------------------------------------------------------------------------------------------------

pub(crate) fn opened(connection: u64, peer: &str, local: &str, at: Timestamp) -> Input {
    let (peer, local): (SocketAddr, SocketAddr) = (peer.parse().unwrap(), local.parse().unwrap());
    Input::Opened(Opened {
        connection: ConnectionId(connection),
        at,
        endpoints: Endpoints {
            local_address: local.ip(),
            local_port: local.port(),
            peer_address: peer.ip(),
            peer_port: peer.port(),
        },
        role: Role::Server,
        preexisting: false,
        frames_visible: true,
    })
}

pub(crate) fn upgraded(connection: u64, path: &str, at: Timestamp) -> [Input; 3] {
    let connection = ConnectionId(connection);
    let synchronized = |direction| {
        Input::Synchronization(Synchronization {
            connection,
            at,
            direction,
            synchronized: true,
            reason: None,
        })
    };
    [
        Input::Upgrade(Upgrade {
            connection,
            at,
            path: Some(path.to_owned()),
            traceparent: None,
            forwarding_headers: Vec::new(),
        }),
        synchronized(Direction::Ingress),
        synchronized(Direction::Egress),
    ]
}

pub(crate) fn ping(connection: u64, seq_start: u32, at: Timestamp) -> Input {
    Input::Frame(Frame {
        connection: ConnectionId(connection),
        at,
        direction: Direction::Egress,
        kind: FrameKind::Ping,
        profile: HeartbeatProfile::Rfc6455,
        seq_start: Some(Seq(seq_start)),
        seq_end: Some(Seq(seq_start + 6)),
        payload: Vec::new(),
        close_code: None,
        close_reason: None,
    })
}

/// A socket with everything up to `acked` acknowledged, `queued` bytes behind it, and a window of 64 kB.
pub(crate) fn snapshot(connection: u64, acked: u32, queued: u32, at: Timestamp) -> Snapshot {
    Snapshot {
        write_seq: Some(Seq(acked + queued)),
        snd_nxt: Some(Seq(acked + queued)),
        snd_una: Some(Seq(acked)),
        snd_wnd_bytes: Some(65_535),
        rcv_nxt: Some(Seq(1)),
        copied_seq: Some(Seq(1)),
        send_queue_bytes: Some(queued),
        unsent_bytes: Some(0),
        unread_bytes: Some(0),
        last_ack_at: Some(at),
        bytes_acked: Some(u64::from(acked)),
        bytes_received: Some(0),
        srtt_us: Some(900),
        rto_ms: Some(204),
        backoff: Some(0),
        retransmits: Some(0),
        probes_out: Some(0),
        packets_out: Some(queued.div_ceil(1_460)),
        ..Snapshot::unavailable(ConnectionId(connection), at, TcpState::Established)
    }
}

/// A peer whose kernel took a Ping two seconds ago, and that answers nothing.
pub(crate) fn silent(connection: u64, peer: &str) -> Vec<Input> {
    let now = MonotonicClock.now();
    let start = now.minus_ms(3_000);
    let mut inputs = vec![opened(connection, peer, LOCAL, start)];
    inputs.extend(upgraded(connection, "/api/remote.mux", start));
    inputs.push(ping(connection, 1_000, start.plus_ms(100)));
    for step in 1..=14 {
        let at = start.plus_ms(step * 200);
        let mut socket = snapshot(connection, 1_006, 0, at);
        socket.last_ack_at = Some(start.plus_ms(150));
        inputs.push(Input::Sample(socket));
        inputs.push(Input::SamplingDone { began_at: at, at });
    }
    inputs
}

/// The host closes, and its FIN is acknowledged.
pub(crate) fn closed(connection: u64) -> Vec<Input> {
    let transition = |old_state, new_state| {
        let mut snapshot = snapshot(connection, 1_006, 0, MonotonicClock.now());
        snapshot.state = new_state;
        Input::Transition(Transition { old_state, new_state, process: None, snapshot })
    };
    vec![
        transition(TcpState::Established, TcpState::FinWait1),
        transition(TcpState::FinWait1, TcpState::FinWait2),
        transition(TcpState::FinWait2, TcpState::Close),
    ]
}

/// Quiet connections of as many peers.
pub(crate) fn crowd(count: u32) -> Vec<Input> {
    let now = MonotonicClock.now();
    (0..count)
        .map(|number| {
            let [_, high, middle, low] = number.to_be_bytes();
            opened(
                100_000 + u64::from(number),
                &format!("10.{}.{middle}.{low}:40000", 100 + high),
                LOCAL,
                now.minus_ms(u64::from(number)),
            )
        })
        .collect()
}
