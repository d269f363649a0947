//! `ackbeat inject` and `ackbeat uninject`

use std::io::{self, Write as _};

use ackbeat_injection::manifest::{Format, Verb};
use ackbeat_injection::{Facts, NativeSidecar};

use super::{CommandError, written};
use crate::cli::{InjectArguments, ManifestArguments, UninjectArguments};
use crate::inject;

/// Puts the sidecar into manifests.
///
/// # Errors
/// [`CommandError`], whose exit code tells what kind it is.
pub fn execute(arguments: &InjectArguments) -> Result<(), CommandError> {
    let mut settings = inject::read_settings(arguments.config.as_deref(), arguments.image.as_deref())?;
    if let Some(choice) = arguments.native_sidecar {
        settings.native_sidecar = NativeSidecar::from(choice);
    }
    if let Some(level) = arguments.pod_security {
        settings.default_pod_security = level.into();
    }
    // Whoever names a file asks for what is in it.
    let facts = Facts { server: arguments.server_version, is_wanted: true, ..Facts::default() };
    print(&arguments.manifests, Verb::Inject { facts: &facts, settings: &settings })
}

/// Takes it out of manifests.
///
/// # Errors
/// [`CommandError`], whose exit code tells what kind it is.
pub fn execute_uninject(arguments: &UninjectArguments) -> Result<(), CommandError> {
    print(&arguments.manifests, Verb::Uninject)
}

fn print(arguments: &ManifestArguments, verb: Verb<'_>) -> Result<(), CommandError> {
    let inputs = inject::read_all(&arguments.paths())?;
    let transformed = inject::transform_all(&inputs, verb, Format::from(arguments.output))?;
    let mut errors = io::stderr().lock();
    for line in &transformed.report {
        // Standard error may be gone; the manifests still count.
        let _ = writeln!(errors, "{line}");
    }
    let mut out = io::stdout().lock();
    written(out.write_all(transformed.manifests.as_bytes()).and_then(|()| out.flush()))
}
