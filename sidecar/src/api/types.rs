//! What the API says and is told, as JSON. The server, `ackbeat top` and the tests share these types.
//!
//! A member whose value is not known is `null`, never 0. Ages are in milliseconds of monotonic time, at the moment of the
//! answer.

use ackbeat_liveness::{
    Assessment, CloseFrames, CloseInitiator, CloseKind, CloseMethod, EvidenceScope, HeartbeatProfile,
    HeartbeatSource, PingLocation, Postmortem, Role, Rung, TcpState, Verdict,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;

/// Where the API listens unless told otherwise.
pub const ADDRESS_DEFAULT: &str = "127.0.0.1:9465";
/// Heartbeats in one report at most.
pub const HEARTBEATS_MAX: usize = 256;
/// Bytes of a request's body at most.
pub const BODY_MAX_BYTES: usize = 64 * 1024;
/// Age of a reported heartbeat at most, in milliseconds.
pub const HEARTBEAT_AGE_MAX_MS: u64 = 60_000;
/// Bytes of a reported heartbeat's `id` at most: as many as a Ping holds (RFC 6455 section 5.5).
pub const HEARTBEAT_ID_MAX_BYTES: usize = 125;
/// Bytes of a Close frame's reason at most (RFC 6455 section 5.5): two of 125 are the code's.
pub const CLOSE_REASON_MAX_BYTES: usize = 123;
/// Connections in one answer unless the request says otherwise.
pub const LIMIT_DEFAULT: usize = 100;
/// Connections in one answer at most.
pub const LIMIT_MAX: usize = 100_000;

/// A sidecar whose loop did not turn for longer than this is not healthy.
pub const TURN_AGE_MAX_MS: u64 = 5_000;

/// `GET /v1/verdict`, and one of `GET /v1/connections`: what is known about a connection now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Connection {
    /// The socket's cookie.
    pub connection: u64,
    /// `ADDRESS:PORT` of the peer, an IPv6 address in brackets.
    pub peer: String,
    /// `ADDRESS:PORT` of the pod's side.
    pub local: String,
    /// Who dialled.
    #[schema(schema_with = schema::role)]
    pub role: Role,
    /// Path of the upgrade request, without its query.
    #[schema(required = true)]
    pub path: Option<String>,
    /// A heartbeat, a Close frame or an upgrade was seen.
    pub is_websocket: bool,
    /// It is older than the sidecar.
    pub preexisting: bool,
    /// Since it was established, or found.
    pub age_ms: u64,
    /// What the evidence adds up to.
    #[schema(schema_with = schema::verdict)]
    pub verdict: Verdict,
    /// The rung of evidence that the verdict stands on.
    #[schema(schema_with = schema::rung)]
    pub rung: Rung,
    /// How far the evidence reaches.
    #[schema(schema_with = schema::evidence_scope)]
    pub scope: EvidenceScope,
    /// Whether the policy justifies a kill; of a connection that is closed, whether it did at the close. The one member
    /// that a watchdog needs.
    pub kill_justified: bool,
    /// What to close with, where a kill is justified and there is something to close.
    #[schema(required = true)]
    pub suggested_close: Option<SuggestedClose>,
    /// The heartbeat; of a connection that is closed, as it was at the close.
    pub heartbeat: Heartbeat,
    /// When each rung of the evidence ladder was last seen.
    pub evidence: EvidenceAges,
    /// The socket, as last read.
    pub tcp: Tcp,
}

/// A Close frame to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SuggestedClose {
    /// Status code (RFC 6455 section 7.4).
    pub code: u16,
    /// Reason, at most 123 bytes.
    pub reason: String,
}

/// The heartbeat of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Heartbeat {
    /// Where it is known from.
    #[schema(schema_with = schema::heartbeat_source)]
    pub source: HeartbeatSource,
    /// How it looks on the wire.
    #[schema(schema_with = schema::optional_heartbeat_profile, required = true)]
    pub profile: Option<HeartbeatProfile>,
    /// Learned interval.
    #[schema(required = true)]
    pub interval_ms: Option<u64>,
    /// Pings since the last Pong, as the host would count them.
    #[schema(required = true)]
    pub missed: Option<u32>,
    /// Age of the last Ping that was seen or reported.
    #[schema(required = true)]
    pub last_ping_age_ms: Option<u64>,
    /// Age of the last Pong.
    #[schema(required = true)]
    pub last_pong_age_ms: Option<u64>,
    /// Where the oldest unanswered Ping is.
    #[schema(schema_with = schema::ping_location)]
    pub ping_location: PingLocation,
    /// Bytes that stood before it and were not acknowledged.
    #[schema(required = true)]
    pub ping_bytes_ahead: Option<u64>,
    /// Pings that never reached the wire were inferred from the port's schedule.
    pub inferred: bool,
}

