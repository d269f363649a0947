//! The path through the relay: as slow, as lossy and as dead as it was told.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use ackbeat_tests::client::{Client, ClientOptions};
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::mux::{Host, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::process::run;
use ackbeat_tests::relay::{Counts, Direction, Relay, RelayOptions};
use ackbeat_tests::sockets;
use anyhow::{Context, Result, ensure};

const DEADLINE: Duration = Duration::from_secs(60);

/// Both ends of a connection over `network`: the host's, then the client's.
fn connected(network: &Network, version: IpVersion) -> Result<(TcpStream, TcpStream)> {
    let address = network.host_address(version);
    let (listener, address) = network.host.run(|| sockets::listen(address))??;
    let client = network.client.run(|| sockets::connect(address))??;
    let host = sockets::accept(&listener)?;
    for end in [&host, &client] {
        end.set_nodelay(true).context("setting TCP_NODELAY failed")?;
    }
    Ok((host, client))
}

/// The times of `count` exchanges of one byte, in ascending order.
fn round_trips(host: &mut TcpStream, client: &mut TcpStream, count: usize) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        host.write_all(b"p").context("writing failed")?;
        client.read_exact(&mut [0]).context("reading failed")?;
        client.write_all(b"q").context("writing failed")?;
        host.read_exact(&mut [0]).context("reading failed")?;
        times.push(began.elapsed());
    }
    times.sort();
    Ok(times)
}

/// Lets what was sent before arrive, without asking how long it takes.
fn is_silent(relay: &Relay, direction: Direction, packets: u64) -> Result<()> {
    wait_until("packets into the cut", DEADLINE, || Ok(relay.counts(direction).cut_packets >= packets))
}

#[test]
fn round_trips_take_as_long_as_told() -> Result<()> {
    for version in [IpVersion::V4, IpVersion::V6] {
        let (network, relay) = Network::create_with_relay(&RelayOptions::CLEAR)?;
        let (mut host, mut client) = connected(&network, version)?;
        for (told_ms, count) in [(0, 200), (80, 20), (200, 10), (500, 5)] {
            for direction in Direction::BOTH {
                relay.set_delay(direction, Duration::from_millis(told_ms / 2));
            }
            let times = round_trips(&mut host, &mut client, count)?;
            let (fastest, median) = (times[0], times[count / 2]);
            println!(
                "{version:?}: told {told_ms} ms, fastest {fastest:?}, median {median:?}, {:?}",
                times[count - 1]
            );
            let told = Duration::from_millis(told_ms);
            ensure!(fastest >= told, "{fastest:?} is faster than the {told:?} that were told");
            ensure!(fastest < told + Duration::from_millis(10), "told {told:?}, took {fastest:?} at best");
        }
        relay.check()?;
    }
    Ok(())
}

#[test]
fn bulk_passes_fast() -> Result<()> {
    const BYTES: usize = 60_000_000;
    for round_trip_ms in [0, 80] {
        let options = RelayOptions::round_trip(Duration::from_millis(round_trip_ms));
        let (network, relay) = Network::create_with_relay(&options)?;
        let address = network.host_address(IpVersion::V4);
        let host = Host::start(Some(&network.host), HostOptions::new(address).watching_only())?;
        let client = Client::connect(Some(&network.client), ClientOptions::new(host.address()))?;
        let (before, began) = (client.bytes_read(), Instant::now());
        host.send_to_all(BYTES);
        wait_until("the message", DEADLINE, || Ok(client.bytes_read() >= before + BYTES as u64))?;
        let seconds = began.elapsed().as_secs_f64();
        let counts = relay.counts(Direction::ToClient);
        println!("round trip {round_trip_ms} ms: {:.1} MB/s, {counts:?}", 60.0 / seconds);
        ensure!(seconds < 20.0, "60 MB took {seconds} s at a round trip of {round_trip_ms} ms");
        ensure!(counts.forwarded_bytes > BYTES as u64, "{counts:?}");
        let dropped = counts.lost_packets + counts.cut_packets + counts.overflowed_packets;
        ensure!(dropped == 0, "{counts:?}");
    }
    Ok(())
}

#[test]
fn losses_are_as_frequent_as_told() -> Result<()> {
    const BURSTS: u64 = 60;
    const BURST: u64 = 50;
    let (network, relay) = Network::create_with_relay(&RelayOptions::CLEAR.lossy(0.15).seeded(5))?;
    let bind = |address| UdpSocket::bind((address, 0)).context("binding failed");
    let host = network.host.run(|| bind(network.host_address(IpVersion::V4)))??;
    let client = network.client.run(|| bind(network.client_address(IpVersion::V4)))??;
    client.set_read_timeout(Some(DEADLINE)).context("bounding reads failed")?;
    host.connect(client.local_addr()?).context("connecting failed")?;
    let mut received = 0;
    for burst in 1..=BURSTS {
        for _ in 0..BURST {
            host.send(b"datagram").context("sending failed")?;
        }
        // The receive buffer has room for a burst.
        wait_until("the burst's fate", DEADLINE, || {
            let counts = relay.counts(Direction::ToClient);
            Ok(counts.lost_packets + counts.forwarded_packets == burst * BURST)
        })?;
        while received < relay.counts(Direction::ToClient).forwarded_packets {
            client.recv(&mut [0; 16]).context("a datagram that was forwarded did not arrive")?;
            received += 1;
        }
    }
    let lost = relay.counts(Direction::ToClient).lost_packets;
    println!("{lost} of {} packets lost", BURSTS * BURST);
    // Five standard deviations around the expected 450.
    ensure!((352..548).contains(&lost), "{lost} of {} packets lost", BURSTS * BURST);
    ensure!(relay.counts(Direction::ToHost) == Counts::default(), "nothing came the other way");
    Ok(())
}

