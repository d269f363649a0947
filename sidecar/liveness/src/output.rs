//! What the engine decides.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::{ConnectionId, Endpoints, Frame, Process, Role, Seq, Snapshot, Timestamp, Upgrade};

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum $name {
            $($(#[$variant_meta])* #[cfg_attr(feature = "serde", serde(rename = $word))] $variant),+
        }
        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$variant),+];
            /// The stable word for it, as spans and logs show it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
        impl core::fmt::Display for $name {
            fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                formatter.pad(self.as_str())
            }
        }
    };
}

words! {
    /// What the evidence adds up to.
    Verdict {
        /// No Ping outstanding, or the Pong is within its budget.
        Alive = "alive",
        /// A Ping waits behind data, or the peer is busy, and progress is fresh.
        Congested = "congested",
        /// The peer's kernel answers, its application does not read.
        Stalled = "stalled",
        /// The Ping was acknowledged and nothing came back: half-open, or a hung application.
        Silent = "silent",
        /// Data is outstanding and nothing at all comes.
        Unreachable = "unreachable",
        /// Evidence is missing.
        Unknown = "unknown",
        /// The connection is over.
        Closed = "closed",
    }
}

words! {
    /// The strongest rung of the evidence ladder that a verdict stands on.
    Rung {
        /// No evidence.
        None = "none",
        /// Any segment from the peer.
        Hop = "hop",
        /// `snd_una` advanced.
        Ack = "ack",
        /// The right edge of the peer's window advanced after it had been limiting.
        Drain = "drain",
        /// Payload from the peer.
        Inbound = "inbound",
        /// The Pong that answers an outstanding Ping.
        Pong = "pong",
    }
}

words! {
    /// What kind of close it was (`ackbeat.close.kind`).
    CloseKind {
        /// With a Close frame, or with nothing owed (plain TCP: FIN with everything delivered and read).
        Graceful = "graceful",
        /// A heartbeat watchdog's kill, with or without a Close frame.
        HeartbeatKill = "heartbeat_kill",
        /// Without a Close frame, and not by a heartbeat watchdog as far as is known.
        Abort = "abort",
        /// The host closed because it goes away and comes back: its Close frame says so (1001, 1012, or 4001 with the reason
        /// `server_restart`), or it was told to stop before (SIGTERM). Nobody took the peer for dead, so it is no kill.
        PlannedRestart = "planned_restart",
        /// The process exited, and nobody had told it to.
        ProcessExit = "process_exit",
        /// The kernel gave up (`ETIMEDOUT`, `EHOSTUNREACH`, …).
        KernelTimeout = "kernel_timeout",
        /// None of these.
        Other = "other",
    }
}

words! {
    /// Who closed first (`ackbeat.close.initiator`).
    CloseInitiator {
        /// The local process.
        Host = "host",
        /// The peer's FIN or RST came first.
        Peer = "peer",
        /// The kernel gave up.
        Kernel = "kernel",
        /// The close was not seen: records were lost, or the mode has no attribution. Nobody is accused.
        Unknown = "unknown",
    }
}

words! {
    /// How it was closed (`ackbeat.close.method`).
    CloseMethod {
        /// FIN.
        Fin = "fin",
        /// RST.
        Rst = "rst",
    }
}

words! {
    /// Which Close frames passed before the close (`ackbeat.close.ws_frame`).
    CloseFrames {
        /// None.
        None = "none",
        /// The host sent one.
        Sent = "sent",
        /// The peer sent one.
        Received = "received",
        /// Both sent one.
        Both = "both",
    }
}

words! {
    /// What the socket showed after the host closed it (`ackbeat.postmortem`).
    Postmortem {
        /// The window's right edge moved on, or payload came in: the peer's application was alive.
        AppProgress = "app_progress",
        /// Something came: the peer's kernel, or the next hop's, was alive.
        Answered = "answered",
        /// Nothing came although data or the FIN was retransmitted.
        NoAnswer = "no_answer",
        /// Closed by RST, or the sidecar stopped first.
        Unresolved = "unresolved",
    }
}

words! {
    /// What to think of a close that the host started and that was not graceful (`ackbeat.kill.assessment`).
    Assessment {
        /// It killed a peer that was there.
        FalseKill = "false_kill",
        /// Not justified, and no sign of the peer's application afterwards.
        Premature = "premature",
        /// Justified by the policy, or by what followed.
        Justified = "justified",
        /// The evidence is missing.
        Unknown = "unknown",
    }
}

