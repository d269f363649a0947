//! Heartbeats that are no control frames: their profile is recognized, their interval learned, and closes that rest on them
//! are described. Nothing else that a message says leaves its connection.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ackbeat_tests::expectations::Expectations;
use ackbeat_tests::mux::{Host, HostAction};
use ackbeat_tests::network::{IpVersion, Network};
use ackbeat_tests::process::Process;
use ackbeat_tests::sidecar::{Sidecar, SidecarOptions};
use ackbeat_tests::{spans, tools};
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::scene::SPAN_DEADLINE;

/// From one question to the next; the libraries' defaults are 15 to 30 s.
const INTERVAL: Duration = Duration::from_millis(1_000);
/// Whoever was not heard for this long is closed. Longer than a busy machine is late.
const TIMEOUT: Duration = Duration::from_millis(4_000);
/// Heartbeats that each pair exchanges before its client stops: enough to prove a profile and to learn an interval.
const HEARTBEATS: usize = 14;
/// A dozen heartbeats, on a busy machine.
const TALK_DEADLINE: Duration = Duration::from_secs(90);
const KILL_DEADLINE: Duration = Duration::from_secs(60);
/// What the clients also say (`tests/node/text-heartbeat-client.mjs`).
const SECRET: &str = "hunter2";

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Host,
    Client,
}

/// A host with a text heartbeat, and one client.
struct Pair {
    kind: &'static str,
    profile: &'static str,
    asker: Asker,
    host: Host,
    client: Option<Process>,
    port: u16,
}

fn node(program: &str, arguments: &[String]) -> Result<Command> {
    let mut command = Command::new("node");
    command.current_dir(tools::node_directory()?).arg(tools::source(&format!("node/{program}")));
    command.args(arguments);
    Ok(command)
}

impl Pair {
    /// Starts the host; [`Pair::connect`] starts the client.
    fn new(network: &Network, kind: &'static str, profile: &'static str, asker: Asker) -> Result<Self> {
        let address = network.host_address(IpVersion::V4);
        let milliseconds = |duration: Duration| duration.as_millis().to_string();
        let times = [milliseconds(INTERVAL), milliseconds(TIMEOUT)];
        let is_library = matches!(kind, "socket.io" | "engine.io-3");
        let (program, mut arguments) = if is_library {
            ("socket-io-host.mjs", vec![address.to_string()])
        } else {
            ("text-heartbeat-host.mjs", vec![kind.to_owned(), address.to_string()])
        };
        arguments.extend(times);
        let process = Process::spawn(program, Some(&network.host), node(program, &arguments)?)?;
        Ok(Self { kind, profile, asker, host: Host::from_process(process, address)?, client: None, port: 0 })
    }

    fn address(&self) -> SocketAddr {
        self.host.address()
    }

    fn connect(&mut self, network: &Network) -> Result<()> {
        let arguments = [self.kind.to_owned(), self.address().to_string(), INTERVAL.as_millis().to_string()];
        let command = node("text-heartbeat-client.mjs", &arguments)?;
        let client = Process::spawn(self.kind, Some(&network.client), command)?;
        self.port = self
            .host
            .events
            .wait_for(&format!("the WebSocket of {}", self.kind), TALK_DEADLINE, |events| {
                events.iter().find(|event| event.what == HostAction::Opened).map(|event| event.peer_port)
            })
            .with_context(|| client.last_words())?;
        self.client = Some(client);
        Ok(())
    }

    /// Waits until the host was answered, or asked, often enough.
    fn talk(&self) -> Result<()> {
        Ok(self.host.events.wait_for(
            &format!("{} heartbeats of {}", HEARTBEATS, self.kind),
            TALK_DEADLINE,
            |events| {
                let heard = |event: &&ackbeat_tests::mux::HostEvent| {
                    event.peer_port == self.port && event.what == HostAction::Pong
                };
                (events.iter().filter(heard).count() >= HEARTBEATS).then_some(())
            },
        )?)
    }

