//! Bodies of requests: their type, their length, and how long they may take.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Api;
use super::types::{BODY_MAX_BYTES, Problem};

/// How long a client may take for its body.
const BODY_DEADLINE: Duration = Duration::from_secs(10);

/// A page of a browser can send other types without asking; this one it cannot.
pub(super) fn is_json(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = given.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "the body is JSON: send it with `Content-Type: application/json`",
    ))
}

/// The whole body as JSON, read once.
pub(super) async fn json(body: Body, api: &Api) -> Result<Value, Problem> {
    let bytes = collect(body, api).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, format!("this is no JSON: {error}")))
}

/// What a body says, or which of its members is wrong.
pub(super) fn understand<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let problem = Problem::new(StatusCode::BAD_REQUEST, error.into_inner().to_string());
        // What is wrong with the whole has no member to blame.
        if path == "." { problem } else { problem.at(path) }
    })
}

/// The whole body.
async fn collect(body: Body, api: &Api) -> Result<Bytes, Problem> {
    // Bodies are held one after the other, so that a crowd of slow clients holds a few of them.
    let _place = api.bodies.acquire().await;
    let collecting = Limited::new(body, BODY_MAX_BYTES).collect();
    match tokio::time::timeout(BODY_DEADLINE, collecting).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a body has at most {BODY_MAX_BYTES} bytes; what is longer goes into several requests"),
        )),
        Ok(Err(error)) => Err(Problem::new(StatusCode::BAD_REQUEST, format!("the body broke off: {error}"))),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
    }
}