words! {
    /// Where the oldest unanswered Ping was (`ackbeat.heartbeat.ping_location`).
    PingLocation {
        /// Not on the wire: in the host's own queue or unsent in the kernel. Inferred from the schedule.
        NotSent = "not_sent",
        /// On the wire, not acknowledged.
        InFlight = "in_flight",
        /// Acknowledged by the peer's kernel.
        Acked = "acked",
        /// Its Pong waits unread in the host's receive queue: the host is late.
        PongUnread = "pong_unread",
        /// Not known.
        Unknown = "unknown",
    }
}

words! {
    /// Where heartbeats are known from (`ackbeat.heartbeat.source`).
    HeartbeatSource {
        /// Read off the wire.
        Wire = "wire",
        /// Reported by the application.
        Application = "application",
        /// Nothing is known.
        None = "none",
    }
}

impl HeartbeatSource {
    /// Where a frame is known from.
    #[must_use]
    pub const fn of(frame: &Frame) -> Self {
        if frame.is_on_wire() { Self::Wire } else { Self::Application }
    }
}

words! {
    /// How a heartbeat looks on the wire (`ackbeat.heartbeat.profile`).
    #[derive(Default)]
    HeartbeatProfile {
        /// Ping and Pong control frames (RFC 6455 sections 5.5.2 and 5.5.3).
        #[default]
        Rfc6455 = "rfc6455",
        /// Text frames `ping` and `pong`.
        PingPong = "ping-pong",
        /// JSON objects whose `type` is `ping` or `pong`, with other members in any order.
        Json = "json",
        /// engine.io packets `2` and `3` (protocol revision 4: the server asks; 3: the client).
        EngineIo = "engine.io",
        /// Phoenix channels: the client's `heartbeat`, the server's `phx_reply` (serializers 1.0.0 and 2.0.0).
        Phoenix = "phoenix",
        /// SignalR's message of type 6 with its record separator. Each side sends its own; none answers another.
        SignalR = "signalr",
        /// What the settings describe.
        Custom = "custom",
    }
}

impl HeartbeatProfile {
    /// Whether nobody ever answers a Ping of this profile.
    #[must_use]
    pub const fn is_unanswered(self) -> bool {
        matches!(self, Self::SignalR)
    }
}

words! {
    /// How far the evidence reaches (`ackbeat.evidence.scope`).
    EvidenceScope {
        /// To the peer itself.
        Peer = "peer",
        /// To the next TCP hop only.
        NextHop = "next_hop",
    }
}

/// A decision of the engine.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "output", rename_all = "snake_case")
)]
pub enum Output {
    /// A verdict changed, or whether the policy justifies a kill under it, or both at once. Two of these for one
    /// connection, one after the other, never say the same.
    VerdictChanged(VerdictChange),
    /// A connection was closed, whoever did it; told at the close itself, before the post-mortem.
    Closing {
        /// The connection.
        connection: ConnectionId,
        /// When.
        at: Timestamp,
        /// Who closed.
        initiator: CloseInitiator,
    },
    /// An own window probe is worth sending now. Comes only from an engine that was told that it may
    /// ([`Engine::set_window_probes`](crate::Engine::set_window_probes)); whoever sends it says so with
    /// [`Input::ProbeSent`](crate::Input::ProbeSent), and whoever does not says nothing.
    ProbeWanted(ProbeWanted),
    /// A heartbeat of the host was answered.
    Answered(HeartbeatAnswered),
    /// A leak is suspected, or no longer.
    Leak(Box<crate::leak::LeakChange>),
    /// A socket of a full quota is to be destroyed, or would be. Comes only from an engine whose
    /// [`LeakSettings`](crate::leak::LeakSettings) say so.
    ReapWanted(crate::leak::ReapWanted),
    /// A peer whose connection ended has come back. Told once the record of that end is out.
    Reconnected(Reconnect),
    /// Everything that is known about a connection that is over. Exactly one for each [`crate::Input::Opened`].
    Closed(Box<CloseRecord>),
}

/// A segment without data that asks the peer whether it is there, as `tcp_xmit_probe_skb()` in net/ipv4/tcp_output.c makes
/// one: the ACK flag, and a sequence number that the peer has acknowledged already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ProbeWanted {
    /// The connection.
    pub connection: ConnectionId,
    /// When the socket was read: the numbers are those of this moment.
    pub at: Timestamp,
    /// From the local end to the peer's.
    pub endpoints: Endpoints,
    /// Sequence number, `snd_una - 1`.
    pub seq: Seq,
    /// Acknowledgement number, `rcv_nxt`.
    pub ack: Seq,
}