/// Ages of the evidence, weakest rung first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EvidenceAges {
    /// Any segment from the peer.
    #[schema(required = true)]
    pub hop_age_ms: Option<u64>,
    /// Bytes were acknowledged.
    #[schema(required = true)]
    pub ack_age_ms: Option<u64>,
    /// The peer's window moved on after it had been limiting.
    #[schema(required = true)]
    pub drain_age_ms: Option<u64>,
    /// Payload came.
    #[schema(required = true)]
    pub inbound_age_ms: Option<u64>,
    /// The Pong of an outstanding Ping came.
    #[schema(required = true)]
    pub pong_age_ms: Option<u64>,
}

/// A reading of the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tcp {
    /// Age of this reading; everything else is as it was then. Sockets are read while something is outstanding.
    #[schema(required = true)]
    pub read_age_ms: Option<u64>,
    /// TCP state.
    #[schema(schema_with = schema::optional_tcp_state, required = true)]
    pub state: Option<TcpState>,
    /// Bytes written and not acknowledged.
    #[schema(required = true)]
    pub send_queue_bytes: Option<u32>,
    /// Bytes written and not sent.
    #[schema(required = true)]
    pub unsent_bytes: Option<u32>,
    /// Bytes received and not read by the application.
    #[schema(required = true)]
    pub unread_bytes: Option<u32>,
    /// The peer's receive window.
    #[schema(required = true)]
    pub snd_wnd_bytes: Option<u32>,
    /// Smoothed round-trip time.
    #[schema(required = true)]
    pub srtt_us: Option<u32>,
    /// Retransmission timeout.
    #[schema(required = true)]
    pub rto_ms: Option<u32>,
    /// Exponent of the retransmission back-off.
    #[schema(required = true)]
    pub backoff: Option<u8>,
    /// Unanswered retransmissions of the oldest segment.
    #[schema(required = true)]
    pub retransmits: Option<u8>,
    /// Bytes acknowledged since the connection was made.
    #[schema(required = true)]
    pub bytes_acked: Option<u64>,
    /// Payload bytes received since the connection was made.
    #[schema(required = true)]
    pub bytes_received: Option<u64>,
}

/// `GET /v1/connections`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Connections {
    /// Connections that are watched.
    pub total: usize,
    /// Of them, those that the filter lets through.
    pub matched: usize,
    /// Of them, the first `limit`, in the order asked for.
    pub connections: Vec<Connection>,
}

/// `GET /v1/status`: the sidecar itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Version of ackbeat.
    pub version: String,
    /// How evidence is gathered: `ebpf` or `sock_diag`.
    pub mode: String,
    /// Name of the policy.
    pub policy: String,
    /// Whether what existed at the start was found, so that the answers are complete.
    pub ready: bool,
    /// Since the start of the sidecar.
    pub uptime_ms: u64,
    /// Signals that this kernel or mode does not give.
    pub missing_signals: Vec<String>,
    /// What ackbeat listens on, by setting: `listening`, `busy` (somebody else has the address; it is tried again), `failed` or
    /// `off`.
    pub listeners: std::collections::BTreeMap<String, String>,
    /// Connections that are watched, by verdict.
    pub connections: std::collections::BTreeMap<String, usize>,
    /// Connections that ended since the start.
    pub closed: ClosedTotals,
    /// What was lost on the way to a verdict, or to whoever listens.
    pub lost: LostTotals,
}

/// `GET /v1/storms`: who comes back, how many at once, and whether they come in lock-step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Storms {
    /// Each listening port, in their order; at most 64.
    pub ports: Vec<PortArrivals>,
    /// Arrivals at ports beyond those.
    pub arrivals_unwatched: u64,
    /// The latest storms that are over, oldest first; at most 32.
    pub recent: Vec<Storm>,
    /// What this mode does not see of storms; empty in mode `ebpf`.
    pub missing: Vec<MissingOfStorms>,
}

/// Something of storms that this mode does not see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissingOfStorms {
    /// The signal, as `missing_signals` of `GET /v1/status` names it.
    pub signal: String,
    /// What that means for storms.
    pub meaning: String,
}

