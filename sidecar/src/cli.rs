//! The command line. Charts and tests use it: it is kept stable.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::{Layer, ModeChoice, PolicyName, RecordingLayer};

/// Is the peer gone, or only behind? Liveness verdicts and close spans from kernel-level TCP progress.
#[derive(Debug, Parser)]
#[command(name = "ackbeat", version, about, after_help = EXIT_CODES)]
pub struct CommandLine {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 an unexpected failure of the system; 2 bad usage or configuration; 3 missing\n\
privilege or kernel feature.\n\
Every setting is also a YAML key and an environment variable: sidecar/CONFIGURATION.md.";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch the network namespace that this process runs in.
    Run(RunArguments),
    /// Show what this kernel and these privileges allow, with the fix for each missing piece.
    Check,
    /// Feed a recording through the engine; print verdicts and assessments.
    Replay(ReplayArguments),
}

/// Arguments of `run`.
#[derive(Debug, Default, Args)]
pub struct RunArguments {
    /// Listening ports to watch [default: every listening port, now or later].
    #[arg(long, value_name = "PORT,…", value_delimiter = ',')]
    pub ports: Option<Vec<u16>>,
    /// YAML file with settings.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Thresholds: prefer to keep a connection, or prefer to know first.
    #[arg(long)]
    pub policy: Option<PolicyName>,
    /// How evidence is gathered.
    #[arg(long)]
    pub mode: Option<ModeChoice>,
    /// Record everything that the engine is told to this file.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
}

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub struct ReplayArguments {
    /// The recording. Several files are segments of one, oldest first: FILE.1 FILE.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Thresholds [default: those of the recording].
    #[arg(long)]
    pub policy: Option<PolicyName>,
    /// A threshold in place of the policy's: silent_after=30s. May be given several times.
    #[arg(long, value_name = "THRESHOLD=VALUE")]
    pub set: Vec<String>,
    /// Tell what others would have done: ws-2,ackbeat-fast,ws-2:interval_ms=30000,ackbeat:silent_after=30s, or all.
    #[arg(long, value_name = "NAME,…")]
    pub compare: Vec<String>,
    /// Draw one connection over time, as SVG.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// The connection to draw: its number in the output, or its peer [default: the first that the host closed].
    #[arg(long, value_name = "N|ADDRESS:PORT", requires = "plot")]
    pub connection: Option<String>,
}

impl RunArguments {
    /// As the strongest source of settings.
    #[must_use]
    pub fn layer(&self) -> Layer {
        Layer {
            ports: self.ports.clone(),
            mode: self.mode,
            policy: self.policy,
            recording: self
                .record
                .clone()
                .map(|file| RecordingLayer { file: Some(file), ..RecordingLayer::default() }),
            ..Layer::default()
        }
    }
}
