//! The path that the other tests use: it carries, it can be cut without a word, and it leaves nothing behind.

use std::io::Write;
use std::time::Duration;

use ackbeat_tests::client::{Client, ClientOptions};
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::mux::{Host, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::process::run;
use ackbeat_tests::sockets;

const DEADLINE: Duration = Duration::from_secs(30);

#[test]
fn the_path_carries_both_ip_versions() {
    let network = Network::create().unwrap();
    for version in [IpVersion::V4, IpVersion::V6] {
        let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(version))).unwrap();
        let client = Client::connect(Some(&network.client), ClientOptions::new(host.address())).unwrap();
        host.wait_for_pongs(client.port(), 1, DEADLINE).unwrap();
    }
}

#[test]
fn a_cut_is_silent_and_heals() {
    let network = Network::create().unwrap();
    for version in [IpVersion::V4, IpVersion::V6] {
        let address = network.host_address(version);
        let (listener, address) = network.host.run(|| sockets::listen(address)).unwrap().unwrap();
        let mut client = network.client.run(|| sockets::connect(address)).unwrap().unwrap();
        let mut host = sockets::accept(&listener).unwrap();
        let port = client.local_addr().unwrap().port();
        network.cut(port).unwrap();
        host.write_all(b"lost").unwrap();
        client.write_all(b"lost").unwrap();
        // Both ends try again and again, and nobody tells them why.
        wait_until("retransmissions", DEADLINE, || {
            let statistics =
                network.host.run(|| run(None, "ss", &["-tinH", "dport", "=", &port.to_string()]))??;
            Ok(statistics.contains("backoff:3"))
        })
        .unwrap();
        assert!(host.take_error().unwrap().is_none());
        assert!(client.take_error().unwrap().is_none());
        network.heal(port).unwrap();
        sockets::wait_for_unread(&client, 4).unwrap();
        sockets::wait_for_unread(&host, 4).unwrap();
    }
}

#[test]
fn a_slow_path_is_as_slow_as_it_was_told() {
    let network = Network::create().unwrap();
    network.slow_down(1_000, 2_000).unwrap();
    let address = network.host_address(IpVersion::V4);
    let host = Host::start(Some(&network.host), HostOptions::new(address)).unwrap();
    let client = Client::connect(Some(&network.client), ClientOptions::new(host.address())).unwrap();
    let began = std::time::Instant::now();
    host.send_to_all(2_000_000);
    wait_until("the message", DEADLINE, || Ok(client.bytes_read() >= 2_000_000)).unwrap();
    let seconds = began.elapsed().as_secs_f64();
    assert!((1.5..10.0).contains(&seconds), "2 MB at 1 MB/s took {seconds} s");
}

#[test]
fn a_dropped_network_is_gone() {
    let network = Network::create().unwrap();
    let names =
        [&network.host, &network.router, &network.client].map(|namespace| namespace.name().to_owned());
    let is_there = |name: &String| std::path::Path::new("/run/netns").join(name).exists();
    assert!(names.iter().all(is_there));
    drop(network);
    assert!(!names.iter().any(is_there));
}