/// A listening port.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortArrivals {
    /// The port.
    pub port: u16,
    /// Connections that were established since the start.
    pub arrivals: u64,
    /// Of them, those of the last whole second; unknown where records were lost or the sidecar slept.
    #[schema(required = true)]
    pub arrivals_per_second: Option<u32>,
    /// What is usual.
    pub baseline_per_second: f64,
    /// Reconnect storms since the start.
    pub storms: u64,
    /// How long one has lasted that is not over.
    #[schema(required = true)]
    pub storm_age_ms: Option<u64>,
    /// How long nothing has come from any peer, where that is an outage.
    #[schema(required = true)]
    pub outage_age_ms: Option<u64>,
    /// The period at which clients come back in lock-step.
    #[schema(required = true)]
    pub resonance: Option<Resonance>,
    /// Bursts of closes (or parts of long ones) that a period was looked for in, at most the latest 16. Below 4 it cannot be told
    /// whether there is one.
    pub windows: u32,
}

/// Clients come back in lock-step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Resonance {
    /// From one return to the next, in milliseconds.
    pub period_ms: f64,
    /// How regular they are, from 0 to 1.
    pub strength: f64,
    /// Bursts of closes (or parts of long ones) that it was seen in.
    pub windows: u32,
}

/// A reconnect storm that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Storm {
    /// The listening port.
    pub port: u16,
    /// Since its first second.
    pub began_age_ms: u64,
    /// Since its last second.
    pub ended_age_ms: u64,
    /// Why it is over: `calm`, or `new_baseline` where it went on for so long that it is usual now.
    pub end: String,
    /// Most arrivals within a second.
    pub peak_per_second: u32,
    /// What was usual.
    pub baseline_per_second: f64,
    /// Arrivals in it.
    pub arrivals: u64,
    /// Different addresses that they came from.
    pub peers: u32,
    /// Closes of the burst that set it off.
    pub closes: u64,
    /// The period at which clients came back, as far as it was known then.
    #[schema(required = true)]
    pub resonance: Option<Resonance>,
}

/// Ends of connections since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClosedTotals {
    /// All of them.
    pub total: u64,
    /// Started by the host.
    pub by_host: u64,
    /// Of them, kills by a heartbeat watchdog.
    pub heartbeat_kills: u64,
    /// Of them, kills of a peer that was there.
    pub false_kills: u64,
}

/// Losses since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LostTotals {
    /// Records of the kernel programs that found no room or were refused.
    pub kernel_records: u64,
    /// Times that the wire parser lost its place.
    pub wire_losses: u64,
    /// Spans that were not delivered.
    pub spans: u64,
    /// Events that a reader of `/v1/events` was too slow for.
    pub events: u64,
    /// Reported heartbeats that found no room.
    pub heartbeats: u64,
}

/// `POST /v1/heartbeats`: heartbeats that the host saw itself, because TLS ends in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatReport {
    /// The heartbeats, in the order of their time; at most [`HEARTBEATS_MAX`].
    #[schema(max_items = 256)]
    pub heartbeats: Vec<ReportedHeartbeat>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportedHeartbeat {
    /// `ADDRESS:PORT` of the peer.
    #[schema(schema_with = schema::socket_address)]
    pub peer: String,
    /// `ADDRESS:PORT` of the pod's side, where the peer alone is not enough.
    #[serde(default)]
    #[schema(schema_with = schema::optional_socket_address)]
    pub local: Option<String>,
    /// What it was.
    pub kind: ReportedKind,
    /// How long ago, in milliseconds; at most [`HEARTBEAT_AGE_MAX_MS`].
    #[serde(default)]
    #[schema(maximum = 60000)]
    pub age_ms: u64,
    /// What the Pong has in common with its Ping, at most [`HEARTBEAT_ID_MAX_BYTES`] bytes; without it a Pong answers the
    /// last Ping.
    #[serde(default)]
    #[schema(max_length = 125)]
    pub id: Option<String>,
    /// Status code of a Close frame (RFC 6455 section 7.4), 1000 to 4999.
    #[serde(default)]
    #[schema(minimum = 1000, maximum = 4999)]
    pub code: Option<u16>,
    /// Its reason, at most [`CLOSE_REASON_MAX_BYTES`] bytes.
    #[serde(default)]
    #[schema(max_length = 123)]
    pub reason: Option<String>,
}

/// What the host sent or got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReportedKind {
    /// The host sent a Ping.
    Ping,
    /// The host got a Pong.
    Pong,
    /// The host sent a Close frame. It is taken even where frames are seen on the wire: behind what a peer that is gone has not
    /// acknowledged, it stays in the kernel's send queue, and nobody but the host knows of it.
    Close,
}

