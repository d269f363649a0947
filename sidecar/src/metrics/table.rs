//! The one table of instruments. What the code records, the page `METRICS.md` and the tests all come from it.
//!
//! Names, kinds and units follow OpenTelemetry's semantic conventions for metrics; the Prometheus names follow from them
//! by OpenTelemetry's rules for Prometheus (unit as a suffix, `_total` on counters). Attribute keys are those of the spans
//! ([`crate::telemetry::attributes`]). No attribute is ever an address, a port, a path or anything else that a peer or a
//! host chooses: each has a list of values, and nothing else is recorded. The one exception is the pod's own listening port, of which
//! there are [`PORTS_MAX`](ackbeat_storms::PORTS_MAX) at most.

use ackbeat_liveness::leak::LeakSign;
use ackbeat_liveness::{Assessment, CloseInitiator, CloseKind, CloseMethod, Postmortem, Verdict};

use ackbeat_storms::PORTS_MAX;

use crate::api::ROUTES;
use crate::api::counters::HeartbeatOutcome;
use crate::census::control::ReapOutcome;
use crate::kubernetes::{EventOutcome, PeerKind};
use crate::reload::ReloadOutcome;
use crate::telemetry::{attributes, leaks};

/// What kind of instrument it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It grows and shrinks, and adds up over pods. A gauge in Prometheus.
    UpDownCounter,
    /// A reading that does not add up.
    Gauge,
    /// How readings are distributed, with these upper bounds, in the instrument's unit.
    Histogram(&'static [f64]),
}

impl Kind {
    /// The word for it in OpenTelemetry.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::UpDownCounter => "updowncounter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }

    /// The word for it in Prometheus.
    #[must_use]
    pub const fn prometheus(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::UpDownCounter | Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// An attribute of an instrument.
#[derive(Clone, Copy, Debug)]
pub struct Attribute {
    /// Its key.
    pub key: &'static str,
    /// Every value that it may have.
    pub values: fn() -> Vec<&'static str>,
}

impl Attribute {
    /// Its label in Prometheus.
    #[must_use]
    pub fn label(&self) -> String {
        underscored(self.key)
    }

    /// Whether it is a listening port of the pod, which has no list of values, but a bound.
    #[must_use]
    pub fn is_local_port(&self) -> bool {
        self.key == LOCAL_PORT_KEY
    }

    /// Whether a reading may have this value.
    #[must_use]
    pub fn allows(&self, value: &str) -> bool {
        (self.values)().contains(&value) || (self.is_local_port() && value.parse::<u16>().is_ok())
    }

    /// How many values it may have at most.
    #[must_use]
    pub fn values_max(&self) -> usize {
        (self.values)().len() + if self.is_local_port() { PORTS_MAX } else { 0 }
    }
}

/// An instrument.
#[derive(Clone, Copy, Debug)]
pub struct Instrument {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its unit (UCUM).
    pub unit: &'static str,
    /// What it tells.
    pub meaning: &'static str,
    /// Its attributes; every reading has all of them.
    pub attributes: &'static [Attribute],
    /// Every series is there from the start, as 0, so that its first event shows in a rate. The others appear with their
    /// first reading.
    pub from_start: bool,
}

impl Instrument {
    /// Its name in Prometheus.
    #[must_use]
    pub fn prometheus_name(&self) -> String {
        let unit = match self.unit {
            "By" => "_bytes",
            "s" => "_seconds",
            "1" => "_ratio",
            // What stands in braces is an annotation, and no unit.
            _ => "",
        };
        let total = if self.kind == Kind::Counter { "_total" } else { "" };
        format!("{}{unit}{total}", underscored(self.name))
    }

    /// How many series it can have at most.
    #[must_use]
    pub fn series_max(&self) -> usize {
        self.attributes.iter().map(Attribute::values_max).product()
    }
}

fn underscored(name: &str) -> String {
    name.replace('.', "_")
}

/// Where a value does not apply: a graceful close has no assessment, the kernel's giving up no post-mortem.
pub const NONE: &str = "none";
/// What was not seen.
pub const UNKNOWN: &str = "unknown";
/// Anything beyond a list (the word of OpenTelemetry's conventions).
pub const OTHER: &str = "_OTHER";

/// Statuses of the API that are told apart.
pub const STATUSES: &[&str] = &[
    "101", "200", "202", "400", "404", "405", "406", "408", "409", "411", "413", "414", "415", "422", "426",
    "429", "431", "500", "503", OTHER,
];

/// The word for a route: itself, if the API has it.
pub(super) fn route(route: &str) -> &'static str {
    ROUTES.iter().copied().find(|known| *known == route).unwrap_or(OTHER)
}

/// The word for a status: itself, if it is in the list.
pub(super) fn status(status: u16) -> &'static str {
    STATUSES.iter().copied().find(|known| known.parse() == Ok(status)).unwrap_or(OTHER)
}

