//! Clients that are odd in one way each.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ackbeat_tests::client::{Chatter, Client, ClientEvent, ClientOptions, Pace, Seen};
use ackbeat_tests::clock::elapsed_ms;
use ackbeat_tests::journal::wait_until;
use ackbeat_tests::mux::{Ask, Host, HostAction, HostOptions};
use ackbeat_tests::sockets;
use anyhow::{Context, Result, ensure};
use tokio_tungstenite::tungstenite::{self, Message};

/// Generous: the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(40);
/// Short, so that a test sees many Pings.
const INTERVAL: Duration = Duration::from_millis(200);

fn watching_host() -> Result<Host> {
    let loopback: IpAddr = Ipv4Addr::LOCALHOST.into();
    Host::start(None, HostOptions { interval: INTERVAL, ..HostOptions::new(loopback).watching_only() })
}

fn wait_for_count(
    client: &Client,
    what: &str,
    count: usize,
    pick: impl Fn(&Seen) -> bool,
) -> Result<Vec<ClientEvent>> {
    Ok(client.events.wait_for(&format!("{count} times {what}"), DEADLINE, |events| {
        let found: Vec<_> = events.iter().filter(|event| pick(&event.what)).cloned().collect();
        (found.len() >= count).then_some(found)
    })?)
}

#[test]
fn a_pausing_reader_pauses_every_period() -> Result<()> {
    let host = watching_host()?;
    let (pause, period) = (Duration::from_millis(300), Duration::from_secs(1));
    let pace = Pace::Pausing { pause, period };
    let client = Client::connect(None, ClientOptions::new(host.address()).paced(pace))?;
    let until = Instant::now() + 4 * period;
    while Instant::now() < until {
        host.send_to_all(1_000);
        std::thread::sleep(Duration::from_millis(5));
    }
    let read: Vec<u64> = client.events.read(|events| {
        events
            .iter()
            .filter(|event| matches!(event.what, Seen::Data { .. }))
            .map(|event| event.at_ns)
            .collect()
    });
    let pauses = read
        .windows(2)
        .filter(|pair| elapsed_ms(pair[0], pair[1]) >= 280)
        .map(|pair| pair[1])
        .collect::<Vec<_>>();
    ensure!(pauses.len() >= 3, "{} pauses in four periods", pauses.len());
    for pair in pauses.windows(2) {
        // A busy machine can make a gap of its own, so the period is judged loosely from above only by their number.
        ensure!(elapsed_ms(pair[0], pair[1]) >= 280, "pauses follow each other without reading between them");
    }
    ensure!(read.len() >= 200, "reads as fast as it can in between: {} messages", read.len());
    Ok(())
}

#[test]
fn a_trickler_reads_single_bytes() -> Result<()> {
    let host = watching_host()?;
    let rest = Duration::from_millis(100);
    let client = Client::connect(None, ClientOptions::new(host.address()).paced(Pace::Trickle { rest }))?;
    let before = client.bytes_read();
    let began = Instant::now();
    client.ask(&Ask::Bytes { bytes: 100_000 });
    wait_until("eight bytes", DEADLINE, || Ok(client.bytes_read() >= before + 8))?;
    // The clock is read after the bytes: whatever came in this time is at most what may come in it.
    let (bytes, elapsed) = (client.bytes_read() - before, began.elapsed());
    ensure!(elapsed >= 6 * rest, "{bytes} bytes in {elapsed:?}");
    Ok(())
}

