//! Pools of connections, in use and idle: what is busy is not accused, and what is reaped is what was asked for.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use ackbeat::api::leaks::{LeakPort, Leaks};
use ackbeat_liveness::leak::Side;
use ackbeat_tests::api::ApiClient;
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::{sockets, spans};
use anyhow::{Context, Result, bail, ensure};

use crate::quota_relay::QuotaRelay;
use crate::scene::{self, Pair, SPAN_DEADLINE};

const DEADLINE: Duration = Duration::from_secs(60);
/// The limit of the report's relay.
const POOL: usize = 64;
/// Far above anything that these tests open.
const NO_LIMIT: u64 = 1_000;

/// Thresholds of seconds, so that minutes pass in seconds.
fn options(mode: &str, port: u16) -> SidecarOptions {
    let mut options = scene::watching(port).argument("--mode", mode);
    for (name, value) in [("CENSUS_INTERVAL_MS", "250"), ("IDLE_AFTER_MS", "2000"), ("FLAT_AFTER_MS", "2000")]
    {
        options = options.variable(&format!("ACKBEAT_LEAKS_{name}"), value);
    }
    options
}

/// What the API tells of a port.
fn told(api: &ApiClient<'_>, side: Side, address: SocketAddr) -> Result<Option<LeakPort>> {
    let leaks: Leaks = api.read("/v1/leaks")?;
    Ok(leaks.ports.into_iter().find(|port| port.side == side && port.address == address.to_string()))
}

/// Sends a line and reads it back: the assertion is on bytes that passed.
fn echo(connection: &mut BufReader<TcpStream>, payload: &str) -> Result<()> {
    connection.get_mut().write_all(format!("{payload}\n").as_bytes()).context("writing failed")?;
    let mut answer = String::new();
    connection.read_line(&mut answer).context("reading an answer failed")?;
    ensure!(answer == format!("200 {payload}\n"), "{payload:?} was answered with {answer:?}");
    Ok(())
}

#[test]
fn a_busy_pool_at_its_maximum_is_not_accused_and_the_same_pool_idle_is() -> Result<()> {
    let network = Network::create()?;
    let relay = QuotaRelay::start(&network.client, network.client_address(IpVersion::V4), NO_LIMIT)?;
    let sidecar = Sidecar::start(&network.host, &options("sock-diag", relay.address.port()))?;
    let dial = || network.host.run(|| sockets::connect(relay.address))?;
    let mut pool = (0..POOL).map(|_| Ok(BufReader::new(dial()?))).collect::<Result<Vec<_>>>()?;
    let api = ApiClient::of(&network.host)?;
    // Three times as long as an idle pool needs to be suspected, and every connection is used all the while.
    let mut rounds = 0;
    wait_until("a count that has stood for 6 s", DEADLINE, || {
        rounds += 1;
        for (number, connection) in pool.iter_mut().enumerate() {
            echo(connection, &format!("payload-{rounds}-of-{number}"))?;
        }
        let port = told(&api, Side::Remote, relay.address)?;
        Ok(port.is_some_and(|port| port.established as usize == POOL && port.flat_ms >= 6_000))
    })?;
    let port = told(&api, Side::Remote, relay.address)?.context("the relay's port is told")?;
    ensure!(port.suspected.is_empty() && port.orphans == 0, "{port:?}");
    ensure!(!sidecar.spans()?.iter().any(|span| span.name == "leak_suspected"), "a busy pool was accused");
    ensure!(relay.counts.bytes_echoed() >= (rounds * POOL * "payload-1-of-1".len()) as u64);
    println!("{rounds} rounds over {POOL} connections, flat for {} ms, not accused", port.flat_ms);
    // Left alone the same pool is a leak of its size: the test would have seen an accusation.
    let idle = sidecar.wait_for("the idle pool", DEADLINE, |all| {
        all.iter().find(|span| span.name == "leak_suspected").cloned()
    })?;
    ensure!(idle.text("ackbeat.leak.sign") == Some("flat_count"), "{idle:?}");
    ensure!(idle.number("ackbeat.leak.count") == Some(i64::try_from(POOL)?), "{idle:?}");
    drop(pool);
    sidecar.stop()?;
    Ok(())
}

/// Clients of a listening port with a quota.
const CLIENTS: usize = 12;
const QUOTA: usize = 8;

/// A listening port with clients, one of which has something to say all the while.
struct Listening<'a> {
    network: &'a Network,
    listener: TcpListener,
    address: SocketAddr,
    pairs: Vec<Pair>,
    busy: Pair,
    said: u64,
}

impl<'a> Listening<'a> {
    fn start(network: &'a Network) -> Result<Self> {
        let address = network.host_address(IpVersion::V4);
        let (listener, address) = network.host.run(|| sockets::listen(address))??;
        let busy = scene::pair(network, &listener, address)?;
        Ok(Self { network, listener, address, pairs: Vec::new(), busy, said: 0 })
    }

    fn sidecar(&self, mode: &str, more: impl Fn(SidecarOptions) -> SidecarOptions) -> Result<Sidecar> {
        let mut options = options(mode, self.address.port());
        for (name, value) in [
            ("REAP", "on".to_owned()),
            ("REAP_QUOTA", format!("local:{}={QUOTA}", self.address.port())),
            ("REAP_MIN_AGE_MS", "1000".to_owned()),
            ("REAP_MIN_IDLE_MS", "3000".to_owned()),
        ] {
            options = options.variable(&format!("ACKBEAT_LEAKS_{name}"), value);
        }
        Sidecar::start(&self.network.host, &more(options))
    }

