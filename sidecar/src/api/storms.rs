//! `GET /v1/storms`: how the listening ports stand.

use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};

use super::Api;
use super::query::Query;
use super::types::{MissingOfStorms, PortArrivals, Problem, Resonance, Storm, Storms};
use crate::source::Mode;

/// What mode `sock_diag` does not see of storms, by the signal that is missing ([`crate::source::sock_diag::MISSING_SIGNALS`]).
const MISSING_IN_SOCK_DIAG: [(&str, &str); 4] = [
    (
        "openings",
        "an arrival is dated by the pass that found it: a rate is late by it, and a period is known roughly",
    ),
    ("short connections", "an arrival that is closed before the next pass is not counted"),
    ("closing process", "the closes that set a storm off do not say which process made them"),
    ("reconnects", "upgrade requests are not seen: which arrival is whose return is not known"),
];

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
        windows: port.windows,
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
        missing: missing(api.about.mode),
    }))
}

fn missing(mode: Mode) -> Vec<MissingOfStorms> {
    let of_mode: &[(&str, &str)] = match mode {
        Mode::Ebpf => &[],
        Mode::SockDiag => &MISSING_IN_SOCK_DIAG,
    };
    let told = of_mode.iter().map(|(signal, meaning)| MissingOfStorms {
        signal: (*signal).to_owned(),
        meaning: (*meaning).to_owned(),
    });
    told.collect()
}

const fn resonance(resonance: ackbeat_storms::Resonance) -> Resonance {
    Resonance { period_ms: resonance.period_ms, strength: resonance.strength, windows: resonance.windows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::sock_diag::MISSING_SIGNALS;

    #[test]
    fn what_is_missing_of_storms_is_a_signal_that_the_mode_misses() {
        assert!(missing(Mode::Ebpf).is_empty());
        for told in missing(Mode::SockDiag) {
            assert!(MISSING_SIGNALS.iter().any(|(signal, _)| *signal == told.signal), "{told:?}");
        }
    }
}
