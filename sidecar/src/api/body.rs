//! Bodies of requests: their type, their length, and how long they may take.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

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
        "a report is JSON: send it with `Content-Type: application/json`",
    ))
}

/// The whole body.
pub(super) async fn collect(body: Body, api: &Api) -> Result<Bytes, Problem> {
    // Bodies are held one after the other, so that a crowd of slow clients holds a few of them.
    let _place = api.bodies.acquire().await;
    let collecting = Limited::new(body, BODY_MAX_BYTES).collect();
    match tokio::time::timeout(BODY_DEADLINE, collecting).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a report has at most {BODY_MAX_BYTES} bytes; send several"),
        )),
        Ok(Err(error)) => Err(Problem::new(StatusCode::BAD_REQUEST, format!("the body broke off: {error}"))),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
    }
}