    fn connect(&mut self) -> Result<()> {
        self.talk()?;
        for _ in 0..CLIENTS - 1 {
            self.pairs.push(scene::pair(self.network, &self.listener, self.address)?);
            // The kernel tells a socket's age in jiffies (10 ms at HZ=100): within one nobody is older.
            std::thread::sleep(Duration::from_millis(25));
        }
        Ok(())
    }

    /// The busy client's bytes arrive.
    fn talk(&mut self) -> Result<()> {
        self.said += 1;
        let line = format!("still-here-{:06}", self.said);
        self.busy.client.write_all(line.as_bytes()).context("the busy client was cut off")?;
        let mut arrived = vec![0; line.len()];
        self.busy.host.read_exact(&mut arrived).context("the busy client's bytes did not arrive")?;
        ensure!(arrived == line.as_bytes(), "{line:?} arrived as {arrived:?}");
        Ok(())
    }

    /// Which of the others were reset, in the order in which they came.
    fn reset(&mut self) -> Result<Vec<usize>> {
        let mut reset = Vec::new();
        for (place, pair) in self.pairs.iter_mut().enumerate() {
            pair.client.set_nonblocking(true)?;
            match pair.client.read(&mut [0]) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                // The kernel told it before already.
                Ok(0) | Err(_) => reset.push(place),
                Ok(_) => bail!("client {place} got a byte from nobody"),
            }
        }
        Ok(reset)
    }
}

/// How often this became of a socket that was to be destroyed.
fn outcome(api: &ApiClient<'_>, outcome: &str) -> Result<u64> {
    let leaks: Leaks = api.read("/v1/leaks")?;
    leaks.reaping.outcomes.get(outcome).copied().with_context(|| format!("{outcome} is not counted"))
}

#[test]
fn a_full_listening_port_loses_its_oldest_idle_clients_and_keeps_who_talks() -> Result<()> {
    let network = Network::create()?;
    let mut scene = Listening::start(&network)?;
    let sidecar = scene.sidecar("ebpf", |options| options)?;
    scene.connect()?;
    let api = ApiClient::of(&network.host)?;
    // Below the quota nothing more is destroyed: five of twelve.
    let wanted = CLIENTS - QUOTA + 1;
    wait_until("the port below its quota", DEADLINE, || {
        scene.talk()?;
        let port = told(&api, Side::Local, scene.address)?;
        Ok(port.is_some_and(|port| (port.established as usize) < QUOTA))
    })?;
    wait_until("the resets", DEADLINE, || {
        scene.talk()?;
        Ok(scene.reset()?.len() >= wanted)
    })?;
    ensure!(scene.reset()? == (0..wanted).collect::<Vec<_>>(), "not the oldest: {:?}", scene.reset()?);
    ensure!(outcome(&api, "destroyed")? == wanted as u64 && outcome(&api, "failed")? == 0);
    let ports: Vec<u16> = scene.pairs.iter().take(wanted).map(|pair| pair.client_port).collect();
    // Each has its own span, and the span of its connection accuses nobody.
    let all = sidecar.wait_for("the spans of what was destroyed", SPAN_DEADLINE, |all| {
        let reaped = all.iter().filter(|span| span.name == "leak_reap").count();
        let ended = ports.iter().filter(|port| spans::host_close(all, **port).is_some()).count();
        (reaped == wanted && ended == wanted).then(|| all.to_vec())
    })?;
    for port in ports {
        let close = spans::host_close(&all, port).context("it has a span of its close")?;
        ensure!(close.text("ackbeat.close.kind") == Some("other"), "{close:?}");
        ensure!(close.text("ackbeat.kill.assessment") == Some("unknown"), "{close:?}");
    }
    scene.talk()?;
    sidecar.stop()?;
    Ok(())
}

#[test]
fn without_the_capability_nothing_is_destroyed_and_that_is_counted_and_said_once() -> Result<()> {
    let network = Network::create()?;
    let mut scene = Listening::start(&network)?;
    let sidecar = scene.sidecar("sock-diag", |options| options.without_capability("net_admin"))?;
    scene.connect()?;
    let api = ApiClient::of(&network.host)?;
    // It asks again after the idle time: nothing waits for an answer that does not come.
    let of_round = (CLIENTS - QUOTA + 1) as u64;
    wait_until("refusals, and more of them", DEADLINE, || {
        scene.talk()?;
        Ok(outcome(&api, "failed")? >= 2 * of_round)
    })?;
    let port = told(&api, Side::Local, scene.address)?.context("the port is told")?;
    ensure!(port.established as usize == CLIENTS, "{port:?}");
    ensure!(scene.reset()?.is_empty() && outcome(&api, "destroyed")? == 0);
    let said: Vec<String> = sidecar.log().into_iter().filter(|line| line.contains("CAP_NET_ADMIN")).collect();
    ensure!(said.len() == 1, "{said:#?}");
    ensure!(said[0].contains("WARN") && said[0].contains("counted as failed"), "{said:?}");
    scene.talk()?;
    sidecar.stop()?;
    Ok(())
}
