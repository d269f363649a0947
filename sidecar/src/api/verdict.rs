//! `GET /v1/verdict`: one connection, for whoever asks before it kills.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;

use super::query::Query;
use super::types::{Connection, Problem};
use super::{Api, answer};
use crate::connections::Found;

/// What is known about a peer's connection now: the question to ask before a kill.
#[utoipa::path(
    get,
    path = "/v1/verdict",
    tag = "verdicts",
    params(
        ("peer" = inline(super::schema::SocketAddress), Query, description = "`ADDRESS:PORT` of the peer, an IPv6 address in brackets; IPv4-mapped \
            addresses are IPv4", example = "10.0.0.7:40000"),
        ("local" = inline(Option<super::schema::SocketAddress>), Query, description = "`ADDRESS:PORT` of the pod's side, where the peer alone is not enough",
            example = "10.0.0.1:8080"),
    ),
    responses(
        (status = 200, description = "The connection", body = Connection),
        (status = 400, description = "A parameter is wrong; `field` names it", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "No such connection is watched", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The peer has several connections: give `local`", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "What existed at the start is not found yet; ask again after `Retry-After` seconds",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn verdict(
    State(api): State<Arc<Api>>,
    RawQuery(raw): RawQuery,
) -> Result<Json<Connection>, Problem> {
    let mut query = Query::new(raw.as_deref());
    let peer = query.address("peer")?;
    let local = query.address("local")?;
    query.finish("peer, local")?;
    let Some(peer) = peer else {
        return Err(Problem::field("peer", "peer is missing: whose connection? (peer=ADDRESS:PORT)"));
    };
    if !api.connections.is_ready() {
        return Err(Problem::not_ready());
    }
    let now = api.now();
    match api.connections.find(peer, local, now, |info, assessed| answer::connection(info, assessed, now)) {
        Found::One(connection) => Ok(Json(connection)),
        Found::None => Err(not_watched(peer, local)),
        Found::Several(locals) => Err(several(peer, &locals)),
    }
}

fn not_watched(peer: SocketAddr, local: Option<SocketAddr>) -> Problem {
    let at = local.map(|local| format!(" at {local}")).unwrap_or_default();
    Problem::new(
        StatusCode::NOT_FOUND,
        format!("no connection of {peer}{at} is watched; /v1/connections lists those that are"),
    )
    .at("peer")
}

/// The same address has several connections.
pub(super) fn several(peer: SocketAddr, locals: &[SocketAddr]) -> Problem {
    const SHOWN_MAX: usize = 8;
    let shown: Vec<String> = locals.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
    Problem::new(
        StatusCode::CONFLICT,
        format!("{peer} has {} connections; give local as well, one of {}", locals.len(), shown.join(", ")),
    )
    .at("local")
}
