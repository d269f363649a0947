//! A sidecar's pipeline in this process: a source that tells a made story, the real driver, engine, telemetry and page.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ackbeat::connections::Connections;
use ackbeat::driver::Driver;
use ackbeat::driver::clock::{Clock as _, MonotonicClock};
use ackbeat::metrics::{Feed, MetricsPipeline, Sources, server};
use ackbeat::source::{Mode, Source, SourceCounters, SourceError};
use ackbeat::telemetry::Telemetry;
use ackbeat::telemetry::environment::{MetricsPlan, Plan};
use ackbeat::telemetry::pipeline::{Pipeline, resource};
use ackbeat_liveness::{
    ConnectionId, Direction, Endpoints, Engine, Frame, FrameKind, HeartbeatProfile, Input, Opened, Policy,
    Process, Role, Seq, Snapshot, Synchronization, TcpState, Timestamp, Transition, Upgrade,
};
use anyhow::{Context as _, Result};
use tokio::sync::mpsc;

/// Connections of the story, and how each ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// It does not.
    Open,
    /// The host closes with nothing owed.
    HostInOrder,
    /// The host closes while data is queued, and the peer reads on: a false kill.
    HostAgainstAReader,
    /// The host's process exits while data is queued.
    ProcessExit,
    /// The peer closes.
    Peer,
}

const STORY: &[End] = &[
    End::Open,
    End::HostInOrder,
    End::HostAgainstAReader,
    End::HostAgainstAReader,
    End::ProcessExit,
    End::Peer,
];

/// Peers have addresses that must not be found in any metric.
pub(super) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 77));
/// As must their ports.
pub(super) const PEER_PORT: u16 = 47_110;
pub(super) const LOCAL_PORT: u16 = 48_080;

/// Tells the story at once.
struct Story {
    is_told: bool,
    passes: u64,
}

fn snapshot(
    connection: ConnectionId,
    at: Timestamp,
    state: TcpState,
    queued: u32,
    acknowledged: u32,
) -> Snapshot {
    Snapshot {
        write_seq: Some(Seq(1_000 + acknowledged + queued)),
        snd_nxt: Some(Seq(1_000 + acknowledged + queued)),
        snd_una: Some(Seq(1_000 + acknowledged)),
        snd_wnd_bytes: Some(65_535),
        rcv_nxt: Some(Seq(1)),
        copied_seq: Some(Seq(1)),
        send_queue_bytes: Some(queued),
        unsent_bytes: Some(0),
        unread_bytes: Some(0),
        last_ack_at: Some(at),
        bytes_acked: Some(u64::from(acknowledged)),
        bytes_received: Some(0),
        srtt_us: Some(750),
        rto_ms: Some(204),
        backoff: Some(0),
        retransmits: Some(0),
        probes_out: Some(0),
        packets_out: Some(u32::from(queued > 0)),
        socket_error: Some(0),
        ..Snapshot::unavailable(connection, at, state)
    }
}

fn transition(old_state: TcpState, snapshot: Snapshot, exiting: bool) -> Input {
    let process =
        Some(Process { pid: 4_711, command: "story-host".to_owned(), exiting, ancestors: Vec::new() });
    Input::Transition(Transition { old_state, new_state: snapshot.state, process, snapshot })
}

fn told(end: End, connection: ConnectionId, now: Timestamp, inputs: &mut Vec<Input>) {
    use TcpState::{Close, CloseWait, Established, FinWait1, FinWait2};
    let number = u16::try_from(connection.0).unwrap_or(0);
    inputs.push(Input::Opened(Opened {
        connection,
        at: now,
        endpoints: Endpoints {
            local_address: Ipv4Addr::LOCALHOST.into(),
            local_port: LOCAL_PORT,
            peer_address: PEER,
            peer_port: PEER_PORT + number,
        },
        role: Role::Server,
        preexisting: false,
        frames_visible: true,
    }));
    inputs.push(Input::Sample(snapshot(connection, now, Established, 9_000, 1_000)));
    let close = |old, new, queued, acknowledged, exiting| {
        transition(old, snapshot(connection, now, new, queued, acknowledged), exiting)
    };
    match end {
        End::Open => heartbeat(connection, now, inputs),
        End::HostInOrder => {
            inputs.push(Input::Sample(snapshot(connection, now, Established, 0, 10_000)));
            inputs.push(close(Established, FinWait1, 0, 10_000, false));
            inputs.push(close(FinWait1, FinWait2, 0, 10_001, false));
            inputs.push(close(FinWait2, Close, 0, 10_001, false));
        }
        End::HostAgainstAReader | End::ProcessExit => {
            let exits = matches!(end, End::ProcessExit);
            upgraded(connection, now, inputs);
            inputs.push(close(Established, FinWait1, 9_000, 1_000, exits));
            let mut later = snapshot(connection, now, FinWait1, 4_000, 6_000);
            later.snd_wnd_bytes = Some(200_000);
            inputs.push(Input::Sample(later));
            inputs.push(close(FinWait1, FinWait2, 0, 10_001, exits));
            inputs.push(close(FinWait2, Close, 0, 10_001, exits));
        }
        End::Peer => {
            inputs.push(close(Established, CloseWait, 0, 10_000, false));
            inputs.push(close(CloseWait, TcpState::LastAck, 0, 10_000, false));
            inputs.push(close(TcpState::LastAck, Close, 0, 10_001, false));
        }
    }
}

