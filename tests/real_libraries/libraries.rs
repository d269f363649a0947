//! The libraries' heartbeats.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ackbeat_detectors::Spec;
use ackbeat_tests::client::{Chatter, Client, ClientOptions, Pace};
use ackbeat_tests::clock::monotonic_ns;
use ackbeat_tests::libraries::Heartbeat;
use ackbeat_tests::mux::{Ask, Host, HostAction};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::story::{SLOW_BYTES_PER_SECOND, SLOW_READ_BYTES};
use anyhow::{Context, Result};

use super::judge::{Judgements, reports};
use super::table::{Row, check, since_ms};

const INTERVAL: Duration = Duration::from_secs(2);
/// Pongs of every healthy peer before anything happens to it.
const LEARNING_PONGS: usize = 2;
const PONG_DEADLINE: Duration = Duration::from_secs(60);
const KILL_DEADLINE: Duration = Duration::from_secs(60);
/// How long a peer behind the burst reads nothing: longer than every heartbeat here has patience.
const BUSY: Duration = Duration::from_secs(7);
/// How long one reads nothing that every heartbeat here has patience with.
const BRIEFLY_BUSY: Duration = Duration::from_millis(700);
/// A timer this late makes another recording.
const LATE: Duration = Duration::from_millis(100);
const SMALL_BURST_BYTES: usize = 8_000_000;
/// After the longest scenario: time for everybody to decide who has not.
const AFTERWARDS: Duration = Duration::from_secs(4);

/// When a stand-in is given what the host printed of its ticks and Pongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reports {
    /// Never: what it needs is on the wire and in the kernel.
    No,
    /// Where the host's timer was late: a Ping that is queued behind a burst does not show when it was sent, and the
    /// stand-in's own timer is on time.
    IfLate,
    /// Where bytes wait in the host's own memory, of which the kernel knows nothing.
    OfBacklogs,
    /// Always: the heartbeat's packets are no frames of their own.
    Yes,
}

/// A heartbeat, and who stands in for it.
struct Library {
    heartbeat: Heartbeat,
    stand_in: &'static str,
    /// What the stand-in is given of what the host printed.
    reports: Reports,
    /// It kills a peer that is behind the burst for [`BUSY`].
    kills_busy: bool,
    /// It kills a peer that sends data and never a Pong.
    kills_pongless: bool,
    /// It kills a peer that is gone while the host still holds bytes for it in user space.
    kills_behind_backlog: bool,
}

const LIBRARIES: [Library; 5] = [
    Library {
        heartbeat: Heartbeat::WsCounting,
        stand_in: "ws-2",
        reports: Reports::IfLate,
        kills_busy: true,
        kills_pongless: true,
        kills_behind_backlog: true,
    },
    Library {
        heartbeat: Heartbeat::WsReadme { interval: INTERVAL },
        stand_in: "ws-readme:interval_ms=2000",
        reports: Reports::IfLate,
        kills_busy: true,
        kills_pongless: true,
        kills_behind_backlog: true,
    },
    Library {
        heartbeat: Heartbeat::EngineIo { ping_interval: INTERVAL, ping_timeout: INTERVAL },
        stand_in: "engine-io:interval_ms=2000,timeout_ms=2000",
        reports: Reports::Yes,
        kills_busy: true,
        // Data extends the wait, but only once.
        kills_pongless: true,
        kills_behind_backlog: true,
    },
    Library {
        heartbeat: Heartbeat::Aiohttp { heartbeat: INTERVAL },
        stand_in: "aiohttp:heartbeat_ms=2000",
        reports: Reports::No,
        kills_busy: true,
        kills_pongless: false,
        kills_behind_backlog: true,
    },
    Library {
        heartbeat: Heartbeat::PythonWebsockets { ping_interval: INTERVAL, ping_timeout: INTERVAL },
        stand_in: "python-websockets:interval_ms=2000,timeout_ms=2000",
        reports: Reports::OfBacklogs,
        // It waits until its Ping has left user space before it begins to wait for the Pong.
        kills_busy: false,
        kills_pongless: true,
        kills_behind_backlog: false,
    },
];

/// What happens to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    Idle,
    Gone,
    GoneBehindBacklog,
    Busy,
    Slow,
    BrieflyBusy,
    Pongless,
}

impl Scenario {
    const ALL: [Self; 7] = [
        Self::Idle,
        Self::Gone,
        Self::GoneBehindBacklog,
        Self::Busy,
        Self::Slow,
        Self::BrieflyBusy,
        Self::Pongless,
    ];

