//! The kernel's own timers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use ackbeat_detectors::Spec;
use ackbeat_tests::clock::monotonic_ns;
use ackbeat_tests::journal::Journal;
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::sockets;
use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};

use super::judge::Judgements;
use super::table::{Row, check, since_ms};

const USER_TIMEOUT_MS: u32 = 2_000;
const KEEPALIVE_IDLE_S: u32 = 1;
const KEEPALIVE_INTERVAL_S: u32 = 1;
const KEEPALIVE_PROBES: u32 = 3;
const KILL_DEADLINE: Duration = Duration::from_secs(60);
/// How long everything lasts: the longest kill takes 4 s.
const LASTS: Duration = Duration::from_secs(8);
/// A steady writer writes this often.
const WRITE_PERIOD: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    Steady,
    GoneInFlight,
    GoneDuringBulk,
    StopsReading,
    GoneBehindWindow,
    KeptAlive,
    GoneWhileIdle,
}

impl Scenario {
    const ALL: [Self; 7] = [
        Self::Steady,
        Self::GoneInFlight,
        Self::GoneDuringBulk,
        Self::StopsReading,
        Self::GoneBehindWindow,
        Self::KeptAlive,
        Self::GoneWhileIdle,
    ];

    const fn title(self) -> &'static str {
        match self {
            Self::Steady => "reads all, data every 0.3 s",
            Self::GoneInFlight => "blackhole, one segment in flight",
            Self::GoneDuringBulk => "blackhole during bulk",
            Self::StopsReading => "stops reading, its kernel answers every probe",
            Self::GoneBehindWindow => "stops reading, blackhole 1 s later",
            Self::KeptAlive => "idle and well",
            Self::GoneWhileIdle => "blackhole while idle",
        }
    }

    const fn is_keepalive(self) -> bool {
        matches!(self, Self::KeptAlive | Self::GoneWhileIdle)
    }

    const fn kills(self) -> bool {
        !matches!(self, Self::Steady | Self::KeptAlive)
    }

    const fn reads(self) -> bool {
        !matches!(self, Self::StopsReading | Self::GoneBehindWindow)
    }
}

/// One connection: the host's end, the peer's end, and how the host's ended.
struct Connection {
    scenario: Scenario,
    host: TcpStream,
    peer: TcpStream,
    ended: Journal<(u64, std::io::ErrorKind)>,
    began_ns: u64,
}

impl Connection {
    fn open(network: &Network, listener: &TcpListener, scenario: Scenario) -> Result<Self> {
        let address = listener.local_addr().context("reading the listener's address failed")?;
        let peer = network.client.run(|| sockets::connect(address))??;
        let host = sockets::accept(listener)?;
        // The kernel ends it, and nothing else.
        host.set_read_timeout(None).context("unbounding reads failed")?;
        host.set_write_timeout(None).context("unbounding writes failed")?;
        peer.set_read_timeout(None).context("unbounding reads failed")?;
        host.set_nodelay(true).context("setting TCP_NODELAY failed")?;
        if scenario.is_keepalive() {
            setsockopt(&host, sockopt::KeepAlive, &true).context("setting SO_KEEPALIVE failed")?;
            setsockopt(&host, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE_S)
                .context("setting TCP_KEEPIDLE failed")?;
            setsockopt(&host, sockopt::TcpKeepInterval, &KEEPALIVE_INTERVAL_S)
                .context("setting TCP_KEEPINTVL failed")?;
            setsockopt(&host, sockopt::TcpKeepCount, &KEEPALIVE_PROBES)
                .context("setting TCP_KEEPCNT failed")?;
        } else {
            sockets::set_user_timeout(&host, USER_TIMEOUT_MS)?;
        }
        let connection = Self { scenario, host, peer, ended: Journal::default(), began_ns: monotonic_ns() };
        connection.watch()?;
        connection.consume()?;
        Ok(connection)
    }

    fn port(&self) -> Result<u16> {
        Ok(self.peer.local_addr().context("reading the peer's address failed")?.port())
    }