    /// The distance between questions, as who asks counted it: the median, in milliseconds.
    fn true_interval_ms(&self) -> Result<i64> {
        let client = self.client.as_ref().context("the client is not started")?;
        let asked_at: Vec<u64> = match self.asker {
            Asker::Host => self.host.events.read(|events| {
                let asked = |what: &HostAction| matches!(what, HostAction::Ping { .. });
                events
                    .iter()
                    .filter(|event| event.peer_port == self.port && asked(&event.what))
                    .map(|event| event.at_ns)
                    .collect()
            }),
            Asker::Client => client.stdout.read(|lines| {
                let asked = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
                asked
                    .filter(|said| said.get("event").is_some_and(|event| event == "ping"))
                    .filter_map(|said| said.get("at_ns")?.as_u64())
                    .collect()
            }),
        };
        let mut gaps_ms: Vec<u64> =
            asked_at.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) / 1_000_000).collect();
        gaps_ms.sort_unstable();
        let median = gaps_ms.get(gaps_ms.len() / 2).with_context(|| format!("{} asked once", self.kind))?;
        Ok(i64::try_from(*median)?)
    }

    /// The client's process stands still: it neither asks nor answers, and its kernel goes on.
    fn freeze(&mut self) -> Result<()> {
        self.client.as_mut().context("the client is not started")?.signal(Signal::SIGSTOP)
    }
}

/// Options that record into `file` and export at once.
fn watching(pairs: &[Pair], file: &Path, profiles: &str) -> SidecarOptions {
    SidecarOptions {
        ports: pairs.iter().map(|pair| pair.address().port()).collect(),
        ..SidecarOptions::default()
    }
    .variable("OTEL_BSP_SCHEDULE_DELAY", "200")
    .variable("ACKBEAT_HEARTBEAT_PROFILES", profiles)
    .argument("--record", file)
}

/// The profiles and directions of the heartbeats that a recording tells of.
fn recorded(file: &Path) -> Result<Vec<(String, String, String)>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {} failed", file.display()))?;
    let frame = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        let word = |key: &str| Some(line.get(key)?.as_str()?.to_owned());
        (word("input")? == "frame").then_some(())?;
        Some((word("profile")?, word("direction")?, word("kind")?))
    };
    Ok(text.lines().filter_map(frame).filter(|(_, _, kind)| kind != "close").collect())
}

/// Every profile at once, each on a port of its own, and nobody said which speaks what.
#[test]
fn profiles_are_recognized_by_themselves_and_their_closes_described() -> Result<()> {
    let network = Network::create()?;
    let mut pairs = vec![
        Pair::new(&network, "socket.io", "engine.io", Asker::Host)?,
        Pair::new(&network, "engine.io-3", "engine.io", Asker::Client)?,
        Pair::new(&network, "ping-pong", "ping-pong", Asker::Host)?,
        Pair::new(&network, "json", "json", Asker::Client)?,
        Pair::new(&network, "phoenix", "phoenix", Asker::Client)?,
        Pair::new(&network, "phoenix-v1", "phoenix", Asker::Client)?,
        Pair::new(&network, "signalr", "signalr", Asker::Client)?,
    ];
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("heartbeats.jsonl");
    let sidecar = Sidecar::start(&network.host, &watching(&pairs, &file, "auto"))?;
    for pair in &mut pairs {
        pair.connect(&network)?;
    }
    for pair in &pairs {
        pair.talk()?;
    }
    for pair in &mut pairs {
        pair.freeze()?;
    }
    for pair in &pairs {
        pair.host
            .wait_for("kill", pair.port, KILL_DEADLINE, |what| matches!(what, HostAction::Killed { .. }))?;
    }
    let closes: Vec<_> = pairs
        .iter()
        .map(|pair| sidecar.wait_for_host_close(pair.port, SPAN_DEADLINE))
        .collect::<Result<_>>()?;
    let (all, log) = sidecar.stop_with_log()?;
    let frames = recorded(&file)?;
    let mut failures = Vec::new();
    for (pair, close) in pairs.iter().zip(&closes) {
        let interval_ms = pair.true_interval_ms()?;
        let checked = Expectations::of(close)
            .text("ackbeat.heartbeat.source", &["wire"])
            .text("ackbeat.heartbeat.profile", &[pair.profile])
            .number("ackbeat.heartbeat.interval_ms", interval_ms * 95 / 100..=interval_ms * 105 / 100)
            .number("ackbeat.heartbeat.missed", 1..=i64::MAX)
            .text("ackbeat.close.initiator", &["host"])
            .text("ackbeat.close.kind", &["heartbeat_kill"])
            .check(pair.kind);
        failures.extend(checked.err().map(|error| format!("{error}\n{}", spans::tree(&all, pair.port))));
        let passed = frames.iter().filter(|(profile, ..)| profile == pair.profile).count();
        if passed < HEARTBEATS {
            failures.push(format!("{passed} heartbeats of {} were recorded", pair.kind));
        }
    }
    ensure!(failures.is_empty(), "{}\n{log:#?}", failures.join("\n"));
    // The words of the application: not in the log, not in a span, not in the recording.
    let recording = std::fs::read_to_string(&file)?;
    ensure!(!recording.contains(SECRET), "the recording tells what the application said");
    ensure!(!log.iter().any(|line| line.contains(SECRET)), "the log tells what the application said");
    ensure!(!all.iter().any(|span| format!("{span:?}").contains(SECRET)), "a span tells it");
    Ok(())
}