/// A new connection that is the return of a peer whose last one ended: from the same address, for the same path, at the same
/// local port, within [`RECONNECT_WITHIN_MS`](crate::RECONNECT_WITHIN_MS).
///
/// Each end is followed by one connection at most, and of several ends the latest is taken. Connections whose upgrade was not
/// seen take no part, and none from behind a proxy, whose address is everybody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Reconnect {
    /// The new connection.
    pub connection: ConnectionId,
    /// When it was established.
    pub at: Timestamp,
    /// The connection that ended.
    pub follows: ConnectionId,
    /// From that end (the first FIN or RST) to the establishment of the new connection, in milliseconds.
    pub after_ms: u64,
    /// What kind of end it was.
    pub kind: CloseKind,
    /// Who had begun it.
    pub initiator: CloseInitiator,
    /// What was thought of it; `None` where there is nothing to assess.
    pub assessment: Option<Assessment>,
}

/// A Pong answered an outstanding Ping of the host.
///
/// The Ping's way there and the Pong's way back are told apart by a reading of the socket between them that shows that the
/// Ping was acknowledged. Sockets are read while something is outstanding, each [`Policy::sample_interval_ms`](crate::Policy)
/// at most, so a Ping that is answered at once has none: then only the sum is known, and that each part is no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HeartbeatAnswered {
    /// The connection.
    pub connection: ConnectionId,
    /// When the Pong came.
    pub at: Timestamp,
    /// How the heartbeat looks.
    pub profile: HeartbeatProfile,
    /// From the Ping on the wire (reported ones: from their date) to the Pong, in microseconds.
    pub ping_to_pong_us: u64,
    /// From the Ping to its acknowledgement by the peer's kernel, in microseconds: what the Ping waited for in queues.
    /// `None` where no reading lies between the acknowledgement and the Pong. Dated by the last ACK before the reading
    /// (`tcp_sock.rcv_tstamp`), so it may be too long by what later ACKs came later.
    pub ping_to_ack_us: Option<u64>,
    /// From that acknowledgement to the Pong, in microseconds: what the peer's application took. `None` as above.
    pub ack_to_pong_us: Option<u64>,
}

impl HeartbeatAnswered {
    /// [`Self::ping_to_ack_us`], or the bound that the Pong sets: whoever answers has got the Ping (a segment with payload
    /// acknowledges too, RFC 9293 section 3.10.7.4). For histograms, which would hold nothing but slow Pings without it;
    /// it is too long by less than the time between two readings.
    #[must_use]
    pub fn ping_to_ack_us_max(&self) -> u64 {
        self.ping_to_ack_us.unwrap_or(self.ping_to_pong_us)
    }

    /// [`Self::ack_to_pong_us`], or the bound that the Ping sets: it was not acknowledged before it was sent.
    #[must_use]
    pub fn ack_to_pong_us_max(&self) -> u64 {
        self.ack_to_pong_us.unwrap_or(self.ping_to_pong_us)
    }
}

/// A verdict changed, or whether it justifies a kill.
///
/// Where only [`kill_justified`](Self::kill_justified) turned, [`from`](Self::from) and [`to`](Self::to) are the same
/// verdict ([`Self::is_turn`]). It turns at the policy's own moment (`unreachable_after_ms` after the last evidence, say),
/// for which the engine asks to be called with [`Engine::poll_timeout`](crate::Engine::poll_timeout), as long as the
/// socket was read within the last `sample_interval_ms`; else with the next reading.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct VerdictChange {
    /// The connection.
    pub connection: ConnectionId,
    /// When.
    pub at: Timestamp,
    /// The verdict before.
    pub from: Verdict,
    /// The verdict now.
    pub to: Verdict,
    /// The rung that the new verdict stands on.
    pub rung: Rung,
    /// Whether the policy justifies a kill now.
    pub kill_justified: bool,
}

impl VerdictChange {
    /// The verdict is still the same: a kill became justified under it, or is justified no longer.
    #[must_use]
    pub fn is_turn(&self) -> bool {
        self.from == self.to
    }
}

/// What is known about one connection now.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Assessed {
    /// The verdict.
    pub verdict: Verdict,
    /// The rung it stands on.
    pub rung: Rung,
    /// Whether the policy justifies a kill.
    pub kill_justified: bool,
    /// How far the evidence reaches.
    pub scope: EvidenceScope,
    /// The heartbeat.
    pub heartbeat: Heartbeat,
    /// Age of the last ACK-bearing segment from the peer, in milliseconds.
    pub last_ack_age_ms: Option<u64>,
    /// Age of the last payload from the peer, in milliseconds.
    pub last_inbound_age_ms: Option<u64>,
}