/// It is a WebSocket, whose frames can be seen.
fn upgraded(connection: ConnectionId, now: Timestamp, inputs: &mut Vec<Input>) {
    let (path, traceparent) = (Some("/secret-path".to_owned()), None);
    inputs.push(Input::Upgrade(Upgrade {
        connection,
        at: now,
        path,
        traceparent,
        forwarding_headers: Vec::new(),
    }));
    for direction in [Direction::Ingress, Direction::Egress] {
        let (synchronized, reason) = (true, None);
        inputs.push(Input::Synchronization(Synchronization {
            connection,
            at: now,
            direction,
            synchronized,
            reason,
        }));
    }
}

/// A Ping that is acknowledged and answered.
fn heartbeat(connection: ConnectionId, now: Timestamp, inputs: &mut Vec<Input>) {
    upgraded(connection, now, inputs);
    for (kind, direction, seq) in
        [(FrameKind::Ping, Direction::Egress, 11_000), (FrameKind::Pong, Direction::Ingress, 1)]
    {
        inputs.push(Input::Frame(Frame {
            connection,
            at: now,
            direction,
            kind,
            profile: HeartbeatProfile::Rfc6455,
            seq_start: Some(Seq(seq)),
            seq_end: Some(Seq(seq + 6)),
            payload: b"beat".to_vec(),
            close_code: None,
            close_reason: None,
        }));
        inputs.push(Input::Sample(snapshot(connection, now, TcpState::Established, 0, 10_006)));
    }
}

impl Source for Story {
    fn mode(&self) -> Mode {
        Mode::Ebpf
    }

    fn announces_outstanding(&self) -> bool {
        true
    }

    async fn readable(&mut self) -> Result<(), SourceError> {
        if self.is_told { std::future::pending().await } else { Ok(()) }
    }

    fn drain(&mut self, _limit: usize, inputs: &mut Vec<Input>) -> Result<bool, SourceError> {
        if !std::mem::replace(&mut self.is_told, true) {
            let now = MonotonicClock.now();
            for (number, end) in (1..).zip(STORY) {
                told(*end, ConnectionId(number), now, inputs);
            }
        }
        Ok(false)
    }

    fn discover(&mut self, _inputs: &mut Vec<Input>) -> Result<(), SourceError> {
        Ok(())
    }

    fn sample(&mut self, inputs: &mut Vec<Input>) -> Result<(), SourceError> {
        let now = MonotonicClock.now();
        inputs.push(Input::Sample(snapshot(ConnectionId(1), now, TcpState::Established, 0, 10_006)));
        inputs.push(Input::SamplingDone { began_at: now, at: MonotonicClock.now() });
        self.passes += 1;
        Ok(())
    }

    fn counters(&self) -> SourceCounters {
        SourceCounters {
            records_sent: 40,
            records_seen: 37,
            records_dropped: 3,
            sampler_passes: self.passes,
            ..SourceCounters::default()
        }
    }
}

/// A sidecar in this process.
pub(super) struct Running {
    /// Where its page is.
    pub(super) address: SocketAddr,
    stop: mpsc::Sender<()>,
    driving: tokio::task::JoinHandle<Result<ackbeat::driver::Report, SourceError>>,
    metrics: MetricsPipeline,
    spans: Pipeline,
}

/// Starts it, with variables like those of its environment.
pub(super) async fn start(variables: &[(&str, String)]) -> Result<Running> {
    let lookup =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    // Spans go nowhere: what matters is that they have a trace.
    let plan =
        Plan::read(
            |name| if name == "OTEL_TRACES_EXPORTER" { Some("none".to_owned()) } else { lookup(name) },
        );
    let spans = Pipeline::start(&plan, resource())?;
    let sources = Sources { spans: spans.counts(), lost_log_lines: Box::new(|| 0) };
    let metrics = MetricsPipeline::start(&MetricsPlan::read(lookup), resource(), sources)?;
    let page = metrics.page().context("the page is off")?;
    let address = server::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), page).await?;
    metrics.metrics().source_is(Mode::Ebpf, false);
    let telemetry =
        Telemetry::new(spans.tracer(), Mode::Ebpf, spans.counts()).with_metrics(Feed::new(metrics.metrics()));
    let policy = Policy { postmortem_window_ms: 300, ..Policy::default_policy() };
    let (stop, stopped) = mpsc::channel(2);
    let driver = Driver::new(
        Story { is_told: false, passes: 0 },
        Arc::new(Connections::new(Engine::new(policy))),
        MonotonicClock,
        telemetry,
        None,
        Duration::from_millis(50),
    );
    Ok(Running { address, stop, driving: tokio::spawn(driver.run(stopped)), metrics, spans })
}

impl Running {
    /// Ends it. Returns whether the last totals were exported within `deadline`.
    pub(super) async fn stop(self, deadline: Duration) -> Result<bool> {
        self.stop.send(()).await?;
        self.driving.await??;
        let (metrics, spans) = (self.metrics, self.spans);
        Ok(tokio::task::spawn_blocking(move || {
            spans.shut_down(deadline);
            metrics.shut_down(deadline)
        })
        .await?)
    }
}
