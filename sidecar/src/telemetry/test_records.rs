//! Close records for tests: one of each kind.

use ackbeat_liveness::{
    Assessed, Assessment, CloseFrames, CloseInitiator, CloseKind, CloseMethod, CloseRecord, ConnectionId,
    Endpoints, EvidenceScope, Heartbeat, HeartbeatProfile, HeartbeatSource, PingLocation, Postmortem,
    Process, Role, Rung, Seq, Snapshot, TcpState, Timestamp, Upgrade, Verdict, VerdictChange,
};

/// A snapshot in which every signal is available.
pub(crate) fn full_snapshot(at: Timestamp) -> Snapshot {
    Snapshot {
        connection: ConnectionId(7),
        at,
        state: TcpState::FinWait1,
        write_seq: Some(Seq(5_000)),
        snd_nxt: Some(Seq(4_000)),
        snd_una: Some(Seq(1_000)),
        snd_wnd_bytes: Some(3_000),
        rcv_nxt: Some(Seq(90)),
        copied_seq: Some(Seq(80)),
        send_queue_bytes: Some(4_000),
        unsent_bytes: Some(1_000),
        unread_bytes: Some(10),
        last_ack_at: Some(at.minus_ms(250)),
        last_send_at: Some(at.minus_ms(200)),
        last_inbound_at: Some(at.minus_ms(4_100)),
        bytes_acked: Some(3_900_000),
        bytes_received: Some(5_120),
        srtt_us: Some(850),
        rto_ms: Some(204),
        backoff: Some(1),
        retransmits: Some(2),
        probes_out: Some(0),
        packets_out: Some(3),
        total_retransmits: Some(4),
        retransmitting_since: None,
        socket_error: Some(0),
        soft_error: Some(113),
        shutdown: Some(2),
        queued_memory_bytes: Some(9_000),
    }
}

/// The same socket where nothing is available.
pub(crate) fn empty_snapshot(at: Timestamp) -> Snapshot {
    let full = full_snapshot(at);
    Snapshot::unavailable(full.connection, full.at, full.state)
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_ms(100_000 + ms)
}

/// A heartbeat kill of a peer that was alive; every field is filled.
pub(crate) fn false_kill() -> CloseRecord {
    CloseRecord {
        connection: ConnectionId(7),
        endpoints: Endpoints {
            local_address: "::ffff:10.0.0.1".parse().unwrap(),
            local_port: 8080,
            peer_address: "::ffff:10.0.0.2".parse().unwrap(),
            peer_port: 40_001,
        },
        role: Role::Server,
        preexisting: false,
        upgrade: Some(Upgrade {
            connection: ConnectionId(7),
            at: at(5),
            path: Some("/mux".to_owned()),
            traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
            forwarding_headers: vec!["via".to_owned()],
        }),
        is_websocket: true,
        opened_at: at(0),
        closed_at: at(6_000),
        ended_at: at(9_500),
        last_proof_of_life_at: at(5_750),
        kind: CloseKind::HeartbeatKill,
        initiator: CloseInitiator::Host,
        method: Some(CloseMethod::Fin),
        close_frames: CloseFrames::Sent,
        close_code: Some(1001),
        close_reason: Some("bye".to_owned()),
        process: Some(Process { pid: 42, command: "node".to_owned(), exiting: false, ancestors: Vec::new() }),
        is_final: Some(false),
        socket_error: None,
        assessed: Assessed {
            verdict: Verdict::Congested,
            rung: Rung::Drain,
            kill_justified: false,
            scope: EvidenceScope::NextHop,
            heartbeat: Heartbeat {
                source: HeartbeatSource::Wire,
                profile: Some(HeartbeatProfile::Rfc6455),
                interval_ms: Some(2_000),
                missed: Some(2),
                last_ping_age_ms: Some(200),
                last_pong_age_ms: Some(4_200),
                ping_location: PingLocation::NotSent,
                ping_bytes_ahead: Some(25_000_000),
                inferred: true,
            },
            last_ack_age_ms: Some(250),
            last_inbound_age_ms: Some(4_100),
        },
        postmortem: Some(Postmortem::AppProgress),
        assessment: Some(Assessment::FalseKill),
        snapshot: Some(full_snapshot(at(6_000))),
        verdict_changes: vec![
            change(1_000, Verdict::Alive, Verdict::Stalled, Rung::Hop),
            change(5_800, Verdict::Stalled, Verdict::Congested, Rung::Drain),
        ],
        verdict_changes_dropped: 0,
        records_lost: 3,
        reconnect: None,
        still_open: false,
    }
}

