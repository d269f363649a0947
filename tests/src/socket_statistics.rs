//! The kernel's numbers of a socket: as the sidecar records them, and as `ss` shows them.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::journal::wait_until;
use crate::network::{IpVersion, Network};
use crate::pair::{Pair, pair};
use crate::process::run;
use crate::sidecar::{Sidecar, SidecarOptions};
use crate::sockets;

const DEADLINE: Duration = Duration::from_secs(60);

/// What both name, of one socket at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Written and not acknowledged.
    pub send_queue_bytes: u64,
    /// Received and not read.
    pub unread_bytes: u64,
    /// Written and never sent.
    pub unsent_bytes: u64,
    /// Segments in flight.
    pub packets_out: u64,
    /// Acknowledged so far.
    pub bytes_acked: u64,
    /// Received so far.
    pub bytes_received: u64,
    /// Smoothed round-trip time, in microseconds.
    pub srtt_us: u64,
    /// Retransmission timeout, in milliseconds.
    pub rto_ms: u64,
}

/// The sockets of the host's port, by the client's port, as `ss` shows them.
///
/// # Errors
/// If `ss` is missing, or its output cannot be read.
pub fn shown_by_ss(network: &Network, host_port: u16) -> Result<BTreeMap<u16, Statistics>> {
    let filter = host_port.to_string();
    let text = network.host.run(|| run(None, "ss", &["-tinHO", "sport", "=", &filter]))??;
    text.lines().map(of_line).collect()
}

fn of_line(line: &str) -> Result<(u16, Statistics)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let word = |index: usize| words.get(index).copied().with_context(|| format!("ss said {line}"));
    // A value that is 0 is left out.
    let value =
        |key: &str| words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix(':')).unwrap_or("0");
    let integer = |key: &str| value(key).parse::<u64>().with_context(|| format!("{key} in {line}"));
    let peer = word(4)?.rsplit_once(':').with_context(|| format!("the peer in {line}"))?.1.parse()?;
    let (srtt_ms, _) = value("rtt").split_once('/').unwrap_or(("0", "0"));
    let (whole, fraction) = srtt_ms.split_once('.').unwrap_or((srtt_ms, "0"));
    let srtt_us = whole.parse::<u64>()? * 1_000 + format!("{fraction:0<3}").parse::<u64>()?;
    Ok((
        peer,
        Statistics {
            unread_bytes: word(1)?.parse()?,
            send_queue_bytes: word(2)?.parse()?,
            unsent_bytes: integer("notsent")?,
            packets_out: integer("unacked")?,
            bytes_acked: integer("bytes_acked")?,
            bytes_received: integer("bytes_received")?,
            srtt_us,
            // `ss` prints a fraction where the kernel's clock tick gives one.
            rto_ms: value("rto").split('.').next().unwrap_or("0").parse()?,
        },
    ))
}

/// A sample of a recording.
#[derive(Debug)]
pub struct Sample {
    /// The host's port.
    pub local_port: u16,
    /// The client's port.
    pub peer_port: u16,
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// What was recorded.
    pub statistics: Statistics,
}

/// A file that the sidecar records into; removed when it is dropped.
pub struct Recording(PathBuf);

