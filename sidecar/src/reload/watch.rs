//! Looks at the file every two seconds, and at once on a SIGHUP.
//!
//! The file is read, and what was read is compared. A kubelet replaces a mounted ConfigMap by swapping the symbolic link
//! `..data` (`pkg/volume/util/atomic_writer.go`), so the file that a watch had been set on is never written to; whoever reads the
//! path anew sees the swap, whole.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::{ReloadOutcome, ReloadState, Rules};
use crate::config::{ConfigError, Layer, LayerChange, Settings, Sources};
use crate::driver::clock::{Clock as _, MonotonicClock};
use crate::kubernetes::Events;

/// How often the file is looked at.
const INTERVAL: Duration = Duration::from_secs(2);
/// A look that takes longer is told.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// Rules that wait for the driver at most.
pub const RULES_MAX: usize = 4;

/// Where settings come from, and which are in force.
#[derive(Debug)]
pub struct Watch {
    sources: Sources,
    in_force: Layer,
    state: Arc<ReloadState>,
    /// What the file was, or why it could not be read, when it was last looked at.
    seen: Option<Result<String, String>>,
    /// Who tells Kubernetes of a mistake.
    events: Option<Events>,
}

impl Watch {
    /// Settings from `sources` are in force: `in_force`.
    #[must_use]
    pub const fn new(sources: Sources, in_force: Layer, state: Arc<ReloadState>) -> Self {
        Self { sources, in_force, state, seen: None, events: None }
    }

    /// The same, telling Kubernetes of a mistake, too.
    #[must_use]
    pub fn with_events(mut self, events: Option<Events>) -> Self {
        self.events = events;
        self
    }

    /// Looks at the file. Gives settings if something that takes effect at once is another now. Unless `is_wanted`, a file
    /// that is as it was is not taken apart. It reads a file: not for a thread that drives tasks.
    pub fn look(&mut self, is_wanted: bool) -> Option<Settings> {
        let path = self.sources.config_file()?;
        // A pipe was read at the start, and waits for its writer now.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            if is_wanted {
                warn!(target: "ackbeat::config", path = %path.display(), "the configuration is no regular file: it is not read anew");
            }
            return None;
        }
        let now = self.sources.text().map_err(|error| error.to_string());
        let is_first = self.seen.is_none();
        let is_same = self.seen.as_ref() == Some(&now);
        self.seen = Some(now);
        // The first look is that of the start, which read it already.
        if (is_same || is_first) && !is_wanted {
            return None;
        }
        match self.read() {
            Ok((change, settings)) => self.take(change, settings),
            Err(error) => {
                self.state.count(ReloadOutcome::Refused);
                warn!(
                    target: "ackbeat::config",
                    %error,
                    "the configuration has a mistake: the old one stays in force"
                );
                if let Some(events) = &self.events {
                    events.configuration_refused(&error.to_string());
                }
                None
            }
        }
    }

    fn read(&self) -> Result<(LayerChange, Settings), ConfigError> {
        let layer = self.sources.layer()?;
        // All of it must be sound, also what takes effect later.
        Settings::resolve(layer.clone())?;
        let change = self.in_force.changed_to(&layer)?;
        let settings = Settings::resolve(change.in_force.clone())?;
        Ok((change, settings))
    }

    fn take(&mut self, change: LayerChange, settings: Settings) -> Option<Settings> {
        if !change.later.is_empty() {
            warn!(
                target: "ackbeat::config",
                keys = change.later.join(", "),
                "these settings take effect with the next start only"
            );
        }
        if change.at_once.is_empty() {
            self.state.count(ReloadOutcome::Unchanged);
            info!(target: "ackbeat::config", "the configuration was read anew: nothing changes now");
            return None;
        }
        info!(
            target: "ackbeat::config",
            keys = change.at_once.join(", "),
            policy = settings.policy_name.as_str(),
            "the configuration was read anew"
        );
        self.in_force = change.in_force;
        *self.state.policy.lock() = settings.policy_name;
        self.state.count(ReloadOutcome::Applied);
        Some(settings)
    }
}

/// Looks at the file for as long as somebody takes the rules. A SIGHUP is taken, whether there is a file or not: it must not end
/// the sidecar.
///
/// # Errors
/// If the signal's handler cannot be installed.
pub fn watch(watch: Watch, rules: mpsc::Sender<Rules>) -> std::io::Result<()> {
    let hangup = signal(SignalKind::hangup())?;
    tokio::spawn(run(watch, hangup, rules));
    Ok(())
}

async fn run(mut watch: Watch, mut hangup: Signal, rules: mpsc::Sender<Rules>) {
    let has_file = watch.sources.config_file().is_some();
    let mut is_wanted = false;
    loop {
        // A file on a network may hang: that costs a thread of its own, and nobody else.
        let mut looking = tokio::task::spawn_blocking(move || {
            let settings = watch.look(is_wanted);
            (watch, settings)
        });
        let looked = match tokio::time::timeout(LOOK_MAX, &mut looking).await {
            Ok(looked) => looked,
            Err(_) => {
                warn!(
                    target: "ackbeat::config",
                    "the configuration's file does not answer: what is in force stays until it does"
                );
                looking.await
            }
        };
        let Ok((back, settings)) = looked else {
            warn!(target: "ackbeat::config", "the configuration is not looked at any more: reading it panicked");
            return;
        };
        watch = back;
        if let Some(settings) = settings
            && rules.send(Rules::of(&settings, MonotonicClock.now())).await.is_err()
        {
            return;
        }
        is_wanted = tokio::select! {
            signalled = hangup.recv() => signalled.is_some(),
            () = tokio::time::sleep(INTERVAL), if has_file => false,
            () = rules.closed() => return,
        };
        if is_wanted && !has_file {
            info!(target: "ackbeat::config", "there is no configuration file to read anew");
        }
    }
}
