//! The same four numbers again within a second: each connection has its own record, and nothing of the one before.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use ackbeat_tests::network::IpVersion;
use ackbeat_tests::sockets;
use ackbeat_tests::spans::Span;
use anyhow::{Context, Result, ensure};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};

use crate::scene::{SPAN_DEADLINE, Scene};

const TIMES: usize = 12;
const CLIENT_PORT: u16 = 45_678;
/// What the connection before sent more than this one.
const STEP_BYTES: usize = 5_000;

fn connect_from(local: SocketAddr, to: SocketAddr) -> Result<TcpStream> {
    let stream = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
        .context("making a socket failed")?;
    setsockopt(&stream, sockopt::ReuseAddr, &true).context("setting SO_REUSEADDR failed")?;
    bind(stream.as_raw_fd(), &SockaddrStorage::from(local)).context("binding failed")?;
    connect(stream.as_raw_fd(), &SockaddrStorage::from(to)).context("connecting failed")?;
    Ok(stream.into())
}

/// Ended by a reset, so that no `TIME_WAIT` keeps the addresses: by the host and by the peer in turn. Each carries less than the one
/// before, so that what is left of that one would show.
#[test]
fn the_same_addresses_again_are_another_connection() -> Result<()> {
    let scene = Scene::new(IpVersion::V4)?;
    let local = SocketAddr::new(scene.network.client_address(IpVersion::V4), CLIENT_PORT);
    let began = Instant::now();
    for number in 0..TIMES {
        let mut client = scene.network.client.run(|| connect_from(local, scene.address))??;
        let mut host = sockets::accept(&scene.listener)?;
        let mut bytes = vec![0; (TIMES - number) * STEP_BYTES];
        host.write_all(&bytes).context("writing failed")?;
        client.read_exact(&mut bytes).context("reading failed")?;
        let (first, mut second) = if number % 2 == 0 { (host, client) } else { (client, host) };
        sockets::reset_on_close(&first)?;
        drop(first);
        ensure!(second.read(&mut [0; 1]).is_err(), "the other side was not reset");
    }
    let took = began.elapsed();
    println!("{TIMES} connections with the same addresses in {took:?}");

    let mut all = scene.sidecar.wait_for("a record of each", SPAN_DEADLINE, |all| {
        let of_port = |span: &&Span| span.is_connection() && span.peer_port() == Some(CLIENT_PORT);
        let found: Vec<Span> = all.iter().filter(of_port).cloned().collect();
        (found.len() == TIMES).then_some(found)
    })?;
    all.sort_by_key(|span| span.start_unix_ns);
    let everything = scene.sidecar.spans()?;
    for (number, root) in all.iter().enumerate() {
        let by_host = number % 2 == 0;
        let initiator = root.text("ackbeat.close.initiator");
        ensure!(initiator == Some(if by_host { "host" } else { "peer" }), "{number}: {root:?}");
        ensure!(root.text("ackbeat.close.method") == Some("rst"), "{number}: {root:?}");
        let length = Duration::from_nanos(root.end_unix_ns.saturating_sub(root.start_unix_ns));
        ensure!(length <= took + Duration::from_secs(5), "{number}: {length:?}");
        let close = everything.iter().find(|span| span.is_host_close() && span.trace_id == root.trace_id);
        ensure!(close.is_some() == by_host, "{number}: {close:?}");
        if let Some(acked) = close.and_then(|close| close.number("ackbeat.tcp.bytes_acked")) {
            let sent = i64::try_from((TIMES - number) * STEP_BYTES)?;
            // One more is the SYN (RFC 9293 section 3.4).
            ensure!((sent..=sent + 1).contains(&acked), "{number}: {acked} of {sent} bytes: {close:?}");
        }
    }
    ensure!(
        all.windows(2).all(|pair| pair[0].trace_id != pair[1].trace_id),
        "two connections are two traces"
    );
    scene.sidecar.stop().map(drop)
}
