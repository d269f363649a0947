//! Rank `namespaces` (for its tools; it needs no namespace): `ackbeat probe` against hosts whose heartbeat is a library's
//! own. What the host did is taken from what the host printed.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::time::Duration;

use ackbeat::heartbeat_probe::{End, Line, Report, Who, WireResult};
use ackbeat_liveness::HeartbeatProfile;
use ackbeat_tests::libraries::Heartbeat;
use ackbeat_tests::mux::{BURST_BYTES, Host, HostAction, HostEvent, MUX_PATH};
use ackbeat_tests::{node, tools};
use anyhow::{Context as _, Result, ensure};

/// Short, but long beside what a busy machine adds.
const INTERVAL: Duration = Duration::from_millis(400);
const DEADLINE: Duration = Duration::from_secs(40);
/// Asks the host for every session's snapshot: 28 MB at once.
const FOLLOW: &str = r#"{"ask":"follow"}"#;

/// What the probe printed, and its exit code.
fn probe_at(host: &Host, query: &str, arguments: &[&str]) -> Result<(String, Option<i32>)> {
    let output = Command::new(tools::ackbeat()?)
        .arg("probe")
        .arg(format!("ws://{}{MUX_PATH}{query}", host.address()))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .context("starting the probe failed")?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(text.lines().count() == 1, "{text:?} {}", String::from_utf8_lossy(&output.stderr));
    Ok((text.trim_end().to_owned(), output.status.code()))
}

fn probe(host: &Host, interval: Duration, arguments: &[&str]) -> Result<(String, Option<i32>)> {
    let hint = interval.as_millis().to_string();
    probe_at(host, "", &[arguments, &["--interval-hint", &hint]].concat())
}

fn probe_json_at(host: &Host, query: &str, arguments: &[&str]) -> Result<(Report, Option<i32>)> {
    let (text, code) = probe_at(host, query, &[arguments, &["--json"]].concat())?;
    Ok((serde_json::from_str(&text).with_context(|| text.clone())?, code))
}

fn probe_json(host: &Host, interval: Duration, arguments: &[&str]) -> Result<(Report, Option<i32>)> {
    let hint = interval.as_millis().to_string();
    probe_json_at(host, "", &[arguments, &["--interval-hint", &hint]].concat())
}

/// The host's events of its one client, up to its end.
fn events(host: &Host) -> Result<Vec<HostEvent>> {
    Ok(host.events.wait_for("the host's last event", DEADLINE, |events| {
        let is_closed = events.iter().any(|event| event.what == HostAction::Closed);
        is_closed.then(|| events.to_vec())
    })?)
}

fn times(events: &[HostEvent], is_it: impl Fn(&HostAction) -> bool) -> Vec<u64> {
    events.iter().filter(|event| is_it(&event.what)).map(|event| event.at_ns).collect()
}

const fn is_ping(what: &HostAction) -> bool {
    matches!(what, HostAction::Ping { .. })
}

const fn is_killed(what: &HostAction) -> bool {
    matches!(what, HostAction::Killed { .. })
}

/// The median of the gaps between the host's Pings, in milliseconds.
fn median_gap_ms(events: &[HostEvent]) -> Result<u64> {
    let pings = times(events, is_ping);
    let mut gaps: Vec<u64> = pings.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000).collect();
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().context("the host sent no two Pings")
}

fn is_within(value: Option<u64>, wanted: u64, percent: u64) -> bool {
    value.is_some_and(|value| value.abs_diff(wanted) * 100 <= wanted * percent)
}

