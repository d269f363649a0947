//! Shows what ackbeat is for: two kills by the same watchdog, one of a client that was there and one of a client that
//! was gone, and what the sidecar says about each.
#![expect(clippy::print_stdout, reason = "a program for people: its output is its purpose")]

mod table;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ackbeat_tests::mux::{Host, HostAction, HostOptions};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::{spans, story, tools};
use anyhow::{Context, Result};
use clap::Parser;

/// Network namespaces, a mux host with a watchdog, four clients, and the sidecar beside the host.
#[derive(Parser)]
struct Arguments {
    /// The built `ackbeat`; found in the workspace's target directory if not given.
    #[arg(long, value_name = "PATH")]
    ackbeat: Option<PathBuf>,
}

/// Spans come at the latest this long after the kill: the post-mortem and the export.
const SPAN_DEADLINE: Duration = Duration::from_secs(40);

struct Narrator {
    began: Instant,
}

impl Narrator {
    fn say(&self, who: &str, what: &str) {
        println!("{:6.2} s  {who:<8} {what}", self.began.elapsed().as_secs_f64());
    }
}

/// Prints what the host does and what the sidecar logs, until told to stop.
fn follow(narrator: &Narrator, host: &Host, sidecar: &Sidecar, stop: &AtomicBool) {
    let (mut next_event, mut next_line) = (0, 0);
    loop {
        let last_round = stop.load(Ordering::Acquire);
        for event in host.events.read(|events| events.get(next_event..).unwrap_or_default().to_vec()) {
            next_event += 1;
            if let Some(text) = describe(&event.what) {
                narrator.say("host", &format!("port {:>5}: {text}", event.peer_port));
            }
        }
        for line in sidecar.log().get(next_line..).unwrap_or_default() {
            next_line += 1;
            narrator.say("ackbeat", line);
        }
        if last_round {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn describe(action: &HostAction) -> Option<String> {
    Some(match action {
        HostAction::Listening { .. } | HostAction::Closed | HostAction::Pong => return None,
        HostAction::Opened => "WebSocket open".into(),
        HostAction::Ping { missed, buffered_bytes } if *missed > 1 || *buffered_bytes > 0 => {
            format!("Ping queued, missed = {missed}, behind {:.1} MB", megabytes(*buffered_bytes))
        }
        HostAction::Ping { .. } => return None,
        HostAction::Queued { bytes } => format!("{:.1} MB queued in one burst", megabytes(*bytes)),
        HostAction::Killed { missed, buffered_bytes, lifetime_ms, .. } => format!(
            "KILLED by the watchdog: missed = {missed}, lived {lifetime_ms} ms, {:.1} MB never left the host",
            megabytes(*buffered_bytes)
        ),
        HostAction::Closing { code } => format!("Close frame, code {code}"),
        HostAction::FellBack { reason } => format!("decides without the sidecar: {reason}"),
        HostAction::Recovered => "the sidecar answers again".into(),
    })
}

fn megabytes(bytes: u64) -> f64 {
    // Exact below 2^53; this is for people.
    #[expect(clippy::cast_precision_loss, reason = "a figure with one decimal for people")]
    let bytes = bytes as f64;
    bytes / 1e6
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let ackbeat = match arguments.ackbeat {
        Some(path) => path.canonicalize().with_context(|| format!("{} cannot be found", path.display()))?,
        None => tools::ackbeat()?,
    };
    let narrator = Narrator { began: Instant::now() };
    let network = Network::create().context("setting up the network namespaces failed")?;
    narrator.say("demo", "two network namespaces, host and client, and a router between them");
    let host = Host::start(Some(&network.host), HostOptions::new(network.host_address(IpVersion::V4)))?;
    narrator.say(
        "demo",
        &format!("mux host on {}; watchdog: every 2 s, closes when two Pings are unanswered", host.address()),
    );
    let options = SidecarOptions::port(host.address().port()).variable("OTEL_BSP_SCHEDULE_DELAY", "200");
    let sidecar = Sidecar::start_program(&ackbeat, &network.host, &options)?;
    let stop = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| follow(&narrator, &host, &sidecar, &stop));
        let outcome = perform(&narrator, &network, &host, &sidecar);
        stop.store(true, Ordering::Release);
        outcome
    });
    let cast = outcome?;
    let collected = sidecar.stop()?;
    let names = [
        ("healthy", cast.healthy.port()),
        ("slow reader", cast.slow.port()),
        ("cut path", cast.cut.port()),
        ("polite", cast.polite.port()),
    ];
    println!("\n{}", table::render(&names, &collected));
    for (name, port) in names.iter().skip(1) {
        println!("{name} (port {port})\n{}", spans::tree(&collected, *port));
    }
    Ok(())
}

fn perform(narrator: &Narrator, network: &Network, host: &Host, sidecar: &Sidecar) -> Result<story::Cast> {
    let cast = story::play(network, host, |text| narrator.say("demo", text))?;
    narrator.say("demo", "both kills are done; the sidecar watches what the closed sockets still show");
    for client in [&cast.slow, &cast.cut, &cast.polite] {
        sidecar.wait_for_host_close(client.port(), SPAN_DEADLINE)?;
        narrator.say("demo", &format!("the span of port {} is there", client.port()));
    }
    cast.healthy.close(1000, "");
    sidecar.wait_for_connection(cast.healthy.port(), SPAN_DEADLINE)?;
    Ok(cast)
}
