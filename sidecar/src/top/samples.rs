//! Connections for the tests, as the API shows them.

use ackbeat_liveness::{
    Assessment, CloseFrames, CloseInitiator, CloseKind, CloseMethod, EvidenceScope, HeartbeatProfile,
    HeartbeatSource, PingLocation, Postmortem, Role, Rung, TcpState, Verdict,
};

use crate::api::types::{
    ClosedEvent, ClosedTotals, Connection, Connections, Event, EvidenceAges, Heartbeat, LostTotals, Status,
    SuggestedClose, Tcp,
};

/// A host under a burst: its Ping waits behind 26 MB.
pub(crate) fn congested() -> Connection {
    Connection {
        connection: 4_097,
        peer: "10.87.2.2:51234".to_owned(),
        local: "10.87.1.2:8080".to_owned(),
        role: Role::Server,
        path: Some("/api/remote.mux".to_owned()),
        is_websocket: true,
        preexisting: false,
        age_ms: 192_400,
        verdict: Verdict::Congested,
        rung: Rung::Drain,
        scope: EvidenceScope::Peer,
        kill_justified: false,
        suggested_close: None,
        heartbeat: Heartbeat {
            source: HeartbeatSource::Wire,
            profile: Some(HeartbeatProfile::Rfc6455),
            interval_ms: Some(2_000),
            missed: Some(4),
            last_ping_age_ms: Some(240),
            last_pong_age_ms: Some(8_240),
            ping_location: PingLocation::NotSent,
            ping_bytes_ahead: Some(26_412_000),
            inferred: true,
        },
        evidence: EvidenceAges {
            hop_age_ms: Some(12),
            ack_age_ms: Some(12),
            drain_age_ms: Some(104),
            inbound_age_ms: Some(8_240),
            pong_age_ms: Some(8_240),
        },
        tcp: Tcp {
            read_age_ms: Some(98),
            state: Some(TcpState::Established),
            send_queue_bytes: Some(2_612_000),
            unsent_bytes: Some(2_500_000),
            unread_bytes: Some(0),
            snd_wnd_bytes: Some(65_536),
            srtt_us: Some(42_100),
            rto_ms: Some(243),
            backoff: Some(0),
            retransmits: Some(0),
            bytes_acked: Some(1_428_800),
            bytes_received: Some(812),
        },
    }
}

/// A peer of which nothing is wrong.
pub(crate) fn alive(number: u64) -> Connection {
    let connection = congested();
    Connection {
        connection: 5_000 + number,
        peer: format!("10.87.2.{}:{}", 3 + number % 250, 40_000 + number),
        age_ms: 60_000 + number * 61_000,
        verdict: Verdict::Alive,
        rung: Rung::Pong,
        heartbeat: Heartbeat {
            missed: Some(0),
            last_ping_age_ms: Some(1_210 + number * 10),
            last_pong_age_ms: Some(1_200 + number * 10),
            ping_location: PingLocation::Unknown,
            ping_bytes_ahead: None,
            inferred: false,
            ..connection.heartbeat.clone()
        },
        evidence: EvidenceAges {
            hop_age_ms: Some(1_200),
            ack_age_ms: Some(1_200),
            drain_age_ms: None,
            inbound_age_ms: Some(1_200),
            pong_age_ms: Some(1_200),
        },
        tcp: Tcp { send_queue_bytes: Some(0), unsent_bytes: Some(0), srtt_us: Some(312), ..connection.tcp },
        ..connection
    }
}

/// A half-open connection behind an ingress, with a path that its peer chose with care, over IPv6.
pub(crate) fn silent() -> Connection {
    let connection = congested();
    Connection {
        connection: 6_001,
        peer: "[fd87:2:0:aaaa:bbbb:cccc:dddd:2]:51555".to_owned(),
        local: "[fd87:1::2]:8080".to_owned(),
        path: Some("/\u{1b}[2J\u{1b}]0;owned\u{7}/\u{202e}live".to_owned()),
        verdict: Verdict::Silent,
        rung: Rung::Ack,
        scope: EvidenceScope::NextHop,
        kill_justified: true,
        suggested_close: Some(SuggestedClose { code: 1011, reason: "heartbeat timeout".to_owned() }),
        heartbeat: Heartbeat {
            missed: Some(31),
            last_ping_age_ms: Some(1_050),
            last_pong_age_ms: Some(63_100),
            ping_location: PingLocation::Acked,
            ping_bytes_ahead: Some(0),
            inferred: false,
            ..connection.heartbeat.clone()
        },
        tcp: Tcp {
            send_queue_bytes: Some(0),
            unsent_bytes: Some(0),
            srtt_us: Some(1_250_000),
            ..connection.tcp
        },
        ..connection
    }
}

