//! Ctrl-C: the first one stops in good order, what has been played stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

/// Whether the run was asked to stop (`SIGINT`, `SIGTERM`).
#[derive(Clone, Debug)]
pub(super) struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Watches for signals from now on, for the rest of the process.
    ///
    /// # Errors
    /// If they cannot be watched.
    pub(super) fn watch() -> Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("starting the watch for signals failed")?;
        let (mut interrupt, mut terminate) = {
            let _entered = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let flag = Arc::clone(&asked);
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    flag.store(true, Ordering::Relaxed);
                }
            });
        })?;
        Ok(Self(asked))
    }

    /// Whether it was.
    #[must_use]
    pub(super) fn was_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
