//! Thousands of idle connections that only carry a heartbeat: one process holds the host's ends, another the clients'.
//!
//! Each is one thread around epoll(7): a process may have as many files open as `ulimit -n` says, so the two ends of ten
//! thousand connections are kept apart.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ackbeat_lab::namespace::Namespace;
use ackbeat_lab::network::{IpVersion, Network};
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::Backlog;

use super::websocket::{self, PING, PONG};

/// Every connection must be open within this time.
const OPEN_DEADLINE: Duration = Duration::from_secs(120);
/// Events taken at once.
const EVENTS: usize = 1_024;
/// Place of the listener among the events' numbers.
const LISTENER: u64 = u64::MAX;
/// A step of this share of the interval from one connection's Ping to the next one's: the golden ratio, by which any
/// number of connections is spread evenly.
const SPREAD_STEP: f64 = 0.618_033_988_749_895;

/// When Pings are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ticks {
    /// One timer for all connections, as with `setInterval` over `server.clients`.
    Together,
    /// Each connection at its own moment: as with a timer for each.
    Spread,
}

/// The host's process.
#[derive(Debug, Args)]
pub(crate) struct HostArguments {
    /// Address to listen on.
    address: SocketAddr,
    /// From one Ping to the next, in milliseconds.
    #[arg(long)]
    interval_ms: u64,
    /// When Pings are due.
    #[arg(long)]
    ticks: Ticks,
}

/// The clients' process.
#[derive(Debug, Args)]
pub(crate) struct ClientsArguments {
    /// The host's address.
    address: SocketAddr,
    /// How many there are.
    #[arg(long)]
    count: usize,
}

/// As many open files as this process may have.
fn raise_open_files() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).context("reading the limit of open files failed")?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("raising the limit of open files failed")
}

/// Tells the parent something.
fn say(line: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).context("telling the parent something failed")
}

fn add(epoll: &Epoll, socket: &impl AsFd, number: u64) -> Result<()> {
    epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, number)).context("watching a socket failed")
}

fn wait(epoll: &Epoll, events: &mut [EpollEvent], limit: Duration) -> Result<usize> {
    // Rounded up, or the last millisecond would spin.
    let limit_ms = u16::try_from(limit.as_micros().div_ceil(1_000)).unwrap_or(u16::MAX);
    epoll.wait(events, EpollTimeout::from(limit_ms)).context("waiting for sockets failed")
}

/// A connection of the host.
struct Served {
    stream: TcpStream,
    /// The upgrade request, until it is answered.
    head: Option<Vec<u8>>,
}

/// Runs the host until it is killed.
///
/// # Errors
/// The listener cannot be had.
pub(crate) fn host(arguments: &HostArguments) -> Result<()> {
    raise_open_files()?;
    let listener = TcpListener::bind(arguments.address).context("listening failed")?;
    let backlog = Backlog::new(4_096).context("a backlog of 4096 is refused")?;
    nix::sys::socket::listen(&listener, backlog).context("raising the backlog failed")?;
    listener.set_nonblocking(true).context("making a listener non-blocking failed")?;
    say(&listener.local_addr().context("reading a listener's address failed")?.to_string())?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("making an epoll instance failed")?;
    add(&epoll, &listener, LISTENER)?;
    let interval = Duration::from_millis(arguments.interval_ms);
    let began = Instant::now();
    let mut connections: Vec<Option<Served>> = Vec::new();
    // In the order in which they are due: all have the same interval.
    let mut due: VecDeque<(Instant, usize)> = VecDeque::new();
    let mut events = vec![EpollEvent::empty(); EVENTS];
    let ping = websocket::frame_to_client(PING, b"beat");
    loop {
        let now = Instant::now();
        let limit = due.front().map_or(interval, |(at, _)| at.saturating_duration_since(now));
        let count = wait(&epoll, &mut events, limit)?;
        for event in events.iter().take(count) {
            if event.data() == LISTENER {
                accept_all(&listener, &epoll, &mut connections)?;
            } else if let Ok(number) = usize::try_from(event.data())
                && read_one(&mut connections, number)
            {
                let first = first_ping(arguments.ticks, began, interval, number);
                let place = due.partition_point(|(at, _)| *at <= first);
                due.insert(place, (first, number));
            }
        }
        let now = Instant::now();
        while let Some((at, number)) = due.front().copied().filter(|(at, _)| *at <= now) {
            due.pop_front();
            if let Some(Some(served)) = connections.get_mut(number)
                && served.stream.write_all(&ping).is_ok()
            {
                due.push_back((at + interval, number));
            }
        }
    }
}

/// When a connection that is open now is asked for the first time.
#[expect(clippy::cast_precision_loss, reason = "a number of a connection")]
fn first_ping(ticks: Ticks, began: Instant, interval: Duration, number: usize) -> Instant {
    let periods = began.elapsed().as_nanos() / interval.as_nanos().max(1) + 1;
    let tick = began + interval.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX));
    match ticks {
        Ticks::Together => tick,
        Ticks::Spread => tick + interval.mul_f64((number as f64 * SPREAD_STEP).fract()),
    }
}

fn accept_all(listener: &TcpListener, epoll: &Epoll, connections: &mut Vec<Option<Served>>) -> Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true).context("making a socket non-blocking failed")?;
                stream.set_nodelay(true).context("setting TCP_NODELAY failed")?;
                add(epoll, &stream, connections.len() as u64)?;
                connections.push(Some(Served { stream, head: Some(Vec::new()) }));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("accepting failed"),
        }
    }
}

