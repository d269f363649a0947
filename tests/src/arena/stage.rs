//! Where a scenario is played: namespaces, a host whose watchdog only watches, peers, and the sidecar that records.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::row::{Row, Variant};
use super::truth::{FORMAT, HostKnowledge, HostReport, State, StateChange, Subject, Truth};
use crate::client::{Client, ClientOptions, connect_healthy};
use crate::clock::monotonic_ns;
use crate::journal::wait_until;
use crate::mux::{Host, HostAction, HostEvent, HostOptions, PeerFin};
use crate::network::{IpVersion, Network};
use crate::peer::Peer;
use crate::relay::{Relay, RelayOptions};
use crate::sidecar::{Sidecar, SidecarOptions};

/// File with what the engine was told.
pub const RECORDING_FILE: &str = "recording.jsonl";
/// File with what was true.
pub const TRUTH_FILE: &str = "truth.json";
/// A recording of a run never grows to this.
const RECORDING_MAX_BYTES: u64 = 2_000_000_000;
/// The heartbeat's interval, unless a row says otherwise.
pub const INTERVAL: Duration = Duration::from_secs(2);
/// Pongs of a subject before anything happens to it: enough to learn the interval from.
pub const LEARNING_PONGS: usize = 3;
const PONG_DEADLINE: Duration = Duration::from_secs(60);

/// The path between host and peers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PathKind {
    /// A router that forwards in the kernel.
    Router,
    /// A relay that delays and loses packets; see [`crate::relay`].
    Relay {
        /// Round-trip time, half of it each way.
        round_trip: Duration,
        /// Probability each way that a packet is lost.
        loss: f64,
    },
}

/// How a stage is set up.
#[derive(Clone, Debug)]
pub struct StageOptions {
    /// The path.
    pub path: PathKind,
    /// The heartbeat's interval.
    pub interval: Duration,
    /// Size of the host's send buffers in bytes; the kernel's own choice if `None`.
    pub send_buffer_bytes: Option<u32>,
    /// Blocks the host's event loop.
    pub block: Option<crate::mux::Block>,
    /// What the host does when a peer has finished writing.
    pub peer_fin: PeerFin,
    /// Settings of the sidecar beyond those of every stage, as environment variables.
    pub settings: &'static [(&'static str, &'static str)],
}

impl Default for StageOptions {
    fn default() -> Self {
        Self {
            path: PathKind::Router,
            interval: INTERVAL,
            send_buffer_bytes: None,
            block: None,
            peer_fin: PeerFin::Close,
            settings: &[],
        }
    }
}

/// A scenario's stage. Dropping it removes everything.
pub struct Stage {
    /// What is played.
    pub row: &'static Row,
    /// Its variant.
    pub variant: &'static Variant,
    /// Source of everything random.
    pub random: fastrand::Rng,
    /// A short set is played: what is only there to let slow detectors decide is left out.
    pub is_quick: bool,
    /// The peers that a row keeps for the length of the run; dropped before the host.
    pub clients: Vec<Client>,
    /// The same for peers that are processes.
    pub peers: Vec<Peer>,
    /// The recording sidecar; `None` once it was stopped.
    pub sidecar: Option<Sidecar>,
    /// The host. Its watchdog only watches.
    pub host: Host,
    /// The relay, where the path is one; dropped before the namespaces.
    relay: Option<Relay>,
    /// Namespaces and path.
    pub network: Network,
    seed: u64,
    directory: PathBuf,
    began_at_ns: u64,
    subjects: Vec<Subject>,
    figures: BTreeMap<String, f64>,
    outages: Vec<(u64, u64)>,
}

/// Files of a stage that was played.
#[derive(Clone, Debug)]
pub struct Played {
    /// What the engine was told.
    pub recording: PathBuf,
    /// What was true.
    pub truth: Truth,
}

