//! Names and units of every span attribute. They are an interface: searches and dashboards are built on them.
//!
//! A signal that is unavailable has no attribute: it is never 0 or an empty string.

use ackbeat_liveness::{
    Assessment, CloseInitiator, CloseKind, CloseMethod, CloseRecord, Heartbeat, HeartbeatProfile, Postmortem,
    Reconnect, Snapshot, VerdictChange,
};
use opentelemetry::{Key, KeyValue, Value};
use opentelemetry_semantic_conventions::attribute as semconv;

use crate::kubernetes::{PeerKind, PeerName};
use crate::source::Mode;

/// `ackbeat.close.kind`: a [`CloseKind`].
pub const CLOSE_KIND: &str = "ackbeat.close.kind";
/// `ackbeat.close.initiator`: a [`CloseInitiator`].
pub const CLOSE_INITIATOR: &str = "ackbeat.close.initiator";
/// `ackbeat.close.method`: `fin` or `rst`.
pub const CLOSE_METHOD: &str = "ackbeat.close.method";
/// `ackbeat.close.ws_code`: status code of the Close frame (RFC 6455 section 7.4).
pub const CLOSE_WS_CODE: &str = "ackbeat.close.ws_code";
/// `ackbeat.close.ws_reason`: its reason.
pub const CLOSE_WS_REASON: &str = "ackbeat.close.ws_reason";
/// `ackbeat.close.ws_frame`: `none`, `sent`, `received` or `both`.
pub const CLOSE_WS_FRAME: &str = "ackbeat.close.ws_frame";
/// `ackbeat.close.final`: boolean, where a code is known: whether it tells the peer not to come back (setting
/// `close.final_codes`).
pub const CLOSE_FINAL: &str = "ackbeat.close.final";
/// `ackbeat.reconnect.after_ms`: on the root span of a connection that is the return of a peer: from the end of its last one
/// to the establishment of this one. The span links to that end.
pub const RECONNECT_AFTER_MS: &str = "ackbeat.reconnect.after_ms";
/// `ackbeat.reconnect.close_kind`: what kind of end that was, a [`CloseKind`].
pub const RECONNECT_CLOSE_KIND: &str = "ackbeat.reconnect.close_kind";
/// `ackbeat.verdict`: the verdict at the close.
pub const VERDICT: &str = "ackbeat.verdict";
/// `ackbeat.verdict.evidence`: the rung that it stands on.
pub const VERDICT_EVIDENCE: &str = "ackbeat.verdict.evidence";
/// `ackbeat.kill.justified`: whether the policy justified a kill.
pub const KILL_JUSTIFIED: &str = "ackbeat.kill.justified";
/// `ackbeat.kill.assessment`: an [`Assessment`].
pub const KILL_ASSESSMENT: &str = "ackbeat.kill.assessment";
/// `ackbeat.false_kill`: boolean, to search for.
pub const FALSE_KILL: &str = "ackbeat.false_kill";
/// `ackbeat.postmortem`: what followed the close.
pub const POSTMORTEM: &str = "ackbeat.postmortem";
/// `ackbeat.heartbeat.source`: `wire`, `application` or `none`.
pub const HEARTBEAT_SOURCE: &str = "ackbeat.heartbeat.source";
/// `ackbeat.heartbeat.profile`: name of the profile.
pub const HEARTBEAT_PROFILE: &str = "ackbeat.heartbeat.profile";
/// `ackbeat.heartbeat.interval_ms`: learned interval.
pub const HEARTBEAT_INTERVAL_MS: &str = "ackbeat.heartbeat.interval_ms";
/// `ackbeat.heartbeat.missed`: Pings since the last Pong, as the host counts.
pub const HEARTBEAT_MISSED: &str = "ackbeat.heartbeat.missed";
/// `ackbeat.heartbeat.last_pong_age_ms`: age of the last Pong at the close.
pub const HEARTBEAT_LAST_PONG_AGE_MS: &str = "ackbeat.heartbeat.last_pong_age_ms";
/// `ackbeat.heartbeat.ping_location`: where the oldest unanswered Ping was.
pub const HEARTBEAT_PING_LOCATION: &str = "ackbeat.heartbeat.ping_location";
/// `ackbeat.heartbeat.ping_bytes_ahead`: bytes that stood before it.
pub const HEARTBEAT_PING_BYTES_AHEAD: &str = "ackbeat.heartbeat.ping_bytes_ahead";
/// `ackbeat.heartbeat.inferred`: the learned schedule was used.
pub const HEARTBEAT_INFERRED: &str = "ackbeat.heartbeat.inferred";
/// `ackbeat.tcp.send_queue_bytes`: written, not acknowledged.
pub const TCP_SEND_QUEUE_BYTES: &str = "ackbeat.tcp.send_queue_bytes";
/// `ackbeat.tcp.unsent_bytes`: written, not sent.
pub const TCP_UNSENT_BYTES: &str = "ackbeat.tcp.unsent_bytes";
/// `ackbeat.tcp.unread_bytes`: received, not read.
pub const TCP_UNREAD_BYTES: &str = "ackbeat.tcp.unread_bytes";
/// `ackbeat.tcp.snd_wnd_bytes`: the peer's receive window.
pub const TCP_SND_WND_BYTES: &str = "ackbeat.tcp.snd_wnd_bytes";
/// `ackbeat.tcp.srtt_us`: smoothed round-trip time.
pub const TCP_SRTT_US: &str = "ackbeat.tcp.srtt_us";
/// `ackbeat.tcp.rto_ms`: retransmission timeout.
pub const TCP_RTO_MS: &str = "ackbeat.tcp.rto_ms";
/// `ackbeat.tcp.backoff`: exponent of the back-off.
pub const TCP_BACKOFF: &str = "ackbeat.tcp.backoff";
/// `ackbeat.tcp.retransmits`: unanswered retransmissions.
pub const TCP_RETRANSMITS: &str = "ackbeat.tcp.retransmits";
/// `ackbeat.tcp.soft_error`: what the network last said against the path since something was last acknowledged: `none`,
/// `network_unreachable`, `host_unreachable`, `connection_refused` or `_OTHER`. An ICMP error, or a route that is missing.
pub const TCP_SOFT_ERROR: &str = "ackbeat.tcp.soft_error";
/// `ackbeat.tcp.bytes_acked`: acknowledged since the connection was made.
pub const TCP_BYTES_ACKED: &str = "ackbeat.tcp.bytes_acked";
/// `ackbeat.tcp.bytes_received`: received since the connection was made.
pub const TCP_BYTES_RECEIVED: &str = "ackbeat.tcp.bytes_received";
/// `ackbeat.tcp.last_ack_age_ms`: age of the last ACK-bearing segment.
pub const TCP_LAST_ACK_AGE_MS: &str = "ackbeat.tcp.last_ack_age_ms";
/// `ackbeat.tcp.last_inbound_age_ms`: age of the last payload from the peer.
pub const TCP_LAST_INBOUND_AGE_MS: &str = "ackbeat.tcp.last_inbound_age_ms";
/// `ackbeat.connection.lifetime_ms`: from the open to the close; unknown where the open was not seen (connections older than the
/// sidecar, mode `sock_diag`).
pub const CONNECTION_LIFETIME_MS: &str = "ackbeat.connection.lifetime_ms";
/// `ackbeat.evidence.scope`: `peer` or `next_hop`.
pub const EVIDENCE_SCOPE: &str = "ackbeat.evidence.scope";
/// `ackbeat.mode`: `ebpf` or `sock_diag`.
pub const MODE: &str = "ackbeat.mode";
/// `ackbeat.events_dropped`: records that were lost while the connection lived.
pub const EVENTS_DROPPED: &str = "ackbeat.events_dropped";
/// `ackbeat.peer.k8s.pod.name`: the pod that has the peer's address (setting `kubernetes.peers`).
pub const PEER_POD_NAME: &str = "ackbeat.peer.k8s.pod.name";
/// `ackbeat.peer.k8s.service.name`: the Service that has it.
pub const PEER_SERVICE_NAME: &str = "ackbeat.peer.k8s.service.name";
/// `ackbeat.peer.k8s.namespace.name`: the namespace of that pod or Service.
pub const PEER_NAMESPACE_NAME: &str = "ackbeat.peer.k8s.namespace.name";
/// `ackbeat.storm.peak_per_second`: most arrivals within a second.
pub const STORM_PEAK_PER_SECOND: &str = "ackbeat.storm.peak_per_second";
/// `ackbeat.storm.baseline_per_second`: arrivals per second that are usual on the port.
pub const STORM_BASELINE_PER_SECOND: &str = "ackbeat.storm.baseline_per_second";
/// `ackbeat.storm.arrivals`: connections that were established in it.
pub const STORM_ARRIVALS: &str = "ackbeat.storm.arrivals";
/// `ackbeat.storm.peers`: different addresses that they came from.
pub const STORM_PEERS: &str = "ackbeat.storm.peers";
/// `ackbeat.storm.closes`: closes of the burst that set it off; the span's links lead to the latest of them.
pub const STORM_CLOSES: &str = "ackbeat.storm.closes";
/// `ackbeat.storm.end`: `calm`, `new_baseline` or `still_on` (the sidecar stopped first).
pub const STORM_END: &str = "ackbeat.storm.end";
/// `ackbeat.storm.period_ms`: the period at which clients of the port come back in lock-step.
pub const STORM_PERIOD_MS: &str = "ackbeat.storm.period_ms";
/// `ackbeat.storm.strength`: how regular they are, from 0 to 1.
pub const STORM_STRENGTH: &str = "ackbeat.storm.strength";
/// Name of the span event for a verdict change; it carries [`VERDICT`], [`VERDICT_EVIDENCE`], [`KILL_JUSTIFIED`].
pub const VERDICT_CHANGE_EVENT: &str = "ackbeat.verdict_change";
/// Name of the span event for a kill that became justified, or is justified no longer, under the same verdict; it carries
/// the same attributes but [`VERDICT_PREVIOUS`].
pub const KILL_JUSTIFIED_EVENT: &str = "ackbeat.kill_justified_change";
/// On a verdict change: the verdict before.
pub const VERDICT_PREVIOUS: &str = "ackbeat.verdict.previous";

