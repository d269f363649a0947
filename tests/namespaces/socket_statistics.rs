//! The kernel's numbers, as the sidecar records them, are those that `ss` shows.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ackbeat_tests::clock::monotonic_ns;
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::mux::{Host, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::process::run;
use ackbeat_tests::sidecar::Sidecar;
use ackbeat_tests::{sockets, story};
use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::scene::{Pair, pair, watching};

const DEADLINE: Duration = Duration::from_secs(60);

/// What both name, of one socket at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
struct Statistics {
    send_queue_bytes: u64,
    unread_bytes: u64,
    unsent_bytes: u64,
    packets_out: u64,
    bytes_acked: u64,
    bytes_received: u64,
    srtt_us: u64,
    rto_ms: u64,
}

/// The sockets of the host's port, by the client's port, as `ss` shows them.
fn shown_by_ss(network: &Network, host_port: u16) -> Result<BTreeMap<u16, Statistics>> {
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
struct Sample {
    peer_port: u16,
    at_ns: u64,
    statistics: Statistics,
}

/// A file that is removed when it is dropped.
struct Recording(PathBuf);

impl Recording {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("ackbeat-{name}-{}.jsonl", std::process::id())))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn samples(&self) -> Result<Vec<Sample>> {
        let text = std::fs::read_to_string(&self.0).context("reading the recording failed")?;
        let mut ports = BTreeMap::new();
        let mut samples = Vec::new();
        // The last line may not be whole yet.
        for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let number = |key: &str| line.get(key).and_then(Value::as_u64);
            match line.get("input").and_then(Value::as_str) {
                Some("opened") => {
                    let port = line.pointer("/endpoints/peer_port").and_then(Value::as_u64);
                    ports.insert(number("connection"), port.and_then(|port| u16::try_from(port).ok()));
                }
                Some("sample") => {
                    let Some(Some(peer_port)) = ports.get(&number("connection")).copied() else { continue };
                    let known =
                        |key: &str| number(key).with_context(|| format!("{key} is unavailable in {line}"));
                    samples.push(Sample {
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
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        Ok(quiet_since.elapsed() > Duration::from_millis(500))
    })
}

#[test]
fn sockets_that_stand_still_are_recorded_exactly() -> Result<()> {
    for version in [IpVersion::V4, IpVersion::V6] {
        let network = Network::create()?;
        let address = network.host_address(version);
        let (listener, address) = network.host.run(|| sockets::listen(address))??;
        let mut idle = pair(&network, &listener, address)?;
        idle.client.write_all(&[1; 1_000])?;
        sockets::wait_for_unread(&idle.host, 1_000)?;
        std::io::Read::read_exact(&mut idle.host, &mut [0; 1_000])?;
        idle.host.write_all(&[2; 70_000])?;
        std::io::Read::read_exact(&mut idle.client, &mut [0; 70_000])?;
        let mut unread = pair(&network, &listener, address)?;
        unread.client.write_all(&[3; 5_000])?;
        sockets::wait_for_unread(&unread.host, 5_000)?;
        let mut closed_window = pair(&network, &listener, address)?;
        fill(&mut closed_window)?;

        // The connections are older than the sidecar: it samples each once when it finds them.
        let recording = Recording::new("still");
        let sidecar =
            Sidecar::start(&network.host, &watching(address.port()).argument("--record", recording.path()))?;
        let ports = [idle.client_port, unread.client_port, closed_window.client_port];
        wait_until("a sample of each socket", DEADLINE, || {
            let samples = recording.samples()?;
            Ok(ports.iter().all(|port| samples.iter().any(|sample| sample.peer_port == *port)))
        })?;
        let samples = recording.samples()?;
        let shown = shown_by_ss(&network, address.port())?;
        for (name, port) in ["idle", "unread", "closed window"].into_iter().zip(ports) {
            let recorded = samples.iter().find(|sample| sample.peer_port == port).context("no sample")?;
            let mut shown =
                shown.get(&port).with_context(|| format!("ss does not show the {name} socket"))?.clone();
            // A closed window's probes back off while both look; every other figure stands still.
            if name == "closed window" {
                ensure!(shown.send_queue_bytes > 100_000, "the window is not closed: {shown:?}");
                shown.rto_ms = recorded.statistics.rto_ms;
            }
            ensure!(
                recorded.statistics == shown,
                "{name}: recorded {:?}, shown by ss {shown:?}",
                recorded.statistics
            );
        }
        sidecar.stop()?;
    }
    Ok(())
}

#[test]
fn a_bursting_socket_is_recorded_between_two_readings_of_ss() -> Result<()> {
    let network = Network::create()?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let recording = Recording::new("burst");
    let port = host.address().port();
    let sidecar = Sidecar::start(&network.host, &watching(port).argument("--record", recording.path()))?;
    let slow = story::burst(&network, &host, story::slow_reader(&host))?;
    let mut readings: Vec<(u64, Statistics, u64)> = Vec::new();
    let until = Instant::now() + Duration::from_millis(3_500);
    while Instant::now() < until {
        let before_ns = monotonic_ns();
        let shown = shown_by_ss(&network, port)?;
        let after_ns = monotonic_ns();
        if let Some(statistics) = shown.get(&slow.port()) {
            readings.push((before_ns, statistics.clone(), after_ns));
        }
        // Room for samples: they are looked for between the end of one reading and the start of the next.
        std::thread::sleep(Duration::from_millis(150));
    }
    sidecar.stop()?;
    let samples = recording.samples()?;
    let mut compared = 0;
    let mut progress = 0;
    for (earlier, later) in readings.iter().zip(readings.iter().skip(1)) {
        let between = samples
            .iter()
            .filter(|sample| sample.peer_port == slow.port() && (earlier.2..later.0).contains(&sample.at_ns));
        for sample in between {
            let (low, found, high) = (&earlier.1, &sample.statistics, &later.1);
            let within =
                |figure: fn(&Statistics) -> u64| (figure(low)..=figure(high)).contains(&figure(found));
            ensure!(within(|of| of.bytes_acked), "bytes acked: {low:?} {found:?} {high:?}");
            ensure!(within(|of| of.bytes_received), "bytes received: {low:?} {found:?} {high:?}");
            // What was written so far only grows, too.
            ensure!(within(|of| of.bytes_acked + of.send_queue_bytes), "written: {low:?} {found:?} {high:?}");
            let (least, most) = (low.srtt_us.min(high.srtt_us), low.srtt_us.max(high.srtt_us));
            ensure!((least / 2..=most * 2).contains(&found.srtt_us), "RTT: {low:?} {found:?} {high:?}");
            compared += 1;
            progress = progress.max(found.bytes_acked);
        }
    }
    ensure!(compared >= 3, "only {compared} of {} samples lay between two readings", samples.len());
    ensure!(progress > 100_000, "the socket did not burst: {progress} bytes were acknowledged");
    println!("{compared} samples lay between {} readings of ss", readings.len());
    Ok(())
}