/// Of a connection that is older than the sidecar, in a mode that knows little.
pub(crate) fn unknown() -> Connection {
    Connection {
        connection: 7_001,
        peer: "192.0.2.7:443".to_owned(),
        local: "10.87.1.2:52100".to_owned(),
        role: Role::Client,
        path: None,
        is_websocket: false,
        preexisting: true,
        age_ms: 90_061_000,
        verdict: Verdict::Unknown,
        rung: Rung::None,
        heartbeat: Heartbeat {
            source: HeartbeatSource::None,
            profile: None,
            interval_ms: None,
            missed: None,
            last_ping_age_ms: None,
            last_pong_age_ms: None,
            ping_location: PingLocation::Unknown,
            ping_bytes_ahead: None,
            inferred: false,
        },
        evidence: EvidenceAges::default(),
        tcp: Tcp::default(),
        ..congested()
    }
}

/// All kinds.
pub(crate) fn connections() -> Vec<Connection> {
    let mut connections = vec![unknown(), congested(), silent()];
    connections.extend((0..20).map(alive));
    connections
}

/// An answer with these, of `total` in all.
pub(crate) fn answer(total: usize, connections: Vec<Connection>) -> Connections {
    Connections { total, matched: total, connections }
}

/// A sidecar that has seen kills.
pub(crate) fn status() -> Status {
    Status {
        version: "0.1.0".to_owned(),
        mode: "ebpf".to_owned(),
        policy: "default".to_owned(),
        ready: true,
        uptime_ms: 11_520_000,
        listeners: std::collections::BTreeMap::new(),
        missing_signals: vec!["window_probes".to_owned()],
        connections: [("alive", 9_812), ("congested", 120), ("silent", 40), ("unknown", 28)]
            .map(|(verdict, count)| (verdict.to_owned(), count))
            .into(),
        closed: ClosedTotals { total: 1_203, by_host: 31, heartbeat_kills: 12, false_kills: 9 },
        lost: LostTotals { kernel_records: 0, wire_losses: 3, spans: 0, events: 2, heartbeats: 0 },
    }
}

/// The verdict of [`congested`] changed.
pub(crate) fn changed() -> Event {
    let Connection { connection, peer, local, .. } = congested();
    Event::VerdictChanged {
        connection,
        peer,
        local,
        at_unix_ms: 1_700_000_000_123,
        from: Verdict::Alive,
        to: Verdict::Congested,
        rung: Rung::Drain,
        kill_justified: false,
    }
}

/// [`congested`] was killed, with a reason of somebody's choice.
pub(crate) fn closed() -> Event {
    let Connection { connection, peer, local, path, .. } = congested();
    Event::Closed(Box::new(ClosedEvent {
        connection,
        peer,
        local,
        at_unix_ms: 1_700_000_004_000,
        path,
        kind: CloseKind::HeartbeatKill,
        initiator: CloseInitiator::Host,
        method: Some(CloseMethod::Fin),
        ws_frame: CloseFrames::Sent,
        ws_code: Some(1_011),
        ws_reason: Some("gone\u{1b}[31m".to_owned()),
        verdict: Verdict::Congested,
        rung: Rung::Drain,
        kill_justified: false,
        assessment: Some(Assessment::FalseKill),
        false_kill: true,
        postmortem: Some(Postmortem::AppProgress),
        missed: Some(2),
        lifetime_ms: Some(196_000),
        trace_id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
        span_id: "b7ad6b7169203331".to_owned(),
    }))
}