const CLOSE_KIND: Attribute = Attribute {
    key: attributes::CLOSE_KIND,
    values: || CloseKind::ALL.iter().map(|kind| kind.as_str()).collect(),
};
/// Kinds of a close that can be a false kill: the host started it, and it was not graceful.
const FALSE_KILL_KIND: Attribute = Attribute {
    key: attributes::CLOSE_KIND,
    values: || {
        [CloseKind::HeartbeatKill, CloseKind::Abort, CloseKind::ProcessExit, CloseKind::Other]
            .iter()
            .map(|kind| kind.as_str())
            .collect()
    },
};
const CLOSE_INITIATOR: Attribute = Attribute {
    key: attributes::CLOSE_INITIATOR,
    values: || CloseInitiator::ALL.iter().map(|initiator| initiator.as_str()).collect(),
};
const CLOSE_METHOD: Attribute = Attribute {
    key: attributes::CLOSE_METHOD,
    values: || CloseMethod::ALL.iter().map(|method| method.as_str()).chain([NONE, UNKNOWN]).collect(),
};
const VERDICT: Attribute = Attribute {
    key: attributes::VERDICT,
    values: || Verdict::ALL.iter().map(|verdict| verdict.as_str()).collect(),
};
const VERDICT_PREVIOUS: Attribute = Attribute { key: attributes::VERDICT_PREVIOUS, ..VERDICT };
const KILL_ASSESSMENT: Attribute = Attribute {
    key: attributes::KILL_ASSESSMENT,
    values: || Assessment::ALL.iter().map(|assessment| assessment.as_str()).chain([NONE]).collect(),
};
const POSTMORTEM: Attribute = Attribute {
    key: attributes::POSTMORTEM,
    values: || Postmortem::ALL.iter().map(|postmortem| postmortem.as_str()).chain([NONE]).collect(),
};

/// Key of a listening port of the pod.
pub const LOCAL_PORT_KEY: &str = "network.local.port";
const LOCAL_PORT: Attribute = Attribute { key: LOCAL_PORT_KEY, values: || vec![OTHER] };

/// Key of what became of something.
pub const OUTCOME: &str = "outcome";
const RECORD_OUTCOME: Attribute = Attribute { key: OUTCOME, values: || vec!["seen", "dropped", "rejected"] };
const SPAN_OUTCOME: Attribute = Attribute { key: OUTCOME, values: || vec!["exported", "failed", "dropped"] };
const EXPORT_OUTCOME: Attribute = Attribute { key: OUTCOME, values: || vec!["exported", "failed"] };
const PROBE_OUTCOME: Attribute =
    Attribute { key: OUTCOME, values: || vec!["sent", "failed", "stale", "dropped", "refused"] };
const TEXT_OUTCOME: Attribute =
    Attribute { key: OUTCOME, values: || vec!["unmatched", "heartbeat", "refused"] };
const HEARTBEAT_OUTCOME: Attribute = Attribute {
    key: OUTCOME,
    values: || HeartbeatOutcome::ALL.iter().map(|outcome| outcome.as_str()).collect(),
};
/// Key of a TCP state.
pub const TCP_STATE: &str = "ackbeat.tcp.state";
/// The words for TCP states, in the order of [`TcpState::ALL`](ackbeat_liveness::TcpState::ALL).
pub const TCP_STATES: [&str; 11] = [
    "established",
    "syn_sent",
    "syn_recv",
    "fin_wait1",
    "fin_wait2",
    "time_wait",
    "close",
    "close_wait",
    "last_ack",
    "listen",
    "closing",
];
const LEAK_SIGN: Attribute =
    Attribute { key: leaks::SIGN, values: || LeakSign::ALL.iter().map(|sign| sign.as_str()).collect() };
const REAP_OUTCOME: Attribute =
    Attribute { key: OUTCOME, values: || ReapOutcome::ALL.iter().map(|outcome| outcome.as_str()).collect() };