/// Reads what came on a connection. Whether it was upgraded by that.
fn read_one(connections: &mut [Option<Served>], number: usize) -> bool {
    let Some(place) = connections.get_mut(number) else { return false };
    let Some(served) = place else { return false };
    let mut buffer = [0; 1_024];
    match served.stream.read(&mut buffer) {
        Ok(read) if read > 0 => {
            let Some(head) = &mut served.head else { return false };
            head.extend_from_slice(buffer.get(..read).unwrap_or_default());
            if websocket::end_of_head(head).is_none() {
                return false;
            }
            served.head = None;
            served.stream.write_all(websocket::ANSWER.as_bytes()).is_ok()
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        // It is over: its socket is closed with it.
        _ => {
            *place = None;
            false
        }
    }
}

/// Runs the clients until their standard input ends or a connection does.
///
/// # Errors
/// A connection cannot be had, or is over.
pub(crate) fn clients(arguments: &ClientsArguments) -> Result<()> {
    raise_open_files()?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("making an epoll instance failed")?;
    let mut streams = Vec::with_capacity(arguments.count);
    for number in 0..arguments.count {
        let mut stream = super::connect(arguments.address)?;
        let rest = websocket::upgrade(&mut stream).with_context(|| format!("client {number}"))?;
        // A Ping behind the answer would be one that nobody answers.
        ensure!(rest.is_empty(), "client {number} was asked before it was there");
        add(&epoll, &stream, number as u64)?;
        streams.push(stream);
    }
    say("open")?;
    let mut events = vec![EpollEvent::empty(); EVENTS];
    let pong = websocket::frame_to_host(PONG, b"beat");
    let expected = websocket::frame_to_client(PING, b"beat");
    let mut buffer = [0; 256];
    loop {
        let count = wait(&epoll, &mut events, Duration::from_secs(60))?;
        for event in events.iter().take(count) {
            let number = usize::try_from(event.data())?;
            let stream = streams.get_mut(number).context("an event of nobody")?;
            let read = stream.read(&mut buffer).context("reading a Ping failed")?;
            ensure!(read > 0, "the host has closed client {number}");
            // One that was late may have two to answer.
            for ping in buffer.get(..read).unwrap_or_default().chunks(expected.len()) {
                ensure!(ping == expected, "client {number} read something that is no Ping");
                stream.write_all(&pong).context("sending a Pong failed")?;
            }
        }
    }
}

/// A child that is killed when its value is dropped.
struct Part(Child);

impl Part {
    /// Starts this program again, with these arguments, and gives the first line that it says.
    fn start(namespace: &Namespace, arguments: &[&str]) -> Result<(Self, String)> {
        let program = std::env::current_exe().context("finding this program failed")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = namespace.run(move || command.spawn())?.context("starting a part of the crowd failed")?;
        let mut part = Self(child);
        let output = part.0.stdout.take().context("a part of the crowd has no standard output")?;
        let (said, hears) = std::sync::mpsc::channel();
        std::thread::Builder::new()
            .name("crowd-output".to_owned())
            .spawn(move || {
                let mut line = String::new();
                // Whoever waits is told by the end of the channel where nothing came.
                if BufReader::new(output).read_line(&mut line).is_ok_and(|read| read > 0) {
                    let _ = said.send(line);
                }
            })
            .context("starting a thread failed")?;
        match hears.recv_timeout(OPEN_DEADLINE) {
            Ok(line) => Ok((part, line.trim().to_owned())),
            Err(error) => bail!("a part of the crowd said nothing ({error}): {}", arguments.join(" ")),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A host and its clients, all connected. Dropping it ends them.
pub(crate) struct Crowd {
    // The clients go first: they would complain of a host that is gone.
    clients: Part,
    host: Part,
}

impl Crowd {
    /// Starts them and waits until every WebSocket is open.
    ///
    /// # Errors
    /// They are not within a deadline, or this process may not have so many files.
    pub(crate) fn start(network: &Network, count: usize, interval: Duration, ticks: Ticks) -> Result<Self> {
        let any_port = SocketAddr::new(network.host_address(IpVersion::V4), 0).to_string();
        let interval_ms = interval.as_millis().to_string();
        let ticks = ticks.to_possible_value().context("no value is hidden")?;
        let arguments = ["crowd-host", &any_port, "--interval-ms", &interval_ms, "--ticks", ticks.get_name()];
        let (host, address) = Part::start(&network.host, &arguments)?;
        let count = count.to_string();
        let (clients, word) = Part::start(&network.client, &["crowd-clients", &address, "--count", &count])?;
        ensure!(word == "open", "the crowd's clients said {word}");
        Ok(Self { clients, host })
    }

    /// Fails if one of the two has ended: then what was measured was not what was meant.
    ///
    /// # Errors
    /// It has.
    pub(crate) fn check(&mut self) -> Result<()> {
        for (name, part) in [("clients", &mut self.clients), ("host", &mut self.host)] {
            if let Some(status) = part.0.try_wait().context("asking for a part of the crowd failed")? {
                bail!("the crowd's {name} ended with {status}");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_are_spread_over_the_interval_or_together() {
        let (began, interval) = (Instant::now(), Duration::from_secs(10));
        let of = |ticks, number| first_ping(ticks, began, interval, number) - began;
        assert!((0..50).all(|number| of(Ticks::Together, number) == interval));
        let mut spread: Vec<_> = (0..100).map(|number| of(Ticks::Spread, number)).collect();
        spread.sort_unstable();
        assert!(spread.iter().all(|at| (interval..interval * 2).contains(at)));
        let gaps = spread.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.max().expect("gaps") < Duration::from_millis(200));
    }
}
