//! Many WebSocket clients on one thread, which may come back when their connection is over.
//!
//! They answer Pings and read what comes. They do nothing else that a [`Client`](crate::client::Client) can, and so are
//! cheap: five hundred of them fit beside a host on a small machine.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Context as _, Result};
use futures::StreamExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::clock::monotonic_ns;
use crate::journal::Journal;
use crate::namespace::{Namespace, spawn_thread};

/// When a client whose connection is over tries again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Retry {
    /// Never.
    Never,
    /// So long after its last attempt began (or its connection was over), always: what `setInterval` does.
    Every(Duration),
    /// After a random time up to `base`, which doubles with each attempt that fails in a row, up to `cap`.
    FullJitter {
        /// The first bound.
        base: Duration,
        /// The last bound.
        cap: Duration,
        /// After so many attempts that failed in a row it gives up for good; never if `None`.
        attempts_max: Option<u32>,
    },
}

impl Retry {
    /// How long to rest before the next attempt after `failures` of them in a row, the last of which took `spent`; `None`:
    /// there is none.
    fn rest(self, failures: u32, spent: Duration, random: &mut fastrand::Rng) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::Every(interval) => Some(interval.saturating_sub(spent)),
            Self::FullJitter { attempts_max: Some(max), .. } if failures >= max => None,
            Self::FullJitter { base, cap, .. } => {
                let bound = base.saturating_mul(1 << failures.min(16)).min(cap);
                Some(bound.mul_f64(random.f64()))
            }
        }
    }
}

/// How a crowd behaves.
#[derive(Clone, Copy, Debug)]
pub struct CrowdOptions {
    /// The host.
    pub host: SocketAddr,
    /// The path that they upgrade at.
    pub path: &'static str,
    /// How many clients there are.
    pub count: u32,
    /// From one client's first attempt to the next one's.
    pub spacing: Duration,
    /// An attempt has its WebSocket open within this time, or has failed.
    pub attempt_deadline: Duration,
    /// A client that reads nothing for this long takes its connection for dead and closes it; never if `None`.
    pub patience: Option<Duration>,
    /// When a client tries again.
    pub retry: Retry,
    /// Seed of everything random.
    pub seed: u64,
}

/// Something that happened to one client, with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrowdEvent {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Which client, from 0 on.
    pub member: u32,
    /// What.
    pub what: Happened,
}

/// What happened to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It tries to connect.
    Attempt,
    /// Its attempt failed.
    Failed,
    /// It does not try again.
    Stopped,
    /// Its WebSocket is open.
    Opened {
        /// Its own port.
        port: u16,
    },
    /// Its connection is over.
    Ended {
        /// Its own port.
        port: u16,
        /// It closed the connection itself, because nothing came.
        gave_up: bool,
    },
}

/// Running clients. Dropping it closes their sockets.
pub struct Crowd {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<Option<()>>>,
    /// What happened to them.
    pub events: Journal<CrowdEvent>,
}

/// Name of the thread that they run on.
const CROWD_COMMAND: &str = "crowd";

impl Crowd {
    /// Starts them in `namespace`, or in this process's own. They connect one after the other.
    ///
    /// # Errors
    /// If the namespace cannot be entered or the thread cannot be started.
    pub fn start(namespace: Option<&Namespace>, options: CrowdOptions) -> Result<Self> {
        let (stop, events) = (Arc::new(Notify::new()), Journal::default());
        let (stopped, journal) = (Arc::clone(&stop), events.clone());
        let thread = spawn_thread(namespace, CROWD_COMMAND, move || run(options, &journal, &stopped))?;
        Ok(Self { stop, thread: Some(thread), events })
    }

    /// Waits until every client has had its WebSocket open, and gives their ports.
    ///
    /// # Errors
    /// If they are not within `deadline`.
    pub fn wait_until_open(&self, count: u32, deadline: Duration) -> Result<Vec<u16>> {
        let enough = usize::try_from(count).context("a crowd fits into memory")?;
        self.events.wait_for("the crowd's last WebSocket", deadline, |events| {
            let ports: Vec<u16> = events.iter().filter_map(CrowdEvent::opened_port).collect();
            (ports.len() >= enough).then_some(ports)
        })
    }
}

