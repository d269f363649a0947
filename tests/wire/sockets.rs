//! A case's bytes through real sockets.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use ackbeat_abi::{Direction, FlowKey, Record};
use ackbeat_tests::{
    network::{IpVersion, Network},
    sockets::{accept, connect},
};
use anyhow::{Context, Result, anyhow, bail};

use crate::{
    PORT,
    kernel::Kernel,
    model::{Case, Totals, Trouble, judge},
};

/// Longest wait for anything on a path that may lose segments.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much one end has read.
#[derive(Default)]
struct Progress {
    read: Mutex<usize>,
    changed: Condvar,
}

impl Progress {
    fn advance(&self, bytes: usize) {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) += bytes;
        self.changed.notify_all();
    }

    fn wait_for(&self, bytes: usize) -> Result<()> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let (_read, timeout) = self
            .changed
            .wait_timeout_while(read, PATIENCE, |read| *read < bytes)
            .unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() { bail!("{bytes} bytes did not arrive in {PATIENCE:?}") } else { Ok(()) }
    }
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Writes one direction of the case, each piece when the other side's bytes that it answers were read.
fn write(case: &Case, direction: Direction, mut stream: &TcpStream, seen: &Progress) -> Result<()> {
    let bytes = &case.stream(direction).bytes;
    for delivery in case.deliveries.iter().filter(|delivery| delivery.direction == direction) {
        seen.wait_for(delivery.acknowledged)?;
        stream.write_all(&bytes[delivery.start..delivery.start + delivery.length])?;
    }
    Ok(stream.shutdown(std::net::Shutdown::Write)?)
}

fn read(mut stream: &TcpStream, progress: &Progress) -> Result<usize> {
    let mut buffer = vec![0; 60_000];
    let mut total = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(total),
            bytes => {
                total += bytes;
                progress.advance(bytes);
            }
        }
    }
}

/// A connection over the router, whose flow the parser knows.
struct Connection {
    client: TcpStream,
    server: TcpStream,
    flow: FlowKey,
}

impl Connection {
    fn open(network: &Network, kernel: &mut Kernel, version: IpVersion) -> Result<Self> {
        let address = SocketAddr::new(network.host_address(version), PORT);
        let listener = network.host.run(|| std::net::TcpListener::bind(address))??;
        let client = network.client.run(|| connect(address))??;
        let server = accept(&listener)?;
        let peer = server.peer_addr()?;
        let flow = FlowKey {
            local_address: mapped(address.ip()),
            peer_address: mapped(peer.ip()),
            local_port: address.port(),
            peer_port: peer.port(),
            padding: 0,
        };
        kernel.open(&flow)?;
        Ok(Self { client, server, flow })
    }
}

fn exchange(
    network: &Network,
    kernel: &mut Kernel,
    case: &mut Case,
    version: IpVersion,
) -> Result<Vec<Record>> {
    let Connection { client, server, flow } = Connection::open(network, kernel, version)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
    }
    let (at_server, at_client) = (Progress::default(), Progress::default());
    std::thread::scope(|scope| {
        let case = &*case;
        let work = [
            scope.spawn(|| write(case, Direction::Ingress, &client, &at_client)),
            scope.spawn(|| write(case, Direction::Egress, &server, &at_server)),
            scope.spawn(|| read(&server, &at_server).map(drop)),
            scope.spawn(|| read(&client, &at_client).map(drop)),
        ];
        work.into_iter()
            .try_for_each(|thread| thread.join().map_err(|_panic| anyhow!("a thread panicked"))?)
    })?;
    kernel.close(&flow)?;
    let records = kernel.records()?;
    // The kernel chose the first sequence numbers; the begin of the frames tells them.
    for direction in [Direction::Ingress, Direction::Egress] {
        let begin = records
            .iter()
            .find_map(|record| match record {
                Record::Synchronization(change)
                    if change.direction == direction.number() && change.synchronized == 1 =>
                {
                    Some(change.seq)
                }
                _ => None,
            })
            .with_context(|| format!("seed {}: the upgrade was not seen ({direction:?})", case.seed))?;
        let stream = match direction {
            Direction::Ingress => &mut case.ingress,
            Direction::Egress => &mut case.egress,
        };
        stream.first_seq = begin.wrapping_sub(stream.frames_start as u32);
    }
    Ok(records)
}

/// Runs cases one after the other, IPv4 and IPv6 in turn.
pub(crate) fn many(
    network: &Network,
    kernel: &mut Kernel,
    label: &str,
    seeds: std::ops::Range<u64>,
    trouble: Trouble,
) -> Result<Totals> {
    let mut totals = Totals::default();
    for seed in seeds {
        let mut case = Case::random(seed, trouble);
        // What the network does to the segments is its own business.
        case.in_order = false;
        case.head_promised = false;
        let version = if seed % 2 == 0 { IpVersion::V4 } else { IpVersion::V6 };
        let records = exchange(network, kernel, &mut case, version)?;
        judge(&case, &records, &mut totals).map_err(|wrong| anyhow!("{label}: {wrong}"))?;
    }
    println!("{label}: {totals}");
    Ok(totals)
}

/// Sends `frame` as often as makes `total_bytes`, as much in one write as a socket takes, after an upgrade.
pub(crate) fn bulk(network: &Network, kernel: &mut Kernel, frame: &[u8], total_bytes: usize) -> Result<()> {
    let Connection { client, server, flow } = Connection::open(network, kernel, IpVersion::V4)?;
    (&client).write_all(b"GET / HTTP/1.1\r\n\r\n")?;
    let progress = Progress::default();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&client, &progress));
        (&server).write_all(b"HTTP/1.1 101 \r\nSec-WebSocket-Accept: x\r\n\r\n")?;
        let many = frame.repeat((1 << 20) / frame.len() + 1);
        let mut sent = 0;
        while sent < total_bytes {
            (&server).write_all(&many)?;
            sent += many.len();
        }
        server.shutdown(std::net::Shutdown::Write)?;
        reader.join().map_err(|_panic| anyhow!("the reader panicked"))?.map(drop)
    })?;
    kernel.close(&flow)
}
