//! Sockets that have no use any more: `/v1/leaks`, and the kill switch of reaping, `/v1/reap`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ackbeat_liveness::Timestamp;
use ackbeat_liveness::leak::{
    Certainty, GroupKey, GroupView, IDLE_BOUNDARIES_MS, LeakSign, LeakWatch, ReapMode, Side,
};
use axum::Json;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::query::Query;
use super::types::Problem;
use super::{Api, body, schema};
use crate::census::control::ReapControl;

/// Sockets and pairs that an answer names.
const NAMED_MAX: usize = 256;

/// What the censuses of all sockets add up to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Leaks {
    /// Age of the last census; `null` before the first, and where none are taken.
    #[schema(required = true)]
    pub census_age_ms: Option<u64>,
    /// How far apart they are; 0 where none are taken.
    pub census_interval_ms: u64,
    /// Listening and remote ports that have connections, or had some in the last hour.
    pub ports: Vec<LeakPort>,
    /// Sockets that the host does not close although the peer has; at most 256.
    pub sockets: Vec<LeakSocket>,
    /// Connections that were closed by their peers, and dialled sockets that served them and live on; at most 256.
    pub pairs: Vec<LeakPair>,
    /// Processes that own most of the sockets, as far as `/proc` shows them.
    pub owners: Vec<SocketOwner>,
    /// What found no room since the start.
    pub left_out: BTreeMap<String, u64>,
    /// Whether idle sockets of a full quota are destroyed.
    pub reaping: Reaping,
}

/// A listening or a remote port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LeakPort {
    /// `local`, a port that the pod listens on, or `remote`, one that it dials.
    #[schema(schema_with = schema::leak_side)]
    pub side: Side,
    /// `ADDRESS:PORT`.
    pub address: String,
    /// Established connections.
    pub established: u32,
    /// Of them, those that were there at the census before; such counts are compared.
    pub settled: u32,
    /// The largest such count of the last hour.
    pub maximum: u32,
    /// For how long that count has been what it is.
    pub flat_ms: u64,
    /// Established connections that are idle.
    pub idle: u32,
    /// Established connections by the time for which they carried no byte either way: `10000` are those of at most 10 s that
    /// are not in a smaller one, `more` those beyond the last; `unknown` where the kernel does not say.
    pub idle_ages_ms: BTreeMap<String, u32>,
    /// Sockets in `CLOSE_WAIT`.
    pub close_wait: u32,
    /// For how long the oldest of them has been in it, at least.
    #[schema(required = true)]
    pub close_wait_oldest_ms: Option<u64>,
    /// Sockets in `FIN_WAIT2`.
    pub fin_wait2: u32,
    /// For how long the oldest of them has been in it, at least.
    #[schema(required = true)]
    pub fin_wait2_oldest_ms: Option<u64>,
    /// Dialled sockets that outlive the connections that they served.
    pub orphans: u32,
    /// The configured quota.
    #[schema(required = true)]
    pub quota: Option<u32>,
    /// The process that owns the sockets; `null` where it is unknown, or there are several.
    #[schema(required = true)]
    pub pid: Option<u32>,
    /// What is suspected now.
    pub suspected: Vec<Suspected>,
}

/// Something that is suspected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Suspected {
    /// What it rests on.
    #[schema(schema_with = schema::leak_sign)]
    pub sign: LeakSign,
    /// For how long the sign has been there.
    pub age_ms: u64,
}

/// A socket that the host does not close although the peer has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeakSocket {
    /// The socket's cookie.
    pub connection: u64,
    /// `ADDRESS:PORT` of the peer.
    pub peer: String,
    /// `ADDRESS:PORT` of the pod's side.
    pub local: String,
    /// For how long it has been in `CLOSE_WAIT`, at least.
    pub age_ms: u64,
    /// Bytes that the application has not read.
    #[schema(required = true)]
    pub unread_bytes: Option<u32>,
    /// The process that owns it.
    #[schema(required = true)]
    pub pid: Option<u32>,
}

/// A connection that its peer closed, and the dialled socket that served it and lives on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeakPair {
    /// Cookie of the connection that its peer closed.
    pub downstream: u64,
    /// How long ago that was.
    pub closed_age_ms: u64,
    /// Cookie of the dialled socket.
    pub upstream: u64,
    /// `ADDRESS:PORT` that it was dialled to.
    pub remote: String,
    /// How sure it is that the one served the other.
    #[schema(schema_with = schema::leak_certainty)]
    pub certainty: Certainty,
}

/// A process that owns sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SocketOwner {
    /// Process id.
    pub pid: u32,
    /// Command name.
    pub command: String,
    /// File descriptors that it has open.
    pub fd_count: u32,
}

/// Whether idle sockets of a full quota are destroyed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reaping {
    /// As it is configured.
    #[schema(schema_with = schema::reap_mode)]
    pub configured: ReapMode,
    /// As it is now.
    #[schema(schema_with = schema::reap_mode)]
    pub mode: ReapMode,
    /// What became of the sockets that were to be destroyed, since the start.
    pub outcomes: BTreeMap<String, u64>,
}

/// A lower mode of reaping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReapOrder {
    /// The mode from now on.
    #[schema(schema_with = schema::reap_mode)]
    pub mode: ReapMode,
}

