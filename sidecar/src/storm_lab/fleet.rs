//! Plays the experiment for one fleet.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ackbeat_lab::clock::monotonic_ns;
use ackbeat_lab::crowd::{Crowd, CrowdEvent, CrowdOptions, Retry};
use ackbeat_lab::host::Host;
use ackbeat_lab::namespace::Namespace;
use ackbeat_lab::network::{IpVersion, Network};
use ackbeat_lab::relay::RelayOptions;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::StormLabError;
use super::options::{
    ATTEMPT_DEADLINE, BEFORE, FIXED_RETRY, INTERVAL, JITTER_ATTEMPTS_MAX, JITTER_BASE, JITTER_CAP,
    MISSED_MAX, Options, PATIENCE, ROUND_TRIP,
};

/// How a fleet comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fleet {
    /// An attempt every 3 s.
    Fixed,
    /// Full-jitter back-off.
    Jitter,
}

/// The sidecar watches within this time.
const READY_DEADLINE: Duration = Duration::from_secs(60);
/// It ends within this time after it was told to.
const EXIT_DEADLINE: Duration = Duration::from_secs(30);
/// A recording of an hour is a tenth of this.
const RECORDING_MAX_BYTES: &str = "2000000000";
/// The path that clients upgrade at.
const PATH: &str = "/";

/// What was played, and what was true.
#[derive(Debug)]
pub(super) struct Played {
    /// What the engine was told.
    pub(super) recording: PathBuf,
    /// What happened to the clients.
    pub(super) events: Vec<CrowdEvent>,
    /// Each outage, in nanoseconds of the monotonic clock.
    pub(super) outages: Vec<(u64, u64)>,
    /// When the clients were stopped.
    pub(super) ended_ns: u64,
}

impl Fleet {
    pub(super) const BOTH: [Self; 2] = [Self::Fixed, Self::Jitter];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Jitter => "jitter",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Fixed => "fixed 3 s",
            Self::Jitter => "full jitter",
        }
    }

    fn retry(self, options: &Options) -> Retry {
        match self {
            Self::Fixed => Retry::Every(options.played(FIXED_RETRY)),
            Self::Jitter => Retry::FullJitter {
                base: options.played(JITTER_BASE),
                cap: options.played(JITTER_CAP),
                attempts_max: Some(JITTER_ATTEMPTS_MAX),
            },
        }
    }
}

pub(super) fn play(
    fleet: Fleet,
    options: &Options,
    folder: &Path,
    stop: &AtomicBool,
) -> Result<Played, StormLabError> {
    let relayed = RelayOptions::round_trip(ROUND_TRIP).lossy(options.loss).seeded(options.seed);
    let (network, relay) = Network::create_with_relay(&relayed)?;
    let address = SocketAddr::new(network.host_address(IpVersion::V4), 0);
    let host = Host::start(&network.host, address, options.played(INTERVAL), MISSED_MAX)?;
    let recording = folder.join("recording.jsonl");
    let sidecar = Sidecar::start(&network.host, host.address().port(), &recording, folder)?;
    let crowd = Crowd::start(
        Some(&network.client),
        CrowdOptions {
            host: host.address(),
            path: PATH,
            count: options.clients,
            spacing: options.played(BEFORE) / 8 / options.clients.max(1),
            attempt_deadline: options.played(ATTEMPT_DEADLINE),
            patience: Some(options.played(PATIENCE)),
            retry: fleet.retry(options),
            seed: options.seed,
        },
    )?;
    let mut random = fastrand::Rng::with_seed(options.seed);
    let until = Instant::now() + options.played(options.duration);
    let mut next = Instant::now() + options.played(BEFORE);
    let mut outages = Vec::new();
    // Only whole outages with what follows them.
    while next + options.played(options.every) <= until {
        // Not always at the same moment of the heartbeat's interval.
        rest(next + options.played(INTERVAL).mul_f64(random.f64()), stop);
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let cut_ns = monotonic_ns();
        relay.cut_both();
        rest(Instant::now() + options.played(options.outage), stop);
        relay.heal();
        outages.push((cut_ns, monotonic_ns()));
        relay.check()?;
        next += options.played(options.every);
    }
    rest(until, stop);
    let (events, ended_ns) = (crowd.events.all(), monotonic_ns());
    sidecar.stop()?;
    drop(crowd);
    Ok(Played { recording, events, outages, ended_ns })
}

/// Waits until then, or until it is to stop.
fn rest(until: Instant, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// This same program, watching the host. Dropping it kills it.
struct Sidecar {
    child: Child,
}

impl Sidecar {
    fn start(
        namespace: &Namespace,
        port: u16,
        recording: &Path,
        folder: &Path,
    ) -> Result<Self, StormLabError> {
        let file = |step, cause| StormLabError::File { step, cause };
        let program = std::env::current_exe().map_err(|cause| file("finding this program", cause))?;
        let said = folder.join("sidecar.log");
        let log = File::create(&said).map_err(|cause| file("making the sidecar's log", cause))?;
        let mut command = Command::new(program);
        command.arg("run").arg("--ports").arg(port.to_string()).arg("--record").arg(recording);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("OTEL_") || (text.starts_with("ACKBEAT_") && text != "ACKBEAT_EBPF_OBJECT") {
                command.env_remove(&name);
            }
        }
        command
            .env("OTEL_TRACES_EXPORTER", "none")
            .env("ACKBEAT_RECORDING_MAX_BYTES", RECORDING_MAX_BYTES)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        // A child lives in the namespace of the thread that starts it.
        let child =
            namespace.run(move || command.spawn())?.map_err(|cause| file("starting the sidecar", cause))?;
        let mut sidecar = Self { child };
        let until = Instant::now() + READY_DEADLINE;
        loop {
            let text = std::fs::read_to_string(&said).unwrap_or_default();
            // Not "address already in use".
            if text.lines().any(|line| line.contains("ready") && line.contains("connections")) {
                return Ok(sidecar);
            }
            let is_over = !matches!(sidecar.child.try_wait(), Ok(None));
            if is_over || Instant::now() >= until {
                let last: Vec<&str> = text.lines().rev().take(20).collect();
                return Err(StormLabError::Sidecar {
                    said: last.into_iter().rev().collect::<Vec<&str>>().join("\n"),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it in order, so that its recording is whole.
    fn stop(mut self) -> Result<(), StormLabError> {
        let pid = i32::try_from(self.child.id()).map_err(|_| StormLabError::Ended("the sidecar"))?;
        kill(Pid::from_raw(pid), Signal::SIGTERM).map_err(|_| StormLabError::Ended("the sidecar"))?;
        let until = Instant::now() + EXIT_DEADLINE;
        let mut has_asked_again = false;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < until {
            // It watches what is open a little longer; a second signal ends that.
            if !has_asked_again {
                has_asked_again = true;
                std::thread::sleep(Duration::from_millis(200));
                // Over by now, perhaps.
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
