//! The one table of settings, and the page that is made from it.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use ackbeat_liveness::leak::Quota;

use super::heartbeat::{is_text, names};
use super::layer;
use super::reasons::reason;
use super::{
    AskedByChoice, AttemptChoice, LogFormat, LogLevel, MatchChoice, ModeChoice, PeersChoice, PolicyName,
    ProfileChoice, ProxyChoice, ReapChoice, takes_effect_at_once,
};

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Ports, separated by commas (a list in YAML).
    Ports,
    /// Status codes of Close frames, separated by commas (a list in YAML).
    CloseCodes,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A file.
    Path,
    /// An address and a port to listen on, or `off`.
    Listen,
    /// `off`, `auto`, or heartbeat profiles, separated by commas (a list in YAML).
    Profiles,
    /// Quotas of ports, separated by commas (a list in YAML).
    Quotas,
    /// A text that fits into a heartbeat.
    Text,
    /// `true` or `false`.
    Bool,
    /// A whole number up to 255.
    Count8,
    /// A whole number of milliseconds.
    Milliseconds,
    /// A whole number of bytes.
    Bytes,
}

impl ValueKind {
    /// What a value must be, for messages and the reference.
    #[must_use]
    pub fn expected(self) -> String {
        match self {
            Self::Ports => "a list of ports from 1 to 65535, separated by commas".to_owned(),
            Self::CloseCodes => format!(
                "a list of status codes from {} to {}, separated by commas",
                CLOSE_CODES.start(),
                CLOSE_CODES.end()
            ),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::Path => "a file name".to_owned(),
            Self::Listen => format!("an address and a port (127.0.0.1:80, [::1]:80), or {OFF}"),
            Self::Profiles => format!("{OFF}, auto, or a list of {}, separated by commas", names()),
            Self::Quotas => {
                "a list of remote:PORT=LIMIT, remote:ADDRESS:PORT=LIMIT or local:PORT=LIMIT, separated \
                             by commas"
                    .to_owned()
            }
            Self::Text => "a text of 1 to 125 bytes".to_owned(),
            Self::Bool => "true or false".to_owned(),
            Self::Count8 => "a whole number".to_owned(),
            Self::Milliseconds => "a whole number of milliseconds".to_owned(),
            Self::Bytes => "a whole number of bytes".to_owned(),
        }
    }
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its key in the YAML file, sections separated by points.
    pub key: &'static str,
    /// Its flag on the command line, where it has one.
    pub flag: Option<&'static str>,
    /// What its value looks like.
    pub kind: ValueKind,
    /// Its default, as text.
    pub default: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

impl Setting {
    /// Its environment variable.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("ACKBEAT_{}", self.key.replace('.', "_").to_uppercase())
    }

    /// What its value must be, with its range if it is a number.
    #[must_use]
    pub fn expected(&self) -> String {
        let number = match self.kind {
            ValueKind::Count8 => "a whole number",
            ValueKind::Milliseconds => "a whole number of milliseconds",
            ValueKind::Bytes => "a whole number of bytes",
            _ => return self.kind.expected(),
        };
        match layer::range(self.key) {
            Some(range) => format!("{number} {}", from_to(&range)),
            None => number.to_owned(),
        }
    }

    /// Whether a value of the YAML file fits it. A number is whole and in its range.
    #[must_use]
    pub fn accepts(&self, value: &serde_json::Value) -> bool {
        let is_in_range = |value: &serde_json::Value| {
            value
                .as_u64()
                .is_some_and(|number| layer::range(self.key).is_none_or(|range| range.contains(&number)))
        };
        match self.kind {
            ValueKind::Ports => value.as_array().is_some_and(|ports| {
                ports.iter().all(|port| port.as_u64().is_some_and(|port| (1..=65_535).contains(&port)))
            }),
            ValueKind::CloseCodes => value.as_array().is_some_and(|codes| {
                codes.iter().all(|code| {
                    code.as_u64()
                        .is_some_and(|code| u16::try_from(code).is_ok_and(|code| CLOSE_CODES.contains(&code)))
                })
            }),
            ValueKind::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
            ValueKind::Path => value.as_str().is_some_and(|path| !path.is_empty()),
            ValueKind::Listen => value.as_str().is_some_and(|text| listen_address(text).is_some()),
            ValueKind::Profiles => match value {
                serde_json::Value::String(text) => ProfileChoice::parse(text).is_some(),
                serde_json::Value::Array(names) => names
                    .iter()
                    .map(serde_json::Value::as_str)
                    .collect::<Option<Vec<_>>>()
                    .is_some_and(|names| ProfileChoice::listed(names).is_some()),
                other => *other == serde_json::Value::Bool(false),
            },
            ValueKind::Quotas => value.as_array().is_some_and(|quotas| {
                quotas.iter().all(|quota| quota.as_str().is_some_and(|quota| quota.parse::<Quota>().is_ok()))
            }),
            ValueKind::Text => value.as_str().is_some_and(is_text),
            ValueKind::Bool => value.is_boolean(),
            ValueKind::Count8 | ValueKind::Milliseconds | ValueKind::Bytes => is_in_range(value),
        }
    }
}