impl Stage {
    /// Sets up a stage that writes into `directory`.
    ///
    /// # Errors
    /// If namespaces, host or sidecar cannot be had.
    pub fn set_up(
        row: &'static Row,
        variant: &'static Variant,
        seed: u64,
        is_quick: bool,
        ackbeat: &Path,
        directory: &Path,
    ) -> Result<Self> {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("making {} failed", directory.display()))?;
        for name in [RECORDING_FILE, TRUTH_FILE] {
            let path = directory.join(name);
            if path.exists() {
                std::fs::remove_file(&path).with_context(|| format!("removing {} failed", path.display()))?;
            }
        }
        let options = (row.options)(variant);
        // Rows and variants of one seed must not share their random numbers.
        let mixed = seed
            ^ (u64::from(row.number) << 32)
            ^ variant
                .name
                .bytes()
                .fold(0_u64, |sum, byte| sum.wrapping_mul(131).wrapping_add(u64::from(byte)));
        let (network, relay) = match options.path {
            PathKind::Router => (Network::create()?, None),
            PathKind::Relay { round_trip, loss } => {
                let relayed = RelayOptions::round_trip(round_trip).lossy(loss).seeded(mixed);
                let (network, relay) = Network::create_with_relay(&relayed)?;
                (network, Some(relay))
            }
        };
        let host = Host::start(
            Some(&network.host),
            HostOptions {
                interval: options.interval,
                send_buffer_bytes: options.send_buffer_bytes,
                block: options.block,
                peer_fin: options.peer_fin,
                ..HostOptions::new(network.host_address(IpVersion::V4)).watching_only()
            },
        )?;
        let mut sidecar_options = SidecarOptions::port(host.address().port())
            .argument("--record", directory.join(RECORDING_FILE))
            .variable("ACKBEAT_RECORDING_MAX_BYTES", RECORDING_MAX_BYTES.to_string());
        for (name, value) in options.settings {
            sidecar_options = sidecar_options.variable(name, *value);
        }
        let sidecar = Sidecar::start_program(ackbeat, &network.host, &sidecar_options)?;
        Ok(Self {
            row,
            variant,
            random: fastrand::Rng::with_seed(mixed),
            is_quick,
            clients: Vec::new(),
            peers: Vec::new(),
            sidecar: Some(sidecar),
            host,
            relay,
            network,
            seed,
            directory: directory.to_path_buf(),
            began_at_ns: monotonic_ns(),
            subjects: Vec::new(),
            figures: BTreeMap::new(),
            outages: Vec::new(),
        })
    }

    /// Options of a healthy peer.
    #[must_use]
    pub fn peer_options(&self) -> ClientOptions {
        ClientOptions::new(self.host.address())
    }

    /// Connects a peer and declares it a subject that is alive.
    ///
    /// # Errors
    /// If it cannot connect.
    pub fn connect(&mut self, name: &str, options: ClientOptions) -> Result<Client> {
        let client = Client::connect(Some(&self.network.client), options)?;
        let peer = SocketAddr::new(self.network.client_address(IpVersion::V4), client.port());
        self.declare(name, peer);
        Ok(client)
    }

    /// Connects as many healthy peers as the row has subjects, each at a random moment of the heartbeat's interval,
    /// and waits until the interval can be learned from them.
    ///
    /// # Errors
    /// If one cannot connect or does not answer.
    pub fn connect_subjects(&mut self) -> Result<Vec<Client>> {
        let options = self.peer_options();
        self.connect_subjects_as(|_number| ("peer", options.clone()))
    }

    /// The same with peers that behave as `describe` says: by the subject's number, from 1 on, the first part of its
    /// name and its options.
    ///
    /// # Errors
    /// As [`Stage::connect_subjects`].
    pub fn connect_subjects_as(
        &mut self,
        describe: impl Fn(u32) -> (&'static str, ClientOptions),
    ) -> Result<Vec<Client>> {
        let mut clients = Vec::new();
        for number in 1..=self.row.subjects {
            let (kind, options) = describe(number);
            clients.push(self.connect(&format!("{kind}-{number}"), options)?);
            self.pass_up_to(INTERVAL / self.row.subjects);
        }
        for client in &clients {
            self.wait_for_learning(client.port())?;
        }
        Ok(clients)
    }

    /// Connects healthy peers that nobody judges, for the length of the run, and waits until the heartbeat's interval
    /// can be learned from them.
    ///
    /// # Errors
    /// If one cannot connect or does not answer.
    pub fn connect_siblings(&mut self, count: usize) -> Result<()> {
        let siblings = connect_healthy(Some(&self.network.client), self.host.address(), count)?;
        for sibling in &siblings {
            self.wait_for_learning(sibling.port())?;
        }
        self.clients.extend(siblings);
        Ok(())
    }

    /// Waits until the heartbeat's interval can be learned from the peer with this port.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn wait_for_learning(&self, port: u16) -> Result<()> {
        self.host.wait_for_pongs(port, LEARNING_PONGS, PONG_DEADLINE)
    }

    /// Connects a peer that is a process of its own and declares it a subject that is alive.
    ///
    /// # Errors
    /// If it cannot connect.
    pub fn connect_process(&mut self, name: &str, options: &ClientOptions) -> Result<Peer> {
        let peer = Peer::connect(Some(&self.network.client), options)?;
        self.declare(name, SocketAddr::new(self.network.client_address(IpVersion::V4), peer.port()));
        Ok(peer)
    }

    /// The relay.
    ///
    /// # Errors
    /// If the path is none.
    pub fn relay(&self) -> Result<&Relay> {
        self.relay.as_ref().with_context(|| format!("the path of row {} is no relay", self.row.number))
    }

    /// Declares a peer that the row connected itself a subject that is alive.
    pub fn declare(&mut self, name: &str, peer: SocketAddr) {
        self.declare_from(monotonic_ns(), name, peer);
    }

    /// The same for one that is a subject from `at_ns` on.
    pub fn declare_from(&mut self, at_ns: u64, name: &str, peer: SocketAddr) {
        let began = StateChange { at_ns, state: State::Alive };
        self.subjects.push(Subject { name: name.to_owned(), peer, states: vec![began] });
    }

    /// Says what the subject with this port is from now on.
    ///
    /// # Errors
    /// If there is no such subject.
    pub fn now(&mut self, port: u16, state: State) -> Result<()> {
        self.from(monotonic_ns(), port, state)
    }

    /// Says what the subject with this port was from `at_ns` on.
    ///
    /// # Errors
    /// If there is no such subject.
    pub fn from(&mut self, at_ns: u64, port: u16, state: State) -> Result<()> {
        let subject = self.subjects.iter_mut().rev().find(|subject| subject.peer.port() == port);
        let subject = subject.with_context(|| format!("port {port} is no subject"))?;
        subject.states.push(StateChange { at_ns, state });
        Ok(())
    }

    /// Notes a figure that the row measured.
    pub fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), value);
    }

    /// Notes when an outage of all subjects began and ended, in nanoseconds of the monotonic clock.
    pub fn outage(&mut self, began_ns: u64, ended_ns: u64) {
        self.outages.push((began_ns, ended_ns));
    }

    /// Lets time pass: part of the scenario, and no wait for anything.
    pub fn pass(&self, duration: Duration) {
        std::thread::sleep(duration);
    }

    /// Lets a random time pass, up to `longest`.
    pub fn pass_up_to(&mut self, longest: Duration) {
        let part = self.random.f64();
        self.pass(longest.mul_f64(part));
    }

    /// Lets `duration` pass in a full set, and only `quick` in a short one.
    pub fn pass_or(&self, duration: Duration, quick: Duration) {
        self.pass(if self.is_quick { quick } else { duration });
    }

    /// Lets time pass until `early` before a tick of the heartbeat: the next one that is further away than that.
    ///
    /// # Errors
    /// If the host sends no Pings.
    pub fn pass_until_tick(&self, early: Duration) -> Result<()> {
        let last_ns = self.host.events.wait_for("a Ping of the host", PONG_DEADLINE, |events| {
            let ping = |event: &&HostEvent| matches!(event.what, HostAction::Ping { .. });
            events.iter().rev().find(ping).map(|event| event.at_ns)
        })?;
        let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let interval_ns = nanoseconds((self.row.options)(self.variant).interval).max(1);
        let now_ns = monotonic_ns();
        let since_ns = now_ns.saturating_sub(last_ns).saturating_add(nanoseconds(early));
        self.pass(Duration::from_nanos(interval_ns - since_ns % interval_ns));
        Ok(())
    }

    /// Ends the stage: stops the sidecar and writes the truth.
    ///
    /// # Errors
    /// If the sidecar does not end well, or the recording is not there.
    pub fn finish(mut self) -> Result<Played> {
        let ended_at_ns = monotonic_ns();
        if let Some(relay) = &self.relay {
            relay.check()?;
        }
        let recording = self.directory.join(RECORDING_FILE);
        if let Some(sidecar) = self.sidecar.take() {
            sidecar.stop()?;
        }
        self.clients.clear();
        self.peers.clear();
        ensure!(recording.is_file(), "the sidecar left no recording at {}", recording.display());
        wait_until("the recording's last line", Duration::from_secs(10), || Ok(ends_whole(&recording)))?;
        ensure!(!self.subjects.is_empty(), "row {} declared no subject", self.row.number);
        let client_address = self.network.client_address(IpVersion::V4);
        // A subject behind somebody in the middle has another address than the clients.
        let addresses: BTreeMap<u16, SocketAddr> =
            self.subjects.iter().map(|subject| (subject.peer.port(), subject.peer)).collect();
        let reports = self.host.events.read(|events| {
            events
                .iter()
                .filter_map(|event| {
                    let what = match event.what {
                        HostAction::Ping { buffered_bytes, .. } => HostKnowledge::Tick { buffered_bytes },
                        HostAction::Pong => HostKnowledge::Pong,
                        _ => return None,
                    };
                    let peer = addresses.get(&event.peer_port).copied();
                    let peer = peer.unwrap_or(SocketAddr::new(client_address, event.peer_port));
                    Some(HostReport { at_ns: event.at_ns, peer, what })
                })
                .collect()
        });
        let truth = Truth {
            arena_truth: FORMAT,
            row: self.row.number,
            variant: self.variant.name.to_owned(),
            seed: self.seed,
            began_at_ns: self.began_at_ns,
            ended_at_ns,
            subjects: std::mem::take(&mut self.subjects),
            reports,
            figures: std::mem::take(&mut self.figures),
            outages: std::mem::take(&mut self.outages),
        };
        truth.write(&self.directory.join(TRUTH_FILE))?;
        Ok(Played { recording, truth })
    }
}

/// Whether a file ends with a line end.
fn ends_whole(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.last() == Some(&b'\n'))
}

/// Plays one row once.
///
/// # Errors
/// If the stage cannot be set up or the row does not go as it must.
pub fn play(
    row: &'static Row,
    variant: &'static Variant,
    seed: u64,
    is_quick: bool,
    ackbeat: &Path,
    directory: &Path,
) -> Result<Played> {
    let mut stage = Stage::set_up(row, variant, seed, is_quick, ackbeat, directory)
        .with_context(|| format!("setting up row {} failed", row.number))?;
    (row.play)(&mut stage).with_context(|| format!("row {} {} (seed {seed})", row.number, variant.name))?;
    stage.finish()
}