/// The watchdog of the main story: it counts to two, so three intervals pass.
fn is_killed_after_three_intervals(interval: Duration) -> Result<()> {
    let interval_ms = u64::try_from(interval.as_millis())?;
    let host = node::start_counting(Ipv4Addr::LOCALHOST.into(), interval, Some(2))?;
    let (text, code) = probe(&host, interval, &[])?;
    let events = events(&host)?;
    let line: Line = text.parse()?;
    ensure!(code == Some(0) && line.result == WireResult::Killed, "{text}");
    ensure!((line.pings, line.close_code, line.text_frames) == (6, None, 0), "{text}");
    ensure!(is_within(line.median_gap_ms, interval_ms, 5), "{text}");
    ensure!(is_within(line.median_gap_ms, median_gap_ms(&events)?, 5), "{text} {events:?}");
    // A timer is never early, and may be late.
    let last_pong_to_close_ms = line.last_pong_to_close_ms.unwrap_or(0);
    ensure!((interval_ms * 29 / 10..interval_ms * 4).contains(&last_pong_to_close_ms), "{text}");
    let last_pong = times(&events, |what| *what == HostAction::Pong).last().copied();
    let killed = times(&events, is_killed).first().copied();
    let of_the_host = killed.context("no kill")? - last_pong.context("no Pong")?;
    ensure!(is_within(Some(last_pong_to_close_ms), of_the_host / 1_000_000, 15), "{text} {events:?}");
    // Four answers, and none after them.
    ensure!(times(&events, |what| *what == HostAction::Pong).len() == 4, "{events:?}");
    Ok(())
}

#[test]
fn a_counting_watchdog_kills_after_three_intervals() -> Result<()> {
    is_killed_after_three_intervals(INTERVAL)
}

#[test]
fn the_watchdog_as_it_was_measured() -> Result<()> {
    is_killed_after_three_intervals(Duration::from_millis(2_000))
}

#[test]
fn a_host_that_never_kills_is_survived() -> Result<()> {
    let host = node::start_counting(Ipv4Addr::LOCALHOST.into(), INTERVAL, None)?;
    let (text, code) = probe(&host, INTERVAL, &["--mute-after", "2"])?;
    let line: Line = text.parse()?;
    ensure!(code == Some(1) && line.result == WireResult::SurvivedMuted, "{text}");
    ensure!(line.last_pong_to_close_ms.is_none() && line.pings > 4, "{text}");
    // Mute for six intervals and a second.
    ensure!(line.since_mute_ms >= Some(3_400), "{text}");
    Ok(())
}

#[test]
fn a_mute_client_that_reads_all_of_the_burst_is_killed_for_its_silence_alone() -> Result<()> {
    // At the interval of the main story: reading 28 MB takes a busy machine a while.
    let host = node::start(None, Ipv4Addr::LOCALHOST.into())?;
    let (report, code) = probe_json(&host, INTERVAL, &["--send", FOLLOW])?;
    events(&host)?;
    ensure!(code == Some(0) && report.line.result == WireResult::Killed, "{report:?}");
    ensure!(report.bytes_read > BURST_BYTES && report.binary_frames == 12, "{report:?}");
    Ok(())
}

#[test]
fn a_slow_reader_is_killed_behind_the_burst() -> Result<()> {
    let host = node::start_counting(Ipv4Addr::LOCALHOST.into(), INTERVAL, Some(2))?;
    let (text, code) = probe(&host, INTERVAL, &["--slow-read", "200000", "--send", FOLLOW])?;
    let events = events(&host)?;
    let line: Line = text.parse()?;
    ensure!(code == Some(0) && line.result == WireResult::KilledSlowReader, "{text}");
    let slow = line.slow_read.context("no slow reading")?;
    ensure!(slow.behind_ms > 1_000 && slow.bytes_read < BURST_BYTES, "{text}");
    ensure!(slow.pongs <= line.pings && line.since_mute_ms.is_none(), "{text}");
    let killed = events.iter().find(|event| is_killed(&event.what));
    let Some(HostAction::Killed { buffered_bytes, .. }) = killed.map(|event| &event.what) else {
        anyhow::bail!("the host did not kill: {events:?}")
    };
    ensure!(*buffered_bytes > 1_000_000, "{events:?}");
    Ok(())
}

#[test]
fn a_slow_reader_that_keeps_up_is_not_killed() -> Result<()> {
    let host = node::start_counting(Ipv4Addr::LOCALHOST.into(), INTERVAL, Some(2))?;
    let (text, code) = probe(&host, INTERVAL, &["--slow-read", "200000"])?;
    let line: Line = text.parse()?;
    ensure!(code == Some(1) && line.result == WireResult::SurvivedSlowReader, "{text}");
    ensure!(line.pings > 4 && line.slow_read.is_some_and(|slow| slow.pongs == line.pings), "{text}");
    Ok(())
}

