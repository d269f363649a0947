//! The sidecar itself: `/v1/status`, `/healthz`, `/readyz`, `/metrics`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::Api;
use super::counters::HeartbeatOutcome;
use super::query::Query;
use super::types::{Health, LostTotals, Problem, Readiness, Status, TURN_AGE_MAX_MS};

/// Refuses parameters where there are none.
fn without_parameters(raw: Option<&str>) -> Result<(), Problem> {
    Query::new(raw).finish("none")
}

/// The sidecar itself: its mode, what it cannot see, and what it lost.
#[utoipa::path(
    get,
    path = "/v1/status",
    tag = "sidecar",
    responses(
        (status = 200, description = "The sidecar", body = Status),
        (status = 400, description = "There are no parameters; `field` names the one that was given", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn status(
    State(api): State<Arc<Api>>,
    RawQuery(raw): RawQuery,
) -> Result<Json<Status>, Problem> {
    without_parameters(raw.as_deref())?;
    let house = api.connections.housekeeping();
    let spans = api.spans.totals();
    let connections = api.connections.by_verdict();
    Ok(Json(Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: api.about.mode.as_str().to_owned(),
        policy: api.policy().to_owned(),
        ready: api.connections.is_ready(),
        uptime_ms: api.now().ms_since(api.started_at),
        missing_signals: api.about.missing_signals.clone(),
        listeners: api.standings.words(),
        connections: connections.into_iter().map(|(verdict, count)| (verdict.to_owned(), count)).collect(),
        closed: api.events.closed(),
        lost: LostTotals {
            kernel_records: house.source.records_dropped + house.source.records_rejected,
            wire_losses: house.source.wire_losses,
            spans: spans.dropped + spans.failed,
            events: api.counters.events_dropped(),
            heartbeats: api.counters.heartbeats(HeartbeatOutcome::Dropped),
        },
    }))
}

/// Whether it works: the loop that everything passes through turned within the last five seconds.
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "sidecar",
    responses(
        (status = 200, description = "It works", body = Health),
        (status = 400, description = "There are no parameters; `field` names the one that was given", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "It does not", body = Health),
    ),
)]
pub(super) async fn healthz(
    State(api): State<Arc<Api>>,
    RawQuery(raw): RawQuery,
) -> Result<(StatusCode, Json<Health>), Problem> {
    without_parameters(raw.as_deref())?;
    let turn_age_ms = api.connections.turned_at().map(|at| api.now().ms_since(at));
    let healthy = turn_age_ms.is_some_and(|age_ms| age_ms <= TURN_AGE_MAX_MS);
    Ok((of(healthy), Json(Health { healthy, turn_age_ms })))
}

/// Whether its answers are complete: what existed at the start was found.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "sidecar",
    responses(
        (status = 200, description = "They are", body = Readiness),
        (status = 400, description = "There are no parameters; `field` names the one that was given", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "Not yet", body = Readiness),
    ),
)]
pub(super) async fn readyz(
    State(api): State<Arc<Api>>,
    RawQuery(raw): RawQuery,
) -> Result<(StatusCode, Json<Readiness>), Problem> {
    without_parameters(raw.as_deref())?;
    let ready = api.connections.is_ready();
    let readiness = Readiness {
        ready,
        mode: api.about.mode.as_str().to_owned(),
        missing_signals: api.about.missing_signals.clone(),
    };
    Ok((of(ready), Json(readiness)))
}

const fn of(is_good: bool) -> StatusCode {
    if is_good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// What Prometheus scrapes.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "sidecar",
    responses(
        (status = 200, description = "The metrics, as text for Prometheus", body = String, content_type = "text/plain"),
        (status = 400, description = "There are no parameters; `field` names the one that was given", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "There are no metrics here", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn metrics(
    State(api): State<Arc<Api>>,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
) -> Result<Response, Problem> {
    without_parameters(raw.as_deref())?;
    let Some(page) = &api.metrics else {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            "there are no metrics here: OTEL_METRICS_EXPORTER leaves prometheus out",
        ));
    };
    Ok(page.answer(&headers))
}
