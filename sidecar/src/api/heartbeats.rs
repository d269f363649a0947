//! `POST /v1/heartbeats`: heartbeats that the host saw itself, because TLS ends in it.
//!
//! A report is understood as a whole before anything of it is taken. What is taken is an input of the engine like any
//! other, a frame without a place in the stream.

use std::net::SocketAddr;
use std::sync::Arc;

use ackbeat_liveness::{
    ConnectionId, Direction, Frame, FrameKind, HeartbeatProfile, Input, Timestamp, Verdict,
};
use axum::Json;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use tokio::sync::mpsc::error::TrySendError;

use super::counters::HeartbeatOutcome;
use super::query::{self, Query};
use super::types::{
    CLOSE_REASON_MAX_BYTES, HEARTBEAT_AGE_MAX_MS, HEARTBEAT_ID_MAX_BYTES, HEARTBEATS_MAX, HeartbeatReceipt,
    HeartbeatReport, Problem, ReportedHeartbeat, ReportedKind,
};
use super::{Api, body, verdict};
use crate::connections::Found;

/// One heartbeat, understood.
struct Understood {
    peer: SocketAddr,
    local: Option<SocketAddr>,
    kind: ReportedKind,
    age_ms: u64,
    id: Vec<u8>,
    code: Option<u16>,
    reason: Option<String>,
}