#[test]
fn the_recipe_of_the_library_ws_kills_after_two_intervals() -> Result<()> {
    let host = Heartbeat::WsReadme { interval: INTERVAL }.start(None, Ipv4Addr::LOCALHOST.into())?;
    let (report, code) = probe_json(&host, INTERVAL, &[])?;
    ensure!(code == Some(0) && report.line.pings == 5, "{report:?}");
    ensure!((760..1_150).contains(&report.line.last_pong_to_close_ms.unwrap_or(0)), "{report:?}");
    Ok(())
}

/// A host of engine.io that waits 600 ms for an answer.
fn engine_io() -> Result<Host> {
    let ping_timeout = Duration::from_millis(600);
    Heartbeat::EngineIo { ping_interval: INTERVAL, ping_timeout }.start(None, Ipv4Addr::LOCALHOST.into())
}

#[test]
fn engine_io_kills_after_interval_and_timeout() -> Result<()> {
    let host = engine_io()?;
    let (report, code) = probe_json(&host, INTERVAL, &["--profile", "engine.io"])?;
    ensure!(code == Some(0) && report.line.result == WireResult::Killed, "{report:?}");
    ensure!(report.profile == Some(HeartbeatProfile::EngineIo) && report.asks == Who::Host, "{report:?}");
    ensure!((report.announced_interval_ms, report.announced_timeout_ms) == (Some(400), Some(600)));
    // Four that were answered and one that was not.
    ensure!((report.line.pings, report.pongs) == (5, 4), "{report:?}");
    // Each interval begins with the answer to the last one: what a busy machine adds, it adds to each.
    ensure!((395..520).contains(&report.line.median_gap_ms.unwrap_or(0)), "{report:?}");
    ensure!((980..1_600).contains(&report.line.last_pong_to_close_ms.unwrap_or(0)), "{report:?}");
    let after_the_ping = report.first_unanswered_ping_to_close_ms.unwrap_or(0);
    ensure!((580..1_200).contains(&after_the_ping), "{report:?}");
    Ok(())
}

#[test]
fn engine_io_is_recognised_by_what_it_says_first() -> Result<()> {
    let host = engine_io()?;
    let query = "?EIO=4&transport=websocket";
    let (report, code) = probe_json_at(&host, query, &["--interval-hint", "400"])?;
    ensure!(code == Some(0) && report.line.result == WireResult::Killed, "{report:?}");
    ensure!(report.profile == Some(HeartbeatProfile::EngineIo), "{report:?}");
    Ok(())
}

#[test]
fn engine_io_3_is_asked_and_kills_who_stops_asking() -> Result<()> {
    let host = engine_io()?;
    let (report, code) = probe_json_at(&host, "?EIO=3", &["--profile", "engine.io", "--mute-after", "3"])?;
    ensure!(code == Some(0) && report.line.result == WireResult::Killed, "{report:?}");
    ensure!(report.asks == Who::Client && (report.pongs, report.line.pings) == (3, 3), "{report:?}");
    ensure!((980..1_900).contains(&report.line.last_pong_to_close_ms.unwrap_or(0)), "{report:?}");
    Ok(())
}

#[test]
fn a_close_frame_of_a_real_library_is_recorded() -> Result<()> {
    let heartbeat = Heartbeat::PythonWebsockets { ping_interval: INTERVAL, ping_timeout: INTERVAL };
    let host = heartbeat.start(None, Ipv4Addr::LOCALHOST.into())?;
    let (report, code) = probe_json(&host, INTERVAL, &["--mute-after", "2"])?;
    ensure!(code == Some(0) && report.line.close_code == Some(1011), "{report:?}");
    let close = report.close.context("no close")?;
    ensure!(close.frame && close.end == Some(End::Fin), "{close:?}");
    ensure!(close.reason.as_deref() == Some("keepalive ping timeout"), "{close:?}");
    Ok(())
}
