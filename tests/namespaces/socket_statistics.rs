//! The kernel's numbers, as the sidecar records them, are those that `ss` shows.

use std::time::{Duration, Instant};

use ackbeat_tests::clock::monotonic_ns;
use ackbeat_tests::mux::{Host, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::socket_statistics::{Recording, Statistics, compare_standing_sockets, shown_by_ss};
use ackbeat_tests::story;
use anyhow::{Result, ensure};

use super::scene::watching;

#[test]
fn sockets_that_stand_still_are_recorded_exactly() -> Result<()> {
    let figures = compare_standing_sockets(&[IpVersion::V4, IpVersion::V6], SidecarOptions::default())?;
    ensure!(figures == 46, "{figures} figures were compared");
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