/// A heartbeat that the settings describe needs no proof, and no other profile is looked for.
#[test]
fn a_heartbeat_of_the_settings_counts_from_the_first() -> Result<()> {
    let network = Network::create()?;
    let mut pairs = vec![
        Pair::new(&network, "custom", "custom", Asker::Host)?,
        Pair::new(&network, "json", "json", Asker::Client)?,
    ];
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("heartbeats.jsonl");
    let options = watching(&pairs, &file, "custom")
        .variable("ACKBEAT_HEARTBEAT_CUSTOM_QUESTION", "beat?")
        .variable("ACKBEAT_HEARTBEAT_CUSTOM_ANSWER", "beat!")
        .variable("ACKBEAT_HEARTBEAT_CUSTOM_MATCH", "prefix")
        .variable("ACKBEAT_HEARTBEAT_CUSTOM_ASKED_BY", "host");
    let sidecar = Sidecar::start(&network.host, &options)?;
    for pair in &mut pairs {
        pair.connect(&network)?;
    }
    for pair in &pairs {
        pair.talk()?;
    }
    pairs[0].freeze()?;
    pairs[0]
        .host
        .wait_for("kill", pairs[0].port, KILL_DEADLINE, |what| matches!(what, HostAction::Killed { .. }))?;
    let close = sidecar.wait_for_host_close(pairs[0].port, SPAN_DEADLINE)?;
    let all = sidecar.stop()?;
    let interval_ms = pairs[0].true_interval_ms()?;
    Expectations::of(&close)
        .text("ackbeat.heartbeat.profile", &["custom"])
        .number("ackbeat.heartbeat.interval_ms", interval_ms * 95 / 100..=interval_ms * 105 / 100)
        .text("ackbeat.close.kind", &["heartbeat_kill"])
        .check("the client of a heartbeat that the settings describe")
        .with_context(|| spans::tree(&all, pairs[0].port))?;
    let frames = recorded(&file)?;
    ensure!(frames.iter().all(|(profile, ..)| profile == "custom"), "{frames:?}");
    let of = |direction: &str, kind: &str| {
        frames.iter().filter(|(_, way, what)| way == direction && what == kind).count()
    };
    // From the first on: the host's questions go out, the client's answers come in.
    ensure!(of("egress", "ping") >= HEARTBEATS && of("ingress", "pong") >= HEARTBEATS, "{frames:?}");
    ensure!(of("ingress", "ping") + of("egress", "pong") == 0, "{frames:?}");
    Ok(())
}

/// Without the setting no data frame is read.
#[test]
fn nothing_is_read_unless_it_is_asked_for() -> Result<()> {
    let network = Network::create()?;
    let mut pairs = vec![Pair::new(&network, "ping-pong", "ping-pong", Asker::Host)?];
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("heartbeats.jsonl");
    let sidecar = Sidecar::start(&network.host, &watching(&pairs, &file, "off"))?;
    pairs[0].connect(&network)?;
    pairs[0].talk()?;
    sidecar.stop()?;
    ensure!(recorded(&file)?.is_empty(), "{:?}", recorded(&file)?);
    Ok(())
}