/// Reports heartbeats that the host saw itself, because TLS ends in it. A report is taken as a whole or not at all.
#[utoipa::path(
    post,
    path = "/v1/heartbeats",
    tag = "heartbeats",
    request_body(content = HeartbeatReport, content_type = "application/json"),
    responses(
        (status = 202, description = "What became of it", body = HeartbeatReceipt),
        (status = 400, description = "Something in it is wrong; `field` names it", body = Problem,
            content_type = "application/problem+json"),
        (status = 408, description = "The body did not come in time", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "A peer has several connections: give `local`", body = Problem,
            content_type = "application/problem+json"),
        (status = 413, description = "It is too long", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "It is not `application/json`", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "Not ready, or too many reports wait; nothing was taken, send it again after \
            `Retry-After` seconds", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn report(
    State(api): State<Arc<Api>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
    of_request: Body,
) -> Result<(StatusCode, Json<HeartbeatReceipt>), Problem> {
    Query::new(raw.as_deref()).finish("none")?;
    body::is_json(&headers)?;
    let report = read(of_request, &api).await?;
    let understood = understand(report)?;
    if !api.connections.is_ready() {
        return Err(Problem::not_ready());
    }
    let (receipt, inputs) = take(&api, &understood)?;
    if !inputs.is_empty() {
        match api.reports.try_send(inputs) {
            Ok(()) => {}
            Err(TrySendError::Full(inputs)) => {
                api.counters.count_heartbeats(HeartbeatOutcome::Dropped, inputs.len());
                return Err(Problem::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "too many reports wait; nothing of this one was taken, send it again in a second",
                ));
            }
            Err(TrySendError::Closed(_)) => {
                return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the sidecar stops"));
            }
        }
    }
    for (outcome, count) in [
        (HeartbeatOutcome::Accepted, receipt.accepted),
        (HeartbeatOutcome::Unmatched, receipt.unmatched),
        (HeartbeatOutcome::Redundant, receipt.redundant),
    ] {
        api.counters.count_heartbeats(outcome, count);
    }
    Ok((StatusCode::ACCEPTED, Json(receipt)))
}

async fn read(of_request: Body, api: &Api) -> Result<HeartbeatReport, Problem> {
    let report = body::json(of_request, api).await?;
    has_members(&report)?;
    body::understand(report)
}

/// A struct may be read from a list of its members' values too; a report may not. And what is missing is named.
fn has_members(report: &serde_json::Value) -> Result<(), Problem> {
    const REPORT: &str = "a report is an object: {\"heartbeats\": [...]}";
    const HEARTBEAT: &str = "a heartbeat is an object: {\"peer\": \"10.0.0.7:40000\", \"kind\": \"ping\"}";
    let Some(report) = report.as_object() else {
        return Err(Problem::new(StatusCode::BAD_REQUEST, REPORT));
    };
    let Some(heartbeats) = report.get("heartbeats") else {
        return Err(Problem::field("heartbeats", format!("it is missing; {REPORT}")));
    };
    for (index, heartbeat) in heartbeats.as_array().into_iter().flatten().enumerate() {
        let Some(heartbeat) = heartbeat.as_object() else {
            return Err(Problem::field(format!("heartbeats[{index}]"), HEARTBEAT));
        };
        if let Some(member) = ["peer", "kind"].into_iter().find(|member| !heartbeat.contains_key(*member)) {
            return Err(Problem::field(
                format!("heartbeats[{index}].{member}"),
                format!("it is missing; {HEARTBEAT}"),
            ));
        }
    }
    Ok(())
}

/// Checks everything before anything is taken.
fn understand(report: HeartbeatReport) -> Result<Vec<Understood>, Problem> {
    if report.heartbeats.len() > HEARTBEATS_MAX {
        return Err(Problem::field(
            "heartbeats",
            format!(
                "{} heartbeats; a report has at most {HEARTBEATS_MAX}, send several",
                report.heartbeats.len()
            ),
        ));
    }
    report
        .heartbeats
        .into_iter()
        .enumerate()
        .map(|(index, heartbeat)| understand_one(index, heartbeat))
        .collect()
}

fn understand_one(index: usize, heartbeat: ReportedHeartbeat) -> Result<Understood, Problem> {
    let field = |name: &str| format!("heartbeats[{index}].{name}");
    let address = |name: &str, text: &str| {
        query::address(text).ok_or_else(|| query::refused(&field(name), text, query::ADDRESS))
    };
    let peer = address("peer", &heartbeat.peer)?;
    let local = heartbeat.local.as_deref().map(|text| address("local", text)).transpose()?;
    if heartbeat.age_ms > HEARTBEAT_AGE_MAX_MS {
        return Err(Problem::field(
            field("age_ms"),
            format!(
                "{} is older than {HEARTBEAT_AGE_MAX_MS} ms: report heartbeats as they pass",
                heartbeat.age_ms
            ),
        ));
    }
    let id = heartbeat.id.unwrap_or_default().into_bytes();
    if id.len() > HEARTBEAT_ID_MAX_BYTES {
        return Err(Problem::field(
            field("id"),
            format!("{} bytes; an id has at most {HEARTBEAT_ID_MAX_BYTES}", id.len()),
        ));
    }
    let ReportedHeartbeat { kind, age_ms, code, reason, .. } = heartbeat;
    if code.is_some() && kind != ReportedKind::Close {
        return Err(Problem::field(field("code"), "only a Close frame has one"));
    }
    if let Some(code) = code.filter(|code| !(1000..=4999).contains(code)) {
        return Err(Problem::field(field("code"), format!("{code} is no status code: give 1000 to 4999")));
    }
    if reason.is_some() && code.is_none() {
        return Err(Problem::field(field("reason"), "only a Close frame with a code has one"));
    }
    if reason.as_ref().is_some_and(|reason| reason.len() > CLOSE_REASON_MAX_BYTES) {
        let detail = format!("a reason has at most {CLOSE_REASON_MAX_BYTES} bytes");
        return Err(Problem::field(field("reason"), detail));
    }
    Ok(Understood { peer, local, kind, age_ms, id, code, reason })
}

/// What becomes of each heartbeat, and the inputs of those that are taken.
fn take(api: &Api, heartbeats: &[Understood]) -> Result<(HeartbeatReceipt, Vec<Input>), Problem> {
    let now = api.now();
    let mut receipt = HeartbeatReceipt::default();
    let mut inputs = Vec::new();
    for (index, heartbeat) in heartbeats.iter().enumerate() {
        let found = api.connections.find(heartbeat.peer, heartbeat.local, now, |info, _| {
            let is_redundant = match heartbeat.kind {
                ReportedKind::Ping => info.is_ping_report_redundant,
                ReportedKind::Pong => info.is_pong_report_redundant,
                // One that is queued behind what is not acknowledged is not on the wire.
                ReportedKind::Close => false,
            };
            (info.verdict != Verdict::Closed).then_some((info.connection, is_redundant))
        });
        match found {
            Found::One(Some((_, true))) => receipt.redundant += 1,
            Found::One(Some((connection, false))) => {
                receipt.accepted += 1;
                inputs.push(Input::Frame(frame(heartbeat, connection, now)));
            }
            Found::None | Found::One(None) => receipt.unmatched += 1,
            Found::Several(locals) => {
                let problem = verdict::several(heartbeat.peer, &locals);
                return Err(problem.at(format!("heartbeats[{index}].local")));
            }
        }
    }
    inputs.sort_by_key(Input::at);
    Ok((receipt, inputs))
}

fn frame(heartbeat: &Understood, connection: ConnectionId, now: Timestamp) -> Frame {
    let (kind, direction) = match heartbeat.kind {
        ReportedKind::Ping => (FrameKind::Ping, Direction::Egress),
        ReportedKind::Pong => (FrameKind::Pong, Direction::Ingress),
        ReportedKind::Close => (FrameKind::Close, Direction::Egress),
    };
    Frame {
        connection,
        at: now.minus_ms(heartbeat.age_ms),
        direction,
        kind,
        profile: HeartbeatProfile::default(),
        seq_start: None,
        seq_end: None,
        payload: heartbeat.id.clone(),
        close_code: heartbeat.code,
        close_reason: heartbeat.reason.clone(),
    }
}
