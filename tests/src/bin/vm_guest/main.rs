//! What the rank `vm` runs on each kernel. In a virtual machine it is the kernel's first program: it makes the machine usable
//! and starts itself again; that second process tests the sidecar and says what came of it, one JSON object a line, on the
//! second serial port. The console is the first. On a machine that runs already it is the second process alone.
//!
//! | module | what |
//! |---|---|
//! | `init` | mounts, the first process |
//! | `results` | the second serial port, or a file |
//! | `programs` | `ackbeat check`: which kernel programs load and attach |
//! | `degraded` | which signals each kernel is known to lack |

mod degraded;
mod init;
mod programs;
mod results;

use std::time::Duration;

use ackbeat_tests::api::ApiClient;
use ackbeat_tests::mux::{Host, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::spans::Span;
use ackbeat_tests::story_spans::{self, Ends};
use ackbeat_tests::{socket_statistics, story};
use anyhow::{Context, Result};
use serde::Deserialize;

use results::Results;

/// Translated instructions load the programs slowly, more so in a build without optimisation.
const READY_DEADLINE: Duration = Duration::from_secs(240);
/// How often the story is played on a machine that stands still meanwhile.
const TRIES: u32 = 3;

fn main() -> Result<()> {
    if std::process::id() == 1 {
        return init::run();
    }
    let mut results = Results::open()?;
    let release = init::release()?;
    results.say("boots", Ok("yes".to_owned()))?;
    results.say("programs", programs::check())?;
    results.say("offsets", offsets())?;
    let mut readiness = None;
    let told = tell_again(&mut readiness);
    results.say("story", told)?;
    let mode = readiness.as_ref().map_or_else(|| "none".to_owned(), |found| found.mode.clone());
    let found = readiness.context("the sidecar did not get ready");
    results.say("degraded", found.and_then(|found| degraded::check(&release, &found)))?;
    results.end(&mode)
}

/// The kernel's figures are those that `ss` shows.
fn offsets() -> Result<String> {
    let figures = socket_statistics::compare_standing_sockets(
        &[IpVersion::V4, IpVersion::V6],
        SidecarOptions::default().ready_within(READY_DEADLINE),
    )?;
    Ok(format!("{figures} of {figures} figures"))
}

/// `GET /readyz`.
#[derive(Clone, Debug, Deserialize)]
struct Readiness {
    mode: String,
    missing_signals: Vec<String>,
}

/// Plays the story again where the machine stood still: instructions that are translated on a busy machine come late by parts
/// of a second, and then the sidecar judges nobody.
fn tell_again(readiness: &mut Option<Readiness>) -> Result<String> {
    let mut tried = 1;
    loop {
        let (ends, outcome) = tell(readiness)?;
        match outcome {
            Err(_) if ends.stood_still() && tried < TRIES => tried += 1,
            Ok(summary) if tried > 1 => return Ok(format!("{summary} (try {tried})")),
            outcome => return outcome,
        }
    }
}

/// The main story, with the expectations of the mode that the sidecar is in.
fn tell(readiness: &mut Option<Readiness>) -> Result<(Ends, Result<String>)> {
    let network = Network::create()?;
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    let options = SidecarOptions::port(host.address().port())
        .variable("OTEL_BSP_SCHEDULE_DELAY", "200")
        .ready_within(READY_DEADLINE);
    let sidecar = Sidecar::start(&network.host, &options)?;
    let body = ApiClient::of(&network.host)?.wait_until_ready()?;
    let found: Readiness = serde_json::from_str(&body).with_context(|| format!("/readyz: {body}"))?;
    let found = readiness.insert(found).clone();
    let cast = story::play(&network, &host, |_| {})?;
    let ends = story_spans::collect(sidecar, &cast)?;
    let sees_heartbeats =
        found.mode == "ebpf" && !found.missing_signals.iter().any(|signal| signal == "heartbeats");
    let outcome = if sees_heartbeats {
        ends.check_in_small(host.pid())
    } else {
        ends.check_without_heartbeats(&found.mode)
    };
    let word = |span: &Span| span.text("ackbeat.kill.assessment").unwrap_or("unknown").to_owned();
    let summary = format!("slow: {}, cut: {}", word(&ends.slow), word(&ends.cut));
    Ok((ends, outcome.map(|()| summary)))
}
