//! Rank `in-process`: the hosts and clients that the other ranks rely on, over loopback, as any user.

mod behaviours;
mod peer;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::time::{Duration, Instant};

use ackbeat_tests::client::{Client, ClientOptions, Pace, Seen};
use ackbeat_tests::clock::elapsed_ms;
use ackbeat_tests::mux::{Ask, BURST_BYTES, Block, Host, HostAction, HostOptions};
use ackbeat_tests::process::Process;

/// Generous: the machine may be busy.
const DEADLINE: Duration = Duration::from_secs(40);

fn loopback() -> IpAddr {
    Ipv4Addr::LOCALHOST.into()
}

#[test]
fn a_client_that_answers_no_ping_is_killed_at_the_third_tick() {
    let host = Host::start(None, HostOptions::new(loopback())).unwrap();
    let client =
        Client::connect(None, ClientOptions { mute: true, ..ClientOptions::new(host.address()) }).unwrap();
    let killed = host.wait_for_kill(client.port(), DEADLINE).unwrap();
    let HostAction::Killed { missed, pongs, lifetime_ms, .. } = killed.what else { unreachable!() };
    assert_eq!((missed, pongs), (2, 0));
    let pings: Vec<_> =
        host.events.all().into_iter().filter(|event| matches!(event.what, HostAction::Ping { .. })).collect();
    assert_eq!(pings.len(), 2, "a Ping at each of the two ticks before");
    let [first, _second] = pings.as_slice() else { unreachable!() };
    assert!((3_900..8_000).contains(&elapsed_ms(first.at_ns, killed.at_ns)), "{first:?} … {killed:?}");
    assert!(lifetime_ms >= 4_000, "{lifetime_ms}");
    let end = client.wait_for_end(DEADLINE).unwrap();
    assert_eq!(end.what, Seen::Ended { how: "fin".into() });
    let seen = client.events.all();
    assert!(
        !seen.iter().any(|event| matches!(event.what, Seen::CloseFrame { .. })),
        "killed without a Close frame"
    );
    assert_eq!(seen.iter().filter(|event| event.what == Seen::Ping).count(), 2);
}

#[test]
fn a_slow_reader_is_killed_before_it_can_see_a_ping() {
    let host = Host::start(None, HostOptions::new(loopback())).unwrap();
    let sibling = Client::connect(None, ClientOptions::new(host.address())).unwrap();
    let pace = Pace::Slow { bytes_per_second: 200_000, read_bytes: 16 * 1024 };
    let client = Client::connect(None, ClientOptions::new(host.address()).paced(pace)).unwrap();
    client.ask(&Ask::Follow);
    let killed = host.wait_for_kill(client.port(), DEADLINE).unwrap();
    let read_at_kill = client.bytes_read();
    let HostAction::Killed { missed, buffered_bytes, .. } = killed.what else { unreachable!() };
    assert_eq!(missed, 2);
    assert!(buffered_bytes > BURST_BYTES / 2, "most of the burst never reached the kernel: {buffered_bytes}");
    assert!(read_at_kill > 0);
    assert!(!client.events.read(|seen| seen.iter().any(|event| event.what == Seen::Ping)));
    // It goes on to read what the kernel still has: it was there all the time.
    ackbeat_tests::journal::wait_until("bytes read after the kill", DEADLINE, || {
        Ok(client.bytes_read() > read_at_kill + 100_000)
    })
    .unwrap();
    host.wait_for_pongs(sibling.port(), 2, DEADLINE).unwrap();
    assert!(host.wait_for_kill(sibling.port(), Duration::ZERO).is_err());
}

#[test]
fn the_host_closes_politely_when_it_is_asked_to() {
    let host = Host::start(None, HostOptions::new(Ipv6Addr::LOCALHOST.into())).unwrap();
    let client = Client::connect(None, ClientOptions::new(host.address())).unwrap();
    client.ask(&Ask::Leave { code: 4001, reason: "server_restart".into() });
    let closed =
        client.wait_for("Close frame", DEADLINE, |seen| matches!(seen, Seen::CloseFrame { .. })).unwrap();
    assert_eq!(closed.what, Seen::CloseFrame { code: Some(4001) });
    assert_eq!(client.wait_for_end(DEADLINE).unwrap().what, Seen::Ended { how: "fin".into() });
    host.wait_for("end", client.port(), DEADLINE, |what| *what == HostAction::Closed).unwrap();
}

#[test]
fn a_host_whose_loop_was_blocked_kills_with_the_pong_unread() {
    let block = Block { after_tick: 2, duration: Duration::from_millis(5_000) };
    let host = Host::start(None, HostOptions { block: Some(block), ..HostOptions::new(loopback()) }).unwrap();
    let client = Client::connect(None, ClientOptions::new(host.address())).unwrap();
    let killed = host.wait_for_kill(client.port(), DEADLINE).unwrap();
    let HostAction::Killed { missed, pongs, .. } = killed.what else { unreachable!() };
    assert_eq!((missed, pongs), (2, 1), "the first tick's Pong was read, the second's was not");
    // Bytes lay unread at the close, so the kernel resets (RFC 1122 section 4.2.2.13).
    assert_eq!(client.wait_for_end(DEADLINE).unwrap().what, Seen::Ended { how: "rst".into() });
    assert_eq!(client.events.read(|seen| seen.iter().filter(|event| event.what == Seen::Ping).count()), 2);
}

#[test]
fn a_paced_reader_keeps_its_pace() {
    let host = Host::start(None, HostOptions::new(loopback())).unwrap();
    let pace = Pace::Slow { bytes_per_second: 1_000_000, read_bytes: 4 * 1024 };
    let client = Client::connect(None, ClientOptions::new(host.address()).paced(pace)).unwrap();
    let began = Instant::now();
    client.ask(&Ask::Bytes { bytes: 2_000_000 });
    client.wait_for("message", DEADLINE, |seen| *seen == Seen::Data { bytes: 2_000_000 }).unwrap();
    let seconds = began.elapsed().as_secs_f64();
    assert!((1.9..8.0).contains(&seconds), "2 MB at 1 MB/s took {seconds} s");
}

#[test]
fn a_busy_reader_reads_nothing_and_then_everything() {
    let host = Host::start(None, HostOptions::new(loopback())).unwrap();
    let busy = Duration::from_millis(1_500);
    let client =
        Client::connect(None, ClientOptions::new(host.address()).paced(Pace::Busy { busy })).unwrap();
    let began = Instant::now();
    client.ask(&Ask::Bytes { bytes: 8_000_000 });
    client.wait_for("message", DEADLINE, |seen| *seen == Seen::Data { bytes: 8_000_000 }).unwrap();
    assert!(began.elapsed() >= busy, "{:?}", began.elapsed());
}

#[test]
fn a_process_is_captured_and_does_not_outlive_its_value() {
    let mut command = Command::new("sh");
    command.args(["-c", "echo one; echo two >&2; exec sleep 600"]);
    let mut process = Process::spawn("shell", None, command).unwrap();
    let has =
        |text: &'static str| move |lines: &[String]| lines.iter().any(|line| line == text).then_some(());
    process.stdout.wait_for("one", DEADLINE, has("one")).unwrap();
    process.stderr.wait_for("two", DEADLINE, has("two")).unwrap();
    assert_eq!(process.try_wait().unwrap(), None);
    let proc_directory = format!("/proc/{}", process.pid());
    drop(process);
    assert!(!std::path::Path::new(&proc_directory).exists());
}