    const fn title(self) -> &'static str {
        match self {
            Self::Idle => "idle and well",
            Self::Gone => "blackhole while idle",
            Self::GoneBehindBacklog => "blackhole behind 28 MB, most of it in user space",
            Self::Busy => "28 MB burst, reads nothing for 7 s, then all",
            Self::Slow => "28 MB burst, reads 200 kB/s",
            Self::BrieflyBusy => "8 MB burst, reads nothing for 0.7 s, then all",
            Self::Pongless => "sends data every 0.73 s, never a Pong",
        }
    }

    fn options(self, host: &Host, library: &Library) -> ClientOptions {
        // Never at the moment of a Ping.
        let chatter = Chatter { period: Duration::from_millis(730), bytes: 100 };
        let slow = Pace::Slow { bytes_per_second: SLOW_BYTES_PER_SECOND, read_bytes: SLOW_READ_BYTES };
        ClientOptions {
            pace: if self == Self::Slow { slow } else { Pace::Full },
            withhold_pongs: self == Self::Pongless,
            chatter: (self == Self::Pongless).then_some(chatter),
            engine_io: matches!(library.heartbeat, Heartbeat::EngineIo { .. }),
            ..ClientOptions::new(host.address())
        }
    }

    /// Bytes for the peer wait in the host's own memory.
    const fn has_backlog(self) -> bool {
        matches!(self, Self::GoneBehindBacklog | Self::Busy | Self::Slow | Self::BrieflyBusy)
    }

    const fn kills(self, library: &Library) -> Option<bool> {
        match self {
            Self::Idle => Some(false),
            // How long the rest takes to be read depends on the machine.
            Self::BrieflyBusy => None,
            Self::Gone => Some(true),
            Self::GoneBehindBacklog => Some(library.kills_behind_backlog),
            Self::Busy | Self::Slow => Some(library.kills_busy),
            Self::Pongless => Some(library.kills_pongless),
        }
    }
}

/// One peer of one host.
struct Peer<'a> {
    library: &'a Library,
    host: &'a Host,
    scenario: Scenario,
    client: Client,
    began_ns: u64,
}

impl Peer<'_> {
    fn killed_ns(&self) -> Option<u64> {
        let port = self.client.port();
        self.host.events.read(|events| {
            let kill = |what: &HostAction| matches!(what, HostAction::Killed { .. });
            events.iter().find(|event| event.peer_port == port && kill(&event.what)).map(|event| event.at_ns)
        })
    }

    fn wait_for_burst(&self) -> Result<()> {
        let queued = |what: &HostAction| matches!(what, HostAction::Queued { .. });
        self.host.wait_for("burst", self.client.port(), PONG_DEADLINE, queued).map(drop)
    }
}

#[test]
fn a_stand_in_kills_when_its_library_kills() -> Result<()> {
    let network = Network::create()?;
    let address = network.host_address(IpVersion::V4);
    let hosts: Vec<Host> = LIBRARIES
        .iter()
        .map(|library| library.heartbeat.start(Some(&network.host), address))
        .collect::<Result<_>>()?;
    let directory = tempfile::tempdir().context("making a folder for the recording failed")?;
    let recording = directory.path().join("recording.jsonl");
    let options = SidecarOptions {
        ports: hosts.iter().map(|host| host.address().port()).collect(),
        ..SidecarOptions::default()
    };
    let sidecar = Sidecar::start(&network.host, &options.argument("--record", &recording))?;

    let mut peers = Vec::new();
    for (library, host) in LIBRARIES.iter().zip(&hosts) {
        for scenario in Scenario::ALL {
            let client = Client::connect(Some(&network.client), scenario.options(host, library))?;
            peers.push(Peer { library, host, scenario, client, began_ns: monotonic_ns() });
        }
    }
    for peer in &peers {
        match peer.scenario {
            // Before the bursts: queueing one blocks a host's event loop for a time, and its timers with it.
            Scenario::Pongless if peer.library.kills_pongless => {
                peer.host.wait_for_kill(peer.client.port(), KILL_DEADLINE)?;
            }
            Scenario::Pongless => {}
            _ => peer.host.wait_for_pongs(peer.client.port(), LEARNING_PONGS, PONG_DEADLINE)?,
        }
    }
    play(&network, &mut peers)?;
    // Those that kill must have done so before the recording ends; the others had the time to.
    for peer in peers.iter().filter(|peer| peer.scenario.kills(peer.library) == Some(true)) {
        peer.host.wait_for_kill(peer.client.port(), KILL_DEADLINE)?;
    }
    // A last reading for the stand-ins.
    std::thread::sleep(INTERVAL);
    sidecar.stop()?;
    let mut rows = Vec::new();
    for (library, host) in LIBRARIES.iter().zip(&hosts) {
        let of_library: Vec<&Peer<'_>> =
            peers.iter().filter(|peer| std::ptr::eq(peer.library, library)).collect();
        let idle = of_library.iter().find(|peer| peer.scenario == Scenario::Idle);
        let idle = &idle.context("every library has an idle peer")?.client;
        let views = Views::of(&network, &recording, library, host, idle)?;
        for peer in of_library {
            rows.push(views.row(&network, peer)?);
        }
    }
    check("Heartbeats of libraries", &rows)
}

