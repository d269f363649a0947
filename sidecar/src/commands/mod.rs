//! What the binary does: one module for each subcommand.

pub mod check;
pub mod inject;
pub mod probe;
pub mod ready;
pub mod replay;
pub mod run;
pub mod storm_lab;
pub mod top;
pub mod webhook;

use std::io;
use std::path::PathBuf;

use crate::comparison::drawing::DrawError;
use crate::comparison::{CompareError, ContestantError};
use crate::config::ConfigError;
use crate::heartbeat_probe::ProbeError;
use crate::inject::{InputError, SettingsError, TransformError};
use crate::recording::{ReadError, RecordError};
use crate::source::SourceError;
use crate::storm_lab::StormLabError;
use crate::telemetry::pipeline::PipelineError;
use crate::top::TopError;
use crate::webhook::WebhookError;

/// Exit code for bad usage or configuration; clap uses the same.
pub const EXIT_USAGE: u8 = 2;
/// Exit code for a missing privilege or kernel feature.
pub const EXIT_MISSING: u8 = 3;

/// Why a command ended early.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// A setting is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A recording cannot be read.
    #[error(transparent)]
    Recording(#[from] ReadError),
    /// Somebody who is to be compared does not exist.
    #[error("--compare: {0}")]
    Contestant(#[from] ContestantError),
    /// The recording cannot be compared.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// The connection that is to be drawn is not there, or not the only one.
    #[error("--connection {wanted}: {problem}")]
    Connection {
        /// What was asked for.
        wanted: String,
        /// What is there instead.
        problem: String,
    },
    /// The timeline cannot be drawn.
    #[error(transparent)]
    Draw(#[from] DrawError),
    /// The drawing cannot be written.
    #[error("--plot {}: {cause}", path.display())]
    Plot {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A recording cannot be begun.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A privilege or a kernel feature is missing; the text is that of `check`.
    #[error("{0}")]
    Missing(String),
    /// The source broke while running.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// An exporter cannot be built.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The live view cannot be shown.
    #[error(transparent)]
    Top(#[from] TopError),
    /// A probe came to no result.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The injector's settings are wrong.
    #[error(transparent)]
    InjectorSettings(#[from] SettingsError),
    /// The webhook cannot run.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// A manifest cannot be read.
    #[error(transparent)]
    Manifest(#[from] InputError),
    /// A manifest is no YAML.
    #[error(transparent)]
    Transform(#[from] TransformError),
    /// The experiment cannot be played.
    #[error(transparent)]
    StormLab(#[from] StormLabError),
    /// An argument of a probe does not fit.
    #[error("{argument}: {problem}")]
    ProbeUsage {
        /// The argument.
        argument: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The process cannot be set up, or standard output is gone.
    #[error("{step} failed: {cause}")]
    System {
        /// The step that failed, as a noun phrase.
        step: &'static str,
        /// Why.
        cause: io::Error,
    },
}

impl CommandError {
    /// The process's exit code.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_)
            | Self::Recording(_)
            | Self::Record(_)
            | Self::Contestant(_)
            | Self::Compare(_)
            | Self::Connection { .. }
            | Self::Plot { .. }
            | Self::ProbeUsage { .. }
            | Self::InjectorSettings(_)
            | Self::Transform(_)
            | Self::Probe(ProbeError::Certificates { .. }) => EXIT_USAGE,
            Self::Missing(_) | Self::StormLab(StormLabError::Network(_) | StormLabError::Sidecar { .. }) => {
                EXIT_MISSING
            }
            Self::Source(_)
            | Self::Pipeline(_)
            | Self::Draw(_)
            | Self::Top(_)
            | Self::Probe(_)
            | Self::StormLab(_)
            | Self::Manifest(_)
            | Self::Webhook(_)
            | Self::System { .. } => 1,
        }
    }
}

/// The end of what was written to standard output. A reader that has seen enough (`| head`) is no failure.
fn written(result: io::Result<()>) -> Result<(), CommandError> {
    match result {
        Err(cause) if cause.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::System { step: "writing to standard output", cause })
        }
        _ => Ok(()),
    }
}

/// A tokio runtime.
fn runtime() -> Result<tokio::runtime::Runtime, CommandError> {
    runtime_whose_threads_begin_with(|| {})
}

/// A tokio runtime. Two threads: the driver has one for itself, gRPC connections live on the other. Each calls
/// `on_thread_start` first.
fn runtime_whose_threads_begin_with(
    on_thread_start: impl Fn() + Send + Sync + 'static,
) -> Result<tokio::runtime::Runtime, CommandError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(on_thread_start)
        .enable_all()
        .build()
        .map_err(|cause| CommandError::System { step: "starting the runtime", cause })
}
