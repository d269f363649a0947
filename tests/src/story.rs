//! The main story: a host's watchdog kills a client that is only slow, and one that is gone.
//!
//! Four clients follow one host: a healthy one, one that reads slowly while it gets every session's snapshot at once,
//! one whose path is cut without a word, and one that leaves politely. The demo shows it, the tests assert it.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::client::{Client, ClientOptions, Pace};
use crate::clock::{elapsed_ms, monotonic_ns};
use crate::mux::{Ask, Host, HostAction, WATCHDOG_INTERVAL};
use crate::network::Network;

/// Bytes a second that the slow reader takes: it would need more than two minutes for the burst.
pub const SLOW_BYTES_PER_SECOND: u32 = 200_000;
/// Bytes of one read of the slow reader.
pub const SLOW_READ_BYTES: usize = 16 * 1024;
/// Status code of the polite close (RFC 6455 section 7.4.2: 4000 to 4999 are the application's own).
pub const POLITE_CODE: u16 = 4001;
/// Its reason.
pub const POLITE_REASON: &str = "server_restart";
/// Pings of the siblings before the burst: enough to learn their interval from.
pub const LEARNING_PONGS: usize = 4;

/// Ticks are waited for this long, on a busy machine too.
const TICK_DEADLINE: Duration = Duration::from_secs(20);
/// A kill takes three ticks.
const KILL_DEADLINE: Duration = Duration::from_secs(40);

/// Who plays in the story.
pub struct Cast {
    /// Answers every Ping to the end.
    pub healthy: Client,
    /// Reads slowly while the burst is on its way.
    pub slow: Client,
    /// Its path is cut.
    pub cut: Client,
    /// Asks the host to close, and gets a Close frame.
    pub polite: Client,
}

/// The slow reader's options.
#[must_use]
pub fn slow_reader(host: &Host) -> ClientOptions {
    let pace = Pace::Slow { bytes_per_second: SLOW_BYTES_PER_SECOND, read_bytes: SLOW_READ_BYTES };
    ClientOptions::new(host.address()).paced(pace)
}

/// Waits for a moment well between two ticks of the watchdog: a quarter of its interval after the next one. What
/// follows happens long before the tick after it, and is not taken for something that happened before the last one.
///
/// # Errors
/// If the watchdog does not tick for `peer_port`.
pub fn wait_between_ticks(host: &Host, peer_port: u16) -> Result<()> {
    let from_ns = monotonic_ns();
    let tick_ns = host.events.wait_for("a tick of the watchdog", TICK_DEADLINE, |events| {
        let tick = events.iter().find(|event| {
            event.peer_port == peer_port
                && event.at_ns >= from_ns
                && matches!(event.what, HostAction::Ping { .. })
        });
        tick.map(|event| event.at_ns)
    })?;
    let since = Duration::from_nanos(monotonic_ns().saturating_sub(tick_ns));
    std::thread::sleep((WATCHDOG_INTERVAL / 4).saturating_sub(since));
    Ok(())
}

/// Lets the slow reader in and asks for the burst: if no tick comes in between, no Ping comes before the data.
///
/// # Errors
/// If it cannot connect.
pub fn burst(network: &Network, host: &Host, slow: ClientOptions) -> Result<Client> {
    let slow = Client::connect(Some(&network.client), slow)?;
    slow.ask(&Ask::Follow);
    host.wait_for("burst", slow.port(), TICK_DEADLINE, |what| matches!(what, HostAction::Queued { .. }))?;
    Ok(slow)
}

/// Plays the story up to the two kills. `narrate` is told what is about to happen.
///
/// # Errors
/// If a client cannot connect, or the watchdog does not do what it is known for.
pub fn play(network: &Network, host: &Host, mut narrate: impl FnMut(&str)) -> Result<Cast> {
    let connect = || Client::connect(Some(&network.client), ClientOptions::new(host.address()));
    let healthy = connect()?;
    let cut = connect()?;
    let polite = connect()?;
    narrate(&format!(
        "three clients are connected: healthy (port {}), to be cut (port {}), polite (port {})",
        healthy.port(),
        cut.port(),
        polite.port()
    ));
    host.wait_for_pongs(healthy.port(), LEARNING_PONGS, 4 * TICK_DEADLINE)?;
    wait_between_ticks(host, healthy.port())?;
    // Its answer to that tick's Ping is read before the path is cut: the next tick's is the first that is lost.
    let pongs_before = host.events.read(|events| {
        events.iter().filter(|event| event.peer_port == cut.port() && event.what == HostAction::Pong).count()
    });
    host.wait_for_pongs(cut.port(), pongs_before.max(LEARNING_PONGS), TICK_DEADLINE)?;
    let slow = burst(network, host, slow_reader(host))?;
    narrate(&format!("a slow reader joined (port {}) and follows all sessions: 28 MB at once", slow.port()));
    network.cut(cut.port())?;
    narrate(&format!("the path of port {} is cut without a word", cut.port()));
    polite.ask(&Ask::Leave { code: POLITE_CODE, reason: POLITE_REASON.into() });
    narrate(&format!("port {} asked to leave", polite.port()));
    host.wait_for("end", polite.port(), TICK_DEADLINE, |what| *what == HostAction::Closed)?;
    let began_ns = monotonic_ns();
    for client in [&slow, &cut] {
        let killed = host.wait_for_kill(client.port(), KILL_DEADLINE)?;
        let after_ms = elapsed_ms(began_ns, killed.at_ns);
        let limit_ms = u64::try_from(3 * WATCHDOG_INTERVAL.as_millis()).context("an interval fits")? + 5_000;
        anyhow::ensure!(
            after_ms < limit_ms,
            "the watchdog needed {after_ms} ms to kill port {}",
            client.port()
        );
    }
    Ok(Cast { healthy, slow, cut, polite })
}