/// What is known about a connection's heartbeat at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Heartbeat {
    /// Where it is known from.
    pub source: HeartbeatSource,
    /// How it looks on the wire: the first that the host asked with, else the first that the peer asked with, else that of
    /// Pings of the host that nobody answers. `None` where it is known from the application's reports.
    pub profile: Option<HeartbeatProfile>,
    /// Learned interval between Pings, in milliseconds; where the peer asks, between its Pings.
    pub interval_ms: Option<u64>,
    /// Pings since the last Pong, as the host would count them. Where the peer asks, whole intervals since its last Ping: what
    /// comes up to a fifth of an interval late is not missed yet, and at a close a twentieth too few is counted too. `None`
    /// where unknown.
    pub missed: Option<u32>,
    /// Age of the last Ping that was seen or reported, in milliseconds, whoever asks. Inferred ones have none.
    #[cfg_attr(feature = "serde", serde(default))]
    pub last_ping_age_ms: Option<u64>,
    /// Age of the last Pong, in milliseconds; where the peer asks, of its last Ping.
    pub last_pong_age_ms: Option<u64>,
    /// Where the oldest unanswered Ping is.
    pub ping_location: PingLocation,
    /// Bytes that stood before the oldest unanswered Ping and were not acknowledged.
    pub ping_bytes_ahead: Option<u64>,
    /// The schedule of the listening port was used to infer Pings that never reached the wire.
    pub inferred: bool,
}

/// Everything about a connection that is over.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CloseRecord {
    /// The connection.
    pub connection: ConnectionId,
    /// Its two ends.
    pub endpoints: Endpoints,
    /// Who dialled.
    pub role: Role,
    /// It was older than the sidecar.
    pub preexisting: bool,
    /// The upgrade, if one was seen.
    pub upgrade: Option<Upgrade>,
    /// A heartbeat, a Close frame or an upgrade was seen, so it was a WebSocket.
    pub is_websocket: bool,
    /// When it was established, or found.
    pub opened_at: Timestamp,
    /// When it was closed: the first FIN or RST, or the kernel's giving up. A half-close that was later given up by
    /// the host, reset or timed out counts from that later moment: until then the connection was in use.
    pub closed_at: Timestamp,
    /// When the socket was gone, or the post-mortem ended.
    pub ended_at: Timestamp,
    /// Last proof of life before the close: the freshest evidence of any rung, at least `opened_at`.
    pub last_proof_of_life_at: Timestamp,
    /// Kind of close.
    pub kind: CloseKind,
    /// Who closed first.
    pub initiator: CloseInitiator,
    /// FIN or RST; `None` where it was not seen.
    pub method: Option<CloseMethod>,
    /// Which Close frames passed.
    pub close_frames: CloseFrames,
    /// Status code of the Close frame that the initiator sent.
    pub close_code: Option<u16>,
    /// Its reason.
    pub close_reason: Option<String>,
    /// Whether that code tells the peer not to come back ([`Deployment::final_codes`](crate::Deployment)). `None` without a
    /// code.
    #[cfg_attr(feature = "serde", serde(default))]
    pub is_final: Option<bool>,
    /// Who closed, where a process did.
    pub process: Option<Process>,
    /// Kernel's error at the close, a positive errno.
    pub socket_error: Option<u32>,
    /// The verdict at the close, its rung and scope, the heartbeat and the ages.
    pub assessed: Assessed,
    /// What followed. `None` where the host did not start the close.
    pub postmortem: Option<Postmortem>,
    /// What to think of it. `None` where the host did not start the close, or the close was graceful or planned.
    pub assessment: Option<Assessment>,
    /// The socket at the close.
    pub snapshot: Option<Snapshot>,
    /// Verdict changes, turns of `kill_justified` among them, oldest first; at most [`VERDICT_HISTORY_MAX`], the middle
    /// ones left out.
    pub verdict_changes: Vec<VerdictChange>,
    /// Verdict changes that were left out.
    pub verdict_changes_dropped: u32,
    /// Records that were lost while this connection lived.
    pub records_lost: u64,
    /// The end that this connection followed, if it is the return of a peer and the record of that end was out in time.
    #[cfg_attr(feature = "serde", serde(default))]
    pub reconnect: Option<Reconnect>,
    /// The engine was shut down while the connection was open: this is not a close, only the end of the record.
    pub still_open: bool,
}

/// Verdict changes that a [`CloseRecord`] holds at most (a span holds 128 events at most).
pub const VERDICT_HISTORY_MAX: usize = 64;