/// Status codes that a Close frame may have (RFC 6455 section 7.4.2).
pub const CLOSE_CODES: RangeInclusive<u16> = 1_000..=4_999;

/// The word for an address that nothing listens on.
pub const OFF: &str = "off";

/// An address to listen on: `Some(None)` is [`OFF`], `None` is neither.
#[must_use]
pub fn listen_address(text: &str) -> Option<Option<std::net::SocketAddr>> {
    if text == OFF { Some(None) } else { text.parse().ok().map(Some) }
}

/// A range in words.
#[must_use]
pub fn from_to(range: &RangeInclusive<u64>) -> String {
    match *range.end() {
        u64::MAX => format!("of at least {}", range.start()),
        end => format!("from {} to {end}", range.start()),
    }
}

const OF_POLICY: &str = "of the policy";

const fn threshold(key: &'static str, kind: ValueKind, meaning: &'static str) -> Setting {
    Setting { key, flag: None, kind, default: OF_POLICY, meaning }
}

/// A setting of `leaks`.
macro_rules! leak {
    ($key:literal, $kind:expr, $default:expr, $meaning:expr $(,)?) => {
        Setting {
            key: concat!("leaks.", $key),
            flag: None,
            kind: $kind,
            default: $default,
            meaning: $meaning,
        }
    };
}