/// A list that leaves out what is unknown.
#[derive(Debug, Default)]
pub(super) struct Attributes(pub(super) Vec<KeyValue>);

impl Attributes {
    pub(super) fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push(KeyValue::new(Key::from_static_str(name), value));
    }

    pub(super) fn known<T: Into<Value>>(&mut self, name: &'static str, value: Option<T>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    pub(super) fn count<T: TryInto<i64>>(&mut self, name: &'static str, value: Option<T>) {
        // OTLP has signed integers only; what does not fit is shown as the largest.
        self.known(name, value.map(|value| value.try_into().unwrap_or(i64::MAX)));
    }

    /// What both the root span and the close's span say.
    pub(super) fn common(&mut self, record: &CloseRecord, mode: Mode) {
        let (local, peer) =
            (record.endpoints.local_address.to_canonical(), record.endpoints.peer_address.to_canonical());
        self.set(semconv::NETWORK_TRANSPORT, "tcp");
        self.set(semconv::NETWORK_TYPE, if peer.is_ipv4() { "ipv4" } else { "ipv6" });
        self.set(semconv::NETWORK_LOCAL_ADDRESS, local.to_string());
        self.set(semconv::NETWORK_LOCAL_PORT, i64::from(record.endpoints.local_port));
        self.set(semconv::NETWORK_PEER_ADDRESS, peer.to_string());
        self.set(semconv::NETWORK_PEER_PORT, i64::from(record.endpoints.peer_port));
        self.known("error.type", error_type(record));
        if !record.still_open {
            self.set(CLOSE_KIND, record.kind.as_str());
            self.known(CLOSE_INITIATOR, initiator(record));
            self.known(CLOSE_METHOD, record.method.map(CloseMethod::as_str));
        }
        if record.is_websocket {
            self.set(CLOSE_WS_FRAME, record.close_frames.as_str());
        }
        self.count(CLOSE_WS_CODE, record.close_code);
        self.known(CLOSE_WS_REASON, record.close_reason.clone());
        self.set(VERDICT, record.assessed.verdict.as_str());
        self.set(VERDICT_EVIDENCE, record.assessed.rung.as_str());
        self.set(EVIDENCE_SCOPE, record.assessed.scope.as_str());
        if !record.preexisting {
            self.count(CONNECTION_LIFETIME_MS, Some(record.closed_at.ms_since(record.opened_at)));
        }
        self.set(MODE, mode.as_str());
        self.count(EVENTS_DROPPED, Some(record.records_lost));
        self.heartbeat(&record.assessed.heartbeat);
        if let Some(snapshot) = &record.snapshot {
            self.snapshot(snapshot);
        }
        let (has_ack, has_inbound) = has_ages(record, mode);
        self.count(TCP_LAST_ACK_AGE_MS, record.assessed.last_ack_age_ms.filter(|_| has_ack));
        self.count(TCP_LAST_INBOUND_AGE_MS, record.assessed.last_inbound_age_ms.filter(|_| has_inbound));
    }

    /// Who the peer is to Kubernetes, where that is known.
    pub(super) fn peer(&mut self, peer: Option<&PeerName>) {
        let Some(peer) = peer else { return };
        let of_name = match peer.kind {
            PeerKind::Pod => PEER_POD_NAME,
            PeerKind::Service => PEER_SERVICE_NAME,
        };
        self.set(of_name, peer.name.clone());
        self.set(PEER_NAMESPACE_NAME, peer.namespace.clone());
    }

    /// What only the close's span says.
    pub(super) fn close(&mut self, record: &CloseRecord) {
        if let Some(process) = &record.process {
            self.set(semconv::PROCESS_PID, i64::from(process.pid));
            self.set(semconv::PROCESS_EXECUTABLE_NAME, process.command.clone());
        }
        self.set(KILL_JUSTIFIED, record.assessed.kill_justified);
        self.known(KILL_ASSESSMENT, record.assessment.map(Assessment::as_str));
        self.known(FALSE_KILL, false_kill(record));
        self.known(POSTMORTEM, record.postmortem.map(Postmortem::as_str));
        self.known(CLOSE_FINAL, record.is_final);
    }

    /// What only the root span says.
    pub(super) fn root(&mut self, record: &CloseRecord) {
        if let Some(reconnect) = &record.reconnect {
            self.count(RECONNECT_AFTER_MS, Some(reconnect.after_ms));
            self.set(RECONNECT_CLOSE_KIND, reconnect.kind.as_str());
        }
    }

    fn heartbeat(&mut self, heartbeat: &Heartbeat) {
        self.set(HEARTBEAT_SOURCE, heartbeat.source.as_str());
        self.known(HEARTBEAT_PROFILE, heartbeat.profile.map(HeartbeatProfile::as_str));
        self.count(HEARTBEAT_INTERVAL_MS, heartbeat.interval_ms);
        self.count(HEARTBEAT_MISSED, heartbeat.missed);
        self.count(HEARTBEAT_LAST_PONG_AGE_MS, heartbeat.last_pong_age_ms);
        self.set(HEARTBEAT_PING_LOCATION, heartbeat.ping_location.as_str());
        self.count(HEARTBEAT_PING_BYTES_AHEAD, heartbeat.ping_bytes_ahead);
        self.set(HEARTBEAT_INFERRED, heartbeat.inferred);
    }

    fn snapshot(&mut self, snapshot: &Snapshot) {
        self.count(TCP_SEND_QUEUE_BYTES, snapshot.send_queue_bytes);
        self.count(TCP_UNSENT_BYTES, snapshot.unsent_bytes);
        self.count(TCP_UNREAD_BYTES, snapshot.unread_bytes);
        self.count(TCP_SND_WND_BYTES, snapshot.snd_wnd_bytes);
        self.count(TCP_SRTT_US, snapshot.srtt_us);
        self.count(TCP_RTO_MS, snapshot.rto_ms);
        self.count(TCP_BACKOFF, snapshot.backoff);
        self.count(TCP_RETRANSMITS, snapshot.retransmits);
        self.known(TCP_SOFT_ERROR, snapshot.soft_error.map(soft_error));
        self.count(TCP_BYTES_ACKED, snapshot.bytes_acked);
        self.count(TCP_BYTES_RECEIVED, snapshot.bytes_received);
    }
}

