//! `ackbeat webhook`

use std::time::Duration;

use ackbeat_injection::NativeSidecar;
use tracing_subscriber::EnvFilter;

use super::{CommandError, runtime};
use crate::cli::WebhookArguments;
use crate::inject::read_settings;
use crate::webhook::authorities::Times;
use crate::webhook::{self, CertificateOptions, Options};

const DAY_S: i64 = 86_400;

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// [`CommandError`], whose exit code tells what kind it is.
pub fn execute(arguments: &WebhookArguments) -> Result<(), CommandError> {
    let mut settings = read_settings(arguments.config.as_deref(), arguments.image.as_deref())?;
    if let Some(choice) = arguments.native_sidecar {
        settings.native_sidecar = NativeSidecar::from(choice);
    }
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // Fails only where a subscriber is set already, in a process that embeds this.
    let _ = tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter).try_init();
    let certificates = match (&arguments.tls_secret, &arguments.webhook_configuration, &arguments.tls_dir) {
        (Some(secret), Some(configuration), _) => CertificateOptions::Secret {
            name: secret.clone(),
            service: arguments.service.clone(),
            configuration: configuration.clone(),
            times: Times {
                leaf_s: i64::from(arguments.certificate_days) * DAY_S,
                authority_s: i64::from(arguments.ca_days) * DAY_S,
                overlap_s: i64::from(arguments.overlap_seconds),
            },
            check: Duration::from_secs(arguments.check_seconds.into()),
        },
        // The command line has demanded one of both.
        (_, _, folder) => CertificateOptions::Folder(folder.clone().unwrap_or_default()),
    };
    let options = Options {
        settings,
        listen: arguments.listen,
        http_listen: arguments.http_listen,
        namespace: arguments.namespace.clone(),
        certificates,
        has_events: arguments.events,
    };
    let runtime = runtime()?;
    let result = runtime.block_on(webhook::run(options));
    runtime.shutdown_background();
    Ok(result?)
}
