//! A batch of spans waits for a collector that is away.
//!
//! The OTLP exporter tries again by itself for some seconds, and honours what the collector asks for. A collector that
//! is restarted or moved is away for longer, and the spans of that time are the ones that somebody will look for. So a
//! batch whose failure will pass goes back to its place in the queue and is tried again, with a growing pause, until it is
//! taken or the sidecar stops. The queue is bounded; what finds no room there is counted as dropped.

use std::time::{Duration, Instant};

use opentelemetry_sdk::error::OTelSdkError;
use parking_lot::{Condvar, Mutex};
use tracing::{info, warn};

/// Before the second try.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Between later tries; a collector that is back is noticed within this time.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// HTTP answers that the OTLP specification ("Failures", OTLP/HTTP) calls retryable; the exporter puts the number at
/// the end of its message.
const PASSING_STATUS_CODES: [&str; 4] = ["429", "502", "503", "504"];
/// gRPC codes that it calls retryable ("Failures", OTLP/gRPC), as the exporter names them in its message.
const PASSING_GRPC_CODES: [&str; 6] =
    ["Unavailable", "Cancelled", "DeadlineExceeded", "Aborted", "OutOfRange", "DataLoss"];

/// Whether a later try of the same batch may succeed. What is not known to pass counts as final.
///
/// The exporter's error type has no code, only the message (`opentelemetry-otlp`: `HTTP export failed with status code:
/// 503`, `… export failed with gRPC code: Unavailable: …`, `HTTP export failed: network error`).
pub(super) fn will_pass(error: &OTelSdkError) -> bool {
    match error {
        OTelSdkError::Timeout(_) => true,
        OTelSdkError::AlreadyShutdown => false,
        OTelSdkError::InternalFailure(message) => {
            let after = |marker: &str| message.split_once(marker).map(|(_, rest)| rest);
            let code = |rest: &str| {
                rest.trim_start().chars().take_while(char::is_ascii_alphanumeric).collect::<String>()
            };
            message.ends_with("network error")
                || after("status code:")
                    .is_some_and(|rest| PASSING_STATUS_CODES.contains(&code(rest).as_str()))
                || after("gRPC code:").is_some_and(|rest| PASSING_GRPC_CODES.contains(&code(rest).as_str()))
        }
    }
}

/// The sidecar stops: from now on nothing waits. Shared by all that export.
#[derive(Debug, Default)]
pub(super) struct Stopping {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stopping {
    /// From now on.
    pub(super) fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }

    /// Whether it does.
    pub(super) fn is_set(&self) -> bool {
        *self.is_set.lock()
    }

    /// Waits this long, or until it does.
    pub(super) fn wait(&self, pause: Duration) {
        let mut is_set = self.is_set.lock();
        let _ = self.changed.wait_while_for(&mut is_set, |is_set| !*is_set, pause);
    }
}

/// How long a collector has been away, for one exporting thread.
#[derive(Debug, Default)]
pub(super) struct Outage {
    away_since: Option<Instant>,
    last_pause: Option<Duration>,
}

impl Outage {
    /// The collector took something.
    pub(super) fn is_over(&mut self) {
        if let Some(since) = std::mem::take(self).away_since {
            let away_ms = Instant::now().saturating_duration_since(since).as_millis();
            info!(
                target: "ackbeat::export",
                away_ms = u64::try_from(away_ms).unwrap_or(u64::MAX),
                "the collector takes spans again"
            );
        }
    }

    /// It did not, and may later. Gives the pause before the next try.
    pub(super) fn goes_on(&mut self, error: &OTelSdkError) -> Duration {
        if self.away_since.is_none() {
            self.away_since = Some(Instant::now());
            warn!(target: "ackbeat::export", %error, "the collector does not take spans; they wait for it");
        }
        let pause = self.last_pause.map_or(FIRST_PAUSE, |pause| (pause * 2).min(LONGEST_PAUSE));
        self.last_pause = Some(pause);
        // Pods that lost the same collector must not come back to it all at once.
        pause.mul_f64(0.75 + fastrand::f64() / 4.0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn failure(message: &str) -> OTelSdkError {
        OTelSdkError::InternalFailure(message.into())
    }

    #[test]
    fn what_passes_and_what_does_not() {
        for message in [
            "HTTP export failed: network error",
            "HTTP export failed with status code: 503",
            "TonicTracesClient export failed with gRPC code: Unavailable: transport error",
            "TonicTracesClient export failed with gRPC code: DeadlineExceeded",
        ] {
            assert!(will_pass(&failure(message)), "{message}");
        }
        for message in [
            "HTTP export failed with status code: 400",
            "HTTP export failed with status code: 5034",
            "TonicTracesClient export failed with gRPC code: InvalidArgument",
            "TonicTracesClient export failed with gRPC code: ResourceExhausted",
            "Broken pipe (os error 32)",
        ] {
            assert!(!will_pass(&failure(message)), "{message}");
        }
        assert!(will_pass(&OTelSdkError::Timeout(Duration::from_secs(1))));
        assert!(!will_pass(&OTelSdkError::AlreadyShutdown));
    }

    #[test]
    fn pauses_grow_and_begin_anew_once_it_was_back() {
        let mut outage = Outage::default();
        let pauses: Vec<Duration> = (0..6).map(|_| outage.goes_on(&failure("network error"))).collect();
        let within = |pause: Duration, of: Duration| pause <= of && pause >= of.mul_f64(0.75);
        assert!(within(pauses[0], FIRST_PAUSE) && within(pauses[1], 2 * FIRST_PAUSE), "{pauses:?}");
        assert!(within(pauses[5], LONGEST_PAUSE), "{pauses:?}");
        outage.is_over();
        assert!(within(outage.goes_on(&failure("network error")), FIRST_PAUSE));
    }

    #[test]
    fn a_stop_ends_a_pause() {
        let stopping = Arc::new(Stopping::default());
        let waiting = std::thread::spawn({
            let stopping = Arc::clone(&stopping);
            move || stopping.wait(Duration::from_secs(600))
        });
        stopping.set();
        waiting.join().unwrap();
        assert!(stopping.is_set());
    }
}
