//! Rank `namespaces`, where Chromium can be installed: a real browser as the peer of the mux host.

use std::time::Duration;

use ackbeat_tests::browser::{Browser, Command, Seen};
use ackbeat_tests::clock::elapsed_ms;
use ackbeat_tests::mux::{Ask, BURST_BYTES, Host, HostAction, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::process::run;
use anyhow::{Context, Result, ensure};

const DEADLINE: Duration = Duration::from_secs(120);
/// How long the page's main thread is busy.
const BLOCK: Duration = Duration::from_secs(10);

fn pongs(host: &Host) -> Vec<u64> {
    host.events.read(|all| {
        all.iter().filter(|event| event.what == HostAction::Pong).map(|event| event.at_ns).collect()
    })
}

/// The longest time without an acknowledgement, in milliseconds, that `ss` shows while `going_on`.
fn longest_silence_ms(network: &Network, port: u16, mut going_on: impl FnMut() -> bool) -> Result<u64> {
    let port = port.to_string();
    let mut longest = 0;
    while going_on() {
        let statistics = run(Some(&network.host), "ss", &["-tinH", "dport", "=", &port])?;
        let words = || statistics.split_whitespace();
        // An idle connection owes no acknowledgement.
        if words().any(|word| word.starts_with("unacked:") || word.starts_with("notsent:")) {
            // What was acknowledged this very moment is not mentioned.
            let lastack = words().find_map(|word| word.strip_prefix("lastack:")).unwrap_or("0");
            longest = longest.max(lastack.parse().context("lastack is no number")?);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(longest)
}

#[test]
fn a_page_opens_reads_and_closes() -> Result<()> {
    let network = Network::create()?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let browser = Browser::connect(Some(&network.client), &host)?;
    browser.ask(&Ask::Bytes { bytes: 1_000_000 });
    browser.wait_for("message", DEADLINE, |seen| matches!(seen, Seen::Message { bytes: 1_000_000, .. }))?;
    host.wait_for_pongs(browser.port(), 2, DEADLINE)?;
    browser.command(Command::Close { code: 4001, reason: "done".into() });
    let closed = browser.wait_for("close", DEADLINE, |seen| matches!(seen, Seen::Closed { .. }))?;
    ensure!(closed.what == Seen::Closed { code: 4001, was_clean: true }, "{closed:?}");
    Ok(())
}

/// With nothing to read but Pings, the browser answers them while the page does nothing else.
#[test]
fn a_busy_page_with_an_empty_socket() -> Result<()> {
    let (host, busy) = busy_page(0)?;
    println!("no data: {busy:?}");
    ensure!(busy.pings >= 8, "{busy:?}");
    drop(host);
    Ok(())
}

/// While the burst arrives at a busy page, its browser stops reading the socket.
#[test]
fn a_busy_page_under_the_burst() -> Result<()> {
    let (host, busy) = busy_page(BURST_BYTES)?;
    println!("burst of {BURST_BYTES} bytes: {busy:?}");
    ensure!(busy.pings >= 4, "{busy:?}");
    ensure!(busy.pongs < busy.pings, "{busy:?}");
    // It was there all the time: its kernel acknowledged, and what it owed came afterwards.
    ensure!(busy.pongs_within_20s_after > 0, "{busy:?}");
    drop(host);
    Ok(())
}

#[derive(Debug)]
#[expect(dead_code, reason = "printed")]
struct Busy {
    blocked_ms: u64,
    pings: usize,
    pongs: usize,
    pongs_within_20s_after: usize,
    longest_pong_gap_ms: u64,
    longest_silence_ms: u64,
}

/// Blocks a page for [`BLOCK`] at the first message of a burst, and counts what was exchanged meanwhile.
fn busy_page(burst_bytes: u64) -> Result<(Host, Busy)> {
    let network = Network::create()?;
    // The kernel's own default: where somebody has raised the limit, the browser's kernel takes the whole burst.
    network.client.set_sysctl("ipv4/tcp_rmem", "4096 131072 6291456")?;
    let options = HostOptions {
        interval: Duration::from_secs(1),
        ..HostOptions::new(network.host_address(IpVersion::V4)).watching_only()
    };
    let host = Host::start(Some(&network.host), options)?;
    let browser = Browser::connect(Some(&network.client), &host)?;
    host.wait_for_pongs(browser.port(), 2, DEADLINE)?;
    let block_ms = u64::try_from(BLOCK.as_millis())?;
    browser.command(Command::BlockAtNextMessage { block_ms });
    browser.ask(&if burst_bytes == 0 { Ask::Bytes { bytes: 10 } } else { Ask::Follow });
    let is_blocked = |seen: &Seen| matches!(seen, Seen::Blocked { .. });
    let silence = longest_silence_ms(&network, browser.port(), || {
        !browser.events.read(|all| all.iter().any(|event| is_blocked(&event.what)))
    })?;
    let blocked = browser.wait_for("word that it was blocked", DEADLINE, is_blocked)?;
    let Seen::Blocked { from_ns, to_ns } = blocked.what else { unreachable!() };
    if burst_bytes > 0 {
        browser.wait_for(
            "whole burst",
            DEADLINE,
            |seen| matches!(seen, Seen::Message { bytes_received, .. } if *bytes_received == burst_bytes),
        )?;
    }
    let before = pongs(&host).len();
    host.wait_for_pongs(browser.port(), before + 2, DEADLINE)?;
    let pongs = pongs(&host);
    let pings = host.events.read(|all| {
        all.iter()
            .filter(|event| matches!(event.what, HostAction::Ping { .. }))
            .filter(|event| (from_ns..to_ns).contains(&event.at_ns))
            .count()
    });
    ensure!(!browser.events.read(|all| all.iter().any(|event| matches!(event.what, Seen::Closed { .. }))));
    let busy = Busy {
        blocked_ms: elapsed_ms(from_ns, to_ns),
        pings,
        pongs: pongs.iter().filter(|at_ns| (from_ns..to_ns).contains(at_ns)).count(),
        pongs_within_20s_after: pongs
            .iter()
            .filter(|at_ns| (0..20_000).contains(&elapsed_ms(to_ns, **at_ns)) && **at_ns >= to_ns)
            .count(),
        longest_pong_gap_ms: pongs.windows(2).map(|pair| elapsed_ms(pair[0], pair[1])).max().unwrap_or(0),
        longest_silence_ms: silence,
    };
    ensure!(busy.blocked_ms >= block_ms - 1, "{busy:?}");
    Ok((host, busy))
}
