//! How many requests are answered in a second: a client that asks without a pause must not take the processor from the
//! driver.
//!
//! What an answer costs differs, so requests have weights. Health is always told: whoever restarts the container asks it.

use std::num::NonZeroU32;
use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use super::Api;
use super::types::Problem;

/// Verdicts that are answered in a second, all clients together, and as many at once after a quiet second. Heartbeats of
/// 10,000 connections that all fail at once ask half as often.
pub const VERDICTS_PER_SECOND: NonZeroU32 = NonZeroU32::MIN.saturating_add(19_999);
/// A list, a page, a new reader of events: as much as so many verdicts.
const OF_A_LIST: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);
/// A report, which may have many heartbeats.
const OF_A_REPORT: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);

/// What is left of this second.
#[derive(Debug)]
pub(super) struct Rate(DefaultDirectRateLimiter);

impl Rate {
    pub(super) fn new(verdicts_per_second: NonZeroU32) -> Self {
        // A list must find room in what may come at once.
        let at_once = verdicts_per_second.max(OF_A_LIST);
        Self(RateLimiter::direct(Quota::per_second(verdicts_per_second).allow_burst(at_once)))
    }

    /// Takes the room for a request of this weight, if there is any.
    fn take(&self, weight: NonZeroU32) -> bool {
        matches!(self.0.check_n(weight), Ok(Ok(())))
    }
}

/// What a request of a route weighs; `None` for those that are always answered.
fn weight(route: &str) -> Option<NonZeroU32> {
    match route {
        "/healthz" | "/readyz" => None,
        "/v1/verdict" => Some(NonZeroU32::MIN),
        "/v1/heartbeats" => Some(OF_A_REPORT),
        _ => Some(OF_A_LIST),
    }
}

/// Answers 429 where there is no room. It is counted like every other answer, by route and status.
pub(super) async fn limit(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    // What has no route is not looked for: it costs next to nothing.
    let weight =
        request.extensions().get::<MatchedPath>().map_or(Some(NonZeroU32::MIN), |path| weight(path.as_str()));
    if weight.is_none_or(|weight| api.rate.take(weight)) {
        return next.run(request).await;
    }
    Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too many requests in this second, all clients together; ask again in a second",
    )
    .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_room_for_so_much() {
        let rate = Rate::new(NonZeroU32::MIN);
        assert!(rate.take(OF_A_LIST), "a list finds room at any rate");
        assert!(!rate.take(OF_A_LIST));
        assert!(!rate.take(NonZeroU32::MIN));
    }

    #[test]
    fn every_route_has_a_weight_but_those_of_health() {
        let free: Vec<&str> =
            super::super::ROUTES.into_iter().filter(|route| weight(route).is_none()).collect();
        assert_eq!(free, ["/healthz", "/readyz"]);
    }
}