/// Which sockets have no use any more: by port, by socket, and by pair.
#[utoipa::path(
    get,
    path = "/v1/leaks",
    tag = "leaks",
    responses(
        (status = 200, description = "What the censuses of all sockets add up to", body = Leaks),
        (status = 400, description = "There are no parameters; `field` names the one that was given", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn leaks(
    State(api): State<Arc<Api>>,
    RawQuery(raw): RawQuery,
) -> Result<Json<Leaks>, Problem> {
    Query::new(raw.as_deref()).finish("none")?;
    let now = api.now();
    Ok(Json(api.connections.leaks(|watch| answer(watch, now, &api.reaping))))
}

/// What an order looks like.
const ORDER: &str = "an order is an object: {\"mode\": \"off\"}";

/// Lowers the mode of reaping until the sidecar starts again: `on` to `dry-run` to `off`. It never raises it.
#[utoipa::path(
    post,
    path = "/v1/reap",
    tag = "leaks",
    request_body(content = ReapOrder, content_type = "application/json"),
    responses(
        (status = 200, description = "The mode now", body = Reaping),
        (status = 400, description = "Something in it is wrong; `field` names it", body = Problem,
            content_type = "application/problem+json"),
        (status = 408, description = "The body did not come in time", body = Problem,
            content_type = "application/problem+json"),
        (status = 409, description = "The mode now is lower: only the configuration raises it", body = Problem,
            content_type = "application/problem+json"),
        (status = 413, description = "It is too long", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "It is not `application/json`", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn reap(
    State(api): State<Arc<Api>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
    of_request: Body,
) -> Result<Json<Reaping>, Problem> {
    Query::new(raw.as_deref()).finish("none")?;
    body::is_json(&headers)?;
    let order = body::json(of_request, &api).await?;
    // A struct may be read from a list of its members' values too; an order may not.
    let Some(members) = order.as_object() else {
        return Err(Problem::new(StatusCode::BAD_REQUEST, ORDER));
    };
    if !members.contains_key("mode") {
        return Err(Problem::field("mode", format!("it is missing; {ORDER}")));
    }
    let order: ReapOrder = body::understand(order)?;
    let before = api.reaping.lower(order.mode).map_err(|now| {
        Problem::new(
            StatusCode::CONFLICT,
            format!("the mode is {} now, and only the configuration and a new start raise it", now.as_str()),
        )
    })?;
    if before != order.mode {
        tracing::info!(
            target: "ackbeat::leak",
            mode = order.mode.as_str(),
            before = before.as_str(),
            "reaping was lowered through the API"
        );
    }
    Ok(Json(reaping(&api.reaping)))
}

fn reaping(control: &ReapControl) -> Reaping {
    Reaping {
        configured: control.configured(),
        mode: control.mode(),
        outcomes: control
            .totals()
            .into_iter()
            .map(|(outcome, count)| (outcome.as_str().to_owned(), count))
            .collect(),
    }
}

fn answer(watch: &LeakWatch, now: Timestamp, control: &ReapControl) -> Leaks {
    let counters = watch.counters();
    Leaks {
        census_age_ms: watch.last_census_at().map(|at| now.ms_since(at)),
        census_interval_ms: watch.settings().census_interval_ms,
        ports: watch.groups().map(|group| port(&group, now)).collect(),
        sockets: watch
            .leaked_sockets()
            .take(NAMED_MAX)
            .map(|(socket, since)| LeakSocket {
                connection: socket.connection.0,
                peer: super::answer::peer(&socket.endpoints).to_string(),
                local: super::answer::local(&socket.endpoints).to_string(),
                age_ms: now.ms_since(since),
                unread_bytes: socket.unread_bytes,
                pid: socket.pid,
            })
            .collect(),
        pairs: watch
            .pairs()
            .take(NAMED_MAX)
            .map(|(group, pair)| LeakPair {
                downstream: pair.downstream.0,
                closed_age_ms: now.ms_since(pair.closed_at),
                upstream: pair.upstream.0,
                remote: address(&group),
                certainty: pair.certainty,
            })
            .collect(),
        owners: watch
            .owners()
            .iter()
            .map(|owner| SocketOwner {
                pid: owner.pid,
                command: owner.command.clone(),
                fd_count: owner.fd_count,
            })
            .collect(),
        left_out: [
            ("sockets", counters.sockets_left_out),
            ("ports", counters.groups_left_out),
            ("closes", counters.closes_left_out),
        ]
        .into_iter()
        .map(|(of, count)| (of.to_owned(), count))
        .collect(),
        reaping: reaping(control),
    }
}

fn address(group: &GroupKey) -> String {
    SocketAddr::new(group.address, group.port).to_string()
}

fn port(group: &GroupView, now: Timestamp) -> LeakPort {
    let names = IDLE_BOUNDARIES_MS.map(|bound| bound.to_string()).into_iter().chain(["more".to_owned()]);
    let ages = names.zip(group.idle_histogram).chain([("unknown".to_owned(), group.idle_unknown)]);
    LeakPort {
        side: group.key.side,
        address: address(&group.key),
        established: group.established,
        settled: group.settled,
        maximum: group.maximum,
        flat_ms: now.ms_since(group.flat_since),
        idle: group.idle,
        idle_ages_ms: ages.collect(),
        close_wait: group.close_wait.count,
        close_wait_oldest_ms: group.close_wait.oldest_since.map(|since| now.ms_since(since)),
        fin_wait2: group.fin_wait2.count,
        fin_wait2_oldest_ms: group.fin_wait2.oldest_since.map(|since| now.ms_since(since)),
        orphans: group.orphans,
        quota: group.quota,
        pid: group.pid,
        suspected: group
            .suspected
            .iter()
            .map(|(sign, since)| Suspected { sign: *sign, age_ms: now.ms_since(*since) })
            .collect(),
    }
}
