//! `GET /v1/storms`: how the listening ports stand.

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};

use super::Api;
use super::query::Query;
use super::types::{PortArrivals, Problem, Resonance, Storm, Storms};

/// Arrivals, storms, outages and lock-step retries by listening port.
#[utoipa::path(
    get,
    path = "/v1/storms",
    tag = "ports",
    responses(
        (status = 200, description = "The listening ports that had a connection", body = Storms),
        (status = 400, description = "There are no parameters; `field` names the one that was given", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn storms(
    State(api): State<Arc<Api>>,
    RawQuery(raw): RawQuery,
) -> Result<Json<Storms>, Problem> {
    Query::new(raw.as_deref()).finish("none")?;
    let storms = api.connections.storms();
    let now = api.now();
    let ports = storms.ports.iter().map(|port| PortArrivals {
        port: port.local_port,
        arrivals: port.arrivals,
        arrivals_per_second: port.arrivals_per_second,
        baseline_per_second: port.baseline_per_second,
        storms: port.storms,
        storm_age_ms: port.storm_since.map(|since| now.ms_since(since)),
        outage_age_ms: port.outage.map(|outage| now.ms_since(outage.began_at)),
        resonance: port.resonance.map(resonance),
    });
    let recent = storms.recent.iter().map(|storm| Storm {
        port: storm.local_port,
        began_age_ms: now.ms_since(storm.began_at),
        ended_age_ms: now.ms_since(storm.ended_at),
        end: storm.end.as_str().to_owned(),
        peak_per_second: storm.peak_per_second,
        baseline_per_second: storm.baseline_per_second,
        arrivals: storm.arrivals,
        peers: storm.peers,
        closes: storm.closes,
        resonance: storm.resonance.map(resonance),
    });
    Ok(Json(Storms {
        ports: ports.collect(),
        arrivals_unwatched: storms.totals.arrivals_unwatched,
        recent: recent.collect(),
    }))
}

const fn resonance(resonance: ackbeat_storms::Resonance) -> Resonance {
    Resonance { period_ms: resonance.period_ms, strength: resonance.strength, windows: resonance.windows }
}
