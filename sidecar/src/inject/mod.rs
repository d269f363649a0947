//! The sidecar in manifests: `ackbeat inject` and `ackbeat uninject`.
//!
//! What changes is decided by [`ackbeat_injection`]; here files are read, and what came of each object is told on standard error.

mod input;
mod settings;

pub use input::{Input, InputError, read_all};
pub use settings::{SettingsError, read as read_settings};

use ackbeat_injection::Outcome;
use ackbeat_injection::manifest::{Format, ManifestError, Object, Verb, transform};

/// A text that is no manifest, and where it came from.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {cause}")]
pub struct TransformError {
    /// The file.
    pub name: String,
    /// Why.
    pub cause: ManifestError,
}

/// All manifests of all inputs, one after the other.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Transformed {
    /// For standard output.
    pub manifests: String,
    /// For standard error, one line for each result and warning.
    pub report: Vec<String>,
}

/// Does it to every input.
///
/// # Errors
/// The first input that is no YAML. Nothing is written then: half of what was asked for would be applied as the whole.
pub fn transform_all(
    inputs: &[Input],
    verb: Verb<'_>,
    format: Format,
) -> Result<Transformed, TransformError> {
    let mut all = Transformed::default();
    for input in inputs {
        let transformed = transform(&input.text, verb, format)
            .map_err(|cause| TransformError { name: input.name.clone(), cause })?;
        if format == Format::Yaml && !all.manifests.is_empty() && !transformed.text.starts_with("---") {
            if !all.manifests.ends_with('\n') {
                all.manifests.push('\n');
            }
            all.manifests.push_str("---\n");
        }
        all.manifests.push_str(&transformed.text);
        for object in &transformed.objects {
            all.report.extend(lines(&input.name, object));
        }
    }
    Ok(all)
}

/// What the sidecar is in its pod, in words.
pub(crate) const fn container_kind(is_native: bool) -> &'static str {
    if is_native { "native sidecar" } else { "ordinary container" }
}

fn lines(file: &str, object: &Object) -> Vec<String> {
    let place = format!("{file}:{}: {} {}", object.line, object.kind, object.name);
    let place = place.trim_end();
    let result = match &object.report.outcome {
        Outcome::Injected { mode, is_native, .. } => {
            format!("injected ({}, mode {})", container_kind(*is_native), mode.as_str())
        }
        Outcome::Updated { mode, is_native, .. } => {
            format!("brought up to date ({}, mode {})", container_kind(*is_native), mode.as_str())
        }
        Outcome::Unchanged => "injected already, unchanged".to_owned(),
        Outcome::Removed { .. } => "the sidecar is taken out".to_owned(),
        Outcome::NotWanted(reason) => format!("left alone: {reason}"),
        Outcome::Skipped(skip) => format!("skipped: {skip}"),
    };
    let mut lines = vec![format!("{place}: {result}")];
    lines.extend(object.report.warnings.iter().map(|warning| format!("{place}: warning: {warning}")));
    if object.is_rewritten {
        lines.push(format!("{place}: warning: the document was written anew, without its comments"));
    }
    lines
}
