//! The command line. Charts and tests use it: it is kept stable.

mod kubernetes;

use std::path::PathBuf;
use std::time::Duration;

use ackbeat_liveness::{HeartbeatProfile, Verdict};
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};

pub use kubernetes::{
    InjectArguments, ManifestArguments, ManifestFormat, NativeSidecarChoice, PodSecurityChoice,
    ReadyArguments, UninjectArguments, WebhookArguments,
};

use crate::api::types::{ADDRESS_DEFAULT, LIMIT_MAX};
use crate::config::{Layer, ModeChoice, PolicyName, RecordingLayer};
use crate::heartbeat_probe::{MUTE_AFTER_DEFAULT, ProfileChoice, RequestHeader, Target};
use crate::storm_lab;
use crate::top::address::ApiAddress;
use crate::top::query::{ROWS_DEFAULT, Sort};

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
    /// Show connections live, as the API of a running ackbeat tells of them.
    Top(TopArguments),
    /// Show what a fixed retry interval does to a host, and what full jitter does: an experiment in network namespaces.
    StormLab(StormLabArguments),
    /// Measure how long a host bears a client that no longer answers its heartbeat, or reads slowly.
    Probe(ProbeArguments),
    /// Put the sidecar into the pods of manifests: text in, text out.
    Inject(InjectArguments),
    /// Take the sidecar out of manifests again.
    Uninject(UninjectArguments),
    /// Serve the API server's admission webhook: the sidecar in every new pod of the namespaces that ask for it.
    Webhook(WebhookArguments),
    /// Wait until a running ackbeat watches; for startup probes.
    Ready(ReadyArguments),
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

/// Arguments of `top`.
#[derive(Debug, Args)]
#[command(after_help = TOP_EXIT_CODES)]
pub struct TopArguments {
    /// Where the API listens: http://HOST:PORT (setting api.listen) or unix:/PATH (setting api.socket).
    #[arg(long, value_name = "ADDRESS", default_value_t = default_api())]
    pub api: ApiAddress,
    /// Time from one question to the next: 500ms, 1s, 1min.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Print one plain table and end. The same happens where standard input or output is no terminal.
    #[arg(long)]
    pub once: bool,
    /// Use no colours. The variable NO_COLOR says the same.
    #[arg(long)]
    pub no_color: bool,
    /// Order: verdict, last_pong_age_ms, send_queue_bytes, ping_bytes_ahead, srtt_us or age_ms; with - before it the
    /// largest first.
    #[arg(long, value_name = "[-]KEY", default_value_t = Sort::default(), allow_hyphen_values = true)]
    pub sort: Sort,
    /// Only connections with these verdicts.
    #[arg(long, value_name = "VERDICT,…", value_delimiter = ',', value_parser = verdict)]
    pub verdict: Vec<Verdict>,
    /// Connections that are asked for at most.
    #[arg(long, value_name = "N", default_value_t = ROWS_DEFAULT, value_parser = rows)]
    pub limit: usize,
}

const TOP_EXIT_CODES: &str = "Exit codes: 0 done; 1 the API does not answer (the live view tries again instead) or the \
terminal is gone; 2 bad usage.\nKeys: ? in the live view lists them.";

fn default_api() -> ApiAddress {
    ApiAddress::from_listen(ADDRESS_DEFAULT)
}

fn interval(text: &str) -> Result<Duration, String> {
    let count =
        |unit: &str, ms: u64| text.strip_suffix(unit)?.trim_end().parse::<u64>().ok()?.checked_mul(ms);
    let ms = count("ms", 1).or_else(|| count("min", 60_000)).or_else(|| count("s", 1_000));
    match ms {
        Some(ms) if (250..=3_600_000).contains(&ms) => Ok(Duration::from_millis(ms)),
        Some(_) => Err("an interval is from 250ms to 60min".to_owned()),
        None => Err("a time has a unit: 500ms, 1s, 1min".to_owned()),
    }
}

fn verdict(text: &str) -> Result<Verdict, String> {
    Verdict::ALL.iter().copied().find(|verdict| verdict.as_str() == text).ok_or_else(|| {
        let names: Vec<&str> = Verdict::ALL.iter().map(|verdict| verdict.as_str()).collect();
        format!("verdicts are {}", names.join(", "))
    })
}

fn rows(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rows) if (1..=LIMIT_MAX).contains(&rows) => Ok(rows),
        _ => Err(format!("a number from 1 to {LIMIT_MAX}")),
    }
}

/// Arguments of `storm-lab`.
#[derive(Clone, Debug, Args)]
#[command(after_help = STORM_LAB_HELP)]
pub struct StormLabArguments {
    /// Clients of each fleet.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = value_parser!(u32).range(1..=1_000))]
    pub clients: u32,
    /// How long it is played, before compression.
    #[arg(long, value_name = "TIME", default_value = "60min", value_parser = lab_time)]
    pub duration: Duration,
    /// From the beginning of one outage to the next one's, before compression.
    #[arg(long, value_name = "TIME", default_value = "2min", value_parser = lab_time)]
    pub every: Duration,
    /// How long an outage is, before compression.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = lab_time)]
    pub outage: Duration,
    /// Packets that are lost, each way, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 15, value_parser = value_parser!(u8).range(0..=60))]
    pub loss: u8,
    /// Play everything so many times as fast. TCP's own timers stay what they are (retransmissions after 200 ms and more), so
    /// more attempts fail than would, and beyond 3 an outage of 10 s is too short to be told from loss. Figures are scaled back.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = value_parser!(u32).range(1..=20))]
    pub time_compression: u32,
    /// Decides which packets are lost and what is random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Keep the recordings in this folder, for `ackbeat replay`.
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
    /// Print one JSON object in place of the table.
    #[arg(long)]
    pub json: bool,
}