/// `GET /healthz`: whether the sidecar works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// The loop that everything passes through turned within the last [`TURN_AGE_MAX_MS`].
    pub healthy: bool,
    /// Since it last turned; `null` before the first time.
    #[schema(required = true)]
    pub turn_age_ms: Option<u64>,
}

/// `GET /readyz`: whether its answers are complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// What existed at the start was found.
    pub ready: bool,
    /// How evidence is gathered: `ebpf` or `sock_diag`.
    pub mode: String,
    /// Signals that this kernel or mode does not give.
    pub missing_signals: Vec<String>,
}

/// What became of a report (status 202).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatReceipt {
    /// Heartbeats that were taken.
    pub accepted: usize,
    /// Heartbeats of connections that are not watched.
    pub unmatched: usize,
    /// Heartbeats that are seen on the wire already.
    pub redundant: usize,
}

/// One message of `GET /v1/events`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// A verdict changed, or whether a kill is justified under it.
    VerdictChanged {
        /// The socket's cookie.
        connection: u64,
        /// `ADDRESS:PORT` of the peer.
        peer: String,
        /// `ADDRESS:PORT` of the pod's side.
        local: String,
        /// When, in milliseconds of Unix time.
        at_unix_ms: u64,
        /// The verdict before.
        #[schema(schema_with = schema::verdict)]
        from: Verdict,
        /// The verdict now.
        #[schema(schema_with = schema::verdict)]
        to: Verdict,
        /// The rung that it stands on.
        #[schema(schema_with = schema::rung)]
        rung: Rung,
        /// Whether the policy justifies a kill now.
        kill_justified: bool,
    },
    /// A connection ended, and its post-mortem is over.
    Closed(Box<ClosedEvent>),
    /// This reader was too slow: events are missing, and the server closes the stream after this message.
    Lagged {
        /// How many are missing.
        events_dropped: u64,
    },
}

/// A connection that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClosedEvent {
    /// The socket's cookie.
    pub connection: u64,
    /// `ADDRESS:PORT` of the peer.
    pub peer: String,
    /// `ADDRESS:PORT` of the pod's side.
    pub local: String,
    /// When it was closed, in milliseconds of Unix time.
    pub at_unix_ms: u64,
    /// Path of the upgrade request.
    #[schema(required = true)]
    pub path: Option<String>,
    /// Kind of close.
    #[schema(schema_with = schema::close_kind)]
    pub kind: CloseKind,
    /// Who closed first.
    #[schema(schema_with = schema::close_initiator)]
    pub initiator: CloseInitiator,
    /// FIN or RST.
    #[schema(schema_with = schema::optional_close_method, required = true)]
    pub method: Option<CloseMethod>,
    /// Which Close frames passed.
    #[schema(schema_with = schema::close_frames)]
    pub ws_frame: CloseFrames,
    /// Status code of the initiator's Close frame.
    #[schema(required = true)]
    pub ws_code: Option<u16>,
    /// Its reason.
    #[schema(required = true)]
    pub ws_reason: Option<String>,
    /// The verdict at the close.
    #[schema(schema_with = schema::verdict)]
    pub verdict: Verdict,
    /// The rung that it stood on.
    #[schema(schema_with = schema::rung)]
    pub rung: Rung,
    /// Whether the policy justified a kill at the close.
    pub kill_justified: bool,
    /// What to think of the close; `null` where it was graceful or not the host's.
    #[schema(schema_with = schema::optional_assessment, required = true)]
    pub assessment: Option<Assessment>,
    /// The host killed a peer that was there.
    pub false_kill: bool,
    /// What the socket showed afterwards.
    #[schema(schema_with = schema::optional_postmortem, required = true)]
    pub postmortem: Option<Postmortem>,
    /// Pings that were missed, as the host would count them.
    #[schema(required = true)]
    pub missed: Option<u32>,
    /// Lifetime; `null` where it is older than the sidecar.
    #[schema(required = true)]
    pub lifetime_ms: Option<u64>,
    /// Trace of the connection, 32 hexadecimal digits.
    pub trace_id: String,
    /// Span of the close, or of the connection where the host did not close it.
    pub span_id: String,
}

/// An error (RFC 9457, `application/problem+json`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `about:blank`: the status says what kind it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// In a few words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, and what to do about it.
    pub detail: String,
    /// The member or parameter that is wrong, as a path: `heartbeats[3].kind`, `peer`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}