/// Attributes of the link to the end that a connection followed.
pub(super) fn of_reconnect(reconnect: &Reconnect) -> Vec<KeyValue> {
    let mut attributes = Attributes::default();
    attributes.set(CLOSE_KIND, reconnect.kind.as_str());
    attributes.set(CLOSE_INITIATOR, reconnect.initiator.as_str());
    attributes.known(KILL_ASSESSMENT, reconnect.assessment.map(Assessment::as_str));
    attributes.0
}

/// Attributes of the event for a verdict change.
pub(super) fn of_verdict_change(change: &VerdictChange) -> Vec<KeyValue> {
    let mut attributes = Attributes::default();
    attributes.set(VERDICT, change.to.as_str());
    if !change.is_turn() {
        attributes.set(VERDICT_PREVIOUS, change.from.as_str());
    }
    attributes.set(VERDICT_EVIDENCE, change.rung.as_str());
    attributes.set(KILL_JUSTIFIED, change.kill_justified);
    attributes.0
}

/// Whether the ages of the last ACK and of the last payload are those of the close.
///
/// In mode `sock_diag` only a pass tells what came. A socket that was gone by the pass that found the close, or had no
/// accounting any more (TIME_WAIT), may have heard from its peer since the pass before: an age from there would be too old.
fn has_ages(record: &CloseRecord, mode: Mode) -> (bool, bool) {
    match mode {
        Mode::Ebpf => (true, true),
        Mode::SockDiag => {
            let at_close = record.snapshot.as_ref().filter(|snapshot| snapshot.at >= record.closed_at);
            (
                at_close.is_some_and(|snapshot| snapshot.last_ack_at.is_some()),
                at_close.is_some_and(|snapshot| snapshot.last_inbound_at.is_some()),
            )
        }
    }
}