/// Every setting.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "ports",
        flag: Some("--ports"),
        kind: ValueKind::Ports,
        default: "every listening port, now or later",
        meaning: "Listening ports whose connections are watched.",
    },
    Setting {
        key: "mode",
        flag: Some("--mode"),
        kind: ValueKind::Word(ModeChoice::WORDS),
        default: "auto",
        meaning: "How evidence is gathered. `ebpf` needs `CAP_BPF`, `CAP_PERFMON` and `CAP_NET_ADMIN`. `sock-diag` needs \
                  none, and knows no heartbeats and no closing process. `auto` is `ebpf`, except on a kernel that cannot \
                  do it: there it is `sock-diag`. A missing privilege is never papered over: `auto` stops with exit code 3. \
                  `best-effort` goes on with `sock-diag` there too, and warns with what is missing: injected sidecars have it, \
                  since a container that ends keeps its pod from being ready.",
    },
    Setting {
        key: "policy",
        flag: Some("--policy"),
        kind: ValueKind::Word(PolicyName::WORDS),
        default: "default",
        meaning: "The thresholds. `default` prefers to keep a connection, `fast` prefers to know first.",
    },
    threshold("thresholds.fresh_ms", ValueKind::Milliseconds, "Evidence that is at most this old is fresh."),
    threshold(
        "thresholds.pong_budget_ms",
        ValueKind::Milliseconds,
        "A Pong is in time for this long after its Ping was acknowledged. Where the peer asks, its next heartbeat is in time for twice its longest recent interval and this long on top.",
    ),
    threshold(
        "thresholds.unreachable_retransmits",
        ValueKind::Count8,
        "`unreachable` needs this many unanswered retransmission timeouts, and …",
    ),
    threshold(
        "thresholds.unreachable_floor_ms",
        ValueKind::Milliseconds,
        "… nothing from the peer for this long while data was outstanding.",
    ),
    threshold(
        "thresholds.unreachable_after_ms",
        ValueKind::Milliseconds,
        "`unreachable` justifies a kill once nothing came for this long.",
    ),
    threshold(
        "thresholds.lossy_after_ms",
        ValueKind::Milliseconds,
        "On a path that healed within the last minute from three retransmission timeouts, in two spells at least, or that \
         lost one segment in ten on and on although no queue was full, `unreachable` and `silent` justify a kill after this \
         at the earliest.",
    ),
    threshold(
        "thresholds.silent_after_ms",
        ValueKind::Milliseconds,
        "`silent` justifies a kill once the oldest unanswered Ping was acknowledged this long ago, or the next heartbeat of a peer that asks was overdue for this long.",
    ),
    threshold(
        "thresholds.stalled_after_ms",
        ValueKind::Milliseconds,
        "`stalled` justifies a kill once the peer's application showed no progress for this long.",
    ),
    threshold(
        "thresholds.min_progress_bytes",
        ValueKind::Bytes,
        "Less progress than this in `thresholds.progress_window_ms` does not hold a connection.",
    ),
    threshold(
        "thresholds.progress_window_ms",
        ValueKind::Milliseconds,
        "The window for `thresholds.min_progress_bytes`.",
    ),
    threshold(
        "thresholds.postmortem_window_ms",
        ValueKind::Milliseconds,
        "How long a socket is watched after the host closed it.",
    ),
    threshold(
        "thresholds.sample_interval_ms",
        ValueKind::Milliseconds,
        "While something is outstanding, sockets are sampled this often.",
    ),
    threshold(
        "thresholds.late_tick_ms",
        ValueKind::Milliseconds,
        "A tick that comes this late opens new windows and expires none.",
    ),
    Setting {
        key: "peer_is_proxy",
        flag: None,
        kind: ValueKind::Word(ProxyChoice::WORDS),
        default: "auto",
        meaning: "Whether whatever terminates TCP on the other end is a proxy: then ACKs say nothing of the peer behind it \
                  (`ackbeat.evidence.scope` is `next_hop`), and never hold a connection whose Pong is owed beyond \
                  `thresholds.silent_after_ms`; and since all peers have the proxy's address, none is known when it comes \
                  back. `auto`: a forwarding header of the upgrade request says so (`Forwarded`, `Via`, `X-Forwarded-For`, \
                  `X-Real-IP`, `CF-Ray` and their like; only their names are kept). Where there is none, eight Pongs in a row \
                  that come far later than their Pings' ACKs (by four round trips and 50 ms) change the scope, and \
                  nothing else: an application that is always slow looks the same. `no`: whatever a header says.",
    },
    Setting {
        key: "close.final_codes",
        flag: None,
        kind: ValueKind::CloseCodes,
        default: "1008, 4000, 4001",
        meaning: "Status codes with which a side tells the other not to come back (`ackbeat.close.final`). A planned restart, \
                  which 1001, 1012, and 4001 with the reason `server_restart` announce, never is.",
    },
    Setting {
        key: "heartbeat.profiles",
        flag: None,
        kind: ValueKind::Profiles,
        default: OFF,
        meaning: "Text heartbeats that are looked for besides the Pings and Pongs of RFC 6455, in messages of one frame, at \
                  most 125 bytes and not compressed: `ping-pong` (the texts `ping` and `pong`), `json` (objects whose `type` \
                  is `ping` or `pong`), `engine.io` (`2` and `3`, below socket.io), `phoenix` (channels), `signalr` (type 6, \
                  each side its own) and `custom`. With `auto` every built-in one is looked for, and a listening port's \
                  heartbeats count once one connection proved them: a question and its answer twice, or, but for \
                  engine.io, three questions at even distances. The kernel compares short messages with these profiles' \
                  patterns and hands over nothing but what fits; what then is no heartbeat is dropped, and never logged or \
                  recorded. It needs mode `ebpf` and a connection that is not encrypted.",
    },
    Setting {
        key: "heartbeat.custom.question",
        flag: None,
        kind: ValueKind::Text,
        default: "none",
        meaning: "The question of the profile `custom`, which `heartbeat.profiles` must name unless it is `auto`. It needs no \
                  proof there.",
    },
    Setting {
        key: "heartbeat.custom.answer",
        flag: None,
        kind: ValueKind::Text,
        default: "none: nobody answers",
        meaning: "Its answer.",
    },
    Setting {
        key: "heartbeat.custom.match",
        flag: None,
        kind: ValueKind::Word(MatchChoice::WORDS),
        default: "exact",
        meaning: "Whether a message is the question (or answer), or begins with it.",
    },
    Setting {
        key: "heartbeat.custom.asked_by",
        flag: None,
        kind: ValueKind::Word(AskedByChoice::WORDS),
        default: "either",
        meaning: "Who asks. It must be said where question and answer are the same text.",
    },
    Setting {
        key: "probe.window",
        flag: None,
        kind: ValueKind::Bool,
        default: "false",
        meaning: "While a peer's window is closed and nothing is in flight, ackbeat asks the peer itself whether it is there, \
                  with a segment like the kernel's own window probe: no data, a sequence number that is acknowledged \
                  already. The kernel's probes come up to two minutes apart; with these, a peer that is gone is \
                  `unreachable` after about four seconds, if it had answered two of them before. A peer that never \
                  answers such segments is not accused by them. At most one for each connection and interval, 200 a \
                  second in all. It needs `CAP_NET_RAW` and mode `ebpf`; without them it warns and sends none. Off by \
                  default: nothing else of ackbeat sends anything to a peer.",
    },
    Setting {
        key: "probe.interval_ms",
        flag: None,
        kind: ValueKind::Milliseconds,
        default: "1000",
        meaning: "An own window probe is sent when the peer's last segment is this old. After the third that nothing answers \
                  the distance doubles, after the eighth no more are sent.",
    },
    leak!(
        "census_interval_ms",
        ValueKind::Milliseconds,
        "10000",
        "Every TCP socket of the pod, dialled ones too, is counted this often, by netlink `inet_diag` in either mode. It needs \
         no capability. 0 takes no censuses: then no leak is seen.",
    ),
    leak!(
        "idle_after_ms",
        ValueKind::Milliseconds,
        "180000",
        "A connection that carried no byte either way for this long is idle.",
    ),
    leak!(
        "flat_after_ms",
        ValueKind::Milliseconds,
        "180000",
        "A leak is suspected where the number of connections of one listening or one remote port has stood at its own maximum \
         of the last hour (or at its quota) for this long, and nine of ten of them are idle.",
    ),
    leak!("count_min", ValueKind::Count8, "16", "Fewer connections than this make no such number."),
    leak!(
        "close_wait_after_ms",
        ValueKind::Milliseconds,
        "60000",
        "A socket that the peer closed and the host did not, for this long, is a leak.",
    ),
    leak!(
        "orphan_after_ms",
        ValueKind::Milliseconds,
        "30000",
        "A dialled socket that carries nothing for this long after the connection that it served was closed by its peer is an \
         orphan. Three of them that were passed over when others were dialled are a leak: a pool would have used them again.",
    ),
    leak!(
        "reap",
        ValueKind::Word(ReapChoice::WORDS),
        OFF,
        "Whether idle connections of a full quota are destroyed, oldest first, at most eight with one census, by the kernel's \
         socket destroy (`ss -K`). The application and the peer see a reset. `dry-run` tells what would be destroyed. `on` \
         needs `CAP_NET_ADMIN`. `POST /v1/reap` lowers it while the sidecar runs, and never raises it.",
    ),
    leak!(
        "reap_quota",
        ValueKind::Quotas,
        "none",
        "What ports allow: `remote:8080=64`, `remote:10.0.0.7:8080=64`, `local:9000=100`. Nothing is reaped without one. Set it \
         below the real limit, by as many as arrive between two censuses: at the limit itself somebody is refused before the \
         next census sees it. A quota is looked at for suspicion too, whether there is reaping or not.",
    ),
    leak!(
        "reap_min_age_ms",
        ValueKind::Milliseconds,
        "600000",
        "No connection is reaped that is younger than this.",
    ),
    leak!(
        "reap_min_idle_ms",
        ValueKind::Milliseconds,
        "300000",
        "No connection is reaped that carried a byte either way within this, or that holds bytes. It is looked at again right before.",
    ),
    Setting {
        key: "api.listen",
        flag: None,
        kind: ValueKind::Listen,
        default: crate::api::types::ADDRESS_DEFAULT,
        meaning: "Where the API listens: verdicts for whoever asks before it kills (`/v1/verdict`, `/v1/connections`), reported \
                  heartbeats, events, health, and the description of it all, `/v1/openapi.json`. It asks nobody for a \
                  password and tells addresses and paths: keep it on the loopback interface. Where it cannot listen, the \
                  sidecar warns and goes on without; an address that somebody else has is tried again, at least twice a \
                  minute. Its own connections are not watched.",
    },
    Setting {
        key: "api.socket",
        flag: None,
        kind: ValueKind::Path,
        default: "none",
        meaning: "The API listens on this Unix socket too; whoever may write the file (mode 0660) may ask. A socket that \
                  nobody listens on any more is replaced; at the end it is removed.",
    },
    Setting {
        key: "metrics.listen",
        flag: None,
        kind: ValueKind::Listen,
        default: "`OTEL_EXPORTER_PROMETHEUS_HOST` and `_PORT`, else 127.0.0.1:9464",
        meaning: "Where Prometheus finds the page of metrics (`/metrics`; METRICS.md lists them). It tells no address and no \
                  path: in a pod that Prometheus scrapes, `0.0.0.0:9464`. Where it cannot listen, the sidecar warns and \
                  goes on without; an address that somebody else has is tried again. The API's listener has the same \
                  page. Its own connections are not watched.",
    },
    Setting {
        key: "kubernetes.events",
        flag: None,
        kind: ValueKind::Word(AttemptChoice::WORDS),
        default: "auto",
        meaning: "Kubernetes Events about the own pod, as `kubectl describe pod` shows them: `FalseKill` (the host killed peers that \
                  were there), `LeakSuspected`, `DegradedMode` (eBPF or a signal is missing), `ConfigurationRefused` (a \
                  configuration that was read anew has a mistake). `auto`: where the pod's name and namespace are known (the \
                  variables of the injection) and a ServiceAccount's token is mounted, or `KUBECONFIG` names a file. It needs the \
                  right to `create` `events` of the group `events.k8s.io`; a refusal is told once. Of one reason there are three \
                  at once and then one a minute; each says how many it stands for. Nothing waits for the API server.",
    },
    Setting {
        key: "kubernetes.peers",
        flag: None,
        kind: ValueKind::Word(PeersChoice::WORDS),
        default: "off",
        meaning: "Resolves the addresses of peers to pods and Services: `ackbeat.peer.k8s.pod.name` or `ackbeat.peer.k8s.service.name`, \
                  and `ackbeat.peer.k8s.namespace.name`, on spans, in log lines of closes and in Events. `namespace`: those of \
                  the own namespace; `cluster`: all. It watches, with the rights to `list` and `watch` `pods` and `services`; a \
                  refusal is told once. At most 10,000 addresses of each kind are known, what finds no room is counted. Each \
                  sidecar watches for itself: in a large cluster `cluster` costs the API server a message for each sidecar and \
                  each change of a pod.",
    },
    Setting {
        key: "kubernetes.own_pod",
        flag: None,
        kind: ValueKind::Word(AttemptChoice::WORDS),
        default: "auto",
        meaning: "Watches the own pod for its `deletionTimestamp`: what the host closes from then on, in a `preStop` hook for \
                  example, is a planned restart; without, only from SIGTERM on. `auto`: where the sidecar knows its pod and has a \
                  token, as for `kubernetes.events`. It needs the rights to `list` and `watch` `pods`; a refusal is told once.",
    },
    Setting {
        key: "recording.file",
        flag: Some("--record"),
        kind: ValueKind::Path,
        default: "none",
        meaning: "Everything that the engine was told goes to this file, for `ackbeat replay`. It holds addresses, ports, \
                  the paths and `traceparent` of upgrade requests and Close reasons, and no payload: what a heartbeat \
                  carried is its length and a hash under a key that is not kept. A file that is there when it starts is \
                  kept as `FILE.1`.",
    },
    Setting {
        key: "recording.max_bytes",
        flag: None,
        kind: ValueKind::Bytes,
        default: "268435456",
        meaning: "What the recording takes on the disk at most, in two segments. When the current one has half of this, it \
                  is kept as `FILE.1`, in the place of the one before, and a new one begins with the connections that are \
                  open. `ackbeat replay FILE.1 FILE` reads both as one. A pipe or a device is written to until this is \
                  full; what no longer fits is counted.",
    },
    Setting {
        key: "log.level",
        flag: None,
        kind: ValueKind::Word(LogLevel::WORDS),
        default: "`RUST_LOG`, else `OTEL_LOG_LEVEL`, else info",
        meaning: "How much is logged, on standard error.",
    },
    Setting {
        key: "log.format",
        flag: None,
        kind: ValueKind::Word(LogFormat::WORDS),
        default: "text",
        meaning: "How log lines look.",
    },
    Setting {
        key: "export.own_spans",
        flag: None,
        kind: ValueKind::Bool,
        default: "false",
        meaning: "ackbeat's own work (start, discovery, drain) is traced too.",
    },
    Setting {
        key: "security.sandbox",
        flag: None,
        kind: ValueKind::Bool,
        default: "true",
        meaning: "The sidecar gives up what it does not need: capabilities (when everything is attached, the thread that \
                  samples keeps `CAP_NET_ADMIN` and, on kernels that ask for it, `CAP_BPF`; the census' thread \
                  `CAP_SYS_PTRACE` and `CAP_DAC_READ_SEARCH` if it has them, and `CAP_NET_ADMIN` if `leaks.reap` is `on`; \
                  the recording's `CAP_DAC_OVERRIDE` if it has it; no other thread any), new privileges \
                  (`no_new_privs`), and, by a seccomp filter, system calls that it never makes: starting programs, \
                  signals to and memory of other processes, namespaces, mounts, other users, kernel modules, clocks, other \
                  kinds of sockets, and loading kernel programs once its own run. A file that only `root` may read by \
                  overriding its mode must be readable without.",
    },
    Setting {
        key: "shutdown.drain_ms",
        flag: None,
        kind: ValueKind::Milliseconds,
        default: "3000",
        meaning: "After SIGTERM, closes whose post-mortem runs are watched for at most this long.",
    },
    Setting {
        key: "shutdown.flush_ms",
        flag: None,
        kind: ValueKind::Milliseconds,
        default: "5000",
        meaning: "And the last spans may take this long to be exported. Keep both together below the pod's grace period.",
    },
];