impl Recording {
    /// A file of this process's own.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("ackbeat-{name}-{}.jsonl", std::process::id())))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The samples so far.
    ///
    /// # Errors
    /// If the file cannot be read, or a sample lacks a figure.
    pub fn samples(&self) -> Result<Vec<Sample>> {
        let text = std::fs::read_to_string(&self.0).context("reading the recording failed")?;
        let mut ports = BTreeMap::new();
        let mut samples = Vec::new();
        // The last line may not be whole yet.
        for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let number = |key: &str| line.get(key).and_then(Value::as_u64);
            match line.get("input").and_then(Value::as_str) {
                Some("opened") => {
                    let port = |name: &str| u16::try_from(line.pointer(name)?.as_u64()?).ok();
                    let both = port("/endpoints/local_port").zip(port("/endpoints/peer_port"));
                    ports.insert(number("connection"), both);
                }
                Some("sample") => {
                    let Some(Some((local_port, peer_port))) = ports.get(&number("connection")).copied()
                    else {
                        continue;
                    };
                    let known =
                        |key: &str| number(key).with_context(|| format!("{key} is unavailable in {line}"));
                    samples.push(Sample {
                        local_port,
                        peer_port,
                        at_ns: known("at")?,
                        statistics: Statistics {
                            send_queue_bytes: known("send_queue_bytes")?,
                            unread_bytes: known("unread_bytes")?,
                            unsent_bytes: known("unsent_bytes")?,
                            packets_out: known("packets_out")?,
                            bytes_acked: known("bytes_acked")?,
                            bytes_received: known("bytes_received")?,
                            srtt_us: known("srtt_us")?,
                            rto_ms: known("rto_ms")?,
                        },
                    });
                }
                _ => {}
            }
        }
        Ok(samples)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // What cannot be removed stays in the temporary directory.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes until the client's window and the own send buffer are full.
fn fill(pair: &mut Pair) -> Result<()> {
    pair.host.set_nonblocking(true)?;
    let mut quiet_since = Instant::now();
    wait_until("a full send queue", DEADLINE, || {
        match pair.host.write(&[0x82; 65_536]) {
            Ok(_) => quiet_since = Instant::now(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        Ok(quiet_since.elapsed() > Duration::from_millis(500))
    })
}

/// Three sockets of one IP version that stand still.
struct Standing {
    port: u16,
    idle: Pair,
    unread: Pair,
    closed_window: Pair,
}

impl Standing {
    fn make(network: &Network, version: IpVersion) -> Result<Self> {
        let address = network.host_address(version);
        let (listener, address) = network.host.run(|| sockets::listen(address))??;
        let mut idle = pair(network, &listener, address)?;
        idle.client.write_all(&[1; 1_000])?;
        sockets::wait_for_unread(&idle.host, 1_000)?;
        idle.host.read_exact(&mut [0; 1_000])?;
        idle.host.write_all(&[2; 70_000])?;
        idle.client.read_exact(&mut [0; 70_000])?;
        let mut unread = pair(network, &listener, address)?;
        unread.client.write_all(&[3; 5_000])?;
        sockets::wait_for_unread(&unread.host, 5_000)?;
        let mut closed_window = pair(network, &listener, address)?;
        fill(&mut closed_window)?;
        Ok(Self { port: address.port(), idle, unread, closed_window })
    }

    fn clients(&self) -> [(&'static str, u16); 3] {
        [
            ("idle", self.idle.client_port),
            ("unread", self.unread.client_port),
            (CLOSED_WINDOW, self.closed_window.client_port),
        ]
    }

    fn sample<'a>(&self, samples: &'a [Sample], client_port: u16) -> Option<&'a Sample> {
        samples.iter().find(|sample| sample.local_port == self.port && sample.peer_port == client_port)
    }
}

const CLOSED_WINDOW: &str = "closed window";

/// Of each IP version three sockets that stand still (an idle one, one with unread bytes, one whose peer's window is closed)
/// are recorded as `ss` shows them, figure by figure. `options` are the sidecar's, without its ports. Returns how many figures
/// were compared.
///
/// # Errors
/// The first socket whose figures differ, with both sides' figures.
pub fn compare_standing_sockets(versions: &[IpVersion], options: SidecarOptions) -> Result<usize> {
    let network = Network::create()?;
    let standing =
        versions.iter().map(|version| Standing::make(&network, *version)).collect::<Result<Vec<_>>>()?;
    // The connections are older than the sidecar: it samples each once when it finds them.
    let recording = Recording::new("still");
    let options = SidecarOptions { ports: standing.iter().map(|sockets| sockets.port).collect(), ..options };
    let options = options.argument("--record", recording.path()).variable("OTEL_BSP_SCHEDULE_DELAY", "200");
    let sidecar = Sidecar::start(&network.host, &options)?;
    wait_until("a sample of each socket", DEADLINE, || {
        let samples = recording.samples()?;
        Ok(standing.iter().all(|sockets| {
            sockets
                .clients()
                .into_iter()
                .all(|(_, client_port)| sockets.sample(&samples, client_port).is_some())
        }))
    })?;
    let samples = recording.samples()?;
    let mut figures = 0;
    for sockets in &standing {
        let shown = shown_by_ss(&network, sockets.port)?;
        for (name, port) in sockets.clients() {
            let recorded = sockets.sample(&samples, port).context("no sample")?;
            let mut shown =
                shown.get(&port).with_context(|| format!("ss does not show the {name} socket"))?.clone();
            // A closed window's probes back off while both look; every other figure stands still.
            if name == CLOSED_WINDOW {
                ensure!(shown.send_queue_bytes > 100_000, "the window is not closed: {shown:?}");
                shown.rto_ms = recorded.statistics.rto_ms;
                figures -= 1;
            }
            ensure!(
                recorded.statistics == shown,
                "{name}: recorded {:?}, shown by ss {shown:?}",
                recorded.statistics
            );
            figures += 8;
        }
    }
    sidecar.stop()?;
    usize::try_from(figures).context("a count is not negative")
}
