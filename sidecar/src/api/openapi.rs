//! `GET /v1/openapi.json`: the API described, from its types and handlers.

use std::sync::LazyLock;

use axum::extract::RawQuery;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use utoipa::OpenApi;

use super::query::Query;
use super::types::{Event, Problem};
use super::{heartbeats, leaks, list, status, storms, stream, verdict};

/// The API.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "ackbeat",
        description = "Is the peer gone, or only behind? Verdicts about the connections of one pod, for whoever asks before \
                       it kills. A value that is not known is `null`, never 0; ages are in milliseconds of monotonic time. \
                       Errors are `application/problem+json` (RFC 9457). Every path but `/healthz` and `/readyz` may answer \
                       429: all clients together get 20,000 verdicts a second, and one answer of another kind for 100 of \
                       them (for 10 where heartbeats are reported).",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    servers((url = "http://127.0.0.1:9465", description = "The sidecar's default")),
    tags(
        (name = "verdicts", description = "What is known about connections"),
        (name = "heartbeats", description = "Heartbeats that the host reports"),
        (name = "events", description = "What changes"),
        (name = "leaks", description = "Sockets that have no use any more"),
        (name = "ports", description = "How the listening ports stand"),
        (name = "sidecar", description = "The sidecar itself"),
    ),
    paths(
        list::list,
        verdict::verdict,
        status::status,
        storms::storms,
        heartbeats::report,
        stream::events,
        leaks::leaks,
        leaks::reap,
        status::healthz,
        status::readyz,
        status::metrics,
        openapi,
    ),
    components(schemas(Event)),
)]
pub struct Description;

static TEXT: LazyLock<String> = LazyLock::new(|| Description::openapi().to_json().unwrap_or_default());

/// This description.
#[utoipa::path(
    get,
    path = "/v1/openapi.json",
    tag = "sidecar",
    responses(
        (status = 200, description = "An OpenAPI document", body = serde_json::Value),
        (status = 400, description = "There are no parameters; `field` names the one that was given", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn openapi(RawQuery(raw): RawQuery) -> Result<Response, Problem> {
    Query::new(raw.as_deref()).finish("none")?;
    Ok(([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response())
}