/// Standard variables of OpenTelemetry that are honoured, and how.
pub const OTEL_VARIABLES: &[(&str, &str)] = &[
    ("`OTEL_SDK_DISABLED`", "`true`: no spans and no metrics at all"),
    (
        "`OTEL_TRACES_EXPORTER`",
        "`otlp`, `console` or `none`. Default: `otlp` if an endpoint is set, else `console`: one JSON object a line on \
         standard output",
    ),
    (
        "`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`",
        "where spans go, and metrics too",
    ),
    (
        "`OTEL_EXPORTER_OTLP_PROTOCOL`, `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL`",
        "`grpc` or `http/protobuf` (default)",
    ),
    ("`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TRACES_HEADERS`", "`name=value,…`; never logged"),
    ("`OTEL_EXPORTER_OTLP_TIMEOUT`, `OTEL_EXPORTER_OTLP_TRACES_TIMEOUT`", "milliseconds, default 10000"),
    (
        "`OTEL_EXPORTER_OTLP_CERTIFICATE`, `OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE`",
        "file of trusted certificates (PEM); without it the system's",
    ),
    (
        "`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`",
        "the resource; `service.name` is `ackbeat` by default",
    ),
    ("`OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`", "default `parentbased_always_on`"),
    (
        "`OTEL_BSP_SCHEDULE_DELAY`, `OTEL_BSP_MAX_QUEUE_SIZE`, `OTEL_BSP_MAX_EXPORT_BATCH_SIZE`",
        "the queue of spans; 8192 by default, more than the specification's 2048: a host that ends closes thousands of \
         connections at once. Spans wait in it for a collector that is away. When it is full the oldest goes, but \
         for the spans of closes by this side: those go last. What goes is counted as dropped. One export takes at most \
         half of the queue. The console's default delay is 200 ms",
    ),
    (
        "`OTEL_METRICS_EXPORTER`",
        "a list of `otlp` and `prometheus`, or `none`. Default: the page for Prometheus, and `otlp` too if an endpoint is \
         set. `metrics.listen` is stronger",
    ),
    (
        "`OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, `_PROTOCOL`, `_HEADERS`, `_TIMEOUT`, `_CERTIFICATE`",
        "for metrics, in the place of the variables without `METRICS_`",
    ),
    (
        "`OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_METRIC_EXPORT_TIMEOUT`",
        "milliseconds between two exports of metrics (default 60000), and for one at most (default 30000)",
    ),
    ("`OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE`", "`cumulative` (default), `delta` or `lowmemory`"),
    (
        "`OTEL_EXPORTER_PROMETHEUS_HOST`, `OTEL_EXPORTER_PROMETHEUS_PORT`",
        "where the page is; an IP address or `localhost` (default), and a port (default 9464). `metrics.listen` is stronger",
    ),
    ("`OTEL_LOG_LEVEL`, `RUST_LOG`", "how much is logged; `log.level` is stronger, then `RUST_LOG`"),
];

