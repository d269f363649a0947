//! The command line of what belongs to Kubernetes: `inject`, `uninject`, `webhook`, `ready`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ackbeat_injection::manifest::Format;
use ackbeat_injection::{NativeSidecar, PodSecurity, ServerVersion};
use clap::{Args, ValueEnum, value_parser};

use crate::top::address::ApiAddress;

/// Manifests, and how they come out.
#[derive(Debug, Args)]
pub struct ManifestArguments {
    /// Manifests: files, folders (their .yaml, .yml and .json), or - for standard input.
    #[arg(value_name = "FILE|FOLDER|-", required_unless_present = "filename")]
    pub files: Vec<PathBuf>,
    /// The same, as kubectl spells it. May be given several times.
    #[arg(short = 'f', long, value_name = "FILE|FOLDER|-")]
    pub filename: Vec<PathBuf>,
    /// How they come out. YAML keeps comments, order and every field; JSON is one object a document.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ManifestFormat,
}

impl ManifestArguments {
    /// Everything that was named.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.filename.iter().chain(&self.files).cloned().collect()
    }
}

/// How manifests come out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ManifestFormat {
    /// As they came, with what changes.
    #[default]
    Yaml,
    /// JSON.
    Json,
}

impl From<ManifestFormat> for Format {
    fn from(format: ManifestFormat) -> Self {
        match format {
            ManifestFormat::Yaml => Self::Yaml,
            ManifestFormat::Json => Self::Json,
        }
    }
}

/// Arguments of `inject`.
#[derive(Debug, Args)]
#[command(after_help = INJECT_HELP)]
pub struct InjectArguments {
    /// The manifests.
    #[command(flatten)]
    pub manifests: ManifestArguments,
    /// YAML file with the injector's settings.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The sidecar's image, in place of the file's.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// A container among initContainers that starts before the application, or an ordinary one.
    #[arg(long, value_enum)]
    pub native_sidecar: Option<NativeSidecarChoice>,
    /// Version of the API server that the manifests are for: native sidecars need 1.29.
    #[arg(long, value_name = "1.32", value_parser = server_version)]
    pub server_version: Option<ServerVersion>,
    /// What PodSecurity enforces in the namespace: anything but privileged forbids the capabilities of mode ebpf.
    #[arg(long, value_enum)]
    pub pod_security: Option<PodSecurityChoice>,
}

const INJECT_HELP: &str = "Manifests go to standard output, one line for each object with pods to standard error.\n\
Exit codes: 0 done, also where everything was left alone; 1 reading or writing failed; 2 bad usage or settings, or no YAML.";

/// Arguments of `uninject`.
#[derive(Debug, Args)]
#[command(after_help = INJECT_HELP)]
pub struct UninjectArguments {
    /// The manifests.
    #[command(flatten)]
    pub manifests: ManifestArguments,
}

/// Native or ordinary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NativeSidecarChoice {
    /// Native where the server is known to have it.
    Auto,
    /// Native.
    Always,
    /// Ordinary.
    Never,
}

impl From<NativeSidecarChoice> for NativeSidecar {
    fn from(choice: NativeSidecarChoice) -> Self {
        match choice {
            NativeSidecarChoice::Auto => Self::Auto,
            NativeSidecarChoice::Always => Self::Always,
            NativeSidecarChoice::Never => Self::Never,
        }
    }
}

/// A level of the Pod Security Standards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PodSecurityChoice {
    /// Everything is allowed.
    Privileged,
    /// No added capabilities.
    Baseline,
    /// And no root.
    Restricted,
}

impl From<PodSecurityChoice> for PodSecurity {
    fn from(choice: PodSecurityChoice) -> Self {
        match choice {
            PodSecurityChoice::Privileged => Self::Privileged,
            PodSecurityChoice::Baseline => Self::Baseline,
            PodSecurityChoice::Restricted => Self::Restricted,
        }
    }
}

fn server_version(text: &str) -> Result<ServerVersion, String> {
    ServerVersion::from_text(text).ok_or_else(|| "a version looks like 1.32".to_owned())
}

