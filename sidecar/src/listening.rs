//! Listeners whose address is busy at the start, and how they stand.
//!
//! Whoever holds the address is, as a rule, the sidecar before this one, which still drains: so the address is tried again,
//! less and less often, for as long as the sidecar runs. Nothing waits for it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};
use std::time::Duration;

use ackbeat_liveness::Endpoints;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// From one try to the next at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(30);

/// What ackbeat listens on, by the setting that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// The API's address.
    Api,
    /// The API's Unix socket.
    ApiSocket,
    /// The page of metrics.
    Metrics,
}

impl Listener {
    const ALL: [Self; 3] = [Self::Api, Self::ApiSocket, Self::Metrics];

    /// The setting.
    #[must_use]
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Api => "api.listen",
            Self::ApiSocket => "api.socket",
            Self::Metrics => "metrics.listen",
        }
    }
}

/// How a listener stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Nobody asked for it.
    #[default]
    Off,
    /// It listens.
    Listening,
    /// Somebody else has the address; it is tried again.
    Busy,
    /// It cannot be had, and is not tried again.
    Failed,
}

impl Standing {
    const ALL: [Self; 4] = [Self::Off, Self::Listening, Self::Busy, Self::Failed];

    /// The stable word for it, as the API shows it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Listening => "listening",
            Self::Busy => "busy",
            Self::Failed => "failed",
        }
    }

    /// After a failure to listen.
    #[must_use]
    pub fn after(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::AddrInUse { Self::Busy } else { Self::Failed }
    }
}

/// How all of them stand, for whoever asks.
#[derive(Debug, Default)]
pub struct Standings {
    words: [AtomicU8; Listener::ALL.len()],
    /// 0 where none is listened on.
    ports: [AtomicU16; Listener::ALL.len()],
}

impl Standings {
    /// It stands so from now on.
    pub fn set(&self, listener: Listener, standing: Standing) {
        if let Some(of_listener) = self.words.get(listener as usize) {
            of_listener.store(standing as u8, Ordering::Relaxed);
        }
    }

    /// It listens on this TCP port from now on.
    pub fn listens_at(&self, listener: Listener, port: u16) {
        if let Some(of_listener) = self.ports.get(listener as usize) {
            of_listener.store(port, Ordering::Relaxed);
        }
        self.set(listener, Standing::Listening);
    }

    /// Whether ackbeat itself listens on this TCP port: what connects there is nobody's. A port that somebody else still has is
    /// not.
    #[must_use]
    pub fn is_own_port(&self, port: u16) -> bool {
        port != 0 && self.ports.iter().any(|of_listener| of_listener.load(Ordering::Relaxed) == port)
    }

    /// Whether a connection is one to ackbeat itself, seen from either end. Its other end is in this network namespace, where a host
    /// asks before it kills.
    #[must_use]
    pub fn is_own(&self, endpoints: &Endpoints) -> bool {
        let is_here =
            endpoints.peer_address.is_loopback() || endpoints.peer_address == endpoints.local_address;
        self.is_own_port(endpoints.local_port) || (is_here && self.is_own_port(endpoints.peer_port))
    }

    /// How it stands.
    #[must_use]
    pub fn of(&self, listener: Listener) -> Standing {
        let number =
            self.words.get(listener as usize).map_or(0, |of_listener| of_listener.load(Ordering::Relaxed));
        Standing::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// Their words, by setting.
    #[must_use]
    pub fn words(&self) -> BTreeMap<String, String> {
        let word =
            |listener: Listener| (listener.setting().to_owned(), self.of(listener).as_str().to_owned());
        Listener::ALL.into_iter().map(word).collect()
    }
}

/// Tries to have a busy address until it can be had: after a second at first, then less and less often, at least twice a
/// minute. It needs a tokio runtime with time around the call.
pub async fn try_again<T>(listener: Listener, address: impl Display, bind: impl Fn() -> io::Result<T>) -> T {
    let mut pauses = pauses();
    loop {
        tokio::time::sleep(pauses.next().unwrap_or(LAST_PAUSE)).await;
        match bind() {
            Ok(bound) => return bound,
            // It was told once that it is busy.
            Err(error) => {
                tracing::debug!(target: "ackbeat::listen", setting = listener.setting(), %address, %error, "still busy");
            }
        }
    }
}

/// After a failure to accept (no file descriptor is left, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Hands each connection to `serve` on a task of its own, `connections_max` at a time: the next ones wait in the kernel's queue. It
/// never ends by itself, and needs a tokio runtime around the call.
pub async fn serve_each<F>(listener: TcpListener, connections_max: usize, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(connections_max));
    loop {
        // Never closed.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let served = serve(stream);
        tokio::spawn(async move {
            served.await;
            drop(place);
        });
    }
}

/// What passes before each try.
fn pauses() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(FIRST_PAUSE), |pause| Some((*pause * 2).min(LAST_PAUSE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_address_is_tried_less_and_less_often() {
        let of_seconds: Vec<u64> = pauses().take(8).map(|pause| pause.as_secs()).collect();
        assert_eq!(of_seconds, [1, 2, 4, 8, 16, 30, 30, 30]);
    }

    #[test]
    fn a_port_is_its_own_once_it_is_listened_on() {
        let standings = Standings::default();
        standings.set(Listener::Api, Standing::Busy);
        assert!(!standings.is_own_port(9465) && !standings.is_own_port(0));
        standings.listens_at(Listener::Api, 9465);
        assert!(standings.is_own_port(9465) && !standings.is_own_port(9464) && !standings.is_own_port(0));
        assert_eq!(standings.of(Listener::Api), Standing::Listening);
    }

    #[test]
    fn both_ends_of_a_connection_to_ackbeat_are_its_own() {
        let standings = Standings::default();
        standings.listens_at(Listener::Api, 9465);
        let between = |local: &str, peer: &str| {
            let (local, peer): (std::net::SocketAddr, std::net::SocketAddr) =
                (local.parse().unwrap(), peer.parse().unwrap());
            Endpoints {
                local_address: local.ip(),
                local_port: local.port(),
                peer_address: peer.ip(),
                peer_port: peer.port(),
            }
        };
        assert!(standings.is_own(&between("127.0.0.1:9465", "127.0.0.1:50000")));
        assert!(standings.is_own(&between("127.0.0.1:50000", "127.0.0.1:9465")));
        assert!(standings.is_own(&between("10.0.0.7:50000", "10.0.0.7:9465")));
        assert!(!standings.is_own(&between("10.0.0.7:50000", "10.0.0.8:9465")));
        assert!(!standings.is_own(&between("127.0.0.1:50000", "127.0.0.1:8080")));
    }

    #[test]
    fn standings_are_told_by_setting() {
        let standings = Standings::default();
        standings.set(Listener::Metrics, Standing::after(&io::ErrorKind::AddrInUse.into()));
        standings.set(Listener::Api, Standing::Listening);
        let words = standings.words();
        let words: Vec<(&str, &str)> =
            words.iter().map(|(name, word)| (name.as_str(), word.as_str())).collect();
        assert_eq!(words, [("api.listen", "listening"), ("api.socket", "off"), ("metrics.listen", "busy")]);
        assert_eq!(Standing::after(&io::ErrorKind::AddrNotAvailable.into()), Standing::Failed);
    }
}