const STORM_LAB_HELP: &str = "Needs root, /dev/net/tun, and the programs ip (iproute2), nft (nftables) and chrt (util-linux). An hour is an \
hour: both\nfleets are played at the same time, each in a network of its own, with this program as the sidecar.\n\
Exit codes: 0 played; 1 an unexpected failure of the system; 2 bad usage; 3 missing privilege, program or kernel feature.";

fn lab_time(text: &str) -> Result<Duration, String> {
    interval(text).map_err(|_| "a time from 250ms to 60min, with a unit: 10s, 2min".to_owned())
}

impl StormLabArguments {
    /// The experiment.
    #[must_use]
    pub fn options(&self) -> storm_lab::Options {
        storm_lab::Options {
            clients: self.clients,
            duration: self.duration,
            every: self.every.max(self.outage),
            outage: self.outage,
            loss: f64::from(self.loss) / 100.0,
            compression: self.time_compression,
            seed: self.seed,
            keep: self.keep.clone(),
        }
    }
}

/// Arguments of `probe`.
#[derive(Debug, Args)]
#[command(after_help = PROBE_HELP)]
pub struct ProbeArguments {
    /// The WebSocket, with any path and query.
    #[arg(value_name = "ws://HOST[:PORT]/PATH")]
    pub url: Target,
    /// A header of the upgrade request. May be given several times.
    #[arg(long, value_name = "NAME: VALUE")]
    pub header: Vec<RequestHeader>,
    /// A cookie of the upgrade request. May be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub cookie: Vec<String>,
    /// How heartbeats look; auto answers whatever the host asks with (not phoenix and signalr, where the client asks).
    #[arg(long, value_enum, default_value_t)]
    pub profile: ProbeProfile,
    /// Send the profile's heartbeat every --interval-hint, also where the host usually asks.
    #[arg(long)]
    pub ask: bool,
    /// Heartbeats to answer, or to send where the client asks, before falling mute.
    #[arg(long, value_name = "N", default_value_t = MUTE_AFTER_DEFAULT)]
    pub mute_after: u64,
    /// How far apart heartbeats are: the next is waited for three times as long, the kill six times, and a second.
    /// What is learned or announced counts where it is longer [default: 30000; own heartbeats as their clients do].
    #[arg(long, value_name = "MS", value_parser = value_parser!(u64).range(1..=86_400_000))]
    pub interval_hint: Option<u64>,
    /// End after this time, whatever is not known then. With --slow-read: end the slow reading.
    #[arg(long, value_name = "MS", value_parser = value_parser!(u64).range(1..=86_400_000))]
    pub timeout: Option<u64>,
    /// Trust the certificates in this PEM file, and no others, in place of the system's.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub ca: Option<PathBuf>,
    /// Trust any certificate: whoever is on the path can be the host.
    #[arg(long)]
    pub insecure: bool,
    /// A text message to send once the WebSocket is open. May be given several times.
    #[arg(long, value_name = "TEXT")]
    pub send: Vec<String>,
    /// Do not fall mute: answer everything, but read so slowly.
    #[arg(long, value_name = "BYTES_PER_S", conflicts_with = "mute_after", value_parser = value_parser!(u64).range(1..))]
    pub slow_read: Option<u64>,
    /// Print one JSON object in place of the line.
    #[arg(long)]
    pub json: bool,
}

const PROBE_HELP: &str = "Exit codes: 0 the host closed the muted (or slowly reading) connection; 1 it did not, or nothing was measured: the\n\
reason is on standard error; 2 bad usage.";

/// How heartbeats look to `probe`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ProbeProfile {
    /// Whatever the host asks with.
    #[default]
    Auto,
    /// Ping and Pong frames.
    Rfc6455,
    /// Text messages ping and pong.
    PingPong,
    /// JSON objects whose type is ping or pong.
    Json,
    /// engine.io, and socket.io above it: EIO=4 unless the URL says EIO=3, where the client asks.
    #[value(name = "engine.io")]
    EngineIo,
    /// Phoenix channels: the client asks. Serializer 2.0.0 unless the URL says vsn=1.0.0.
    Phoenix,
    /// SignalR's JSON protocol: each side sends its own.
    #[value(name = "signalr")]
    SignalR,
}

impl From<ProbeProfile> for ProfileChoice {
    fn from(profile: ProbeProfile) -> Self {
        match profile {
            ProbeProfile::Auto => Self::Auto,
            ProbeProfile::Rfc6455 => Self::Only(HeartbeatProfile::Rfc6455),
            ProbeProfile::PingPong => Self::Only(HeartbeatProfile::PingPong),
            ProbeProfile::Json => Self::Only(HeartbeatProfile::Json),
            ProbeProfile::EngineIo => Self::Only(HeartbeatProfile::EngineIo),
            ProbeProfile::Phoenix => Self::Only(HeartbeatProfile::Phoenix),
            ProbeProfile::SignalR => Self::Only(HeartbeatProfile::SignalR),
        }
    }
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