const RELOAD_OUTCOME: Attribute = Attribute {
    key: OUTCOME,
    values: || ReloadOutcome::ALL.iter().map(|outcome| outcome.as_str()).collect(),
};
const KUBERNETES_EVENT_OUTCOME: Attribute =
    Attribute { key: OUTCOME, values: || EventOutcome::ALL.iter().map(|outcome| outcome.as_str()).collect() };
/// Key of what something is to Kubernetes.
pub const KIND: &str = "kind";
const KUBERNETES_KIND: Attribute =
    Attribute { key: KIND, values: || PeerKind::ALL.iter().map(|kind| kind.as_str()).collect() };
/// Key of what found no room.
pub const LEFT_OUT_OF: &str = "of";
const LEFT_OUT: Attribute = Attribute { key: LEFT_OUT_OF, values: || vec!["sockets", "ports", "closes"] };
/// Key of the route of a request to the API.
pub const HTTP_ROUTE: &str = "http.route";
/// Key of the status of its answer.
pub const HTTP_RESPONSE_STATUS_CODE: &str = "http.response.status_code";
/// Key of the mode in which CPU time was spent.
pub const CPU_MODE: &str = "cpu.mode";

/// A queue may be empty, fit into the first flight of a connection (10 segments, RFC 6928), or hold a replay of many
/// megabytes: powers of four from 1 KiB to 64 MiB.
const QUEUE_BOUNDARIES: &[f64] = &[
    0.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// From a loopback's round trip to a minute, beyond which nobody waits for a Pong; the steps are 1, 2.5, 5.
const TIME_BOUNDARIES: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0, 60.0,
];

/// A client that comes back at once, one with a fixed or growing back-off, and the minute after which nobody is known any
/// more.
const RECONNECT_BOUNDARIES: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