/// Arguments of `ready`.
#[derive(Debug, Args)]
#[command(after_help = READY_HELP)]
pub struct ReadyArguments {
    /// Where the API listens: http://HOST:PORT (setting api.listen).
    #[arg(long, value_name = "ADDRESS", default_value_t = super::default_api())]
    pub api: ApiAddress,
    /// How long it is waited: 500ms, 20s, 1min.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = super::interval)]
    pub within: Duration,
    /// End well also where it is not ready in time: a startup probe must not keep the application from starting.
    #[arg(long)]
    pub lenient: bool,
}

const READY_HELP: &str =
    "Exit codes: 0 it watches (or --lenient); 1 it does not within the time; 2 bad usage.";

/// Arguments of `webhook`.
#[derive(Debug, Args)]
#[command(after_help = WEBHOOK_HELP)]
pub struct WebhookArguments {
    /// YAML file with the injector's settings.
    #[arg(long, env = "ACKBEAT_WEBHOOK_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The sidecar's image, in place of the file's.
    #[arg(long, env = "ACKBEAT_WEBHOOK_IMAGE", value_name = "IMAGE")]
    pub image: Option<String>,
    /// A container among initContainers that starts before the application, or an ordinary one, in place of the file's choice.
    #[arg(long, env = "ACKBEAT_WEBHOOK_NATIVE_SIDECAR", value_enum)]
    pub native_sidecar: Option<NativeSidecarChoice>,
    /// Where the API server calls: HTTPS, POST /mutate.
    #[arg(long, env = "ACKBEAT_WEBHOOK_LISTEN", value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8443")]
    pub listen: SocketAddr,
    /// Where probes and Prometheus ask: HTTP, /healthz, /readyz and /metrics.
    #[arg(
        long,
        env = "ACKBEAT_WEBHOOK_HTTP_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "0.0.0.0:8080"
    )]
    pub http_listen: SocketAddr,
    /// The namespace it runs in. Its pods are left alone.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: String,
    /// Make certificates, and keep them in this Secret. It exists, and may be empty.
    #[arg(
        long,
        env = "ACKBEAT_WEBHOOK_TLS_SECRET",
        value_name = "NAME",
        requires = "webhook_configuration",
        required_unless_present = "tls_dir",
        conflicts_with = "tls_dir"
    )]
    pub tls_secret: Option<String>,
    /// Use tls.crt and tls.key of this folder; they are read again every 10 s.
    #[arg(long, env = "ACKBEAT_WEBHOOK_TLS_DIR", value_name = "FOLDER")]
    pub tls_dir: Option<PathBuf>,
    /// The Service by which the API server calls.
    #[arg(long, env = "ACKBEAT_WEBHOOK_SERVICE", value_name = "NAME", default_value = "ackbeat")]
    pub service: String,
    /// With --tls-secret: the MutatingWebhookConfiguration whose caBundle is kept current.
    #[arg(long, env = "ACKBEAT_WEBHOOK_CONFIGURATION", value_name = "NAME")]
    pub webhook_configuration: Option<String>,
    /// Publish Kubernetes Events.
    #[arg(
        long, env = "ACKBEAT_WEBHOOK_EVENTS", value_name = "BOOL", default_value_t = true,
        action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true"
    )]
    pub events: bool,
    /// How many days a certificate counts. It is renewed when a third is left.
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = value_parser!(u16).range(1..=3650))]
    pub certificate_days: u16,
    /// How many days its authority counts. It is replaced when a third is left.
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = value_parser!(u16).range(1..=3650))]
    pub ca_days: u16,
    /// While an authority is replaced, both are trusted for this long before and after the certificate changes.
    #[arg(long, env = "ACKBEAT_WEBHOOK_OVERLAP_SECONDS", value_name = "SECONDS", default_value_t = 600, value_parser = value_parser!(u32).range(1..=86_400))]
    pub overlap_seconds: u32,
    /// How often the Secret and the configuration are looked at.
    #[arg(long, env = "ACKBEAT_WEBHOOK_CHECK_SECONDS", value_name = "SECONDS", default_value_t = 30, value_parser = value_parser!(u32).range(1..=3_600))]
    pub check_seconds: u32,
}

const WEBHOOK_HELP: &str = "Logs go to standard error; RUST_LOG says how much (info).\n\
Exit codes: 0 after SIGTERM; 1 it cannot run; 2 bad usage or settings.";
