//! `ackbeat webhook`: the sidecar in every new pod of the namespaces that ask for it.
//!
//! The API server sends each pod before it is stored ([`admission`]); what changes is decided by [`ackbeat_injection`], as for
//! `ackbeat inject`. Nothing here ever refuses a pod: whatever goes wrong, the answer is "allowed", with a warning.
//!
//! | module | does |
//! |---|---|
//! | `admission` | a review in, an answer out |
//! | `surroundings` | namespaces, the server's version, the CronJob of a Job |
//! | `events` | `Injected` and `InjectionSkipped` on the owner |
//! | `authorities` | self-made certificates, and their rotation without a failed admission; pure |
//! | `certificates` | where certificates come from: a Secret that all replicas share, or files |
//! | `counters` | metrics |
//! | `server` | HTTPS for the API server, HTTP for probes and Prometheus |

pub mod admission;
pub mod authorities;
mod certificates;
mod counters;
mod events;
mod server;
mod surroundings;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ackbeat_injection::Settings;
use kube::Client;
use tracing::info;

pub use certificates::{Source, TlsError};
pub use counters::Counters;

use admission::Admissions;
use authorities::Times;
use certificates::Certificates;

/// After SIGTERM: how long it still serves, until the endpoints of its Service have been taken away everywhere.
const LINGER: Duration = Duration::from_secs(5);

/// What the webhook is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the operator chose for all pods.
    pub settings: Settings,
    /// Where the API server calls.
    pub listen: SocketAddr,
    /// Where probes and Prometheus ask, without TLS.
    pub http_listen: SocketAddr,
    /// The namespace it runs in, whose pods are left alone.
    pub namespace: String,
    /// Where its certificate comes from.
    pub certificates: CertificateOptions,
    /// Whether Events are published.
    pub has_events: bool,
}

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum CertificateOptions {
    /// Self-made, in a Secret of the own namespace.
    Secret {
        /// The Secret, which exists and may be empty.
        name: String,
        /// The Service by which the API server calls.
        service: String,
        /// The MutatingWebhookConfiguration whose `caBundle` is kept current.
        configuration: String,
        /// When what is renewed.
        times: Times,
        /// How often the Secret and the configuration are looked at.
        check: Duration,
    },
    /// Given files.
    Folder(PathBuf),
}

/// The webhook cannot run.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// No API server is known.
    #[error(
        "finding the API server failed: {0}; run it in a pod with a ServiceAccount's token, or set KUBECONFIG"
    )]
    Cluster(Box<kube::Error>),
    /// A listener cannot be had.
    #[error("listening on {address} failed: {cause}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        cause: io::Error,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A metric cannot be made.
    #[error("the metrics cannot be made: {0}")]
    Metrics(#[from] prometheus::Error),
    /// Signals cannot be heard.
    #[error("hearing signals failed: {0}")]
    Signals(io::Error),
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// [`WebhookError`], at the start only: what fails later is tried again and logged.
pub async fn run(options: Options) -> Result<(), WebhookError> {
    // Another part of the process may have chosen already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::try_default().await.map_err(|error| WebhookError::Cluster(Box::new(error)))?;
    let counters = Arc::new(Counters::new()?);
    let certificates = Arc::new(Certificates::new());
    let http = server::bind(options.http_listen).await?;
    let https = server::bind(options.listen).await?;
    let source = Source::new(&options, client.clone())?;

    let surroundings = surroundings::Surroundings::watch(client.clone());
    let events = options.has_events.then(|| events::Events::start(client, Arc::clone(&counters)));
    tokio::spawn(certificates::keep(source, Arc::clone(&certificates), Arc::clone(&counters)));
    let admissions = Arc::new(Admissions::new(
        options.settings,
        options.namespace,
        surroundings,
        events,
        Arc::clone(&counters),
    ));
    info!(https = %options.listen, http = %options.http_listen, "serving; ready once there is a certificate");
    let serving = server::Serving::start(http, https, &admissions, &certificates, &counters)?;
    signalled().await.map_err(WebhookError::Signals)?;
    info!("stopping: not ready any more, serving {} s longer", LINGER.as_secs());
    serving.stop_being_ready();
    tokio::time::sleep(LINGER).await;
    Ok(())
}

async fn signalled() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
