//! A batch of spans waits for a collector that is away.
//!
//! The OTLP exporter tries again by itself for some seconds, and honours what the collector asks for. A collector that
//! is restarted or moved is away for longer, and the spans of that time are the ones that somebody will look for. So a
//! batch whose failure will pass is kept and tried again, with a growing pause, until it is taken or the sidecar stops.
//! What ends meanwhile waits in the queue behind it, which is bounded; what finds no room there is counted as dropped.

use std::time::{Duration, Instant};

use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
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

/// What the exporting thread and the end of the process share.
#[derive(Debug, Default)]
pub(super) struct Outage {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The sidecar stops: each batch gets one more try.
    stopping: bool,
    /// That try failed: the batches behind it would only cost time.
    given_up: bool,
}

impl Outage {
    /// From now on nothing waits.
    pub(super) fn stop(&self) {
        self.state.lock().stopping = true;
        self.changed.notify_all();
    }

    /// Tries until the batch is taken, refused for good, or given up because the sidecar stops.
    ///
    /// Between two tries it blocks the thread, which is the batch processor's own.
    ///
    /// # Errors
    /// The last try's.
    pub(super) async fn outlast<F>(&self, mut attempt: impl FnMut() -> F) -> OTelSdkResult
    where
        F: Future<Output = OTelSdkResult>,
    {
        if self.state.lock().given_up {
            return Err(OTelSdkError::InternalFailure(
                "not tried: the sidecar stops, and the collector did not take the batch before".into(),
            ));
        }
        let mut away_since = None;
        let mut pause = FIRST_PAUSE;
        loop {
            let stopping = self.state.lock().stopping;
            let error = match attempt().await {
                Ok(()) => {
                    if let Some(since) = away_since {
                        let away_ms = Instant::now().saturating_duration_since(since).as_millis();
                        info!(
                            target: "ackbeat::export",
                            away_ms = u64::try_from(away_ms).unwrap_or(u64::MAX),
                            "the collector takes spans again"
                        );
                    }
                    return Ok(());
                }
                Err(error) => error,
            };
            if !will_pass(&error) {
                return Err(error);
            }
            if stopping {
                self.state.lock().given_up = true;
                return Err(error);
            }
            if away_since.is_none() {
                away_since = Some(Instant::now());
                warn!(target: "ackbeat::export", %error, "the collector does not take spans; they wait for it");
            }
            // Pods that lost the same collector must not come back to it all at once.
            self.pause(pause.mul_f64(0.75 + fastrand::f64() / 4.0));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits, or until the sidecar stops.
    fn pause(&self, pause: Duration) {
        let mut state = self.state.lock();
        let _ = self.changed.wait_while_for(&mut state, |state| !state.stopping, pause);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

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
    fn it_is_tried_until_it_is_taken() {
        let mut answers =
            vec![Ok(()), Err(OTelSdkError::Timeout(Duration::ZERO)), Err(failure("network error"))];
        let outage = Outage::default();
        let result = block_on(outage.outlast(|| std::future::ready(answers.pop().unwrap())));
        assert!(result.is_ok() && answers.is_empty());
    }

    #[test]
    fn a_refusal_is_not_tried_again() {
        let outage = Outage::default();
        let mut tries = 0;
        let result = block_on(outage.outlast(|| {
            tries += 1;
            std::future::ready(Err(failure("HTTP export failed with status code: 400")))
        }));
        assert!(result.is_err());
        assert_eq!(tries, 1);
    }

    #[test]
    fn a_stop_wakes_it_for_one_more_try_and_the_rest_gets_none() {
        let outage = Arc::new(Outage::default());
        let tries = Arc::new(AtomicU32::new(0));
        let waiting = std::thread::spawn({
            let (outage, tries) = (outage.clone(), tries.clone());
            move || {
                block_on(outage.outlast(|| {
                    tries.fetch_add(1, Ordering::SeqCst);
                    std::future::ready(Err(failure("network error")))
                }))
            }
        });
        while tries.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let began = Instant::now();
        outage.stop();
        assert!(waiting.join().unwrap().is_err());
        assert!(began.elapsed() < Duration::from_secs(30));
        let before = tries.load(Ordering::SeqCst);
        let behind = block_on(outage.outlast(|| {
            tries.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok(()))
        }));
        assert!(behind.is_err(), "the batches behind are not tried");
        assert_eq!(tries.load(Ordering::SeqCst), before);
    }
}
