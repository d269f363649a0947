//! The API on the pod's loopback: verdicts for whoever asks before it kills.
//!
//! It runs beside the driver and never makes it wait: it reads [`Connections`] briefly, and hands reported heartbeats over
//! through a bounded queue. Everything that a client can hold is bounded, and what is refused is counted ([`counters`]).

mod answer;
mod body;
pub mod counters;
pub mod events;
mod heartbeats;
pub mod leaks;
mod list;
pub mod listen;
pub mod openapi;
pub mod problem;
mod query;
pub mod rate;
mod schema;
pub mod server;
mod status;
mod storms;
pub mod stream;
pub mod types;
mod verdict;

use std::num::NonZeroU32;
use std::sync::Arc;

use ackbeat_liveness::{Input, Timestamp};
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::{get, post};
use tokio::sync::{Semaphore, mpsc};

use crate::census::control::ReapControl;
use crate::connections::Connections;
use crate::driver::clock::{Clock as _, MonotonicClock};
use crate::listening::Standings;
use crate::reload::ReloadState;
use crate::source::Mode;
use crate::telemetry::pipeline::SpanCounts;
use counters::ApiCounters;
use events::Events;
use rate::Rate;
use types::Problem;

/// Reports of heartbeats that wait for the driver at most, each with up to
/// [`HEARTBEATS_MAX`](types::HEARTBEATS_MAX) of them.
pub const REPORTS_MAX: usize = 64;

/// Bodies that are read at once.
const BODIES_MAX: usize = 32;

/// The page of metrics, as Prometheus reads it.
pub trait MetricsPage: Send + Sync {
    /// The page now, in the form that the headers of a request ask for. It must not block.
    fn answer(&self, headers: &HeaderMap) -> Response;
}

/// What does not change while the sidecar runs.
#[derive(Clone, Debug)]
pub struct About {
    /// How evidence is gathered.
    pub mode: Mode,
    /// Name of the policy at the start.
    pub policy: &'static str,
    /// Signals that this kernel or mode does not give.
    pub missing_signals: Vec<String>,
}

/// What the API tells of, and whom it tells.
pub struct Api {
    connections: Arc<Connections>,
    about: About,
    started_at: Timestamp,
    spans: Arc<SpanCounts>,
    counters: Arc<ApiCounters>,
    events: Events,
    reports: mpsc::Sender<Vec<Input>>,
    metrics: Option<Arc<dyn MetricsPage>>,
    reaping: Arc<ReapControl>,
    reloads: Option<Arc<ReloadState>>,
    standings: Arc<Standings>,
    rate: Rate,
    /// Places for bodies that are being read.
    bodies: Semaphore,
    /// Places for readers of events.
    readers: Arc<Semaphore>,
}

impl Api {
    /// Tells of `connections`, of `events`, and of what became of `spans`; reported heartbeats go to `reports`, which has
    /// room for [`REPORTS_MAX`].
    #[must_use]
    pub fn new(
        about: About,
        connections: Arc<Connections>,
        spans: Arc<SpanCounts>,
        events: Events,
        reports: mpsc::Sender<Vec<Input>>,
    ) -> Self {
        Self {
            connections,
            about,
            started_at: MonotonicClock.now(),
            spans,
            counters: Arc::default(),
            events,
            reports,
            metrics: None,
            reaping: Arc::default(),
            reloads: None,
            standings: Arc::default(),
            rate: Rate::new(rate::VERDICTS_PER_SECOND),
            bodies: Semaphore::new(BODIES_MAX),
            readers: Arc::new(Semaphore::new(stream::READERS_MAX)),
        }
    }

    /// The same with a page of metrics.
    #[must_use]
    pub fn with_metrics(mut self, page: Arc<dyn MetricsPage>) -> Self {
        self.metrics = Some(page);
        self
    }

    /// The same with a kill switch for reaping. Without one there is none to switch off.
    #[must_use]
    pub fn with_reaping(mut self, control: Arc<ReapControl>) -> Self {
        self.reaping = control;
        self
    }

    /// The same with a configuration that may be read anew.
    #[must_use]
    pub fn with_reloads(mut self, reloads: Arc<ReloadState>) -> Self {
        self.reloads = Some(reloads);
        self
    }

    /// Name of the policy in force.
    fn policy(&self) -> &'static str {
        self.reloads.as_ref().map_or(self.about.policy, |reloads| reloads.policy().as_str())
    }

    /// The same, telling how the listeners stand.
    #[must_use]
    pub fn with_standings(mut self, standings: Arc<Standings>) -> Self {
        self.standings = standings;
        self
    }

    /// The same with another number of verdicts in a second.
    #[must_use]
    pub fn with_rate(mut self, verdicts_per_second: NonZeroU32) -> Self {
        self.rate = Rate::new(verdicts_per_second);
        self
    }

    /// What the API counts of itself.
    #[must_use]
    pub fn counters(&self) -> Arc<ApiCounters> {
        Arc::clone(&self.counters)
    }

    fn now(&self) -> Timestamp {
        MonotonicClock.now()
    }
}

/// The paths that there are.
pub const ROUTES: [&str; 12] = [
    "/v1/connections",
    "/v1/verdict",
    "/v1/status",
    "/v1/storms",
    "/v1/heartbeats",
    "/v1/events",
    "/v1/leaks",
    "/v1/reap",
    "/v1/openapi.json",
    "/healthz",
    "/readyz",
    "/metrics",
];

/// Every route.
pub fn router(api: Arc<Api>) -> Router {
    Router::new()
        .route("/v1/connections", get(list::list))
        .route("/v1/verdict", get(verdict::verdict))
        .route("/v1/status", get(status::status))
        .route("/v1/storms", get(storms::storms))
        .route("/v1/heartbeats", post(heartbeats::report))
        .route("/v1/events", get(stream::events))
        .route("/v1/leaks", get(leaks::leaks))
        .route("/v1/reap", post(leaks::reap))
        .route("/v1/openapi.json", get(openapi::openapi))
        .route("/healthz", get(status::healthz))
        .route("/readyz", get(status::readyz))
        .route("/metrics", get(status::metrics))
        .method_not_allowed_fallback(wrong_method)
        .fallback(no_such_path)
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&api), rate::limit))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&api), count))
        .with_state(api)
}

/// Counts requests by the route's template, never by the path: that could be anything.
async fn count(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .and_then(|path| ROUTES.iter().copied().find(|route| *route == path.as_str()));
    let response = next.run(request).await;
    api.counters.count_request(route.unwrap_or("unknown"), response.status().as_u16());
    response
}

async fn no_such_path() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "there is no such path; /v1/openapi.json describes those that there are",
    )
}

async fn wrong_method() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path does not answer to this method; see the Allow header",
    )
}