#[test]
fn pongs_are_withheld_and_data_is_sent() -> Result<()> {
    let host = watching_host()?;
    let chatter = Chatter { period: Duration::from_millis(100), bytes: 500 };
    let client = Client::connect(
        None,
        ClientOptions { withhold_pongs: true, chatter: Some(chatter), ..ClientOptions::new(host.address()) },
    )?;
    wait_for_count(&client, "a Ping", 5, |seen| *seen == Seen::Ping)?;
    // An ask is data like any other, and the host answers it.
    client.ask(&Ask::Bytes { bytes: 77 });
    client.wait_for("answer", DEADLINE, |seen| *seen == Seen::Data { bytes: 77 })?;
    wait_for_count(&client, "chatter", 5, |seen| *seen == Seen::Sent { bytes: 500 })?;
    let missed = host.wait_for("count of five", client.port(), DEADLINE, |what| {
        matches!(what, HostAction::Ping { missed: 5.., .. })
    });
    missed?;
    ensure!(!host.events.read(|events| events.iter().any(|event| event.what == HostAction::Pong)));
    Ok(())
}

#[test]
fn a_pong_comes_behind_the_message_that_is_being_sent() -> Result<()> {
    let host = watching_host()?;
    let options =
        ClientOptions { upstream_bytes_per_second: Some(1_500_000), ..ClientOptions::new(host.address()) };
    let client = Client::connect(None, options)?;
    host.wait_for_pongs(client.port(), 2, DEADLINE)?;
    let began = Instant::now();
    client.send_bytes(4_500_000);
    let sent = client.wait_for("message", DEADLINE, |seen| *seen == Seen::Sent { bytes: 4_500_000 })?;
    ensure!(began.elapsed() >= Duration::from_millis(2_900), "{:?}", began.elapsed());
    let within = |at_ns: u64| {
        // From half a second after its beginning to half a second before its end.
        (500..2_400).contains(&elapsed_ms(sent.at_ns.saturating_sub(2_900_000_000), at_ns))
    };
    let pings = client
        .events
        .read(|events| events.iter().filter(|event| event.what == Seen::Ping && within(event.at_ns)).count());
    ensure!(pings >= 2, "it reads while it sends: {pings} Pings");
    let pongs = || {
        let later = |at_ns: u64| at_ns >= sent.at_ns;
        host.events.read(|events| {
            let pongs = || events.iter().filter(|event| event.what == HostAction::Pong);
            (
                pongs().filter(|event| within(event.at_ns)).count(),
                pongs().filter(|event| later(event.at_ns)).count(),
            )
        })
    };
    wait_until("Pongs behind the message", DEADLINE, || Ok(pongs().1 >= 2))?;
    ensure!(pongs().0 == 0, "{} Pongs overtook the message", pongs().0);
    Ok(())
}

#[test]
fn a_half_closed_client_goes_on_reading() -> Result<()> {
    let (listener, address) = sockets::listen(Ipv4Addr::LOCALHOST.into())?;
    let host = std::thread::spawn(move || -> Result<_> {
        let mut socket =
            tungstenite::accept(sockets::accept(&listener)?).ok().context("the handshake failed")?;
        let first = socket.read().context("reading the client's message failed")?;
        let left = socket.get_mut().read(&mut [0; 16]).context("reading the client's FIN failed")?;
        socket.send(Message::Ping("x".into())).context("sending a Ping after the FIN failed")?;
        socket.send(Message::binary(vec![0; 50_000])).context("sending data after the FIN failed")?;
        Ok((first, left, socket))
    });
    let client = Client::connect(None, ClientOptions::new(address))?;
    client.send("last words");
    client.half_close();
    let halved = client.wait_for("half-close", DEADLINE, |seen| *seen == Seen::HalfClosed)?;
    let data = client.wait_for("data", DEADLINE, |seen| *seen == Seen::Data { bytes: 50_000 })?;
    ensure!(halved.at_ns <= data.at_ns);
    client.wait_for("Ping", DEADLINE, |seen| *seen == Seen::Ping)?;
    let (first, left, socket) = host.join().map_err(|_panic| anyhow::anyhow!("the host panicked"))??;
    ensure!(first == Message::text("last words") && left == 0, "{first:?}, {left} bytes");
    drop(socket);
    client.wait_for_end(DEADLINE)?;
    Ok(())
}
