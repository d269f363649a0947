//! `ackbeat storm-lab`

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{CommandError, runtime, written};
use crate::cli::StormLabArguments;
use crate::storm_lab;

/// Plays the experiment and prints what came out. SIGINT and SIGTERM end it early, with what is known by then.
///
/// # Errors
/// [`CommandError`], whose exit code tells what kind it is.
pub fn execute(arguments: &StormLabArguments) -> Result<(), CommandError> {
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = runtime()?;
    let signalled = Arc::clone(&stop);
    {
        let _guard = runtime.enter();
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
            .map_err(|cause| CommandError::System { step: "installing a signal handler", cause })?;
        runtime.spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            signalled.store(true, Ordering::Relaxed);
        });
    }
    let report = storm_lab::run(&arguments.options(), &stop);
    runtime.shutdown_background();
    let report = report?;
    let text = if arguments.json {
        serde_json::to_string(&report).map(|json| format!("{json}\n")).unwrap_or_default()
    } else {
        report.text()
    };
    written(io::stdout().lock().write_all(text.as_bytes()))
}