/// All scenarios at once.
fn play(network: &Network, peers: &mut [Peer<'_>]) -> Result<()> {
    let freezes = [Scenario::GoneBehindBacklog, Scenario::Busy, Scenario::BrieflyBusy];
    for peer in &mut *peers {
        if peer.scenario != Scenario::Pongless {
            peer.began_ns = monotonic_ns();
        }
        peer.client.freeze(freezes.contains(&peer.scenario));
        match peer.scenario {
            Scenario::Idle | Scenario::Pongless => {}
            Scenario::Gone => network.cut(peer.client.port())?,
            Scenario::BrieflyBusy => peer.client.ask(&Ask::Bytes { bytes: SMALL_BURST_BYTES }),
            Scenario::GoneBehindBacklog | Scenario::Busy | Scenario::Slow => peer.client.ask(&Ask::Follow),
        }
    }
    let frozen_at = std::time::Instant::now();
    let of = |scenario: Scenario| peers.iter().filter(move |peer| peer.scenario == scenario);
    for peer in peers.iter().filter(|peer| freezes.contains(&peer.scenario)) {
        peer.wait_for_burst()?;
    }
    std::thread::sleep(BRIEFLY_BUSY.saturating_sub(frozen_at.elapsed()));
    of(Scenario::BrieflyBusy).for_each(|peer| peer.client.freeze(false));
    for peer in of(Scenario::GoneBehindBacklog) {
        network.cut(peer.client.port())?;
    }
    std::thread::sleep(BUSY.saturating_sub(frozen_at.elapsed()));
    of(Scenario::Busy).for_each(|peer| peer.client.freeze(false));
    std::thread::sleep(AFTERWARDS);
    Ok(())
}

/// Whether two ticks of a host with a fixed interval were further from it than [`LATE`], as a peer shows that gets a
/// Ping at each.
fn was_late(host: &Host, idle_port: u16) -> bool {
    let ticks: Vec<u64> = host.events.read(|events| {
        let ping = |what: &HostAction| matches!(what, HostAction::Ping { .. });
        let of_peer = events.iter().filter(|event| event.peer_port == idle_port && ping(&event.what));
        of_peer.map(|event| event.at_ns).collect()
    });
    ticks.windows(2).any(|pair| match pair {
        [earlier, later] => Duration::from_nanos(later - earlier).abs_diff(INTERVAL) > LATE,
        _ => false,
    })
}

/// Both views of a recording, for one library.
struct Views {
    spec: Spec,
    recording: Judgements,
    with_reports: Judgements,
    /// The host's timer was late at least once.
    was_late: bool,
}

impl Views {
    fn of(
        network: &Network,
        recording: &Path,
        library: &Library,
        host: &Host,
        idle: &Client,
    ) -> Result<Self> {
        let spec: Spec = library.stand_in.parse()?;
        let stand_ins = [spec.clone()];
        let said = reports(network.client_address(IpVersion::V4), &host.events.all());
        Ok(Self {
            spec,
            recording: Judgements::of(recording, &[], &stand_ins)?,
            with_reports: Judgements::of(recording, &said, &stand_ins)?,
            was_late: was_late(host, idle.port()),
        })
    }

    fn row(&self, network: &Network, peer: &Peer<'_>) -> Result<Row> {
        let library = peer.library;
        let had_reports = match library.reports {
            Reports::No => false,
            Reports::IfLate => self.was_late && peer.scenario.has_backlog(),
            Reports::OfBacklogs => peer.scenario.has_backlog(),
            Reports::Yes => true,
        };
        let judgements = if had_reports { &self.with_reports } else { &self.recording };
        let address = SocketAddr::new(network.client_address(IpVersion::V4), peer.client.port());
        let row = Row {
            library: library.heartbeat.library()?,
            stand_in: self.spec.to_string(),
            scenario: peer.scenario.title(),
            real_ms: peer.killed_ns().map(|at_ns| since_ms(peer.began_ns, at_ns)),
            stand_in_ms: None,
            not_judged: None,
            had_reports,
            tick_ms: i64::try_from(INTERVAL.as_millis())?,
            kills: peer.scenario.kills(library),
        };
        Ok(row.judged(judgements.outcome(&self.spec, address)?, peer.began_ns))
    }
}