#[test]
fn each_direction_is_cut_on_its_own_and_heals() -> Result<()> {
    let (network, relay) = Network::create_with_relay(&RelayOptions::round_trip(Duration::from_millis(20)))?;
    let (mut host, mut client) = connected(&network, IpVersion::V4)?;
    round_trips(&mut host, &mut client, 1)?;

    // The host's data does not arrive; the client's data does, although the host's ACKs of it do not.
    relay.cut(Direction::ToClient);
    host.write_all(b"down").context("writing failed")?;
    client.write_all(b"up").context("writing failed")?;
    sockets::wait_for_unread(&host, 2)?;
    is_silent(&relay, Direction::ToClient, 3)?;
    ensure!(relay.counts(Direction::ToHost).cut_packets == 0);
    client.set_nonblocking(true).context("making the client non-blocking failed")?;
    ensure!(client.peek(&mut [0; 4]).is_err(), "the host's data got through the cut");
    client.set_nonblocking(false).context("making the client blocking failed")?;
    relay.heal();
    sockets::wait_for_unread(&client, 4)?;
    host.read_exact(&mut [0; 2]).context("reading failed")?;
    client.read_exact(&mut [0; 4]).context("reading failed")?;

    relay.cut_both();
    host.write_all(b"down").context("writing failed")?;
    client.write_all(b"up").context("writing failed")?;
    for direction in Direction::BOTH {
        let before = relay.counts(direction).cut_packets;
        is_silent(&relay, direction, before + 2)?;
    }
    ensure!(host.take_error()?.is_none() && client.take_error()?.is_none());
    relay.heal();
    sockets::wait_for_unread(&client, 4)?;
    sockets::wait_for_unread(&host, 2)?;
    Ok(())
}

#[test]
fn without_its_relay_the_network_forwards_at_once() -> Result<()> {
    let (network, relay) = Network::create_with_relay(&RelayOptions::round_trip(Duration::from_millis(300)))?;
    let (mut host, mut client) = connected(&network, IpVersion::V4)?;
    round_trips(&mut host, &mut client, 1)?;
    let carried = relay.counts(Direction::ToClient).forwarded_packets;
    ensure!(carried > 0);
    drop(relay);
    let times = round_trips(&mut host, &mut client, 20)?;
    ensure!(times[0] < Duration::from_millis(200), "{times:?}");
    Ok(())
}

/// The host's socket has been told of an ICMP error, as `ss` and the kernel's counters show it.
fn icmp_errors(network: &Network) -> Result<u64> {
    let text = network.host.run(|| std::fs::read_to_string("/proc/thread-self/net/snmp"))??;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Icmp: "));
    let (names, values) = (lines.next().context("no names")?, lines.next().context("no values")?);
    let position = names.split(' ').position(|name| name == "InDestUnreachs").context("no such counter")?;
    values.split(' ').nth(position).context("no value")?.parse().context("no number")
}

/// Retransmitted bytes of each of the host's connections.
fn retransmitted_bytes(network: &Network) -> Result<Vec<u64>> {
    let statistics = run(Some(&network.host), "ss", &["-tinH", "state", "established"])?;
    let of_line = |line: &str| {
        let word = line.split_whitespace().find_map(|word| word.strip_prefix("bytes_retrans:"))?;
        word.parse().ok()
    };
    let detailed = statistics.lines().filter(|line| line.contains("rto:"));
    Ok(detailed.map(|line| of_line(line).unwrap_or(0)).collect())
}

#[test]
fn a_blackhole_is_silent_and_an_unreachable_route_is_not() -> Result<()> {
    let (network, _relay) = Network::create_with_relay(&RelayOptions::CLEAR)?;
    let plain = Network::create()?;
    for network in [&network, &plain] {
        let (mut host, mut client) = connected(network, IpVersion::V4)?;
        let (mut host6, mut client6) = connected(network, IpVersion::V6)?;
        round_trips(&mut host, &mut client, 1)?;
        for told_of in [false, true] {
            let (before, retransmitted) = (icmp_errors(network)?, retransmitted_bytes(network)?);
            if told_of {
                network.unreachable()?;
            } else {
                network.blackhole()?;
            }
            for end in [&mut host, &mut client, &mut host6, &mut client6] {
                end.write_all(b"lost").context("writing failed")?;
            }
            // ICMP errors take the back-off back (RFC 6069), so retransmitted bytes are what tells.
            wait_until("retransmissions", DEADLINE, || {
                let now = retransmitted_bytes(network)?;
                Ok(now.len() == 2 && now.iter().zip(&retransmitted).all(|(now, before)| *now >= before + 12))
            })?;
            for end in [&mut host, &mut client, &mut host6, &mut client6] {
                end.set_nonblocking(true).context("making a socket non-blocking failed")?;
                ensure!(end.peek(&mut [0; 4]).is_err(), "something got through");
                end.set_nonblocking(false).context("making a socket blocking failed")?;
            }
            ensure!((icmp_errors(network)? > before) == told_of, "told of: {told_of}");
            network.restore()?;
            for end in [&mut host, &mut client, &mut host6, &mut client6] {
                end.read_exact(&mut [0; 4]).context("reading after the end of the fault failed")?;
            }
        }
    }
    Ok(())
}