impl CrowdEvent {
    /// The port, if the event is that a WebSocket is open.
    #[must_use]
    pub const fn opened_port(&self) -> Option<u16> {
        match self.what {
            Happened::Opened { port } => Some(port),
            _ => None,
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}

fn run(options: CrowdOptions, events: &Journal<CrowdEvent>, stop: &Notify) {
    // A runtime that cannot be built leaves no event, which whoever waits for one is told.
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        for number in 0..options.count {
            tokio::task::spawn_local(live(options, number, events.clone()));
        }
        stop.notified().await;
    });
}

/// The life of one client.
async fn live(options: CrowdOptions, member: u32, events: Journal<CrowdEvent>) {
    let say = |what| events.push(CrowdEvent { at_ns: monotonic_ns(), member, what });
    let mut random = fastrand::Rng::with_seed(options.seed ^ (u64::from(member) << 20));
    let mut failures = 0;
    sleep(options.spacing * member).await;
    loop {
        say(Happened::Attempt);
        let began = Instant::now();
        let mut spent = Duration::ZERO;
        match timeout(options.attempt_deadline, open(options.host, options.path)).await {
            Ok(Some((socket, port))) => {
                failures = 0;
                say(Happened::Opened { port });
                let gave_up = read_to_end(socket, options.patience).await;
                say(Happened::Ended { port, gave_up });
            }
            Ok(None) | Err(_) => {
                failures += 1;
                spent = began.elapsed();
                say(Happened::Failed);
            }
        }
        let Some(rest) = options.retry.rest(failures, spent, &mut random) else {
            say(Happened::Stopped);
            return;
        };
        sleep(rest).await;
    }
}

type Socket = tokio_tungstenite::WebSocketStream<TcpStream>;

async fn open(host: SocketAddr, path: &str) -> Option<(Socket, u16)> {
    let stream = TcpStream::connect(host).await.ok()?;
    let port = stream.local_addr().ok()?.port();
    let (socket, _) = tokio_tungstenite::client_async(format!("ws://{host}{path}"), stream).await.ok()?;
    Some((socket, port))
}

/// Reads, and so answers Pings, until the stream is over. Says whether it was given up.
async fn read_to_end(mut socket: Socket, patience: Option<Duration>) -> bool {
    loop {
        let read = match patience {
            Some(patience) => match timeout(patience, socket.next()).await {
                Ok(read) => read,
                Err(_) => return true,
            },
            None => socket.next().await,
        };
        if !matches!(read, Some(Ok(_))) {
            return false;
        }
    }
}

/// The most events within any second.
#[must_use]
pub fn per_second_peak(at_ns: impl IntoIterator<Item = u64>) -> u32 {
    let mut sorted: Vec<u64> = at_ns.into_iter().collect();
    sorted.sort_unstable();
    let (mut first, mut peak) = (0, 0);
    for (index, at) in sorted.iter().enumerate() {
        while sorted.get(first).is_some_and(|earliest| at - earliest >= 1_000_000_000) {
            first += 1;
        }
        peak = peak.max(index + 1 - first);
    }
    u32::try_from(peak).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_counted_in_a_window_that_slides() {
        assert_eq!(per_second_peak([]), 0);
        assert_eq!(per_second_peak([2_600_000_000, 900_000_000, 1_100_000_000, 1_899_999_999]), 3);
    }

    #[test]
    fn full_jitter_grows_to_its_cap_and_starts_anew_with_a_success() {
        let retry = Retry::FullJitter {
            base: Duration::from_secs(1),
            cap: Duration::from_secs(30),
            attempts_max: Some(41),
        };
        let mut random = fastrand::Rng::with_seed(7);
        let longest = |failures, random: &mut fastrand::Rng| {
            (0..1_000).filter_map(|_| retry.rest(failures, Duration::ZERO, random)).max().unwrap()
        };
        assert!(longest(0, &mut random) <= Duration::from_secs(1));
        let third = longest(3, &mut random);
        assert!(third > Duration::from_secs(4) && third <= Duration::from_secs(8), "{third:?}");
        let last = longest(40, &mut random);
        assert!(last > Duration::from_secs(16) && last <= Duration::from_secs(30), "{last:?}");
        assert_eq!(retry.rest(41, Duration::ZERO, &mut random), None);
    }

    #[test]
    fn a_fixed_interval_counts_from_the_attempt() {
        let retry = Retry::Every(Duration::from_secs(3));
        let mut random = fastrand::Rng::with_seed(7);
        assert_eq!(
            retry.rest(1, Duration::from_millis(800), &mut random),
            Some(Duration::from_millis(2_200))
        );
        assert_eq!(retry.rest(1, Duration::from_secs(5), &mut random), Some(Duration::ZERO));
    }
}