fn change(ms: u64, from: Verdict, to: Verdict, rung: Rung) -> VerdictChange {
    VerdictChange { connection: ConnectionId(7), at: at(ms), from, to, rung, kill_justified: false }
}

/// A peer that was cut off: justified.
pub(crate) fn justified_kill() -> CloseRecord {
    let mut record = false_kill();
    record.upgrade = None;
    record.close_frames = CloseFrames::None;
    record.close_code = None;
    record.close_reason = None;
    record.is_final = None;
    record.assessed.verdict = Verdict::Unreachable;
    record.assessed.rung = Rung::None;
    record.assessed.kill_justified = true;
    record.assessed.scope = EvidenceScope::Peer;
    record.postmortem = Some(Postmortem::NoAnswer);
    record.assessment = Some(Assessment::Justified);
    record
}

/// A connection about which almost nothing is known: found at the start, sampled by nobody, plain TCP.
pub(crate) fn unknown_abort() -> CloseRecord {
    let mut record = false_kill();
    record.preexisting = true;
    record.upgrade = None;
    record.is_websocket = false;
    record.kind = CloseKind::Abort;
    record.method = None;
    record.close_frames = CloseFrames::None;
    record.close_code = None;
    record.close_reason = None;
    record.is_final = None;
    record.process = None;
    record.assessed = Assessed {
        verdict: Verdict::Unknown,
        rung: Rung::None,
        kill_justified: false,
        scope: EvidenceScope::Peer,
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
        last_ack_age_ms: None,
        last_inbound_age_ms: None,
    };
    record.postmortem = Some(Postmortem::Unresolved);
    record.assessment = Some(Assessment::Unknown);
    record.snapshot = Some(empty_snapshot(at(6_000)));
    record.verdict_changes = Vec::new();
    record.records_lost = 0;
    record
}

/// A polite close by the host.
pub(crate) fn graceful() -> CloseRecord {
    let mut record = justified_kill();
    record.kind = CloseKind::Graceful;
    record.close_frames = CloseFrames::Both;
    record.close_code = Some(1000);
    record.is_final = Some(false);
    record.assessed.verdict = Verdict::Alive;
    record.assessed.rung = Rung::Pong;
    record.assessed.kill_justified = false;
    record.postmortem = Some(Postmortem::Answered);
    record.assessment = None;
    record.verdict_changes = Vec::new();
    record
}

/// The host said that it restarts.
pub(crate) fn planned_restart() -> CloseRecord {
    let mut record = graceful();
    record.kind = CloseKind::PlannedRestart;
    record.close_code = Some(4001);
    record.close_reason = Some("server_restart".to_owned());
    record
}

/// The process died.
pub(crate) fn process_exit() -> CloseRecord {
    let mut record = justified_kill();
    record.kind = CloseKind::ProcessExit;
    record.method = Some(CloseMethod::Rst);
    record.process =
        Some(Process { pid: 43, command: "node".to_owned(), exiting: true, ancestors: Vec::new() });
    record.postmortem = Some(Postmortem::Unresolved);
    record.assessment = Some(Assessment::Premature);
    record
}

/// The kernel gave up: `ETIMEDOUT` (110).
pub(crate) fn kernel_timeout() -> CloseRecord {
    let mut record = justified_kill();
    record.kind = CloseKind::KernelTimeout;
    record.initiator = CloseInitiator::Kernel;
    record.method = None;
    record.process = None;
    record.socket_error = Some(110);
    record.endpoints.local_address = "2001:db8::1".parse().unwrap();
    record.endpoints.peer_address = "2001:db8::2".parse().unwrap();
    record.postmortem = None;
    record.assessment = None;
    record
}

/// The sidecar stopped while the connection was in use.
pub(crate) fn still_open() -> CloseRecord {
    let mut record = graceful();
    record.still_open = true;
    record.kind = CloseKind::Other;
    record.initiator = CloseInitiator::Unknown;
    record.method = None;
    record.process = None;
    record.close_frames = CloseFrames::None;
    record.close_code = None;
    record.is_final = None;
    record.postmortem = None;
    record
}

/// The peer reset it.
pub(crate) fn peer_reset() -> CloseRecord {
    let mut record = justified_kill();
    record.kind = CloseKind::Other;
    record.initiator = CloseInitiator::Peer;
    record.method = Some(CloseMethod::Rst);
    record.process = None;
    record.assessed.kill_justified = false;
    record.postmortem = None;
    record.assessment = None;
    record
}