/// The page `CONFIGURATION.md`.
#[must_use]
pub fn render() -> String {
    let mut page = String::from(
        "# Settings of the sidecar\n\n\
         Every setting is a key of the YAML file (`--config FILE` or `ACKBEAT_CONFIG`), an environment variable, and in part a\n\
         flag. The command line is stronger than the environment, the environment than the file, the file than the default.\n\
         An unknown key or an unknown `ACKBEAT_` variable stops the start with exit code 2 and its name.\n\n\
         The file is looked at every two seconds, and at once on a SIGHUP; a mounted ConfigMap that is swapped is noticed (one that\n\
         is mounted by `subPath` never changes). What it says is put in force as a whole, or not at all: with a mistake in it the\n\
         old configuration stays, and a log line and `ackbeat_config_reloads_total{outcome=\"refused\"}` tell. Settings that take\n\
         effect while it runs do so then, for open connections too; a change of any other is logged and waits for the next\n\
         start. Variables and flags cannot change, and stay stronger.\n\n\
         Exit codes: 0 done; 1 an unexpected failure of the system (standard output that cannot be written, an exporter that\n\
         cannot be built, a source of evidence that broke), told on standard error; 2 bad usage or configuration; 3 missing\n\
         privilege or kernel feature.\n\n\
         This page is written from `src/config/reference.rs`; a test holds both together\n\
         (`UPDATE_REFERENCE=1 cargo test -p ackbeat config` writes it anew).\n\n",
    );
    for setting in SETTINGS {
        let flag = setting.flag.map(|flag| format!(", flag `{flag}`")).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = write!(
            page,
            "## `{}`\n\nVariable `{}`{}. Value: {}. Default: {}.{}\n\n{}\n\n",
            setting.key,
            setting.variable(),
            flag,
            setting.expected(),
            setting.default,
            if takes_effect_at_once(setting.key) { " Takes effect while it runs." } else { "" },
            setting.meaning
        );
    }
    page.push_str(
        "## The policies\n\n\
         Chosen by measurement: each value was swept over every recording of the arena's full set (`tests/arena/README.md`),\n\
         with the other thresholds as they are.\n\n\
         | threshold | default | fast | why |\n|---|--:|--:|---|\n",
    );
    for (name, default, fast) in policy_rows() {
        let _ = writeln!(page, "| `{name}` | {default} | {fast} | {} |", reason(&name));
    }
    page.push_str(
        "\n## OpenTelemetry's variables\n\nA bad value is warned about and ignored.\n\n| variable | meaning |\n|---|---|\n",
    );
    for (variable, meaning) in OTEL_VARIABLES {
        let _ = writeln!(page, "| {variable} | {meaning} |");
    }
    page.push_str(
        "\n## Example\n\n```yaml\nports: [8080, 9090]\nmode: auto\npolicy: fast\nthresholds:\n  stalled_after_ms: 45000\n\
         recording:\n  file: /var/lib/ackbeat/today.jsonl\nlog:\n  format: json\n```\n",
    );
    page
}

/// Each threshold with its value under both policies.
fn policy_rows() -> Vec<(String, String, String)> {
    let values = |name: PolicyName| match serde_json::to_value(name.policy()) {
        Ok(serde_json::Value::Object(values)) => values,
        _ => serde_json::Map::new(),
    };
    let (default, fast) = (values(PolicyName::Default), values(PolicyName::Fast));
    SETTINGS
        .iter()
        .filter_map(|setting| setting.key.strip_prefix("thresholds."))
        .map(|name| {
            let cell = |values: &serde_json::Map<String, serde_json::Value>| {
                values.get(name).map(ToString::to_string).unwrap_or_default()
            };
            (name.to_owned(), cell(&default), cell(&fast))
        })
        .collect()
}
