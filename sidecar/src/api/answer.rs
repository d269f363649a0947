//! From the engine's words to those of the API.

use std::net::{IpAddr, SocketAddr};

use ackbeat_liveness::{Assessed, ConnectionInfo, Endpoints, Timestamp, Verdict};

use super::types::{Connection, EvidenceAges, Heartbeat, SuggestedClose, Tcp};

/// What to close with where a kill is justified: an endpoint that gives up on an unexpected condition (RFC 6455 section
/// 7.4.1), and for a reader of logs why.
const SUGGESTED_CODE: u16 = 1_011;
const SUGGESTED_REASON: &str = "heartbeat timeout";

/// The peer's address, an IPv4-mapped one as IPv4.
pub(super) fn peer(ends: &Endpoints) -> SocketAddr {
    at(ends.peer_address, ends.peer_port)
}

/// The pod's address, likewise.
pub(super) fn local(ends: &Endpoints) -> SocketAddr {
    at(ends.local_address, ends.local_port)
}

fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address.to_canonical(), port)
}

/// What is known about a connection at `now`.
pub(super) fn connection(info: &ConnectionInfo<'_>, assessed: &Assessed, now: Timestamp) -> Connection {
    let age = |at: Option<Timestamp>| at.map(|at| now.ms_since(at));
    Connection {
        connection: info.connection.0,
        peer: peer(&info.endpoints).to_string(),
        local: local(&info.endpoints).to_string(),
        role: info.role,
        path: info.upgrade.and_then(|upgrade| upgrade.path.clone()),
        is_websocket: info.is_websocket,
        preexisting: info.preexisting,
        age_ms: now.ms_since(info.opened_at),
        verdict: assessed.verdict,
        rung: assessed.rung,
        scope: assessed.scope,
        kill_justified: assessed.kill_justified,
        // Nothing is left to close where the host has closed.
        suggested_close: (assessed.kill_justified && assessed.verdict != Verdict::Closed)
            .then(|| SuggestedClose { code: SUGGESTED_CODE, reason: SUGGESTED_REASON.to_owned() }),
        heartbeat: Heartbeat {
            source: assessed.heartbeat.source,
            profile: assessed.heartbeat.profile,
            interval_ms: assessed.heartbeat.interval_ms,
            missed: assessed.heartbeat.missed,
            last_ping_age_ms: assessed.heartbeat.last_ping_age_ms,
            last_pong_age_ms: assessed.heartbeat.last_pong_age_ms,
            ping_location: assessed.heartbeat.ping_location,
            ping_bytes_ahead: assessed.heartbeat.ping_bytes_ahead,
            inferred: assessed.heartbeat.inferred,
        },
        evidence: EvidenceAges {
            hop_age_ms: age(info.evidence.hop_at),
            ack_age_ms: age(info.evidence.ack_at),
            drain_age_ms: age(info.evidence.drain_at),
            inbound_age_ms: age(info.evidence.inbound_at),
            pong_age_ms: age(info.evidence.pong_at),
        },
        tcp: info.snapshot.map_or_else(
            // A state may be known from a transition alone.
            || Tcp { state: info.tcp_state, ..Tcp::default() },
            |socket| Tcp {
                read_age_ms: Some(now.ms_since(socket.at)),
                state: info.tcp_state.or(Some(socket.state)),
                send_queue_bytes: socket.send_queue_bytes,
                unsent_bytes: socket.unsent_bytes,
                unread_bytes: socket.unread_bytes,
                snd_wnd_bytes: socket.snd_wnd_bytes,
                srtt_us: socket.srtt_us,
                rto_ms: socket.rto_ms,
                backoff: socket.backoff,
                retransmits: socket.retransmits,
                bytes_acked: socket.bytes_acked,
                bytes_received: socket.bytes_received,
            },
        ),
    }
}