    /// A read of the host's that ends with the connection.
    fn watch(&self) -> Result<()> {
        let mut host = self.host.try_clone().context("duplicating a socket failed")?;
        let ended = self.ended.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 1];
            if let Err(error) = host.read(&mut buffer) {
                ended.push((monotonic_ns(), error.kind()));
            }
        });
        Ok(())
    }

    /// The peer reads all that comes, if it reads at all.
    fn consume(&self) -> Result<()> {
        let mut peer = self.peer.try_clone().context("duplicating a socket failed")?;
        if self.scenario.reads() {
            std::thread::spawn(move || std::io::copy(&mut peer, &mut std::io::sink()));
        }
        Ok(())
    }

    /// The host writes until it cannot, `bytes` at a time.
    fn write(&self, bytes: usize, rest: Duration) -> Result<()> {
        let mut host = self.host.try_clone().context("duplicating a socket failed")?;
        let ended = self.ended.clone();
        std::thread::spawn(move || {
            let part = vec![0; bytes];
            loop {
                // The kernel tells the socket's error once: to the read, or to this.
                if let Err(error) = host.write_all(&part) {
                    ended.push((monotonic_ns(), error.kind()));
                    return;
                }
                std::thread::sleep(rest);
            }
        });
        Ok(())
    }

    fn killed_ns(&self) -> Option<u64> {
        self.ended.read(|ended| {
            ended.iter().find(|(_, kind)| *kind == std::io::ErrorKind::TimedOut).map(|(at_ns, _)| *at_ns)
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Ends the threads that read and write; the connection may be over already.
        let _ = self.host.shutdown(std::net::Shutdown::Both);
        let _ = self.peer.shutdown(std::net::Shutdown::Both);
    }
}

#[test]
fn a_stand_in_kills_when_the_kernel_kills() -> Result<()> {
    let network = Network::create()?;
    let host_address = network.host_address(IpVersion::V4);
    let (listener, address) = network.host.run(|| sockets::listen(host_address))??;
    let directory = tempfile::tempdir().context("making a folder for the recording failed")?;
    let recording = directory.path().join("recording.jsonl");
    let options = SidecarOptions::port(address.port()).argument("--record", &recording);
    let sidecar = Sidecar::start(&network.host, &options)?;
    let mut connections = Scenario::ALL
        .iter()
        .map(|scenario| Connection::open(&network, &listener, *scenario))
        .collect::<Result<Vec<_>>>()?;
    play(&network, &mut connections)?;
    for connection in connections.iter().filter(|connection| connection.scenario.kills()) {
        connection.ended.wait_for(connection.scenario.title(), KILL_DEADLINE, |ended| {
            (!ended.is_empty()).then_some(())
        })?;
    }
    sidecar.stop()?;

    let user_timeout: Spec = format!("user-timeout:timeout_ms={USER_TIMEOUT_MS}").parse()?;
    let keepalive: Spec = format!(
        "keepalive:idle_ms={},interval_ms={},probes={KEEPALIVE_PROBES}",
        KEEPALIVE_IDLE_S * 1_000,
        KEEPALIVE_INTERVAL_S * 1_000
    )
    .parse()?;
    let judgements = Judgements::of(&recording, &[], &[user_timeout.clone(), keepalive.clone()])?;
    let mut rows = Vec::new();
    for connection in &connections {
        let (library, spec, tick_ms) = if connection.scenario.is_keepalive() {
            ("SO_KEEPALIVE 1 s, 1 s, 3", &keepalive, i64::from(KEEPALIVE_INTERVAL_S) * 1_000)
        } else {
            ("TCP_USER_TIMEOUT 2000 ms", &user_timeout, 500)
        };
        let peer = SocketAddr::new(network.client_address(IpVersion::V4), connection.port()?);
        let row = Row {
            library: library.to_owned(),
            stand_in: spec.to_string(),
            scenario: connection.scenario.title(),
            real_ms: connection.killed_ns().map(|at_ns| since_ms(connection.began_ns, at_ns)),
            stand_in_ms: None,
            not_judged: None,
            had_reports: false,
            tick_ms,
            kills: Some(connection.scenario.kills()),
        };
        rows.push(row.judged(judgements.outcome(spec, peer)?, connection.began_ns));
    }
    check("The kernel's timers", &rows)
}

/// All scenarios at once.
fn play(network: &Network, connections: &mut [Connection]) -> Result<()> {
    let began = std::time::Instant::now();
    for connection in &mut *connections {
        connection.began_ns = monotonic_ns();
        match connection.scenario {
            Scenario::Steady => connection.write(100, WRITE_PERIOD)?,
            Scenario::GoneInFlight => {
                network.cut(connection.port()?)?;
                connection.write(100, LASTS)?;
            }
            Scenario::GoneDuringBulk | Scenario::StopsReading | Scenario::GoneBehindWindow => {
                connection.write(64 * 1024, Duration::from_millis(5))?;
            }
            Scenario::KeptAlive => {}
            Scenario::GoneWhileIdle => network.cut(connection.port()?)?,
        }
    }
    let cut_later = [(Scenario::GoneDuringBulk, 500), (Scenario::GoneBehindWindow, 1_000)];
    for (scenario, after_ms) in cut_later {
        std::thread::sleep(Duration::from_millis(after_ms).saturating_sub(began.elapsed()));
        for connection in connections.iter().filter(|connection| connection.scenario == scenario) {
            network.cut(connection.port()?)?;
        }
    }
    std::thread::sleep(LASTS.saturating_sub(began.elapsed()));
    Ok(())
}