/// Whether the close killed a peer that was there. `None` where the evidence is missing; a graceful close, or one that
/// the peer or the kernel started, is no false kill.
#[must_use]
pub fn false_kill(record: &CloseRecord) -> Option<bool> {
    match record.assessment {
        Some(Assessment::Unknown) => None,
        Some(assessment) => Some(assessment == Assessment::FalseKill),
        None => Some(false),
    }
}

// Linux numbers (`include/uapi/asm-generic/errno.h`); they are the same on every architecture that runs eBPF.
const ENETUNREACH: u32 = 101;
const ECONNRESET: u32 = 104;
const ECONNREFUSED: u32 = 111;
const EHOSTUNREACH: u32 = 113;

/// The word for an errno of `icmp_err_convert` (net/ipv4/icmp.c), or of a route that is missing.
const fn soft_error(errno: u32) -> &'static str {
    match errno {
        0 => "none",
        ENETUNREACH => "network_unreachable",
        EHOSTUNREACH => "host_unreachable",
        ECONNREFUSED => "connection_refused",
        _ => "_OTHER",
    }
}

/// `error.type`: `heartbeat_timeout`, `timed_out`, `host_unreachable`, `connection_reset` or `_OTHER`; `None` for a
/// clean close.
#[must_use]
pub fn error_type(record: &CloseRecord) -> Option<&'static str> {
    if record.still_open {
        return None;
    }
    let by_reset = record.method == Some(CloseMethod::Rst) || record.socket_error == Some(ECONNRESET);
    match record.kind {
        CloseKind::Graceful | CloseKind::PlannedRestart => None,
        CloseKind::HeartbeatKill => Some("heartbeat_timeout"),
        CloseKind::KernelTimeout => match record.socket_error {
            Some(ENETUNREACH | EHOSTUNREACH) => Some("host_unreachable"),
            _ => Some("timed_out"),
        },
        CloseKind::Abort | CloseKind::ProcessExit | CloseKind::Other if by_reset => Some("connection_reset"),
        // The sidecar stopped first, or nobody saw how it ended: no error that anybody could name.
        CloseKind::Other if record.method.is_none() => None,
        CloseKind::Abort | CloseKind::ProcessExit | CloseKind::Other => Some("_OTHER"),
    }
}

/// Who closed first; `None` where that was not seen.
fn initiator(record: &CloseRecord) -> Option<&'static str> {
    match record.initiator {
        CloseInitiator::Unknown => None,
        known => Some(known.as_str()),
    }
}

/// Whether this side ended it: the host, or the kernel on its behalf.
#[must_use]
pub fn is_host_close(record: &CloseRecord) -> bool {
    if record.still_open {
        return false;
    }
    match record.initiator {
        CloseInitiator::Host | CloseInitiator::Kernel => true,
        CloseInitiator::Peer | CloseInitiator::Unknown => false,
    }
}