macro_rules! instruments {
    ($($(#[$meta:meta])* $constant:ident = $instrument:expr;)+) => {
        $($(#[$meta])* pub const $constant: Instrument = $instrument;)+
        /// Every instrument.
        pub const INSTRUMENTS: &[Instrument] = &[$($constant),+];
    };
}

const fn counter(
    name: &'static str,
    unit: &'static str,
    attributes: &'static [Attribute],
    meaning: &'static str,
) -> Instrument {
    Instrument { name, kind: Kind::Counter, unit, meaning, attributes, from_start: true }
}

const fn later(instrument: Instrument) -> Instrument {
    Instrument { from_start: false, ..instrument }
}

const fn histogram(
    name: &'static str,
    unit: &'static str,
    boundaries: &'static [f64],
    meaning: &'static str,
) -> Instrument {
    Instrument { name, kind: Kind::Histogram(boundaries), unit, meaning, attributes: &[], from_start: false }
}

instruments! {
    /// Closes that this side started.
    HOST_CLOSES = later(counter(
        "ackbeat.host.closes",
        "{close}",
        &[CLOSE_KIND, CLOSE_METHOD, VERDICT, KILL_ASSESSMENT, POSTMORTEM],
        "Connections that this side closed: the host, or the kernel on its behalf. Counted when the post-mortem is over. \
         The verdict is that at the close",
    ));
    /// Ends of connections.
    CONNECTION_CLOSES = counter(
        "ackbeat.connection.closes",
        "{close}",
        &[CLOSE_INITIATOR, CLOSE_KIND],
        "Connections that ended, whoever ended them. Connections that are open when the sidecar stops are not among them",
    );
    /// False kills.
    FALSE_KILLS = counter(
        "ackbeat.false_kills",
        "{close}",
        &[FALSE_KILL_KIND],
        "Closes by the host that killed a peer that was there",
    );
    /// False kills among all ends.
    FALSE_KILL_SHARE = Instrument {
        name: "ackbeat.false_kill.share",
        kind: Kind::Gauge,
        unit: "1",
        meaning: "False kills among all ends of connections since the start. Absent before the first end",
        attributes: &[],
        from_start: false,
    };
    /// Kills by a watchdog among all ends.
    HEARTBEAT_KILL_SHARE = Instrument {
        name: "ackbeat.heartbeat_kill.share",
        kind: Kind::Gauge,
        unit: "1",
        meaning: "Kills by a heartbeat watchdog, right or wrong, among all ends of connections since the start. Absent \
                  before the first end",
        attributes: &[],
        from_start: false,
    };
    /// Connections by verdict.
    CONNECTIONS = Instrument {
        name: "ackbeat.connections",
        kind: Kind::UpDownCounter,
        unit: "{connection}",
        meaning: "Connections that are watched, by their verdict now, as of the last second; closed while the post-mortem runs",
        attributes: &[VERDICT],
        from_start: true,
    };
    /// Verdict changes.
    VERDICT_CHANGES = later(counter(
        "ackbeat.verdict.changes",
        "{change}",
        &[VERDICT_PREVIOUS, VERDICT],
        "Changes of a verdict to another one",
    ));
    /// Send queue.
    TCP_SEND_QUEUE = histogram(
        "ackbeat.tcp.send_queue",
        "By",
        QUEUE_BOUNDARIES,
        "Bytes written and not acknowledged, of every connection whose socket was read since the last second. Sockets are \
         read while something is outstanding, so connections at rest are not in it",
    );
    /// In flight.
    TCP_UNACKED = histogram(
        "ackbeat.tcp.unacked",
        "By",
        QUEUE_BOUNDARIES,
        "Of those bytes, the ones that were sent: in flight",
    );
    /// Smoothed round-trip time.
    TCP_RTT = histogram(
        "ackbeat.tcp.rtt",
        "s",
        TIME_BOUNDARIES,
        "Smoothed round-trip time (srtt) to the peer, or to the next TCP hop, of the same readings",
    );
    /// What a close costs its peer.
    RECONNECT_AFTER = Instrument {
        attributes: &[CLOSE_KIND, KILL_ASSESSMENT],
        ..histogram(
            "ackbeat.reconnect.after",
            "s",
            RECONNECT_BOUNDARIES,
            "From a close that this side began to the peer's next connection: what it cost the peer. A peer is known by its \
             address and the path of its upgrade, within a minute; behind a proxy nobody is",
        )
    };
    /// How long heartbeats take.
    PING_TO_PONG = histogram(
        "ackbeat.heartbeat.ping_to_pong",
        "s",
        TIME_BOUNDARIES,
        "From a Ping to the Pong that answers it",
    );
    /// How long Pings wait.
    PING_TO_ACK = histogram(
        "ackbeat.heartbeat.ping_to_ack",
        "s",
        TIME_BOUNDARIES,
        "From a Ping that was answered to its acknowledgement by the peer's kernel: what it waited for in queues. Where no \
         reading of the socket lies between the acknowledgement and the Pong it is the time to the Pong, which is too long \
         by less than the time between two readings",
    );
    /// How long peers take.
    ACK_TO_PONG = histogram(
        "ackbeat.heartbeat.ack_to_pong",
        "s",
        TIME_BOUNDARIES,
        "From that acknowledgement to the Pong: what the peer's application took. Where no reading lies between, the time \
         from the Ping, which is too long by as much",
    );
    /// Kernel records.
    KERNEL_RECORDS = counter(
        "ackbeat.kernel.records",
        "{record}",
        &[RECORD_OUTCOME],
        "Records of the kernel programs: seen, dropped for want of room in the ring buffer, or read and rejected",
    );
    /// Flows without room.
    KERNEL_FLOWS_REJECTED = counter(
        "ackbeat.kernel.flows_rejected",
        "{flow}",
        &[],
        "Flows that found no room in the kernel's table; their heartbeats are unknown",
    );
    /// Control frames.
    WIRE_CONTROL_FRAMES =
        counter("ackbeat.wire.control_frames", "{frame}", &[], "Control frames that the wire parser reported");
    /// Text frames.
    WIRE_TEXT_FRAMES = counter(
        "ackbeat.wire.text_frames",
        "{frame}",
        &[TEXT_OUTCOME],
        "Short data frames that were compared with the patterns of text heartbeats (setting heartbeat.profiles): those that no \
         pattern fits, and of those that the kernel handed over, heartbeats, and refused ones, which are none or not proven yet",
    );
    /// Places lost.
    WIRE_LOSSES = counter("ackbeat.wire.losses", "{loss}", &[], "Times that the wire parser lost its place in a stream");
    /// Places found again.
    WIRE_RECOVERIES = counter("ackbeat.wire.recoveries", "{recovery}", &[], "Times that it found its place again");
    /// Sampler.
    SAMPLER_PASSES =
        counter("ackbeat.sampler.passes", "{pass}", &[], "Passes of the sampler over the tracked sockets");
    /// Own window probes.
    PROBES = counter(
        "ackbeat.probes",
        "{probe}",
        &[PROBE_OUTCOME],
        "Own window probes (setting probe.window): sent, failed in the kernel, stale by the time they could be sent, dropped \
         for want of room or of a raw socket, or refused because there were too many",
    );
    /// Sockets by state.
    SOCKETS = Instrument {
        name: "ackbeat.sockets",
        kind: Kind::UpDownCounter,
        unit: "{socket}",
        meaning: "TCP sockets of the pod's network namespace by their state, dialled ones too, as of the last census",
        attributes: &[Attribute { key: TCP_STATE, values: || TCP_STATES.to_vec() }],
        from_start: false,
    };
    /// Leaks now.
    LEAKS_SUSPECTED = Instrument {
        name: "ackbeat.leaks.suspected",
        kind: Kind::UpDownCounter,
        unit: "{leak}",
        meaning: "Leaks that are suspected now: ports whose count stands at its maximum with nothing to do, sockets that the \
                  host does not close, ports with dialled sockets that nobody uses any more",
        attributes: &[LEAK_SIGN],
        from_start: true,
    };
    /// Leaks since the start.
    LEAKS = counter("ackbeat.leaks", "{leak}", &[LEAK_SIGN], "Leaks that were suspected since the start");
    /// Reaped sockets.
    LEAK_REAPS = counter(
        "ackbeat.leak.reaps",
        "{socket}",
        &[REAP_OUTCOME],
        "Idle connections of a full quota (setting leaks.reap): destroyed, would have been in a dry run, refused because they \
         carried a byte meanwhile, gone, spared because reaping was switched off, failed for want of a privilege, or dropped \
         because too many waited",
    );
    /// Censuses.
    CENSUSES = counter("ackbeat.censuses", "{census}", &[], "Censuses of all sockets that were looked at");
    /// What found no room in censuses.
    CENSUS_LEFT_OUT = counter(
        "ackbeat.census.left_out",
        "{item}",
        &[LEFT_OUT],
        "What found no room: sockets beyond 16384, sockets of ports beyond 256, each counted with each census, and closes beyond \
         1024 that dialled sockets are compared with",
    );
    /// Connections beyond the limit.
    CONNECTIONS_REFUSED = counter(
        "ackbeat.connections.refused",
        "{connection}",
        &[],
        "Connections that are not watched because there were too many at once",
    );
    /// Late ticks.
    LATE_TICKS = counter(
        "ackbeat.late_ticks",
        "{tick}",
        &[],
        "Times that this process came late to its own clock; nobody is judged by that time",
    );
    /// Arrivals.
    ARRIVALS = later(counter(
        "ackbeat.arrivals",
        "{connection}",
        &[LOCAL_PORT],
        "Connections that were established, by the listening port that they came to. Connections that were found and not \
         seen to open are not among them, but in mode sock_diag, where all are found",
    ));
    /// Storms.
    STORMS = counter(
        "ackbeat.reconnect.storms",
        "{storm}",
        &[],
        "Reconnect storms that began: after a burst of closes the arrivals per second left the port's baseline",
    );
    /// Storms now.
    STORMS_ACTIVE = Instrument {
        name: "ackbeat.reconnect.storms.active",
        kind: Kind::UpDownCounter,
        unit: "{storm}",
        meaning: "Listening ports that have a reconnect storm now",
        attributes: &[],
        from_start: true,
    };
    /// Resonance.
    RECONNECT_PERIOD = Instrument {
        name: "ackbeat.reconnect.period",
        kind: Kind::Gauge,
        unit: "s",
        meaning: "The period at which clients of a listening port come back in lock-step. Absent where they do not, or where it \
                  is not known",
        attributes: &[LOCAL_PORT],
        from_start: false,
    };
    /// Outages.
    OUTAGES = counter(
        "ackbeat.outages",
        "{outage}",
        &[],
        "Outages of a listening port that began: most of its peers were unreachable, and nothing came from any of them",
    );
    /// Outages now.
    OUTAGES_ACTIVE = Instrument {
        name: "ackbeat.outages.active",
        kind: Kind::UpDownCounter,
        unit: "{outage}",
        meaning: "Listening ports that have an outage now",
        attributes: &[],
        from_start: true,
    };
    /// Spans out.
    EXPORT_SPANS = counter(
        "ackbeat.export.spans",
        "{span}",
        &[SPAN_OUTCOME],
        "Spans on their way out: exported, failed in the exporter, or dropped for want of room in the queue",
    );
    /// Spans that wait.
    EXPORT_WAITING = Instrument {
        name: "ackbeat.export.waiting",
        kind: Kind::UpDownCounter,
        unit: "{span}",
        meaning: "Spans that wait for their export, or are being exported",
        attributes: &[],
        from_start: true,
    };
    /// Metrics out.
    EXPORT_METRICS = counter(
        "ackbeat.export.metrics",
        "{export}",
        &[EXPORT_OUTCOME],
        "Exports of all metrics over OTLP. A failed one loses no event: the next has the same totals and more",
    );
    /// Recording.
    RECORDING_LOST_LINES =
        counter("ackbeat.recording.lost_lines", "{line}", &[], "Lines that are missing from the recording");
    /// Log.
    LOG_LOST_LINES =
        counter("ackbeat.log.lost_lines", "{line}", &[], "Log lines that were lost because standard error was not read");
    /// Requests to the API.
    API_REQUESTS = later(counter(
        "ackbeat.api.requests",
        "{request}",
        &[
            Attribute { key: HTTP_ROUTE, values: || ROUTES.into_iter().chain([OTHER]).collect() },
            Attribute { key: HTTP_RESPONSE_STATUS_CODE, values: || STATUSES.to_vec() },
        ],
        "Requests to the API",
    ));
    /// Connections to the API beyond its limit.
    API_CONNECTIONS_REFUSED = counter(
        "ackbeat.api.connections.refused",
        "{connection}",
        &[],
        "Connections to the API that were refused because there were too many at once",
    );
    /// Events that were not read.
    API_EVENTS_DROPPED = counter(
        "ackbeat.api.events.dropped",
        "{event}",
        &[],
        "Events that a reader of the API's stream was too slow for",
    );
    /// Readers that were too slow.
    API_READERS_DROPPED = counter(
        "ackbeat.api.readers.dropped",
        "{reader}",
        &[],
        "Readers of the API's stream of events that were too slow and were sent away",
    );
    /// Reported heartbeats.
    API_HEARTBEATS = counter(
        "ackbeat.api.heartbeats",
        "{heartbeat}",
        &[HEARTBEAT_OUTCOME],
        "Heartbeats that hosts reported: accepted, unmatched (no such connection is watched), redundant (seen on the wire \
         already), or dropped for want of room",
    );
    /// Kubernetes Events about the own pod.
    KUBERNETES_EVENTS = counter(
        "ackbeat.kubernetes.events",
        "{event}",
        &[KUBERNETES_EVENT_OUTCOME],
        "Kubernetes Events about the own pod: published; dropped (what it would have told found no room, and is in the number of \
         the next one); refused (no right to); failed (attempts, most of them tried again)",
    );
    /// Addresses whose owner is known.
    KUBERNETES_PEERS = Instrument {
        name: "ackbeat.kubernetes.peers",
        kind: Kind::UpDownCounter,
        unit: "{address}",
        meaning: "Addresses of pods and Services that peers are known by, those of a minute ago among them",
        attributes: &[KUBERNETES_KIND],
        from_start: false,
    };
    /// Addresses without room.
    KUBERNETES_PEERS_LEFT_OUT = counter(
        "ackbeat.kubernetes.peers.left_out",
        "{address}",
        &[],
        "Times that an address of a pod or a Service found no room: 10,000 of each kind are known at most",
    );
    /// Readings of the configuration file.
    CONFIG_RELOADS = counter(
        "ackbeat.config.reloads",
        "{reload}",
        &[RELOAD_OUTCOME],
        "Times that the configuration file was read anew: applied, unchanged (nothing in it takes effect before the next \
         start), or refused for a mistake in it, so that the old one stays",
    );
    /// CPU.
    PROCESS_CPU_TIME = counter(
        "process.cpu.time",
        "s",
        &[Attribute { key: CPU_MODE, values: || vec!["user", "system"] }],
        "CPU time of the sidecar itself (getrusage)",
    );
    /// Memory.
    PROCESS_MEMORY_USAGE = Instrument {
        name: "process.memory.usage",
        kind: Kind::UpDownCounter,
        unit: "By",
        meaning: "Memory of the sidecar itself that is in RAM (resident, /proc/self/statm). The kernel's maps are not in it",
        attributes: &[],
        from_start: true,
    };
}
