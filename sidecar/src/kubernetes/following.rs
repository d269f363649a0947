//! A watch that is kept up: through a server that is away, and without a right.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::watcher;
use kube::runtime::{WatchStreamExt as _, watcher::Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::{info, warn};

/// How a watch is kept up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// After a 403 nothing is asked for so long.
    pub(super) refused: Duration,
    /// What was heard is forgotten once nothing was heard for so long: addresses are given to others.
    pub(super) forget: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { refused: Duration::from_secs(600), forget: Duration::from_secs(120) }
    }
}

/// What is watched, for the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Followed {
    /// What does not work without.
    pub(super) purpose: &'static str,
    /// The right that it needs.
    pub(super) right: &'static str,
    /// The setting that ends it.
    pub(super) setting: &'static str,
}

/// What was heard.
#[derive(Debug)]
pub(super) enum Heard<K> {
    /// Something changed.
    Event(Event<K>),
    /// Nothing can be heard any more: what was heard before may be wrong by now.
    Nothing,
}

/// Watches for ever. The pauses after failures are kube's: from 0.8 to 30 s, each a little random.
pub(super) async fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    followed: Followed,
    patience: Patience,
    mut take: impl FnMut(Heard<K>) + Send,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (mut was_refused, mut failing_since, mut is_forgotten) = (false, None::<Instant>, false);
    loop {
        let mut pause = patience.refused;
        let mut stream = pin!(watcher(api.clone(), config.clone()).default_backoff());
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => {
                    // It begins before anything is asked.
                    if !matches!(event, Event::Init) && (was_refused || failing_since.is_some()) {
                        (was_refused, failing_since, is_forgotten) = (false, None, false);
                        info!(target: "ackbeat::kubernetes", "{} by now", followed.purpose);
                    }
                    take(Heard::Event(event));
                }
                Err(error) if is_refusal(&error) => {
                    if !std::mem::replace(&mut was_refused, true) {
                        info!(
                            target: "ackbeat::kubernetes",
                            "not {}: {error}; it needs {} by the pod's ServiceAccount; {} ends it",
                            followed.purpose,
                            followed.right,
                            followed.setting
                        );
                    }
                    take(Heard::Nothing);
                    break;
                }
                Err(error) => {
                    let since = failing_since.get_or_insert_with(|| {
                        warn!(target: "ackbeat::kubernetes", "not {}; it is tried again: {error}", followed.purpose);
                        Instant::now()
                    });
                    if !is_forgotten && since.elapsed() >= patience.forget {
                        is_forgotten = true;
                        take(Heard::Nothing);
                        // Anew with a list: a watch that goes on tells changes only.
                        pause = Duration::ZERO;
                        break;
                    }
                }
            }
        }
        tokio::time::sleep(pause).await;
    }
}

fn is_refusal(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 403,
        watcher::Error::WatchError(status) => status.code == 403,
        _ => false,
    }
}
